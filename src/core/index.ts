/**
 * The entry point `meshcache/core`: the ring, the pool's decisions, keys, and a simulation of them. It works in any
 * JavaScript environment with WebAssembly.
 *
 * @module meshcache/core
 */
export { ArgumentError, ClosedError, type ErrorCode, MeshCacheError } from '../base/errors.js';
export type { FetchResponse, WasmInstance, WasmModule } from './binding/core.js';
export { Core, type CoreOptions, type CoreSource, defaultCore, loadCore } from './binding/core.js';
export { KeyBatch, type Keys } from './binding/key-batch.js';
export { type EncodedKeys, KeyEncoder, type KeyEncoderOptions, type KeyNamespace } from './binding/key-encoder.js';
export {
  type PlacementNode,
  type PlacementOutcome,
  type PlacementRequest,
  PlacementSimulation,
} from './placement/placement.js';
export { PlacementBounds } from './placement/placement-bounds.js';
export {
  PLACEMENT_DISK_WRITES,
  PLACEMENT_POLICIES,
  PLACEMENT_ROUTINGS,
  type PlacementDiskWrite,
  type PlacementOptions,
  type PlacementRouting,
  type PlacementSettings,
} from './placement/placement-options.js';
export type { PlacementCounts, PlacementInterval } from './placement/placement-pool.js';
export { PoolAllocator } from './pool/pool-allocator.js';
export type {
  BatchLookup,
  BatchPlacement,
  EvictionPolicy,
  PageLocation,
  PagePriority,
  Placement,
  PoolAllocatorOptions,
  PoolAllocatorStats,
  PoolPublishOptions,
  PoolRequestOptions,
  PoolTenant,
  PoolTenantStats,
  PublishRequest,
  RequestHint,
  RequestOptions,
} from './pool/pool-types.js';
export { ConsistentHashRing, NO_NODE } from './ring/hash-ring.js';
