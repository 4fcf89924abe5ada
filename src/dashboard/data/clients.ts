import { compareNames } from '../../base/names.js';
import { shareOf } from './counts.js';
import { amount, type LooseReport } from './loose.js';
import type { Member } from './members.js';

/** Rows that a browser can update every second. */
export const CLIENT_LINES_MAX_COUNT = 100;

/** A process that is attached to a node. */
export interface ClientLine {
  readonly nodeId: string;
  readonly name: string;
  readonly pid: number;
  readonly mode: string;
  readonly requests: number;
  readonly inFlight: number;
  /**
   * Part of what it asked for that was there: of its lookups, or, if it makes none, of its reads; null if it asked for
   * nothing.
   */
  readonly prefixHit: number | null;
  readonly readBytes: number;
  readonly writtenBytes: number;
  readonly errors: number;
  readonly mappedBytes: number;
}

/**
 * The clients of the nodes that answer, by node, name and process: at most CLIENT_LINES_MAX_COUNT, those with the most
 * bytes.
 */
export function clientLines(members: readonly Member[]): ClientLine[] {
  const all = members.flatMap(linesOf);
  const moved = (line: ClientLine): number => line.readBytes + line.writtenBytes;
  const busiest = all.sort((a, b) => moved(b) - moved(a)).slice(0, CLIENT_LINES_MAX_COUNT);

  return busiest.sort((a, b) => compareNames(a.nodeId, b.nodeId) || compareNames(a.name, b.name) || a.pid - b.pid);
}

/** Number of clients attached to these nodes beside the `lineCount` shown ones. */
export function unlistedCount(members: readonly Member[], lineCount: number): number {
  const attached = members.reduce(
    (sum, { state, report }) => sum + (state === 'up' ? amount(report?.clients?.attached) : 0),
    0,
  );
  return Math.max(0, attached - lineCount);
}

type LooseClient = NonNullable<NonNullable<LooseReport['clients']>['busiest']>[number];

function prefixHitOf({ lookups, found, hits, misses }: LooseClient): number | null {
  return amount(lookups) > 0
    ? shareOf(amount(found), amount(lookups))
    : shareOf(amount(hits), amount(hits) + amount(misses));
}

function linesOf({ nodeId, state, report }: Member): ClientLine[] {
  if (state !== 'up') return [];
  return (report?.clients?.busiest ?? []).map((client) => ({
    nodeId,
    name: String(client.name ?? ''),
    pid: amount(client.pid),
    mode: String(client.mode ?? ''),
    requests: amount(client.requests),
    inFlight: amount(client.in_flight),
    prefixHit: prefixHitOf(client),
    readBytes: amount(client.read_bytes),
    writtenBytes: amount(client.written_bytes),
    errors: amount(client.errors),
    mappedBytes: amount(client.mapped_bytes),
  }));
}
