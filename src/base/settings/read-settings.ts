import { CLUSTER_MAP_MAX_BYTES } from '../limits.js';
import { decimal, type Field, flag, size } from './fields.js';

/** How a node looks pages up and reads them. */
export interface ReadSettings {
  /** Must be the same on all nodes. */
  readonly verifyReads: boolean;
  /** Must be the same on all nodes when `verifyReads` is off. */
  readonly reuseQuarantineMs: number;
  readonly locationReuseMs: number;
  /** Bytes that the map of the cluster's pages may take; 0: none is kept. */
  readonly clusterMap: number;
  /** How old the answer may be whether pages exist; above 0, it comes from the map of the cluster's pages. */
  readonly existsMaxAgeMs: number;
  /** Pages of other nodes that this one reads often are copied into its pool. */
  readonly promoteHotReads: boolean;
}

/** Parsers of these settings. */
export const READ_FIELDS: Readonly<Record<string, Field>> = {
  verify_reads: flag(true),
  reuse_quarantine_ms: decimal(0, 3_600_000, 1000, 'milliseconds'),
  location_reuse_ms: decimal(0, 10_000, 1000, 'milliseconds'),
  cluster_map: size(0, CLUSTER_MAP_MAX_BYTES, '64mb'),
  exists_max_age_ms: decimal(0, 600_000, 0, 'milliseconds'),
  promote_hot_reads: flag(false),
};
