import type { StorageConfig } from '../../config.js';
import { alignedUp } from '../../disk/folder/alignment.js';
import { diskSizeFor } from '../../disk/folder/disk-folder.js';
import { dataScale, hasDisk, hostOf, type Scenario } from '../scenario/scenario.js';
import { DISK_SHAPE, type DiskShape } from '../world/files/sim-disk.js';
import { NETWORK_SHAPE, type NetworkShape } from '../world/network/link.js';
import type { ObjectStoreShape } from '../world/sim-object-store.js';

const MASTER_PORT = 6000;
const CONTROL_PORT = 7000;
const DATA_PORT = 8000;
/** Name that resolves to the addresses of all hosts. */
export const SOURCE_NAME = 'nodes.test';
const SOURCES = { dns: `dns://${SOURCE_NAME}:${MASTER_PORT}`, etcd: 'etcd://10.255.0.1:2379' } as const;

/** Settings of nodes with the object store of their world, which knows no access keys. */
const OBJECT_STORE = {
  object_store: 's3://pages/simulated',
  object_store_endpoint: 'http://objects.test:9000',
  object_store_access_key_id: 'simulated',
  object_store_secret_access_key: 'simulated',
};

export function hostName(host: number): string {
  return `host-${host}`;
}

export function nodeName(node: number): string {
  return `node-${node}`;
}

/** IPv4 address of a host, by the number of the host. */
export function hostAddress(host: number): string {
  return `10.${(host >> 16) & 255}.${(host >> 8) & 255}.${host & 255}`;
}

/** Control port of a node on its host. */
export function controlPort(scenario: Scenario, node: number): number {
  return CONTROL_PORT + rankOf(scenario, node);
}

/** Folder of a node's disk tier. */
function diskPath(node: number): string {
  return `/disk/${nodeName(node)}`;
}

/** Configuration of a node's store. */
export function storageConfig(scenario: Scenario, node: number): StorageConfig {
  const { shape } = scenario;
  const { discovery = 'list' } = shape;
  const masters = Array.from({ length: Math.min(shape.listedMasters, scenario.nodes) }, (_, i) => {
    return `${hostName(hostOf(scenario, i + 1))}:${MASTER_PORT + rankOf(scenario, i + 1)}`;
  });
  const extraConfig: Record<string, unknown> = {
    protocol: 'tcp',
    discovery_addr: discovery === 'list' ? masters.join(',') : SOURCES[discovery],
    ...(discovery === 'list' ? {} : { discovery_port: MASTER_PORT }),
    node_id: nodeName(node),
    local_hostname: discovery === 'list' ? hostName(hostOf(scenario, node)) : hostAddress(hostOf(scenario, node)),
    control_port: controlPort(scenario, node),
    tcp_port: DATA_PORT + rankOf(scenario, node),
    global_segment_size: shape.poolPages * shape.pageBytes,
    ...(shape.zones === undefined ? {} : { zone: `zone-${1 + ((hostOf(scenario, node) - 1) % shape.zones)}` }),
    // Simulated hosts are not on loopback, and scenarios may have no secret.
    allow_unauthenticated: true,
    // Nothing would read the metrics.
    metrics_enabled: false,
    ...(shape.keepsPools === true ? { pool_path: `/memory/${nodeName(node)}` } : {}),
    ...(shape.objectStore === undefined ? {} : OBJECT_STORE),
    ...(hasDisk(scenario, node) ? diskSettings(scenario, node) : {}),
    ...shape.config,
    ...(shape.storageNodes?.includes(node) ? { role: 'storage', write_policy: 'local' } : {}),
  };
  return { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, modelName: 'simulated', extraConfig };
}

function diskSettings({ shape }: Scenario, node: number): Record<string, unknown> {
  const { maxBytes, indexBytes } = diskSizeFor(shape.diskPages ?? 0, shape.pageBytes);
  return {
    disk_enabled: true,
    disk_path: diskPath(node),
    disk_size: maxBytes,
    disk_index_size: indexBytes,
  };
}

/** The object store of a scenario's world; undefined: there is none. */
export function objectStoreShape(scenario: Scenario): ObjectStoreShape | undefined {
  const { objectStore } = scenario.shape;
  return objectStore && { ...objectStore, bytesPerS: objectStore.bytesPerS / dataScale(scenario) };
}

/** How the network takes pages that stand for larger ones: each in one piece, as long as those. */
export function networkScale(scenario: Scenario): Partial<NetworkShape> {
  const { standsForBytes = 0 } = scenario.shape;
  const chunkBytes = Math.max(NETWORK_SHAPE.chunkBytes, standsForBytes);
  const windowBytes = Math.max(NETWORK_SHAPE.windowBytes, 4 * standsForBytes);
  return { bytesScale: dataScale(scenario), chunkBytes, windowBytes };
}

/** The disk of every host. A page takes whole blocks of it, which stand for no more than the page does. */
export function diskShape(scenario: Scenario): Partial<DiskShape> {
  const { disk, standsForBytes, pageBytes } = scenario.shape;
  const scale = Math.max(1, (standsForBytes ?? pageBytes) / alignedUp(pageBytes));
  const { readBytesPerS, writeBytesPerS, latencyMs } = DISK_SHAPE;
  const [read, write] = disk === undefined ? [readBytesPerS, writeBytesPerS] : [disk.bytesPerS, disk.bytesPerS];
  return { readBytesPerS: read / scale, writeBytesPerS: write / scale, latencyMs: disk?.latencyMs ?? latencyMs };
}

/** Number of a node on its host, from 0. */
function rankOf(scenario: Scenario, node: number): number {
  return (node - 1) % scenario.ranksPerHost;
}
