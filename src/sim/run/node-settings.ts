import { DISK_ALIGNMENT_BYTES, DISK_INDEX_BYTES_PER_PAGE, DISK_INDEX_MIN_BYTES, DISK_MIN_BYTES, DISK_OVERHEAD_BYTES } from '../../base/limits.js';
import type { StorageConfig } from '../../config.js';
import { hasDisk, hostOf, type Scenario } from '../scenario/scenario.js';

const CONTROL_PORT = 7000;
const DATA_PORT = 8000;

export function hostName(host: number): string {
  return `host-${host}`;
}

export function nodeName(node: number): string {
  return `node-${node}`;
}

/** Where a node is reached, on its host. */
export function controlPort(scenario: Scenario, node: number): number {
  return CONTROL_PORT + ((node - 1) % scenario.ranksPerHost);
}

/** What a node's store is created with. */
export function storageConfig(scenario: Scenario, node: number): StorageConfig {
  const { shape } = scenario;
  const masters = Array.from({ length: Math.min(shape.listedMasters, scenario.nodes) }, (_, i) => {
    return `${hostName(hostOf(scenario, i + 1))}:${controlPort(scenario, i + 1)}`;
  });
  const extraConfig: Record<string, unknown> = {
    protocol: 'tcp',
    discovery_addr: masters.join(','),
    node_id: nodeName(node),
    local_hostname: hostName(hostOf(scenario, node)),
    control_port: controlPort(scenario, node),
    tcp_port: DATA_PORT + ((node - 1) % scenario.ranksPerHost),
    global_segment_size: shape.poolPages * shape.pageBytes,
    // Nobody would look at it.
    metrics_enabled: false,
    ...(hasDisk(scenario, node) ? diskSettings(scenario, node) : {}),
    ...shape.config,
  };
  return { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, modelName: 'simulated', extraConfig };
}

/** Room for the pages as they lie on a disk, and for their index. */
function diskSettings({ shape }: Scenario, node: number): Record<string, unknown> {
  const pages = shape.diskPages ?? 0;
  const onDiskBytes = Math.ceil(shape.pageBytes / DISK_ALIGNMENT_BYTES) * DISK_ALIGNMENT_BYTES;
  const indexBytes = Math.max(DISK_INDEX_MIN_BYTES, pages * DISK_INDEX_BYTES_PER_PAGE);
  return {
    disk_enabled: true,
    disk_path: `/disk/${nodeName(node)}`,
    disk_size: Math.max(DISK_MIN_BYTES, DISK_OVERHEAD_BYTES + indexBytes + pages * onDiskBytes),
    disk_index_size: indexBytes,
  };
}
