import { accessSync, constants, readdirSync } from 'node:fs';
import { ownMemory } from '../../system/memory-limit.js';
import { loadNative, type NativeLoad } from '../addon/loader.js';
import { type LockedMemory, lockedMemory } from './locked-memory.js';
import { type RdmaDevice, readRdmaDevices } from './rdma-devices.js';

/** The RDMA resources of this machine and process; a test supplies its own. */
export interface RdmaHost {
  load(): NativeLoad;
  devices(): readonly RdmaDevice[];
  lockedMemory(): LockedMemory;
  /** Bytes of memory that the system can provide now. */
  availableBytes(): number;
  /** Why this process cannot use the device files of the RDMA libraries; empty if it can. */
  deviceFilesProblem(): string;
}

export const systemRdmaHost: RdmaHost = {
  load: loadNative,
  devices: () => readRdmaDevices(),
  lockedMemory: () => lockedMemory(),
  availableBytes: () => ownMemory().freeBytes,
  deviceFilesProblem: () => deviceFilesProblem('/dev/infiniband'),
};

/** Returns a host that reads the devices only once, because a GID table has up to 1,024 files. */
export function withDevicesReadOnce(host: RdmaHost): RdmaHost {
  let devices: readonly RdmaDevice[] | undefined;
  return {
    load: () => host.load(),
    devices: () => {
      devices ??= host.devices();
      return devices;
    },
    lockedMemory: () => host.lockedMemory(),
    availableBytes: () => host.availableBytes(),
    deviceFilesProblem: () => host.deviceFilesProblem(),
  };
}

/** Why no verbs device in `folder` can be read and written by this process; empty if one can. */
export function deviceFilesProblem(folder: string): string {
  let names: string[];
  try {
    names = readdirSync(folder).filter((name) => name.startsWith('uverbs'));
  } catch (error) {
    return `${folder} cannot be read (${(error as NodeJS.ErrnoException).code})`;
  }
  if (names.length === 0) return `${folder} has no verbs device (uverbs0, ...)`;
  const problems: string[] = [];
  for (const name of names) {
    try {
      accessSync(`${folder}/${name}`, constants.R_OK | constants.W_OK);
      return '';
    } catch (error) {
      problems.push(`${folder}/${name} cannot be opened (${(error as NodeJS.ErrnoException).code})`);
    }
  }
  return problems.join(', ');
}
