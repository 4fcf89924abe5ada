import { ConfigError } from '../../base/errors.js';
import type { RailOptions } from '../addon/contract.js';
import { isLinkLocal, normalAddress, type RdmaDevice, type RdmaPort } from './rdma-devices.js';

/** Devices, ports and addresses that the user requests; the rest is chosen automatically. */
export interface RailWishes {
  readonly deviceName?: string | undefined;
  /** Several devices, one rail each; overrides `deviceName`. */
  readonly deviceNames?: readonly string[] | undefined;
  readonly ibPort?: number | undefined;
  readonly gidIndex?: number | undefined;
  /** A local IP address, whose port is preferred. Wildcards (`0.0.0.0`, `::`) and names are ignored. */
  readonly bindHost?: string | undefined;
  /** Port that the first rail listens on; 0: any free one. */
  readonly port?: number | undefined;
}

interface RailSelectionOptions {
  /** Name of a wish in messages, for example `configuration key "device_name"`. */
  readonly nameOf: (wish: keyof RailWishes) => string;
  /** Whether it is an error if `bindHost` cannot be used; otherwise the next best address is used. */
  readonly needsBindHost?: boolean;
}

/** At least one rail, or a one-line reason why there is none. */
export type RailSelection =
  | { readonly rails: readonly RailOptions[]; readonly reason: '' }
  | { readonly rails: null; readonly reason: string };

/** Most rails of an engine; `kMaxRails` in `native/verbs/engine.h` has the same value. */
const RAILS_MAX_COUNT = 8;

/** An active port with an address to bind to. */
interface Candidate {
  readonly device: RdmaDevice;
  readonly port: RdmaPort;
  readonly address: string;
}

/**
 * Selects device, port and address for each rail. The default is one rail: the port with the address `bindHost`, else
 * the first active port, with its best RoCE v2 address (IPv4, then global IPv6, then link-local). Throws {@link
 * ConfigError} for a wish that this machine cannot fulfil. Returns a reason if the machine has no RDMA device or no
 * active port.
 */
export function selectRails(
  wishes: RailWishes,
  devices: readonly RdmaDevice[],
  options: RailSelectionOptions,
): RailSelection {
  if (devices.length === 0) return { rails: null, reason: 'this host has no RDMA device' };
  const chosen = new RailChooser(wishes, devices, options).choose();
  if (typeof chosen === 'string') return { rails: null, reason: chosen };
  const rails = chosen.map(({ device, port, address }, i) => ({
    deviceName: device.name,
    ibPort: port.number,
    address,
    port: i === 0 ? (wishes.port ?? 0) : 0,
  }));
  return { rails, reason: '' };
}

/** Describes the RDMA devices of this machine in one line. */
export function describeDevices(devices: readonly RdmaDevice[]): string {
  return devices.map(describeDevice).join('; ') || 'no RDMA device';
}

class RailChooser {
  readonly #wishes: RailWishes;
  readonly #devices: readonly RdmaDevice[];
  readonly #options: RailSelectionOptions;
  /** `bindHost` in its normal spelling; undefined if none was requested. */
  readonly #bindAddress: string | undefined;

  constructor(wishes: RailWishes, devices: readonly RdmaDevice[], options: RailSelectionOptions) {
    this.#wishes = wishes;
    this.#devices = devices;
    this.#options = options;
    const address = wishes.bindHost === undefined ? undefined : normalAddress(wishes.bindHost);
    this.#bindAddress = address === '0.0.0.0' || address === '::' ? undefined : address;
  }

  /** Returns the selected ports, or the reason why there are none. */
  choose(): Candidate[] | string {
    const names = this.#names();
    const chosen = names.length > 0 ? this.#named(names) : this.#any();
    if (typeof chosen === 'string') return chosen;
    const wanted = this.#bindAddress;
    if (this.#options.needsBindHost && wanted !== undefined && !chosen.some(({ address }) => isSame(address, wanted))) {
      return this.#refuse('bindHost', `${wanted} is not an address of the RDMA port to use`);
    }
    return chosen;
  }

  #names(): readonly string[] {
    const { deviceName, deviceNames = [] } = this.#wishes;
    if (deviceNames.length === 0) return deviceName === undefined ? [] : [deviceName];
    if (new Set(deviceNames).size < deviceNames.length) {
      return this.#refuse('deviceNames', `${deviceNames.join(',')} names a device twice`);
    }
    if (deviceNames.length > RAILS_MAX_COUNT) {
      return this.#refuse('deviceNames', `${deviceNames.length} devices are more than ${RAILS_MAX_COUNT}`);
    }
    return deviceNames;
  }

  #named(names: readonly string[]): Candidate[] | string {
    const wish = (this.#wishes.deviceNames ?? []).length > 0 ? 'deviceNames' : 'deviceName';
    const devices = names.map((name) => {
      const device = this.#devices.find((each) => each.name === name);
      return device ?? this.#refuse(wish, `there is no RDMA device ${name}`);
    });
    const chosen: Candidate[] = [];
    for (const device of devices) {
      const candidates = this.#candidatesOf(device);
      const [best] = candidates;
      if (best === undefined) return `no port of RDMA device ${device.name} can be used: ${describeDevice(device)}`;
      chosen.push(this.#bound(candidates) ?? best);
    }
    return chosen;
  }

  #any(): Candidate[] | string {
    const { ibPort } = this.#wishes;
    if (ibPort !== undefined && !this.#devices.some(({ ports }) => ports.some(({ number }) => number === ibPort))) {
      return this.#refuse('ibPort', `no RDMA device has a port ${ibPort}`);
    }
    const having = this.#devices.filter(({ ports }) => ibPort === undefined || ports.some((p) => p.number === ibPort));
    const withGid = having.filter((device) => this.#hasGid(device));
    if (withGid.length === 0) {
      return this.#refuse('gidIndex', `no RDMA device has a RoCE v2 GID ${this.#wishes.gidIndex}`);
    }
    const candidates = withGid.flatMap((device) => this.#candidatesOf(device));
    const best = this.#bound(candidates) ?? candidates[0];
    return best === undefined ? `no port of an RDMA device can be used: ${describeDevices(this.#devices)}` : [best];
  }

  /** Whether the device has the requested GID, in any state of its port. */
  #hasGid({ ports }: RdmaDevice): boolean {
    const { gidIndex, ibPort } = this.#wishes;
    if (gidIndex === undefined) return true;
    const asked = ports.filter(({ number }) => ibPort === undefined || number === ibPort);
    return asked.some((port) => gidOf(port, gidIndex) !== undefined);
  }

  /** Returns the usable addresses of a device, the best first; empty if no port is active. */
  #candidatesOf(device: RdmaDevice): Candidate[] {
    const { ibPort, gidIndex } = this.#wishes;
    const ports = device.ports.filter(({ number }) => ibPort === undefined || number === ibPort);
    if (ports.length === 0) return this.#refuse('ibPort', `RDMA device ${device.name} has no port ${ibPort}`);
    if (!this.#hasGid(device)) {
      return this.#refuse('gidIndex', `RDMA device ${device.name} has no RoCE v2 GID ${gidIndex}`);
    }
    return ports
      .filter(({ state }) => state === 'ACTIVE')
      .flatMap((port) => addressesOf(port, gidIndex).map((address) => ({ device, port, address })));
  }

  #bound(candidates: readonly Candidate[]): Candidate | undefined {
    const wanted = this.#bindAddress;
    return wanted === undefined ? undefined : candidates.find(({ address }) => isSame(address, wanted));
  }

  #refuse(wish: keyof RailWishes, what: string): never {
    const has = describeDevices(this.#devices);
    throw new ConfigError(`${this.#options.nameOf(wish)}: ${what}; this machine has ${has}`);
  }
}

/** Returns the usable GID of a port with this index. */
function gidOf(port: RdmaPort, index: number): RdmaPort['gids'][number] | undefined {
  return port.gids.find((gid) => gid.index === index && gid.type !== 'RoCE v1');
}

/**
 * Returns the addresses to bind to, the best first. On InfiniBand, where GIDs are not IP addresses, these are the IPoIB
 * addresses.
 */
function addressesOf(port: RdmaPort, gidIndex: number | undefined): string[] {
  if (port.linkLayer === 'InfiniBand') return [...port.ipoibAddresses];
  return port.gids
    .filter(({ index, type }) => type === 'RoCE v2' && (gidIndex === undefined || index === gidIndex))
    .map(({ address }) => address)
    .sort((a, b) => rankOf(a) - rankOf(b));
}

function rankOf(address: string): number {
  if (!address.includes(':')) return 0;
  return isLinkLocal(address) ? 2 : 1;
}

/** Whether an address is the requested one. A link-local address may be given without its interface. */
function isSame(address: string, wanted: string): boolean {
  return address === wanted || (!wanted.includes('%') && address.split('%')[0] === wanted);
}

function describeDevice({ name, ports }: RdmaDevice): string {
  return `${name} (${ports.map(describePort).join(', ') || 'without ports'})`;
}

function describePort(port: RdmaPort): string {
  const state = `port ${port.number} ${port.state.toLowerCase() || 'in an unknown state'}`;
  if (port.linkLayer === 'InfiniBand') {
    const addresses = port.ipoibAddresses.join(' ') || 'without an address: IPoIB has to be set up';
    return `${state}, InfiniBand ${addresses}`;
  }
  const gids = port.gids.map(({ index, type, address }) => `GID ${index} ${type} ${address}`).join(', ');
  return `${state}, ${gids || 'without a GID: its interface has to be up and to have an address'}`;
}
