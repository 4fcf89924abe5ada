import { type RdmaDevice, type RdmaHost, systemRdmaHost } from '../../../src/native/devices/rdma-devices.js';

let known: readonly RdmaDevice[] | undefined;

/**
 * This machine with its devices read once: their GID tables have 1,024 entries, which takes a second on emulated
 * processors.
 */
export const knownHost: RdmaHost = {
  ...systemRdmaHost,
  devices() {
    known ??= systemRdmaHost.devices();
    return known;
  },
};
