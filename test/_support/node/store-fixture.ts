import type { Clock } from '../../../src/base/environment/clock.js';
import type { Environment } from '../../../src/base/environment/environment.js';
import { silentLogger } from '../../../src/base/environment/log.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import type { HostMemPool } from '../../../src/store/namespace/host-pool.js';
import { patientClock } from '../patient-clock.js';
import { freePort, until } from '../support.js';
import { verifiedEnd } from '../verified.js';

/** The environment of a store that logs nothing. */
export const quiet = { log: silentLogger, clock: patientClock };

/** What a host framework gives a store on loopback with a small pool; `extra` overrides its configuration. */
export function storageOf(discoveryPort: number, extra: Record<string, unknown> = {}) {
  return {
    tpRank: 0,
    tpSize: 1,
    ppRank: 0,
    ppSize: 1,
    isMlaModel: false,
    modelName: 'test',
    extraConfig: {
      discovery_addr: `127.0.0.1:${discoveryPort}`,
      protocol: 'tcp',
      global_segment_size: '16mb',
      heartbeat_interval: 0.2,
      // Longer than many stores in one process can keep it from running, so that none takes the others for dead.
      member_ttl: 3,
      metrics_enabled: false,
      reuse_quarantine_ms: 50,
      ...extra,
    },
  };
}

/**
 * Creates a store on loopback with a small pool, which verifies itself before it is closed; `extra` overrides its
 * configuration.
 */
export async function createStore(
  discoveryPort: number,
  extra: Record<string, unknown> = {},
  clock: Clock = patientClock,
  simulated: Environment['simulated'] = undefined,
): Promise<MeshCacheStore> {
  const store = await MeshCacheStore.create(storageOf(discoveryPort, extra), { log: silentLogger, clock, simulated });
  const close = store.close.bind(store);
  store.close = () => verifiedEnd([store], close);
  return store;
}

/** Creates `count` stores of one cluster, and waits until all see each other. */
export async function createCluster(
  count: number,
  extra: Record<string, unknown> = {},
  simulated: Environment['simulated'] = undefined,
): Promise<MeshCacheStore[]> {
  const port = await freePort();
  const stores: MeshCacheStore[] = [];
  for (let i = 0; i < count; i++) stores.push(await createStore(port, extra, patientClock, simulated));
  await until(() => stores.every((store) => store.stats().members === count));
  return stores;
}

/** A framework's host buffer: `components` areas of one part of each page, one after the other. */
export class TestHostPool implements HostMemPool {
  readonly region: HostRegion;

  constructor(
    readonly pages: number,
    readonly componentBytes: number,
    readonly components: number,
    readonly pageSize = 1,
  ) {
    this.region = HostRegion.allocate(pages * componentBytes * components);
  }

  getPageBufferMeta(hostIndices: ArrayLike<number | bigint>): { ptrs: bigint[]; sizes: number[] } {
    const ptrs: bigint[] = [];
    const sizes: number[] = [];
    for (let i = 0; i < hostIndices.length; i += this.pageSize) {
      const page = Number(hostIndices[i]) / this.pageSize;
      for (let c = 0; c < this.components; c++) {
        ptrs.push(this.region.addr + BigInt(this.#offset(page, c)));
        sizes.push(this.componentBytes);
      }
    }
    return { ptrs, sizes };
  }

  component(page: number, c: number): Uint8Array {
    return this.region.bytes(this.#offset(page, c), this.componentBytes);
  }

  /** Indices of the pages `first` to `first + count - 1`, one for each token. */
  indices(first: number, count: number): number[] {
    return Array.from({ length: count * this.pageSize }, (_, i) => first * this.pageSize + i);
  }

  #offset(page: number, c: number): number {
    return (c * this.pages + page) * this.componentBytes;
  }
}
