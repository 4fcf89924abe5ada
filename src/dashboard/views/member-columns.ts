import type { MemberLine, Shared } from '../data/member-lines.js';
import { fillShare } from '../data/points.js';
import {
  formatByteRate,
  formatBytes,
  formatCount,
  formatDuration,
  formatLatency,
  formatPageRate,
  formatShare,
} from './format.js';

/** A column of the table of members, behind its name and state. */
export interface MemberColumn {
  readonly key: string;
  readonly label: string;
  /** What the column is sorted by; null where nothing is known, which is last in any order. */
  readonly value: (line: MemberLine) => number | string | null;
  readonly text: (line: MemberLine) => string;
  /** A smaller line below. */
  readonly note?: (line: MemberLine) => string;
  /** Which bar the share is drawn as. */
  readonly bar?: string;
  /** Whether the column says anything, as nodes differ in it. */
  readonly isShown?: (shared: Shared) => boolean;
}

/** A column of numbers, which `format` turns into text. */
function numbers(
  key: string,
  label: string,
  value: (line: MemberLine) => number | null,
  format: (value: number) => string,
): MemberColumn {
  return { key, label, value, text: (line) => format(value(line) as number) };
}

function fills(key: 'pool' | 'disk', label: string, bar: string): MemberColumn {
  const value = (line: MemberLine): number | null => {
    const fill = line[key];
    return fill && fillShare(fill);
  };
  const sizes = ({ [key]: fill }: MemberLine): string =>
    fill === null ? '' : `${formatBytes(fill.usedBytes)} of ${formatBytes(fill.capacityBytes)}`;
  return { ...numbers(key, label, value, formatShare), note: sizes, bar };
}

/** The columns, in their order. */
export const MEMBER_COLUMNS: readonly MemberColumn[] = [
  numbers('read_p99_s', 'Read p99', ({ readP99S }) => readP99S, formatLatency),
  numbers('read_bytes_per_s', 'Read', ({ readBytesPerS }) => readBytesPerS, formatByteRate),
  numbers('written_bytes_per_s', 'Written', ({ writtenBytesPerS }) => writtenBytesPerS, formatByteRate),
  numbers('prefix_hit', 'Prefix hit', ({ prefixHit }) => prefixHit, formatShare),
  numbers('evictions_per_s', 'Evicted', ({ evictionsPerS }) => evictionsPerS, formatPageRate),
  numbers('page_lifetime_s', 'Page lifetime', ({ lifetimeS }) => lifetimeS, formatDuration),
  numbers('event_loop_p99_s', 'Loop delay p99', ({ loopP99S }) => loopP99S, formatLatency),
  fills('pool', 'Pool', 'local'),
  { ...fills('disk', 'Disk', 'disk'), isShown: ({ hasDisk }) => hasDisk },
  { ...numbers('clients', 'Clients', ({ clients }) => clients, formatCount), isShown: ({ hasClients }) => hasClients },
  numbers('rss_bytes', 'Memory', ({ rssBytes }) => rssBytes, formatBytes),
  numbers('ring_share', 'Ring share', ({ ringShare }) => ringShare, formatShare),
  {
    key: 'zone',
    label: 'Zone',
    value: ({ zone }) => zone,
    text: ({ zone }) => zone ?? '',
    isShown: ({ hasZones }) => hasZones,
  },
  {
    ...numbers('far_share', 'Read from other zones', ({ farShare }) => farShare, formatShare),
    isShown: ({ hasZones }) => hasZones,
  },
  numbers('uptime_s', 'Uptime', ({ uptimeS }) => uptimeS, formatDuration),
  {
    key: 'version',
    label: 'Version',
    value: ({ version }) => version,
    text: ({ version }) => version ?? '',
    isShown: ({ version }) => version === null,
  },
  {
    key: 'protocol',
    label: 'Reads over',
    value: ({ protocol }) => protocol,
    text: ({ protocol }) => protocol ?? '',
    note: ({ fallback }) => fallback,
    isShown: ({ protocol }) => protocol === null,
  },
];
