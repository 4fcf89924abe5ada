import { HISTORY_INTERVALS_COUNT } from '../base/limits.js';
import type { HistoryReport } from './history-report.js';

type Check = (value: unknown) => boolean;
type Shape = Readonly<Record<string, Check>>;

/**
 * Whether a peer's answer can be used as a report, whatever its version: missing fields are unknown to readers, and
 * present fields have the types that readers compute with and show. An odd answer of one member must not spoil the view
 * of all.
 */
export function isReportLike(answer: unknown): boolean {
  return has(answer, REPORT) && isPlain(answer);
}

/** Whether a peer's answer can be used as its history: columns of numbers, no longer than a history can be. */
export function isHistoryLike(answer: unknown): answer is HistoryReport {
  return hasAll(answer, HISTORY);
}

/** Whether JSON can represent the value. */
function isPlain(value: unknown): boolean {
  if (typeof value === 'bigint') return false;
  if (typeof value !== 'object' || value === null) return true;
  return !(value instanceof Uint8Array) && Object.values(value).every(isPlain);
}

const isText: Check = (value) => typeof value === 'string';
const isNumber: Check = (value) => typeof value === 'number';
const isScalar: Check = (value) => typeof value !== 'object' || value === null;
const isListOf = (check: Check): Check => {
  return (value) => Array.isArray(value) && value.every(check);
};
const isMapWith = (shape: Shape): Check => {
  return (value) => has(value, shape);
};
const isMapOf = (check: Check): Check => {
  return (value) => isRecord(value) && Object.values(value).every(check);
};

const isLatency = isMapWith({ buckets: isListOf(isNumber) });
const isEvent = isMapWith({ message: isScalar, fields: isMapOf(isScalar) });

const isClient = isMapWith({
  name: isText,
  mode: isText,
  pid: isNumber,
  requests: isNumber,
  errors: isNumber,
  in_flight: isNumber,
  lookups: isNumber,
  found: isNumber,
  hits: isNumber,
  misses: isNumber,
  pages_written: isNumber,
  read_bytes: isNumber,
  written_bytes: isNumber,
  mapped_bytes: isNumber,
});

const isNamespace: Check = (value) =>
  hasAll(value, {
    digest: isText,
    model_name: isText,
    dtype: isText,
    layout: isText,
    tag: isText,
    fingerprint: isText,
    tp_rank: isNumber,
    tp_size: isNumber,
    pp_rank: isNumber,
    pp_size: isNumber,
    attached: isNumber,
    clients: isListOf(isText),
  });

const isAmount: Check = (value) => value === null || (isNumber(value) && Number.isFinite(value));
const isRecent = isMapWith({
  window_s: isAmount,
  read_p50_s: isAmount,
  read_p99_s: isAmount,
  read_bytes_per_s: isAmount,
  written_bytes_per_s: isAmount,
  evictions_per_s: isAmount,
  lookups: isMapOf(isAmount),
  page_lifetime_s: isAmount,
});
const isInteger: Check = (value) => Number.isSafeInteger(value);
const isDeparted: Check = (value) =>
  hasAll(value, {
    node_id: isText,
    incarnation: isInteger,
    control_endpoint: isText,
    how: isText,
    time_ms: isInteger,
  });
const isMemberEvent: Check = (value) =>
  hasAll(value, {
    node_id: isText,
    incarnation: isInteger,
    change: isText,
    time_ms: isInteger,
  });

const REPORT: Shape = {
  zone: isText,
  by_distance: isMapOf(isMapOf(isNumber)),
  vnodes: (value) => Number.isSafeInteger(value) && (value as number) >= 1 && (value as number) <= 4096,
  masters: isListOf(isText),
  unreachable: isListOf(isText),
  clock_offset_s: isNumber,
  discovery: isMapWith({ source: isText, found: isNumber, answered_ago_s: isAmount, trouble: isText }),
  control_endpoint: isText,
  data_endpoint: isText,
  data_protocol: isText,
  metrics_endpoint: isText,
  metrics_tls: (value) => typeof value === 'boolean',
  transport: isMapWith({ wanted: isText, reason: isText }),
  health: (value) => isRecord(value) && isListOf(isText)(value.reasons),
  latency: isMapWith({ bounds_s: isListOf(isNumber), read: isMapOf(isLatency), write: isLatency }),
  clients: isMapWith({
    socket: isText,
    attached: isNumber,
    busiest: isListOf(isClient),
    namespaces: isListOf(isNamespace),
  }),
  role: isText,
  write_policy: isText,
  placement: isMapOf(isNumber),
  object_store: isRecord,
  recent: isRecent,
  departed: isListOf(isDeparted),
  member_events: isListOf(isMemberEvent),
  events: isListOf((value) => isEvent(value) && isRecord((value as { fields?: unknown }).fields)),
};

const HISTORY_MAX_ROWS = Math.max(...HISTORY_INTERVALS_COUNT) + 1;
const isColumn: Check = (value) =>
  Array.isArray(value) && value.length <= HISTORY_MAX_ROWS && value.every((each) => Number.isFinite(each));
const isColumns: Check = (value) =>
  isMapOf(isColumn)(value) && Object.keys(value as object).length <= HISTORY_MAX_COLUMNS;
const HISTORY_MAX_COLUMNS = 100;

const HISTORY: Shape = {
  incarnation: isInteger,
  from_age_ms: (value) => Number.isFinite(value),
  ages_ms: isColumn,
  counts: isColumns,
  gauges: isColumns,
  read_latency: (value) => hasAll(value, { bounds_s: isColumn, buckets: isColumns }),
  totals: (value) => hasAll(value, { counts: isMapOf((count) => Number.isFinite(count)), read_buckets: isColumn }),
};

/** Whether all fields are present and have the right form. */
function hasAll(value: unknown, shape: Shape): boolean {
  return isRecord(value) && Object.entries(shape).every(([name, check]) => check(value[name]));
}

/** Whether the fields that are present have the right form. */
function has(value: unknown, shape: Shape): boolean {
  if (!isRecord(value)) return false;
  return Object.entries(shape).every(([name, check]) => value[name] === undefined || check(value[name]));
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array);
}
