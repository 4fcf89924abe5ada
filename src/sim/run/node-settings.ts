import type { StorageConfig } from '../../config.js';
import { diskSizeFor } from '../../disk/folder/disk-folder.js';
import { hasDisk, hostOf, type Scenario } from '../scenario/scenario.js';

const MASTER_PORT = 6000;
const CONTROL_PORT = 7000;
const DATA_PORT = 8000;
/** Name that resolves to the addresses of all hosts. */
export const SOURCE_NAME = 'nodes.test';
const SOURCES = { dns: `dns://${SOURCE_NAME}:${MASTER_PORT}`, etcd: 'etcd://10.255.0.1:2379' } as const;

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

/** Number of a node on its host, from 0. */
function rankOf(scenario: Scenario, node: number): number {
  return (node - 1) % scenario.ranksPerHost;
}
