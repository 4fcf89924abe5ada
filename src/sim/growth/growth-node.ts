import { HostRegion } from '../../memory/host-region.js';
import { MeshCacheStore } from '../../node/meshcache-store.js';
import type { SimHost } from '../world/sim-host.js';
import type { SimProcess } from '../world/sim-process.js';

const MASTER_PORT = 6000;
const MASTERS_COUNT = 3;
/** Name whose addresses are those of all nodes. */
export const GROWTH_NAME = 'nodes.test';
/** Bytes of a page: few, as the control plane, which is measured, does not see pages. */
const PAGE_BYTES = 64;

export interface GrowthNodeOptions {
  readonly number: number;
  readonly pages: number;
  /** Whether its pages are named entries; else they are computed. */
  readonly isNamed: boolean;
  /** Where it finds the others. */
  readonly discovery: 'list' | 'dns' | 'etcd';
}

/** One node of a cluster whose growth is measured: a store with its pages, on a host of its own. */
export class GrowthNode {
  readonly number: number;
  readonly keys: readonly string[];
  readonly host: SimHost;
  readonly #isNamed: boolean;
  readonly #discovery: GrowthNodeOptions['discovery'];
  #process: SimProcess | undefined;
  #store: MeshCacheStore | undefined;

  constructor(host: SimHost, { number, pages, isNamed, discovery }: GrowthNodeOptions) {
    this.host = host;
    this.number = number;
    this.#isNamed = isNamed;
    this.#discovery = discovery;
    this.keys = Array.from({ length: pages }, (_, i) => `page ${i} of node ${number}`.padEnd(64, '.'));
  }

  get store(): MeshCacheStore | undefined {
    return this.#store;
  }

  get isUp(): boolean {
    return this.#store !== undefined;
  }

  /** Number of members that this node knows, itself included. */
  get members(): number {
    return this.#store?.runtime.members().size ?? 0;
  }

  /** Resolves when the node is a member and its pages are set. */
  async start(): Promise<void> {
    const process = this.host.start();
    this.#process = process;
    await process.run(async () => {
      const store = await MeshCacheStore.create(this.#config(), process.environment);
      await this.#setPages(store);
      this.#store = store;
    });
  }

  /** Kills the node's process. */
  kill(): void {
    this.#process?.kill();
    this.#process = undefined;
    this.#store = undefined;
  }

  /** Leaves the cluster in order and ends. */
  async close(): Promise<void> {
    const store = this.#store;
    this.#store = undefined;
    await this.#process?.run(() => store?.close());
    this.#process?.kill();
    this.#process = undefined;
  }

  /** The number of keys that this node finds before the first that it does not. */
  async found(keys: string[]): Promise<number> {
    const store = this.#store;
    if (store === undefined) return 0;
    return (await this.#process?.run(() => store.batchExists(keys))) ?? 0;
  }

  /** Sets all pages from one page of memory. */
  async #setPages(store: MeshCacheStore): Promise<void> {
    const region = HostRegion.allocate(PAGE_BYTES);
    try {
      await store.registerMemPoolHost({
        region,
        getPageBufferMeta: ({ length }) => ({
          ptrs: new Array<bigint>(length).fill(region.addr),
          sizes: new Array<number>(length).fill(PAGE_BYTES),
        }),
      });
      const slots = this.keys.map(() => 0);
      if (this.#isNamed)
        await store.batchSet(
          [...this.keys],
          slots.map(() => region.addr),
          slots.map(() => PAGE_BYTES),
        );
      else await store.batchSetV1([...this.keys], slots);
    } finally {
      region.free();
    }
  }

  #config() {
    const masters = Array.from({ length: MASTERS_COUNT }, (_, i) => `${hostNameOf(i + 1)}:${MASTER_PORT}`);
    const addr = {
      list: masters.join(','),
      dns: `dns://${GROWTH_NAME}:${MASTER_PORT}`,
      etcd: 'etcd://10.255.0.1:2379',
    }[this.#discovery];
    const extraConfig = {
      protocol: 'tcp',
      discovery_addr: addr,
      discovery_port: MASTER_PORT,
      node_id: `node-${this.number}`,
      local_hostname: this.#discovery === 'list' ? this.host.name : this.host.address,
      control_port: 7000,
      tcp_port: 8000,
      global_segment_size: Math.max(64, 2 * this.keys.length) * PAGE_BYTES,
      metrics_enabled: false,
      allow_unauthenticated: true,
    };
    return { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, modelName: 'growth', extraConfig };
  }
}

export function hostNameOf(number: number): string {
  return `host-${number}`;
}
