import { PAGE_MAP_MAX_NODES, POOL_TENANTS_MAX_COUNT } from '../../base/core-limits.js';
import { MeshCacheError } from '../../base/errors.js';
import type { EvictionPolicy } from '../../base/settings/eviction-policy.js';
import { PRIORITY_NUMBERS } from './page-priority.js';

/**
 * The whole contract with the WASM module (`assembly/index.ts` documents each call). Addresses and handles are byte
 * addresses in `memory`; u32 and i32 arrive as JavaScript's signed 32-bit integers.
 */
export interface CoreExports {
  readonly memory: WebAssembly.Memory;
  readonly CORE_VERSION: WebAssembly.Global;
  readonly NO_INDEX: WebAssembly.Global;
  readonly STATS_COUNT: WebAssembly.Global;
  readonly TENANT_STATS_COUNT: WebAssembly.Global;
  readonly TENANTS_MAX: WebAssembly.Global;
  readonly PAGE_MAP_NODES: WebAssembly.Global;
  readonly POLICY_LRU: WebAssembly.Global;
  readonly POLICY_S3FIFO: WebAssembly.Global;
  readonly POLICY_YIELD: WebAssembly.Global;
  readonly PRIORITY_NORMAL: WebAssembly.Global;
  readonly PRIORITY_LOW: WebAssembly.Global;
  readonly PRIORITY_HIGH: WebAssembly.Global;
  allocate(bytes: number): number;
  release(address: number): void;
  hashBatch(keys: number, lengths: number, count: number, seedLow: number, seedHigh: number, out: number): void;
  digestBatch(keys: number, lengths: number, count: number, out: number): void;
  digestKeys(keys: number, lengths: number, count: number, out: number): void;
  placeKeys(keys: number, lengths: number, count: number, out: number): void;
  mapNew(): number;
  mapSetRank(map: number, node: number, rank: number): void;
  mapNoteBatch(map: number, marks: number, count: number, node: number): number;
  mapRemoveNode(map: number, node: number, part: number): number;
  mapNodesBatch(map: number, positions: number, count: number, out: number): void;
  mapEntries(map: number): number;
  mapBytes(map: number): number;
  mapIsConsistent(map: number): number;
  mapFree(map: number): void;
  ringNew(vnodes: number): number;
  ringSetNodes(ring: number, ids: number, lengths: number, count: number): void;
  ringSetZones(ring: number, zoneOf: number, zones: number): void;
  ringOwner(ring: number, key: number, bytes: number): number;
  ringOwnersBatch(ring: number, positions: number, count: number, owners: number, isPlain: number, out: number): void;
  ringFree(ring: number): void;
  poolNew(capacityBytes: number, segmentBytes: number, alignmentBytes: number, policy: number): number;
  poolSetQuarantine(pool: number, quarantineMs: number, maxBytes: number, neverReuseEarly: number): void;
  poolSetKeepsHeads(pool: number, keepsHeads: number): void;
  poolAddTenant(pool: number, minBytes: number, maxBytes: number): number;
  poolPublishBatch(
    pool: number,
    digests: number,
    count: number,
    sizes: number,
    bytes: number,
    nowMs: number,
    about: number,
    tenant: number,
    priority: number,
    offsets: number,
    slots: number,
    evictedEnds: number,
  ): number;
  poolEvicted(pool: number): number;
  poolRestoreBatch(
    pool: number,
    digests: number,
    count: number,
    sizes: number,
    offsets: number,
    tenants: number,
    slots: number,
  ): number;
  poolEvictNext(pool: number, nowMs: number, tenant: number): number;
  poolEvictOverMax(pool: number, nowMs: number): number;
  poolGiveBatch(pool: number, digests: number, count: number, tenant: number): void;
  poolSetPriorityBatch(pool: number, digests: number, count: number, priority: number): void;
  poolExpectBatch(pool: number, digests: number, count: number, inMs: number, nowMs: number): void;
  poolLookupBatch(
    pool: number,
    digests: number,
    count: number,
    isUse: number,
    about: number,
    tenant: number,
    offsets: number,
    sizes: number,
    slots: number,
  ): void;
  poolHasBatch(pool: number, digests: number, count: number, out: number): void;
  poolTouchBatch(pool: number, digests: number, count: number, about: number, tenant: number): number;
  poolRenewBatch(pool: number, digests: number, count: number): void;
  poolRemoveBatch(pool: number, digests: number, count: number, nowMs: number, slots: number): void;
  poolPinBatch(pool: number, digests: number, count: number, out: number): void;
  poolUnpinBatch(pool: number, digests: number, count: number, out: number): void;
  poolClear(pool: number, nowMs: number): void;
  poolOrder(pool: number, out: number): void;
  poolCount(pool: number): number;
  poolStats(pool: number, out: number): void;
  poolTenantStats(pool: number, tenant: number, out: number): void;
  poolVerify(pool: number): number;
  poolFree(pool: number): void;
}

/** Eviction policies by their numbers in the WASM module. */
export const POLICY_NUMBERS: Readonly<Record<EvictionPolicy, number>> = { lru: 0, s3fifo: 1, yield: 2 };

/** Number of values that `poolStats` writes. */
export const STATS_COUNT = 10;
/** Number of values that `poolTenantStats` writes. */
export const TENANT_STATS_COUNT = 5;

const CONSTANTS = {
  CORE_VERSION: 7,
  NO_INDEX: -1,
  STATS_COUNT,
  TENANT_STATS_COUNT,
  TENANTS_MAX: POOL_TENANTS_MAX_COUNT,
  PAGE_MAP_NODES: PAGE_MAP_MAX_NODES,
  POLICY_LRU: POLICY_NUMBERS.lru,
  POLICY_S3FIFO: POLICY_NUMBERS.s3fifo,
  POLICY_YIELD: POLICY_NUMBERS.yield,
  PRIORITY_NORMAL: PRIORITY_NUMBERS.normal,
  PRIORITY_LOW: PRIORITY_NUMBERS.low,
  PRIORITY_HIGH: PRIORITY_NUMBERS.high,
} as const;

/** Checks that the module has the version that this code needs. Throws `ERR_CORE` if not. */
export function checkConstants(exports: CoreExports): void {
  for (const [name, expected] of Object.entries(CONSTANTS)) {
    const found: unknown = exports[name as keyof typeof CONSTANTS]?.value;
    if (found !== expected) {
      throw new MeshCacheError(
        'ERR_CORE',
        `meshcache.wasm: ${name} is ${String(found)}, this version needs ${expected}`,
      );
    }
  }
}
