import { accessSync, constants, readdirSync } from 'node:fs';
import { freemem } from 'node:os';
import { loadNative, type NativeLoad } from '../addon/loader.js';
import { type LockedMemory, lockedMemory } from './locked-memory.js';
import { type RdmaDevice, readRdmaDevices } from './rdma-devices.js';

/** What this machine and this process have for RDMA; a test hands in its own. */
export interface RdmaHost {
  load(): NativeLoad;
  devices(): readonly RdmaDevice[];
  lockedMemory(): LockedMemory;
  /** Bytes that the system can provide now. */
  availableBytes(): number;
  /** Why the files that the RDMA libraries talk to the kernel by cannot be used; empty when they can. */
  deviceFilesProblem(): string;
}

export const systemRdmaHost: RdmaHost = {
  load: loadNative,
  devices: () => readRdmaDevices(),
  lockedMemory: () => lockedMemory(),
  availableBytes: freemem,
  deviceFilesProblem: () => deviceFilesProblem('/dev/infiniband'),
};

/** The same host, which looks for devices once: a GID table has up to 1,024 files. */
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

/** Looks at the verbs devices in `folder`: at least one must be there that this process may read and write. */
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
