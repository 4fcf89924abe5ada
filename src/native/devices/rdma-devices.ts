import { readdirSync, readFileSync } from 'node:fs';
import { isIP, SocketAddress } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';

/** One entry of a port's GID table that is in use. */
export interface RdmaGid {
  readonly index: number;
  readonly type: 'InfiniBand' | 'RoCE v1' | 'RoCE v2';
  /** Network interface; empty where the kernel does not say. */
  readonly netdev: string;
  /** The GID as an IP address: IPv4 where it is a mapped one, link-local IPv6 with `%interface`. */
  readonly address: string;
}

/** One port of a device. */
export interface RdmaPort {
  /** From 1 on. */
  readonly number: number;
  /** `ACTIVE`, `DOWN`, `INIT`, ... */
  readonly state: string;
  /** `Ethernet` or `InfiniBand`. */
  readonly linkLayer: string;
  /** As the kernel words it, for example `100 Gb/sec (4X EDR)`. */
  readonly rate: string;
  readonly gids: readonly RdmaGid[];
  /** Addresses of its network interfaces (IPoIB) where GIDs are no IP addresses: InfiniBand. */
  readonly ipoibAddresses: readonly string[];
}

/** A device of this host, as the kernel tells it. */
export interface RdmaDevice {
  readonly name: string;
  readonly ports: readonly RdmaPort[];
}

/** Where the kernel tells of RDMA devices. */
const SYSFS_ROOT = '/sys/class/infiniband';
/** Made once: a GID table may have 1,024 entries, and what `localeCompare` makes for each call takes long. */
const byNumber = new Intl.Collator('en', { numeric: true });
const IPV4_MAPPED = /^(?:0000:){5}ffff:([0-9a-f]{4}):([0-9a-f]{4})$/;
const UNUSED_GID = /^[0:]*$/;

/**
 * The RDMA devices of this machine, by name, with their ports and GIDs; empty where there is none, or no RDMA support in
 * the kernel. What cannot be read is left empty: devices come and go. Does not throw.
 */
export function readRdmaDevices(root: string = SYSFS_ROOT): RdmaDevice[] {
  return entries(root).map((name) => ({ name, ports: readPorts(join(root, name)) }));
}

/** One spelling for each IP address; `undefined` for what is none. */
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
      // "4: ACTIVE"
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

/** The interfaces of a device's port are those of the same PCI function with that `dev_port`. */
function ipoibAddresses(device: string, port: number): string[] {
  const net = join(device, 'device', 'net');
  const own = networkInterfaces();
  return entries(net)
    .filter((netdev) => Number(textOf(join(net, netdev, 'dev_port')) || 0) === port - 1)
    .flatMap((netdev) => (own[netdev] ?? []).map(({ address }) => address))
    .filter((address) => !isLinkLocal(address));
}

/** Names in a folder, numbers by value; none when it cannot be read. */
function entries(folder: string): string[] {
  try {
    return readdirSync(folder).sort(byNumber.compare);
  } catch {
    return [];
  }
}

/** A file's text; empty when it cannot be read, as files of unused GIDs cannot. */
function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1').trim();
  } catch {
    return '';
  }
}
