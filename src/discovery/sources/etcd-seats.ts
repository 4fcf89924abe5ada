import { type Endpoint, formatEndpoint, parseEndpoint } from '../../base/environment/network.js';
import { DISCOVERY_MASTERS_MAX_COUNT, NODE_ENDPOINT_MAX_CHARACTERS } from '../../base/limits.js';
import type { EtcdClient, EtcdObject } from './etcd-client.js';

/*
 * What is in etcd: one key for each node that runs a master, `/NAME/masters/NUMBER` with the numbers 00 to 15. Its value is
 * `{"addr":"host:port","node_id":"…"}`, and its lease that of the node. Other keys and other values are passed over, and stay as they are.
 */

/** Keys that are read, at most; there are more only if others have written there. */
const KEYS_MAX_COUNT = 2 * DISCOVERY_MASTERS_MAX_COUNT;

/** One key of a master. */
export interface EtcdSeat {
  readonly key: string;
  readonly endpoint: Endpoint;
  /** Id of the lease that the key ends with; '0': none. */
  readonly lease: string;
}

/** All keys of masters, in the order of their numbers, and the revision that they are of. */
export interface EtcdSeats {
  readonly seats: readonly EtcdSeat[];
  /** Keys among them whose values name no master, in order: others have written them. Their numbers are not free. */
  readonly foreign: readonly string[];
  readonly revision: number;
}

/** The range of all keys of a cluster's masters, for calls of etcd. */
export function seatRange(name: string): { readonly key: string; readonly range_end: string } {
  // The byte after the slash ends the range.
  return { key: base64(`/${name}/masters/`), range_end: base64(`/${name}/masters0`) };
}

/** Reads all keys of masters. Rejects as `EtcdClient.call` does. */
export async function readSeats(client: EtcdClient, name: string): Promise<EtcdSeats> {
  const answer = await client.call('kv/range', { ...seatRange(name), limit: KEYS_MAX_COUNT });
  const records = Array.isArray(answer.kvs) ? (answer.kvs as EtcdObject[]) : [];
  const revision = Number((answer.header as EtcdObject | undefined)?.revision ?? 0);
  const seats = records.flatMap((record) => parseSeat(record) ?? []);
  const foreign = records.flatMap((record) => (parseSeat(record) === undefined ? (keyIn(record) ?? []) : []));
  return { seats, foreign, revision };
}

/**
 * The keys after the events of a watch. Events that are not newer than `known` are in it already: a list and a watch
 * are two connections, and tell the same change at different times.
 */
export function afterEvents(known: EtcdSeats, events: unknown): EtcdSeats {
  if (!Array.isArray(events)) return known;
  const byKey = new Map<string, EtcdSeat | undefined>([
    ...known.foreign.map((key) => [key, undefined] as const),
    ...known.seats.map((seat) => [seat.key, seat] as const),
  ]);
  let { revision } = known;
  for (const event of events as readonly EtcdObject[]) {
    const record = (event?.kv ?? {}) as EtcdObject;
    const eventRevision = Number(record.mod_revision ?? 0);
    const key = keyIn(record);
    if (!(eventRevision > known.revision) || key === undefined) continue;
    revision = Math.max(revision, eventRevision);
    if (event.type === 'DELETE') byKey.delete(key);
    else if (byKey.size < KEYS_MAX_COUNT || byKey.has(key)) byKey.set(key, parseSeat(record));
  }
  if (revision === known.revision) return known;
  const sorted = [...byKey].sort(([a], [b]) => (a < b ? -1 : 1));
  const seats = sorted.flatMap(([, seat]) => seat ?? []);
  return { seats, foreign: sorted.flatMap(([key, seat]) => (seat === undefined ? key : [])), revision };
}

/** The first free key for a master; undefined: none is free. */
export function freeKey(name: string, { seats, foreign }: Pick<EtcdSeats, 'seats' | 'foreign'>): string | undefined {
  const taken = new Set([...seats.map(({ key }) => key), ...foreign]);
  const keys = Array.from({ length: DISCOVERY_MASTERS_MAX_COUNT }, (_, i) => keyOf(name, i));
  return keys.find((each) => !taken.has(each));
}

/** Takes a key with a lease; resolves with false if another node was faster. */
export async function takeSeat(
  client: EtcdClient,
  key: string,
  seat: { readonly addr: string; readonly nodeId: string; readonly lease: string },
): Promise<boolean> {
  const value = base64(JSON.stringify({ addr: seat.addr, node_id: seat.nodeId }));
  const answer = await client.call('kv/txn', {
    compare: [{ key: base64(key), target: 'CREATE', result: 'EQUAL', create_revision: '0' }],
    success: [{ request_put: { key: base64(key), value, lease: seat.lease } }],
  });
  return answer.succeeded === true;
}

/**
 * Rejects if this user may not write keys of masters: etcd checks the rights of a transaction, also of one that does
 * nothing.
 */
export async function checkRights(client: EtcdClient, name: string): Promise<void> {
  const key = base64(keyOf(name, 0));
  const compare = [{ key, target: 'VERSION', result: 'LESS', version: '0' }];
  await client.call('kv/txn', { compare, success: [{ request_put: { key, value: base64('{}') } }] });
}

function keyOf(name: string, number: number): string {
  return `/${name}/masters/${String(number).padStart(2, '0')}`;
}

function keyIn({ key }: EtcdObject): string | undefined {
  return typeof key === 'string' ? Buffer.from(key, 'base64').toString() : undefined;
}

function parseSeat({ key, value, lease = '0' }: EtcdObject): EtcdSeat | undefined {
  if (typeof key !== 'string' || typeof value !== 'string' || value.length > 2 * NODE_ENDPOINT_MAX_CHARACTERS + 1024) {
    return undefined;
  }
  try {
    const { addr } = JSON.parse(Buffer.from(value, 'base64').toString()) as { readonly addr?: unknown };
    const endpoint =
      typeof addr === 'string' && addr.length <= NODE_ENDPOINT_MAX_CHARACTERS ? parseEndpoint(addr) : undefined;
    if (endpoint === undefined || endpoint.port === 0) return undefined;
    return { key: Buffer.from(key, 'base64').toString(), endpoint, lease: String(lease) };
  } catch {
    return undefined;
  }
}

/** Whether one of the keys is for the master at this address. */
export function hasAddress(seats: readonly EtcdSeat[], addr: string): boolean {
  return seats.some(({ endpoint }) => formatEndpoint(endpoint) === addr);
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}
