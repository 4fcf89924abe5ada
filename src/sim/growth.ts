import { HostRegion } from '../memory/host-region.js';
import { MeshCacheStore } from '../node/meshcache-store.js';
import { forkedRandom, fraction } from './world/kernel/seeds.js';
import type { SimHost } from './world/sim-host.js';
import type { SimProcess } from './world/sim-process.js';
import { World } from './world/world.js';

const MASTER_PORT = 6000;
const MASTERS_COUNT = 3;
/** Name that resolves to the addresses of all nodes. */
const GROWTH_NAME = 'nodes.test';
/** Bytes of a page. Small, because only the control plane is measured, which carries no pages. */
const PAGE_BYTES = 64;

interface GrowthNodeOptions {
  readonly number: number;
  readonly pages: number;
  /** Whether its pages are named entries instead of computed pages. */
  readonly isNamed: boolean;
  /** Where it finds the other nodes. */
  readonly discovery: 'list' | 'dns' | 'etcd';
}

/** One node of a cluster whose growth is measured: a store with its pages on its own host. */
class GrowthNode {
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

  /** Sets all pages from the same memory. */
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

function hostNameOf(number: number): string {
  return `host-${number}`;
}

interface GrowthOptions {
  readonly nodes: number;
  readonly seed: number;
  /** Pages that every node sets when it has joined. */
  readonly pagesPerNode: number;
  /** Whether the pages are named entries, of one content each; default: computed pages. */
  readonly isNamed?: boolean | undefined;
  /** Where nodes find each other; default: a list of three addresses. */
  readonly discovery?: GrowthDiscovery | undefined;
  /** Virtual seconds of the phase in which nothing happens. */
  readonly restS: number;
  /** Called when a phase is over. */
  readonly onPhase?: ((phase: GrowthPhase) => void) | undefined;
}

/** Where the nodes of a growing cluster find each other. */
export const GROWTH_DISCOVERY = ['list', 'dns', 'etcd'] as const;
export type GrowthDiscovery = (typeof GROWTH_DISCOVERY)[number];

/** Resources of the real machine that the simulation uses; only the report reads them. */
interface Machine {
  realMs(): number;
  heapBytes(): number;
}

/** Cost of one change of a cluster, until every node knew of it and pages were found again. */
export interface GrowthPhase {
  readonly nodes: number;
  readonly name: 'join' | 'rest' | 'outage' | 'kill' | 'return' | 'rolling restart';
  /** Virtual seconds of the phase. */
  readonly seconds: number;
  /** Virtual seconds after the change until all live nodes knew each other; null: not in time. */
  readonly knownS: number | null;
  /** Virtual seconds after the change until a sample of their pages was found; null: not in time. */
  readonly foundS: number | null;
  /** Messages of a node in both directions: the mean of all nodes, and the most of one node, which is a master. */
  readonly messages: Share;
  readonly bytes: Share;
  /** Requests to DNS or etcd by all nodes together, by method, and changes that etcd has sent to watchers (`event`). */
  readonly source: Readonly<Record<string, number>>;
  /** Events of the simulated world per node: messages, timers, ticks of its event loop. */
  readonly eventsPerNode: number;
  /** Heap of this process at the end of the phase, divided by the number of nodes. */
  readonly heapMbPerNode: number;
  /** Real seconds that the phase took. */
  readonly realS: number;
}

interface Share {
  readonly perNode: number;
  readonly most: number;
}

/** Nodes that start together each start at a random time within this period. */
const START_STRETCH_MS = 1_000;
/** How long the source of addresses is down, and how long the phase goes on afterwards. */
const OUTAGE_MS = 60_000;
const LOOK_EVERY_MS = 250;
const LOOK_MAX_MS = 300_000;
/** Nodes that look for pages, each for READ_KEYS_COUNT pages of random nodes. */
const READERS_COUNT = 8;
const READ_KEYS_COUNT = 256;
/** Share of the nodes that a rolling restart restarts together. Each wave is followed by a pause. */
const WAVE_FRACTION = 1 / 50;
const WAVE_PAUSE_MS = 1_000;

/**
 * A cluster of many nodes on virtual time: all join at once and rest, a tenth is killed and comes back, and all are
 * restarted in waves. If nodes find each other by DNS or etcd, that source fails for a while after the rest.
 */
export class Growth {
  readonly #options: GrowthOptions;
  readonly #world: World;
  readonly #nodes: readonly GrowthNode[];
  readonly #phases: GrowthPhase[] = [];
  readonly #machine: Machine;

  constructor(options: GrowthOptions, machine: Machine) {
    this.#options = options;
    this.#machine = machine;
    this.#world = new World({ seed: options.seed, logLevel: 'error' });
    this.#nodes = Array.from({ length: options.nodes }, (_, i) => {
      const host = this.#world.host({ name: hostNameOf(i + 1), memoryBytes: 64 * 2 ** 30 });
      const { pagesPerNode: pages, isNamed = false, discovery = 'list' } = options;
      return new GrowthNode(host, { number: i + 1, pages, isNamed, discovery });
    });
    this.#world.names.set(
      GROWTH_NAME,
      this.#nodes.map(({ host }) => host.address),
    );
  }

  /** Hash of all events so far. */
  get hash(): string {
    return this.#world.hash;
  }

  async run(): Promise<readonly GrowthPhase[]> {
    const random = forkedRandom(this.#options.seed, 'growth');
    const tenth = this.#nodes.filter((node) => node.number > 3 && node.number % 10 === 0);
    await this.#phase('join', () => this.#startAll(this.#nodes, random));
    await this.#phase('rest', () => this.#sleep(this.#options.restS * 1000));
    if (this.#options.discovery !== undefined && this.#options.discovery !== 'list') {
      await this.#phase('outage', () => this.#outage());
    }
    await this.#phase('kill', async () => {
      for (const node of tenth) node.kill();
    });
    await this.#phase('return', () => this.#startAll(tenth, random));
    await this.#phase('rolling restart', () => this.#restartAll());
    await this.#world.complete(Promise.all(this.#nodes.map((node) => node.close())));
    this.#world.close();
    return this.#phases;
  }

  async #phase(name: GrowthPhase['name'], change: () => Promise<unknown>): Promise<void> {
    const { nodes, onPhase } = this.#options;
    const startMs = this.#world.nowMs;
    const realMs = this.#machine.realMs();
    const events = this.#world.eventsCount;
    const before = this.#nodes.map((node) => trafficOf(node));
    const { etcd, names } = this.#world;
    const asked = new Map(etcd.counts);
    const questions = names.questions;
    await this.#world.complete(change(), 24 * 3_600_000);
    const changedMs = this.#world.nowMs;
    const knownMs = await this.#until(() => this.#isKnown());
    const foundMs = await this.#until(() => this.#isFound());
    const spent = this.#nodes.map((node, i) => difference(trafficOf(node), before[i] as Traffic));
    const phase: GrowthPhase = {
      nodes,
      name,
      seconds: (this.#world.nowMs - startMs) / 1000,
      knownS: knownMs === null ? null : Math.max(0, knownMs - changedMs) / 1000,
      foundS: foundMs === null ? null : Math.max(0, foundMs - changedMs) / 1000,
      messages: shareOf(spent.map(({ messages }) => messages)),
      bytes: shareOf(spent.map(({ bytes }) => bytes)),
      source: {
        ...(names.questions > questions ? { dns: names.questions - questions } : {}),
        ...Object.fromEntries([...etcd.counts].map(([method, count]) => [method, count - (asked.get(method) ?? 0)])),
      },
      eventsPerNode: (this.#world.eventsCount - events) / nodes,
      heapMbPerNode: this.#machine.heapBytes() / nodes / 2 ** 20,
      realS: (this.#machine.realMs() - realMs) / 1000,
    };
    this.#phases.push(phase);
    onPhase?.(phase);
  }

  async #outage(): Promise<void> {
    const { etcd, names } = this.#world;
    const ends = [etcd.fail('down'), names.fail('down')];
    await this.#sleep(OUTAGE_MS);
    for (const end of ends) end();
    await this.#sleep(OUTAGE_MS);
  }

  async #startAll(nodes: readonly GrowthNode[], random: ReturnType<typeof forkedRandom>): Promise<void> {
    await Promise.all(
      nodes.map(async (node) => {
        await this.#sleep(fraction(random) * START_STRETCH_MS);
        await node.start();
      }),
    );
  }

  async #restartAll(): Promise<void> {
    const wave = Math.max(1, Math.round(this.#nodes.length * WAVE_FRACTION));
    for (let start = 0; start < this.#nodes.length; start += wave) {
      const nodes = this.#nodes.slice(start, start + wave);
      await Promise.all(nodes.map((node) => node.close()));
      await Promise.all(nodes.map((node) => node.start()));
      await this.#sleep(WAVE_PAUSE_MS);
    }
  }

  /** The time when the condition was first found true, checked at intervals; null if not in time. */
  async #until(test: () => boolean | Promise<boolean>): Promise<number | null> {
    const untilMs = this.#world.nowMs + LOOK_MAX_MS;
    while (this.#world.nowMs < untilMs) {
      if (await this.#world.complete(Promise.resolve(test()))) return this.#world.nowMs;
      await this.#world.runFor(LOOK_EVERY_MS);
    }
    return null;
  }

  #isKnown(): boolean {
    const live = this.#nodes.filter(({ isUp }) => isUp);
    return live.every(({ members }) => members === live.length);
  }

  /** Whether random nodes find random pages of each other; the choice changes with the time. */
  async #isFound(): Promise<boolean> {
    const live = this.#nodes.filter(({ isUp }) => isUp);
    const random = forkedRandom(this.#options.seed, `readers ${this.#world.nowMs}`);
    const pick = <T>(items: readonly T[]): T => items[random.u32() % items.length] as T;
    const keys = Array.from({ length: READ_KEYS_COUNT }, () => pick(pick(live).keys));
    const readers = Array.from({ length: READERS_COUNT }, () => pick(live));
    const found = await Promise.all(readers.map((node) => node.found(keys)));
    return found.every((count) => count === keys.length);
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#world.at(this.#world.nowMs + ms, resolve));
  }
}

interface Traffic {
  readonly messages: number;
  readonly bytes: number;
}

/** Messages and bytes of a node, sent and received on all planes. */
function trafficOf(node: GrowthNode): Traffic {
  let messages = 0;
  let bytes = 0;
  for (const plane of node.host.network.traffic.values()) {
    messages += plane.sentMessages + plane.receivedMessages;
    bytes += plane.sentBytes + plane.receivedBytes;
  }
  return { messages, bytes };
}

function difference(after: Traffic, before: Traffic): Traffic {
  return { messages: after.messages - before.messages, bytes: after.bytes - before.bytes };
}

function shareOf(values: readonly number[]): Share {
  return { perNode: values.reduce((sum, value) => sum + value, 0) / values.length, most: Math.max(...values) };
}
