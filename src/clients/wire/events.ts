import { ProtocolError } from '../../base/errors.js';
import { CLIENT_EVENTS_MAX_KEYS, CLIENT_EVENTS_POOLS_MAX_COUNT } from '../../base/limits.js';
import type { Tier } from '../../types.js';
import { BodyReader, BodyWriter } from './body.js';

/* The request EVENTS and its answer; PROTOCOL.md beside this file describes them byte by byte. */

/** Body of EVENTS. */
export interface EventsRequest {
  /** The position of the last answer. If it is empty, the answers begin with a list of all pages. */
  readonly position: string;
  /** The pools to report on; an empty name is the main pool. */
  readonly pools: readonly string[];
}

/** Kinds of the answer to EVENTS, by their numbers on the wire. `nothing`: the deadline passed without a change. */
export const EVENT_KINDS = ['nothing', 'reset', 'listed', 'complete', 'changed'] as const;
export type EventKind = (typeof EVENT_KINDS)[number];

/** A page of the client's namespace, and where it is now; null if the node no longer has it. */
export interface PoolChange {
  /** Index of the page's pool in the request. */
  readonly pool: number;
  readonly key: string;
  readonly tier: Tier | null;
}

/** Body of the answer to EVENTS. */
export interface EventsAnswer {
  readonly kind: EventKind;
  /** Position to send with the next EVENTS. */
  readonly position: string;
  /** Milliseconds since 1970 at which the pages changed; 0 for answers that are not `changed`. */
  readonly atMs: number;
  readonly changes: readonly PoolChange[];
}

/** Tiers by their numbers on the wire. */
const TIERS: readonly (Tier | null)[] = [null, 'memory', 'disk'];

export function encodeEvents({ position, pools }: EventsRequest): Buffer {
  const writer = new BodyWriter().text16(position).u16(pools.length);
  for (const pool of pools) writer.text16(pool);
  return writer.done();
}

export function decodeEvents(body: Buffer): EventsRequest {
  const reader = new BodyReader(body);
  const position = reader.text16();
  const count = reader.u16();
  if (count < 1 || count > CLIENT_EVENTS_POOLS_MAX_COUNT) {
    throw new ProtocolError(`events of ${count} pools, allowed are 1 to ${CLIENT_EVENTS_POOLS_MAX_COUNT}`);
  }
  const pools = Array.from({ length: count }, () => reader.text16());
  reader.end();
  return { position, pools };
}

export function encodeEventsAnswer({ kind, position, atMs, changes }: EventsAnswer): Buffer {
  const groups = new Map<string, PoolChange[]>();
  for (const change of changes) {
    const name = `${change.pool} ${change.tier}`;
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [change]);
    else group.push(change);
  }
  const writer = new BodyWriter(64 + 70 * changes.length);
  writer.u8(EVENT_KINDS.indexOf(kind)).text16(position).u64(atMs).u16(groups.size);
  for (const group of groups.values()) {
    const { pool, tier } = group[0] as PoolChange;
    writer
      .u16(pool)
      .u8(TIERS.indexOf(tier))
      .keys(group.map(({ key }) => key));
  }
  return writer.done();
}

/** Decodes the answer to an EVENTS of `poolCount` pools. Throws {@link ProtocolError}. */
export function decodeEventsAnswer(body: Buffer, poolCount: number): EventsAnswer {
  const reader = new BodyReader(body);
  const kind = EVENT_KINDS[reader.u8()];
  if (kind === undefined) throw new ProtocolError('an answer to EVENTS of a kind that is not known');
  const [position, atMs] = [reader.text16(), reader.u64()];
  const changes: PoolChange[] = [];
  for (let left = reader.u16(); left > 0; left--) {
    const [pool, tier] = [reader.u16(), TIERS[reader.u8()]];
    if (pool >= poolCount) throw new ProtocolError(`events of pool ${pool}, asked for were ${poolCount}`);
    if (tier === undefined) throw new ProtocolError('a page in a tier that is not known');
    for (const key of reader.keys(CLIENT_EVENTS_MAX_KEYS).all()) changes.push({ pool, key, tier });
  }
  reader.end();
  return { kind, position, atMs, changes };
}
