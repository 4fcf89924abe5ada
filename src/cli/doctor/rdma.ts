import { join } from 'node:path';
import { type LogFields, silentLogger } from '../../base/environment/log.js';
import { formatSize } from '../../base/sizes.js';
import type { MeshCacheConfig } from '../../config.js';
import { HostRegion } from '../../memory/host-region.js';
import type { RailOptions } from '../../native/addon/contract.js';
import type { NativeLoad } from '../../native/addon/loader.js';
import { namesIn, textOf } from '../../native/devices/kernel-files.js';
import { LOCKED_MEMORY_ADVICE, lockableBytes, lockedMemoryText } from '../../native/devices/locked-memory.js';
import {
  type RdmaDevice,
  type RdmaGid,
  type RdmaHost,
  type RdmaPort,
  systemRdmaHost,
} from '../../native/devices/rdma-devices.js';
import { rdmaSupport } from '../../native/devices/rdma-support.js';
import { TransferEngine } from '../../native/transfer-engine.js';
import { systemEnvironment } from '../../system/system-environment.js';
import { systemHost } from '../../system/system-host.js';
import { configuredRails, createTransport } from '../../transport/create-transport.js';
import type { Finding } from './finding.js';

/** Locked memory that is enough for a pool of the default size. */
const LOCKED_ENOUGH_BYTES = 4 * 2 ** 30;
const TRIP_BYTES = 2 ** 20;
const MM_FOLDER = '/sys/kernel/mm';
/** Most GIDs to show per port; a port may have hundreds. */
const SHOWN_GIDS_MAX_COUNT = 8;

export function checkAddon({ addon, reason }: NativeLoad): Finding {
  const subject = 'native addon';
  if (addon === null) {
    const detail = `none: ${reason}; pages go over TCP, copies and checksums are slower`;
    return { subject, state: 'warning', detail };
  }
  const rdma = addon.hasRdma ? 'with RDMA' : 'built without RDMA';
  return { subject, state: 'ok', detail: `loaded, ${rdma}; checksums by ${addon.checksumPath}` };
}

/** Checks whether RDMA can be used, names the step that fails, and lists every port of every device. */
export function checkRdma(host: RdmaHost): Finding[] {
  const devices = host.devices();
  const { usable, step, reason, advice } = rdmaSupport({ host });
  const ports = devices.flatMap((device) => device.ports.map((port) => portFinding(device, port)));
  if (usable) {
    const names = devices.map(({ name }) => name).join(', ');
    return [{ subject: 'RDMA', state: 'ok', detail: `usable (${names})` }, ...ports];
  }
  const detail = `not usable, pages go over TCP; step "${step}" fails: ${reason}`;
  // If there is no RDMA hardware, nothing is wrong.
  const state = devices.length === 0 ? 'n/a' : 'warning';
  return [{ subject: 'RDMA', state, detail, advice }, ...ports];
}

/**
 * Reads this process's own memory through each configured device, by default through the first one that can be used;
 * nothing if RDMA cannot be used.
 */
export async function checkRdmaTrip(host: RdmaHost, config: Partial<MeshCacheConfig> = {}): Promise<Finding[]> {
  if (!rdmaSupport({ host }).usable) return [];
  // The configured port may be in use by a running node.
  const { rails } = await configuredRails({ ...config, rdmaPort: 0 }, systemHost, host.devices());
  const findings: Finding[] = [];
  for (const rail of rails ?? []) findings.push(await tripOver(rail, host, config.gidIndex));
  return findings;
}

/** Reads this process's own memory through one device. */
async function tripOver(
  { deviceName, ibPort, address }: RailOptions,
  host: RdmaHost,
  gidIndex: number | undefined,
): Promise<Finding> {
  const subject = 'RDMA trip';
  const region = HostRegion.allocate(2 * TRIP_BYTES);
  try {
    const engine = new TransferEngine({
      ...{ deviceName, ibPort, bindHost: address, host, env: systemEnvironment({ log: silentLogger }) },
      ...(gidIndex === undefined ? {} : { gidIndex }),
    });
    try {
      region.bytes(0, TRIP_BYTES).fill(0x5d);
      const { rkey } = engine.registerMr(region.addr, region.length);
      const remoteNode = engine.localEndpoint();
      const localAddr = region.addr + BigInt(TRIP_BYTES);
      const startedMs = performance.now();
      const [isRead] = await engine.batchRead([
        { remoteNode, localAddr, remoteAddr: region.addr, rkey, length: TRIP_BYTES },
      ]);
      const tookMs = performance.now() - startedMs;
      const isRight = isRead && region.bytes(TRIP_BYTES, TRIP_BYTES).every((byte) => byte === 0x5d);
      const what = `${formatSize(TRIP_BYTES)} through ${deviceName} from ${remoteNode}`;
      if (isRight) return { subject, state: 'ok', detail: `${what}, every byte right, ${tookMs.toFixed(1)} ms` };
      const advice = 'MESHCACHE_LOG=debug says more; does the same device pass `ib_read_bw` with this address?';
      return { subject, state: 'problem', detail: `${what} returned wrong bytes`, advice };
    } finally {
      await engine.close();
    }
  } catch (error) {
    return { subject, state: 'problem', detail: (error as Error).message };
  } finally {
    region.free();
  }
}

/**
 * Checks which transport a node with this configuration would use, by briefly creating it without a pool. `isAskedFor`:
 * RDMA was requested and is not only the default.
 */
export async function checkTransport(
  config: MeshCacheConfig,
  { isAskedFor, host = systemRdmaHost }: { readonly isAskedFor: boolean; readonly host?: RdmaHost },
): Promise<Finding[]> {
  const subject = 'transport';
  let said: LogFields = {};
  const log = (_level: string, message: string, fields: LogFields = {}): void => {
    if (message.startsWith('data transport')) said = fields;
  };
  try {
    // The TCP port is checked separately.
    const transport = await createTransport({ ...config, tcpPort: 0 }, systemEnvironment({ log: { log } }), host);
    await transport.close();
    const devices = said.devices === undefined ? '' : ` by ${said.devices}`;
    const detail = `${transport.protocol.toUpperCase()}${devices}: ${said.reason}`;
    if (transport.protocol === config.protocol || !isAskedFor) return [{ subject, state: 'ok', detail }];
    const advice = said.advice === undefined ? 'protocol=tcp says that this is meant' : String(said.advice);
    return [{ subject, state: 'warning', detail, advice }];
  } catch (error) {
    const { message } = error as Error;
    // The node's own address is checked separately.
    return /"tcp_port"/.test(message) ? [] : [{ subject, state: 'problem', detail: message }];
  }
}

export function checkLockedMemory(host: RdmaHost): Finding {
  const memory = host.lockedMemory();
  const detail = `${lockedMemoryText(memory)} can be locked (matters for RDMA only)`;
  if (host.devices().length === 0) return { subject: 'locked memory', state: 'n/a', detail };
  if (lockableBytes(memory) >= LOCKED_ENOUGH_BYTES) return { subject: 'locked memory', state: 'ok', detail };
  return { subject: 'locked memory', state: 'warning', detail, advice: LOCKED_MEMORY_ADVICE };
}

/** Checks reserved huge pages by size, and the mode of transparent ones. */
export function checkHugePages(folder = MM_FOLDER): Finding {
  const subject = 'huge pages';
  const reserved = namesIn(join(folder, 'hugepages')).flatMap((name) => {
    const count = Number(textOf(join(folder, 'hugepages', name, 'nr_hugepages')));
    const free = textOf(join(folder, 'hugepages', name, 'free_hugepages'));
    const size = formatSize(Number(/hugepages-(\d+)kB/.exec(name)?.[1]) * 1024);
    return count > 0 ? [`${count} of ${size} reserved, ${free} free`] : [];
  });
  // The mode in brackets is in effect: "always [madvise] never".
  const mode = (file: string): string =>
    /\[(\w+)\]/.exec(textOf(join(folder, 'transparent_hugepage', file)))?.[1] ?? 'unknown';
  const transparent = `transparent ones: ${mode('enabled')}, for shared memory: ${mode('shmem_enabled')}`;
  const state = reserved.length > 0 ? 'ok' : 'n/a';
  return { subject, state, detail: `${reserved.join('; ') || 'none reserved'}; ${transparent}` };
}

function portFinding({ name }: RdmaDevice, port: RdmaPort): Finding {
  const { number, state, linkLayer, rate, gids } = port;
  const subject = `${name}/${number}`;
  const shown = gids.slice(0, SHOWN_GIDS_MAX_COUNT).map(gidText);
  const more = gids.length > shown.length ? [`and ${gids.length - shown.length} more`] : [];
  const addresses = port.ipoibAddresses.map((address) => `IPoIB ${address}`);
  const detail = [`${state.toLowerCase()}, ${linkLayer}, ${rate}`, ...addresses, ...shown, ...more].join('; ');
  if (state === 'ACTIVE') return { subject, state: 'ok', detail };
  return { subject, state: 'warning', detail, advice: 'bring its network interface up, and check the cable' };
}

function gidText({ index, type, address, netdev }: RdmaGid): string {
  return `GID ${index} ${type} ${address}${netdev === '' ? '' : ` (${netdev})`}`;
}
