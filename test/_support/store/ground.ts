import { HybridClock } from '../../../src/base/concurrency/hybrid-clock.js';
import { silentLogger } from '../../../src/base/environment/log.js';
import { noMetrics } from '../../../src/base/environment/metrics-sink.js';
import type { DirectoryClient } from '../../../src/directory/client.js';
import { KnownClears } from '../../../src/directory/shard/known-clears.js';
import { PageLimits } from '../../../src/pool/tenants/page-limits.js';
import { PageFeed } from '../../../src/store/call/page-feed.js';
import type { AskedPages } from '../../../src/store/ground/other-holders.js';
import type { Cluster, StoreGround } from '../../../src/store/ground/store-ground.js';
import { systemClock } from '../../../src/system/system-clock.js';

/** What a test says of its ground; the rest is that of a node alone, on which nothing goes wrong. */
export interface GroundParts
  extends Partial<Omit<StoreGround, 'cluster' | 'directory' | 'transport' | 'settling' | 'disk' | 'metrics'>> {
  /** Methods of the directory that the test needs. */
  readonly directory?: Partial<Pick<DirectoryClient, keyof DirectoryClient>>;
  readonly transport?: object;
  readonly disk?: object | undefined;
  readonly metrics?: object;
  readonly cluster?: Partial<Cluster>;
  readonly isSettled?: boolean;
}

/** The ground of parts of a store that a test makes by itself. */
export function groundOf({ cluster, isSettled = true, ...parts }: GroundParts): StoreGround {
  const { clock = systemClock } = parts;
  const versions = parts.versions ?? new HybridClock(clock);
  const transport: { localEndpoint?: () => string } = parts.transport ?? {};
  transport.localEndpoint ??= () => '127.0.0.1:1';
  const node = {
    nodeId: 'self',
    incarnation: 1,
    directory: parts.directory,
    transport,
    versions,
    holders: { ask: async (_node: string, { keys }: AskedPages) => keys.map(() => 'absent'), release() {} },
    notices: { unreadable() {} },
    clears: { known: new KnownClears(), clear: async () => {} },
    drops: { deleteEverywhere: async (keys: readonly string[]) => keys.map(() => true), dropFrom() {} },
    members: () => new Map([['self', {}]]),
    waitForDirectory: async () => true,
    dataEndpointOf: () => '127.0.0.1:1',
    unreachableNodes: () => [],
    distances: () => undefined,
    ...cluster,
  };
  return {
    ...{ clock, versions, log: silentLogger, metrics: noMetrics, feed: new PageFeed(), disk: undefined },
    ...(parts.pool === undefined ? {} : { limits: new PageLimits(parts.pool) }),
    pins: { has: () => false },
    settling: { isSettled, hasHeard: isSettled },
    config: { verifyReads: true, reuseQuarantineMs: 1000, locationReuseMs: 0, keepDuplicates: false },
    ...parts,
    cluster: node,
    transport,
  } as unknown as StoreGround;
}
