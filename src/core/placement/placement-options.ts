import { READ_REPORT_DELAY_MS, RING_MAX_POINTS, VNODES_DEFAULT_COUNT } from '../../base/core-limits.js';
import { ArgumentError } from '../../base/errors.js';
import { EVICTION_POLICIES, type EvictionPolicy } from '../../base/settings/eviction-policy.js';
import { checkNames } from '../../base/settings/known-names.js';
import { shown } from '../../base/shown.js';
import type { CoreOptions } from '../binding/core.js';

/** Eviction policies available for a placement simulation: the same as for pools. */
export const PLACEMENT_POLICIES: readonly EvictionPolicy[] = EVICTION_POLICIES;

/**
 * How the node that serves a request is chosen. `round-robin`: each node in turn; `session`: the node that served the
 * conversation's last request; `prefix`: the owner of the request's first pages on the hash ring.
 */
export type PlacementRouting = 'round-robin' | 'session' | 'prefix';

/** All routings, by name. */
export const PLACEMENT_ROUTINGS: readonly PlacementRouting[] = Object.freeze(['round-robin', 'session', 'prefix']);

/**
 * Which pages a disk tier writes, as in the setting `disk_write`. `wait`: every page that is set. `evicted`: pages that
 * leave the pool, unless they are never asked for again as far as callers have said.
 */
export type PlacementDiskWrite = 'wait' | 'evicted';

/** All ways to write to a disk tier, by name. */
export const PLACEMENT_DISK_WRITES: readonly PlacementDiskWrite[] = Object.freeze(['wait', 'evicted']);

/** The options of a {@link PlacementSimulation}. */
export interface PlacementOptions extends CoreOptions {
  /** Nodes in the cluster. */
  readonly nodes: number;
  /** Pool of each node, in bytes. */
  readonly poolBytes: number;
  /** The length of every page, in bytes. */
  readonly pageBytes: number;
  /** Default: `lru`. */
  readonly policy?: EvictionPolicy;
  /** Default: `round-robin`, as in `meshcache replay`. */
  readonly routing?: PlacementRouting;
  /** With `prefix` routing, the number of first pages that decide where a request goes. Default: 2. */
  readonly routingPages?: number;
  /**
   * Time after which an owner learns that another node has read its pages, which then count as used. Default:
   * READ_REPORT_DELAY_MS, as for real nodes; 0: at once; Infinity: never.
   */
  readonly reportDelayMs?: number;
  /**
   * Milliseconds of trace time for which the range of an evicted page is withheld; at most a sixteenth of the pool is
   * withheld. Default: 0.
   */
  readonly quarantineMs?: number;
  /** No page crosses a multiple of this in the pool. Default: the pool's size. */
  readonly segmentBytes?: number;
  /** Pages of one read or write call of the simulated program. Default: 128. */
  readonly batchPages?: number;
  /** Trace time covered by one element of the series. Default: a minute. */
  readonly intervalMs?: number;
  /** Pages in the disk tier of the node; only one node may have one. Default: 0, no disk tier. */
  readonly diskPages?: number;
  /** Which pages the disk tier writes. Default: `wait`. */
  readonly diskWrite?: PlacementDiskWrite;
  /** Points of each node on the hash ring. Default: 160. */
  readonly vnodes?: number;
}

/** The options with their defaults. */
export type PlacementSettings = Required<Omit<PlacementOptions, 'core' | 'segmentBytes'>>;

const OPTION_NAMES: ReadonlySet<string> = new Set([
  ...['core', 'nodes', 'poolBytes', 'pageBytes', 'policy', 'routing', 'routingPages', 'reportDelayMs'],
  ...['quarantineMs', 'segmentBytes', 'batchPages', 'intervalMs', 'vnodes'],
  ...['diskPages', 'diskWrite'],
]);
const NODES_MAX_COUNT = 4096;
const PLACEMENT_POOL_MAX_BYTES = 2 ** 52;

/** Checks the options and fills in defaults. Throws `ArgumentError` for invalid options. */
export function placementSettings(options: PlacementOptions): PlacementSettings {
  if (typeof options !== 'object' || options === null) {
    throw new ArgumentError(
      `PlacementSimulation: needs options with nodes, poolBytes and pageBytes, got ${shown(options)}`,
    );
  }
  checkNames('PlacementSimulation', options, OPTION_NAMES);
  const settings: PlacementSettings = {
    nodes: options.nodes,
    poolBytes: options.poolBytes,
    pageBytes: options.pageBytes,
    policy: options.policy ?? 'lru',
    routing: options.routing ?? 'round-robin',
    routingPages: options.routingPages ?? 2,
    reportDelayMs: options.reportDelayMs ?? READ_REPORT_DELAY_MS,
    quarantineMs: options.quarantineMs ?? 0,
    batchPages: options.batchPages ?? 128,
    intervalMs: options.intervalMs ?? 60_000,
    diskPages: options.diskPages ?? 0,
    diskWrite: options.diskWrite ?? 'wait',
    vnodes: options.vnodes ?? VNODES_DEFAULT_COUNT,
  };
  checkWhole('nodes', settings.nodes, 1, NODES_MAX_COUNT);
  checkWhole('pageBytes', settings.pageBytes, 1, PLACEMENT_POOL_MAX_BYTES);
  checkWhole('poolBytes', settings.poolBytes, settings.pageBytes, PLACEMENT_POOL_MAX_BYTES);
  checkWhole('routingPages', settings.routingPages, 1, Number.MAX_SAFE_INTEGER);
  checkWhole('batchPages', settings.batchPages, 1, Number.MAX_SAFE_INTEGER);
  checkWhole('vnodes', settings.vnodes, 1, Math.floor(RING_MAX_POINTS / settings.nodes));
  checkWhole('diskPages', settings.diskPages, 0, Math.floor(PLACEMENT_POOL_MAX_BYTES / settings.pageBytes));
  if (settings.diskPages > 0 && settings.nodes > 1) {
    throw new ArgumentError(`diskPages: only one node may have a disk tier, got ${settings.nodes} nodes`);
  }
  checkOneOf('diskWrite', settings.diskWrite, PLACEMENT_DISK_WRITES);
  checkOneOf('policy', settings.policy, PLACEMENT_POLICIES);
  checkOneOf('routing', settings.routing, PLACEMENT_ROUTINGS);
  if (!(settings.reportDelayMs >= 0)) {
    throw new ArgumentError(`reportDelayMs must be 0 or more, got ${shown(settings.reportDelayMs)}`);
  }
  if (!(settings.intervalMs > 0 && Number.isFinite(settings.intervalMs))) {
    throw new ArgumentError(`intervalMs must be above 0, got ${shown(settings.intervalMs)}`);
  }
  return settings;
}

function checkWhole(name: string, value: number, min: number, max: number): void {
  if (Number.isSafeInteger(value) && value >= min && value <= max) return;
  throw new ArgumentError(`${name} must be an integer of ${min} to ${max}, got ${shown(value)}`);
}

function checkOneOf(name: string, value: string, allowed: readonly string[]): void {
  if (allowed.includes(value)) return;
  throw new ArgumentError(`${name} must be one of ${allowed.join(', ')}, got ${shown(value)}`);
}
