import { RDMA_DESTINATION_WINDOW_BYTES } from '../../base/limits.js';
import { formatSize } from '../../base/sizes.js';
import { LOCKED_MEMORY_ADVICE, lockableBytes, lockedMemoryText } from './locked-memory.js';
import { describeDevices } from './rail-selection.js';
import { type RdmaHost, systemRdmaHost } from './rdma-devices.js';

/** Requirements of RDMA, in the order in which they are checked. */
export const RDMA_STEPS = [
  /** The native addon is installed and matches the contract. */
  'addon',
  /** The addon was built with RDMA. */
  'build',
  /** The user-space libraries are installed. */
  'libibverbs',
  'librdmacm',
  /** The kernel has a device. */
  'device',
  /** This process may use a device. */
  'permissions',
  /** The kernel has the connection manager, this process may use it, and the libraries know the device. */
  'rdma_cm',
  /** A port is up and has an address. */
  'port',
  /** Enough memory may be locked. */
  'memlock',
  /** Enough memory is available. */
  'memory',
] as const;
/** One of {@link RDMA_STEPS}. */
export type RdmaStep = (typeof RDMA_STEPS)[number];

/** Whether RDMA can be used, and if not, the reason and what to do. */
export interface RdmaSupport {
  readonly usable: boolean;
  /** The first step that fails; empty if RDMA can be used. */
  readonly step: RdmaStep | '';
  /** Why the step fails, in one line; empty if RDMA can be used. */
  readonly reason: string;
  /** What to do about the failure; empty if there is nothing to do. */
  readonly advice: string;
}

const USABLE: RdmaSupport = { usable: true, step: '', reason: '', advice: '' };
/** Memory that reads write into, which is locked in addition to the served memory: at least two windows. */
const DESTINATIONS_BYTES = 2 * RDMA_DESTINATION_WINDOW_BYTES;
/** Smallest limit of locked memory with which an idle engine can start. */
const LOCKED_MIN_BYTES = 2 ** 20;

/**
 * Checks whether this process can use RDMA on this machine; if not, says which step fails and what to do about it.
 * `bytes` is how much memory will be registered. Does not throw and changes nothing.
 */
export function rdmaSupport(options: { readonly bytes?: number; readonly host?: RdmaHost } = {}): RdmaSupport {
  const host = options.host ?? systemRdmaHost;
  return softwareProblem(host) ?? portProblem(host) ?? memoryProblem(host, options.bytes ?? 0) ?? USABLE;
}

function softwareProblem(host: RdmaHost): RdmaSupport | undefined {
  const { addon, reason } = host.load();
  if (addon === null) return problem('addon', reason, addonAdvice(reason));
  if (!addon.hasRdma) {
    return problem('build', 'the native addon was built without RDMA', 'build it without MESHCACHE_NO_RDMA');
  }
  const probe = addon.rdmaProbe();
  if (probe.step === 'libibverbs' || probe.step === 'librdmacm') {
    const packages =
      'install the RDMA libraries: libibverbs1, ibverbs-providers and librdmacm1 (Debian), or rdma-core (RHEL)';
    return problem(probe.step, `${probe.step} cannot be loaded: ${probe.reason}`, packages);
  }
  // The connection manager fails without a device or its files, too, which are the reason then.
  return deviceProblem(host) ?? (probe.usable ? undefined : connectionProblem(host, probe.reason));
}

function connectionProblem(host: RdmaHost, reason: string): RdmaSupport {
  if (!NO_PROVIDER.test(reason)) {
    return problem('rdma_cm', `the connection manager cannot be used: ${reason}`, CM_ADVICE);
  }
  const names = host.devices().map(({ name }) => name);
  const what = `libibverbs knows no device of this machine, which has ${names.join(', ')}; its provider is missing`;
  return problem('rdma_cm', `${what}: ${reason}`, PROVIDER_ADVICE);
}

function deviceProblem(host: RdmaHost): RdmaSupport | undefined {
  if (host.devices().length === 0) return problem('device', 'this host has no RDMA device', DEVICE_ADVICE);
  const files = host.deviceFilesProblem();
  return files === '' ? undefined : problem('permissions', files, FILES_ADVICE);
}

function portProblem(host: RdmaHost): RdmaSupport | undefined {
  const devices = host.devices();
  const isUsable = devices.some(({ ports }) =>
    ports.some(({ state, gids, ipoibAddresses }) => {
      const addresses = gids.filter(({ type }) => type === 'RoCE v2').length + ipoibAddresses.length;
      return state === 'ACTIVE' && addresses > 0;
    }),
  );
  if (isUsable) return undefined;
  return problem('port', `no port of an RDMA device can be used: ${describeDevices(devices)}`, PORT_ADVICE);
}

function memoryProblem(host: RdmaHost, bytes: number): RdmaSupport | undefined {
  const memory = host.lockedMemory();
  const needed = bytes > 0 ? bytes + DESTINATIONS_BYTES : LOCKED_MIN_BYTES;
  if (lockableBytes(memory) < needed) {
    const reason = `${formatSize(needed)} of memory have to be locked, and this process may lock ${lockedMemoryText(memory)}`;
    return problem('memlock', reason, LOCKED_MEMORY_ADVICE);
  }
  const available = host.availableBytes();
  if (bytes <= available) return undefined;
  const reason = `${formatSize(bytes)} of memory have to be locked, and ${formatSize(available)} are available`;
  return problem('memory', reason, 'choose a smaller global_segment_size: over RDMA all of it is resident');
}

function problem(step: RdmaStep, reason: string, advice: string): RdmaSupport {
  return { usable: false, step, reason, advice };
}

function addonAdvice(reason: string): string {
  if (reason === 'MESHCACHE_NATIVE=off') return 'unset MESHCACHE_NATIVE';
  return 'install the package again, or `npm run build:native` in a checkout';
}

const DEVICE_ADVICE =
  'load the driver of the network card (`rdma link` lists devices), or, for tests, software RDMA: `rdma link add rxe0 type rxe netdev eth0`';
const CM_ADVICE =
  'load the kernel module rdma_ucm, and let this user open /dev/infiniband/rdma_cm; for a container, pass it: --device=/dev/infiniband';
/** What the connection manager says when its own file can be opened and the libraries have found no device. */
const NO_PROVIDER = /: No such device$/;
const PROVIDER_ADVICE =
  'install the provider of the network card for libibverbs: ibverbs-providers (Debian), or rdma-core (RHEL); `ibv_devices` must list the device';
const FILES_ADVICE =
  'load the kernel module ib_uverbs and let this user open the files; for a container, pass the devices: --device=/dev/infiniband, or a device plugin';
/** Advice for a port that cannot be used. */
export const PORT_ADVICE =
  'bring the network interface up (`ip link set ... up`) and give it an address; check the cable';
