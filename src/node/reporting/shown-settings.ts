import { toCamelCase } from '../../base/names.js';
import type { MeshCacheConfigFields } from '../../config.js';

/** A setting in a node's report; objects and lists are JSON. */
export type ShownSetting = string | number | boolean;

/**
 * Keys of settings that determine how a node behaves and are usually equal on all nodes of one role. Excludes
 * host-specific settings such as names, ports, paths and devices, and all secrets.
 */
export const SHOWN_SETTINGS: readonly string[] = [
  ...['role', 'protocol', 'global_segment_size', 'eviction_policy', 'write_policy', 'namespace_write_policies'],
  ...['namespace_quotas', 'promote_hot_reads', 'keep_duplicates', 'pin_max_share', 'pin_max_s'],
  ...['vnodes', 'directory_replicas', 'max_masters', 'heartbeat_interval', 'member_ttl', 'wait_for_directory'],
  ...['verify_reads', 'reuse_quarantine_ms', 'location_reuse_ms', 'cluster_map', 'exists_max_age_ms'],
  ...['disk_enabled', 'disk_size', 'disk_index_size', 'disk_write', 'object_store', 'object_store_write_rate'],
  ...['metrics_enabled', 'metrics_dashboard', 'client_socket_mode', 'client_regions_max'],
  ...['allow_unauthenticated', 'tls_names', 'tcp_threads', 'spin_us', 'dscp'],
  ...['namespace', 'dtype', 'layout', 'fingerprint', 'resp_namespace'],
];

/** The settings of a node for its report, by key. Unset ones are absent. */
export function shownSettings(config: MeshCacheConfigFields): Record<string, ShownSetting> {
  const fields = config as unknown as Readonly<Record<string, unknown>>;
  const shown = SHOWN_SETTINGS.flatMap((key): [string, ShownSetting][] => {
    const value = fields[toCamelCase(key)];
    if (value === undefined || value === null) return [];
    return [[key, typeof value === 'object' ? JSON.stringify(value) : (value as ShownSetting)]];
  });
  return Object.fromEntries(shown);
}
