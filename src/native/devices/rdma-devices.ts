import { accessSync, constants, readdirSync } from 'node:fs';
import { isIP, SocketAddress } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { ownMemory } from '../../system/memory-limit.js';
import { loadNative, type NativeLoad } from '../addon/loader.js';
import { namesIn, textOf } from './kernel-files.js';
import { type LockedMemory, lockedMemory } from './locked-memory.js';

/** One entry of a port's GID table that is in use. */
export interface RdmaGid {
  readonly index: number;
  readonly type: 'InfiniBand' | 'RoCE v1' | 'RoCE v2';
  /** Network interface; empty if the kernel does not name it. */
  readonly netdev: string;
  /** The GID as an IP address: as IPv4 if it is a mapped one; with `%interface` if it is link-local. */
  readonly address: string;
}

/** One port of a device. */
export interface RdmaPort {
  /** Number of the port, from 1 on. */
  readonly number: number;
  /** State of the port: `ACTIVE`, `DOWN`, `INIT`, ... */
  readonly state: string;
  /** Link layer: `Ethernet` or `InfiniBand`. */
  readonly linkLayer: string;
  /** Rate as the kernel words it, for example `100 Gb/sec (4X EDR)`. */
  readonly rate: string;
  readonly gids: readonly RdmaGid[];
  /** Addresses of the port's network interfaces (IPoIB). Only on InfiniBand, where GIDs are not IP addresses. */
  readonly ipoibAddresses: readonly string[];
}

/** An RDMA device of this host, as the kernel describes it. */
export interface RdmaDevice {
  readonly name: string;
  readonly ports: readonly RdmaPort[];
}

/** Folder in which the kernel describes RDMA devices. */
const SYSFS_ROOT = '/sys/class/infiniband';
/**
 * Compares names with numbers by value. It is shared because a GID table may have 1,024 entries and `localeCompare`
 * creates a collator for each call.
 */
const byNumber = new Intl.Collator('en', { numeric: true });
const IPV4_MAPPED = /^(?:0000:){5}ffff:([0-9a-f]{4}):([0-9a-f]{4})$/;
const UNUSED_GID = /^[0:]*$/;

/**
 * Returns the RDMA devices of this machine, by name, with their ports and GIDs; empty if there are none or the kernel
 * does not support RDMA. Values that cannot be read are empty, because devices can be removed at any time. Does not
 * throw.
 */
export function readRdmaDevices(root: string = SYSFS_ROOT): RdmaDevice[] {
  return entries(root).map((name) => ({ name, ports: readPorts(join(root, name)) }));
}

/** Returns the normal spelling of an IP address; undefined if the text is not one. */
export function normalAddress(text: string): string | undefined {
  const [host = '', scope] = text.split('%');
  const family = isIP(host);
  if (family === 0) return undefined;
  if (family === 4) return host;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(host);
  const address = mapped?.[1] ?? new SocketAddress({ address: host, family: 'ipv6' }).address;
  return scope === undefined ? address : `${address}%${scope}`;
}

export function isLinkLocal(address: string): boolean {
  return /^fe[89ab]/i.test(address);
}

function readPorts(device: string): RdmaPort[] {
  return entries(join(device, 'ports')).map((number) => {
    const port = join(device, 'ports', number);
    const linkLayer = textOf(join(port, 'link_layer'));
    return {
      number: Number(number),
      // The kernel writes "4: ACTIVE".
      state: textOf(join(port, 'state')).replace(/^\d+:\s*/, ''),
      linkLayer,
      rate: textOf(join(port, 'rate')),
      gids: readGids(port, linkLayer),
      ipoibAddresses: linkLayer === 'InfiniBand' ? ipoibAddresses(device, Number(number)) : [],
    };
  });
}

function readGids(port: string, linkLayer: string): RdmaGid[] {
  return entries(join(port, 'gids')).flatMap((index) => {
    const gid = textOf(join(port, 'gids', index)).toLowerCase();
    if (UNUSED_GID.test(gid)) return [];
    const netdev = textOf(join(port, 'gid_attrs', 'ndevs', index));
    const type = textOf(join(port, 'gid_attrs', 'types', index));
    return [
      {
        index: Number(index),
        type: linkLayer === 'InfiniBand' ? 'InfiniBand' : type === 'RoCE v2' ? 'RoCE v2' : 'RoCE v1',
        netdev,
        address: addressOfGid(gid, netdev),
      } as const,
    ];
  });
}

function addressOfGid(gid: string, netdev: string): string {
  const mapped = IPV4_MAPPED.exec(gid);
  if (mapped !== null) {
    const bits = Number.parseInt(`${mapped[1]}${mapped[2]}`, 16);
    return [24, 16, 8, 0].map((shift) => (bits >>> shift) & 0xff).join('.');
  }
  const address = normalAddress(gid) ?? gid;
  return isLinkLocal(address) && netdev !== '' ? `${address}%${netdev}` : address;
}

/** Returns the addresses of a port's network interfaces: those of the same PCI function with the same `dev_port`. */
function ipoibAddresses(device: string, port: number): string[] {
  const net = join(device, 'device', 'net');
  const own = networkInterfaces();
  return entries(net)
    .filter((netdev) => Number(textOf(join(net, netdev, 'dev_port')) || 0) === port - 1)
    .flatMap((netdev) => (own[netdev] ?? []).map(({ address }) => address))
    .filter((address) => !isLinkLocal(address));
}

/** Names in a folder, with numbers sorted by value. */
function entries(folder: string): string[] {
  return namesIn(folder).sort(byNumber.compare);
}

/** The RDMA resources of this machine and process; a test supplies its own. */
export interface RdmaHost {
  load(): NativeLoad;
  devices(): readonly RdmaDevice[];
  lockedMemory(): LockedMemory;
  /** Bytes of memory that the system can provide now. */
  availableBytes(): number;
  /** Returns why this process cannot use the device files of the RDMA libraries; empty if it can. */
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

/** Returns why this process cannot read and write any verbs device in `folder`; empty if it can use one. */
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
