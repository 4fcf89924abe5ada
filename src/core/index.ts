/** The entry `meshcache/core`: works in any JavaScript environment with WebAssembly. */
export { ArgumentError, ClosedError, type ErrorCode, MeshCacheError } from '../base/errors.js';
export { Core, type CoreOptions, type CoreSource, defaultCore, loadCore } from './core.js';
export { ConsistentHashRing, NO_NODE } from './hash-ring.js';
export type { FetchResponse, WasmInstance, WasmModule } from './host-types.js';
export { type EncodedKeys, KeyEncoder, type KeyNamespace } from './key-encoder.js';
export {
  type PlacementNode,
  type PlacementOutcome,
  type PlacementRequest,
  PlacementSimulation,
} from './placement.js';
export { PlacementBounds } from './placement-bounds.js';
export type { PlacementCounts, PlacementInterval } from './placement-counts.js';
export {
  PLACEMENT_POLICIES,
  PLACEMENT_ROUTINGS,
  type PlacementOptions,
  type PlacementRouting,
  type PlacementSettings,
} from './placement-options.js';
export { PoolAllocator } from './pool-allocator.js';
export type {
  BatchLookup,
  BatchPlacement,
  EvictionPolicy,
  PageLocation,
  Placement,
  PoolAllocatorOptions,
  PoolAllocatorStats,
  RequestHint,
  RequestOptions,
} from './pool-types.js';
