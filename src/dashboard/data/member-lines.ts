import { fillOf } from './history.js';
import { amount, type LooseReport } from './loose.js';
import type { Member } from './members.js';
import { type Fill, fillShare } from './points.js';

/** The figures of a member for a row of the table; null where nothing is known. */
export interface MemberLine {
  readonly member: Member;
  readonly readP99S: number | null;
  readonly readBytesPerS: number | null;
  readonly writtenBytesPerS: number | null;
  readonly prefixHit: number | null;
  readonly lifetimeS: number | null;
  readonly evictionsPerS: number | null;
  readonly loopP99S: number | null;
  readonly pool: Fill | null;
  readonly disk: Fill | null;
  readonly clients: number | null;
  readonly rssBytes: number | null;
  readonly ringShare: number | null;
  readonly uptimeS: number | null;
  /** Rack or zone of its host; null without one. */
  readonly zone: string | null;
  /** Part of the pages read from other nodes that came from another zone. */
  readonly farShare: number | null;
  readonly version: string | null;
  readonly protocol: string | null;
  /** Why reads go over another transport than was wanted. */
  readonly fallback: string;
}

export function memberLine(member: Member): MemberLine {
  const report = member.state === 'up' ? member.report : undefined;
  const { recent } = report ?? {};
  const lookups = amount(recent?.lookups?.asked);
  return {
    member,
    readP99S: figure(recent?.read_p99_s),
    readBytesPerS: figure(recent?.read_bytes_per_s),
    writtenBytesPerS: figure(recent?.written_bytes_per_s),
    prefixHit: lookups > 0 ? amount(recent?.lookups?.found) / lookups : null,
    lifetimeS: figure(recent?.page_lifetime_s),
    evictionsPerS: figure(recent?.evictions_per_s),
    loopP99S: figure(report?.event_loop_delay?.p99_s),
    pool: filled(report && fillOf(report.pool)),
    disk: filled(report && fillOf(report.disk ?? undefined)),
    clients: figure(report?.clients?.attached),
    rssBytes: figure(report?.rss_bytes),
    ringShare: member.state === 'up' || member.state === 'unreachable' ? member.ringShare : null,
    uptimeS: figure(report?.uptime_s),
    zone: report?.zone === undefined ? null : String(report.zone),
    farShare: farShareOf(report),
    version: report?.version === undefined ? null : String(report.version),
    protocol: report?.data_protocol === undefined ? null : String(report.data_protocol),
    fallback: fallbackOf(report),
  };
}

/** What all nodes that answer share, so that it need not stand in each row; null where they differ. */
export interface Shared {
  readonly version: string | null;
  readonly protocol: string | null;
  readonly fallback: string;
  readonly hasDisk: boolean;
  readonly hasClients: boolean;
  readonly hasZones: boolean;
}

export function sharedBy(lines: readonly MemberLine[]): Shared {
  const up = lines.filter(({ member }) => member.state === 'up');
  const [first] = up;
  const isSame = (of: (line: MemberLine) => string | null): boolean =>
    first !== undefined && up.every((line) => of(line) === of(first));
  const isSameTransport = isSame(({ protocol, fallback }) => JSON.stringify([protocol, fallback]));
  return {
    version: isSame(({ version }) => version) ? (first?.version ?? null) : null,
    protocol: isSameTransport ? (first?.protocol ?? null) : null,
    fallback: isSameTransport ? (first?.fallback ?? '') : '',
    hasDisk: lines.some(({ disk }) => disk !== null),
    hasClients: lines.some(({ clients }) => clients !== null),
    hasZones: lines.some(({ zone }) => zone !== null),
  };
}

/** The shortest and the longest page lifetime of these members; null while none of them evicts. */
export function lifetimesOf(lines: readonly MemberLine[]): { readonly least: number; readonly most: number } | null {
  const known = lines.flatMap(({ lifetimeS }) => (lifetimeS === null ? [] : [lifetimeS]));
  return known.length === 0 ? null : { least: Math.min(...known), most: Math.max(...known) };
}

function figure(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null;
}

function filled(fill: Fill | undefined): Fill | null {
  return fill === undefined || fillShare(fill) === null ? null : fill;
}

function farShareOf(report: LooseReport | undefined): number | null {
  const { host, zone, other } = report?.by_distance?.read_pages ?? {};
  const read = amount(host) + amount(zone) + amount(other);
  return read === 0 ? null : amount(other) / read;
}

function fallbackOf(report: LooseReport | undefined): string {
  const reason = String(report?.transport?.reason ?? '');
  return reason === '' ? '' : `not ${String(report?.transport?.wanted ?? 'the wanted transport')}: ${reason}`;
}
