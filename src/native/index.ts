/**
 * The public native API: `meshcache/native`. It can be imported everywhere, even without the addon or RDMA.
 *
 * @module meshcache/native
 */
import { loadNative } from './addon/loader.js';

export type { RdmaStatName } from './addon/contract.js';
export type { RdmaDevice, RdmaGid, RdmaPort } from './devices/rdma-devices.js';
export { RDMA_STEPS, type RdmaStep, type RdmaSupport, rdmaSupport } from './devices/rdma-support.js';
export type { EngineStats } from './engine/engine-channel.js';
export { type MrHandle, type ReadRequest, TransferEngine, type TransferEngineOptions } from './transfer-engine.js';

/** Whether the addon was built with RDMA. {@link rdmaSupport} says whether this machine can use it. */
export const HAS_RDMA: boolean = loadNative().addon?.hasRdma ?? false;
