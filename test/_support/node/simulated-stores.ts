import type { Environment } from '../../../src/base/environment/environment.js';
import { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import type { SimProcess } from '../../../src/sim/world/sim-process.js';
import { metricOf } from '../metrics/metric-of.js';
import type { TestWorld } from '../simulated.js';
import { content } from '../support.js';
import { verifiedEnd } from '../verified.js';

export const HEARTBEAT_S = 0.2;
export const TTL_S = 1;
export const PAGE_BYTES = 4096;
export const PORT = 31_990;
/** Default address of a cluster's discovery master. */
const HEAD = '10.0.0.1';

/** A store with its process and its metrics. */
export type SimStore = MeshCacheStore & {
  readonly process: SimProcess;
  readonly metric: (name: string, labels?: Readonly<Record<string, string>>) => Promise<number>;
};

export interface StoreSetup {
  /** Address of its host; default: a host of its own. */
  readonly host?: string | undefined;
  /** Listed discovery addresses. */
  readonly addr?: string;
  /** Settings that override its configuration. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Parts that override its environment. */
  readonly env?: Partial<Environment>;
}

/** Starts a store in a process of its own. It verifies itself before it is closed, at the latest with the world. */
export async function startStore(
  world: TestWorld,
  { host, addr = `${HEAD}:${PORT}`, config, env }: StoreSetup = {},
): Promise<SimStore> {
  const process = world.process(host);
  const extraConfig = {
    discovery_addr: addr,
    local_hostname: process.host.address,
    allow_unauthenticated: true,
    protocol: 'tcp',
    global_segment_size: '16mb',
    heartbeat_interval: HEARTBEAT_S,
    member_ttl: TTL_S,
    reuse_quarantine_ms: 50,
    metrics_enabled: false,
    ...config,
  };
  const ranks = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, modelName: 'test' };
  // The store counts by itself.
  const surroundings = { ...process.environment, metrics: undefined, ...env };
  const store = await process.run(() => MeshCacheStore.create({ ...ranks, extraConfig }, surroundings));
  const close = store.close.bind(store);
  store.close = () => verifiedEnd([store], close);
  world.atEnd(process, () => store.close());
  // Some metrics read the machine.
  const metric: SimStore['metric'] = (name, labels) => world.outside(metricOf(store, name, labels));
  return Object.assign(store, { process, metric });
}

/** Starts `count` stores of one cluster, and waits until all see each other. */
export async function startCluster(
  world: TestWorld,
  count: number,
  config: Readonly<Record<string, unknown>> = {},
): Promise<SimStore[]> {
  const stores: SimStore[] = [];
  for (let i = 0; i < count; i++) stores.push(await startStore(world, { config }));
  await world.until(() => stores.every((store) => store.stats().members === count));
  return stores;
}

/** Starts a store that sets `keys` and then only lives, with its process, which a test kills or stops. */
export async function startHolder(
  world: TestWorld,
  { keys, ...setup }: StoreSetup & { readonly keys: readonly string[] },
): Promise<{ readonly process: SimProcess; readonly nodeId: string }> {
  const store = await startStore(world, setup);
  for (const [i, key] of keys.entries()) await store.set(key, content(i, PAGE_BYTES));
  return { process: store.process, nodeId: store.runtime.nodeId };
}
