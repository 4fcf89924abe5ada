import { isVersion, type SharedClock } from '../../base/concurrency/hybrid-clock.js';
import { formatEndpoint, parseEndpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import { DISCOVERY_DEPARTURES_MAX_COUNT, MEMBERS_MAX_COUNT } from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import type { MessageCodec } from '../../rpc/message.js';
import type { DataProtocol, NodeInfo } from '../../types.js';
import { decodeDifferences, type Refusal } from './cluster-settings.js';
import { asMap, checkNodeId, type Departure, decodeNode } from './member-table.js';

/**
 * Members as rows, the compact form for lists of thousands. It is sent only to nodes that ask with `rows`.
 *
 *     row  [node_id, control_host, control_port, incarnation, protocols, tcp_port, tcp_host, rdma_port, rdma_host, metrics_port,
 *           metrics_host, is_listed, master_addr, zone, fingerprint, storage_pool_bytes, disk_hung]
 *
 * `protocols` are bits, 1 for tcp and 2 for rdma. A host that equals the control host is null, and a `master_addr` on
 * that host is its port. `storage_pool_bytes` is 0 for a node that is not a storage node. Default values at the end of
 * a row are left out; a reader ignores further values that it does not know.
 */

const PROTOCOL_BITS: readonly (readonly [DataProtocol, number])[] = [
  ['rdma', 2],
  ['tcp', 1],
];
/** Default values of the columns after the incarnation. */
const LEFT_OUT = [1, 0, null, 0, '', 0, '', false, '', undefined, '', 0, false] as const;
const COLUMNS_MIN_COUNT = 4;

function encodeRow(info: NodeInfo): unknown[] {
  const { controlHost } = info;
  const host = (name: string): string | null => (name === controlHost ? null : name);
  const master = parseEndpoint(info.masterAddr);
  const isOwnMaster = master?.host === controlHost && formatEndpoint(master) === info.masterAddr;
  const protocols = PROTOCOL_BITS.reduce((bits, [name, bit]) => bits | (info.protocols.includes(name) ? bit : 0), 0);
  const row: unknown[] = [info.nodeId, controlHost, info.controlPort, info.incarnation, protocols];
  row.push(
    info.tcpPort,
    host(info.tcpHost),
    info.rdmaPort,
    host(info.rdmaHost),
    info.metricsPort,
    host(info.metricsHost),
  );
  row.push(info.isListed, isOwnMaster ? master.port : info.masterAddr, info.zone, String(info.fingerprint ?? ''));
  row.push(info.role === 'storage' ? info.poolBytes : 0, info.isDiskHung);
  while (row.length > COLUMNS_MIN_COUNT && row.at(-1) === LEFT_OUT[row.length - 1 - COLUMNS_MIN_COUNT]) row.pop();
  return row;
}

/** Decodes a row; throws `ProtocolError` if it is invalid. */
function decodeRow(value: unknown): NodeInfo {
  if (!Array.isArray(value)) throw new ProtocolError('discovery: a member is no row');
  const [nodeId, controlHost, controlPort, incarnation, ...rest] = value as unknown[];
  const [
    bits,
    tcpPort,
    tcpHost,
    rdmaPort,
    rdmaHost,
    metricsPort,
    metricsHost,
    isListed,
    master,
    zone,
    print,
    storageBytes,
    isDiskHung,
  ] = LEFT_OUT.map((leftOut, i) => (rest[i] === undefined ? leftOut : rest[i]));
  if (typeof bits !== 'number') throw new ProtocolError('discovery: protocols of a row');
  const host = (name: unknown): unknown => (name === null ? controlHost : name);
  return decodeNode({
    node_id: nodeId,
    control_host: controlHost,
    control_port: controlPort,
    incarnation,
    protocols: PROTOCOL_BITS.filter(([, bit]) => (bits & bit) !== 0).map(([name]) => name),
    tcp_port: tcpPort,
    tcp_host: host(tcpHost),
    rdma_port: rdmaPort,
    rdma_host: host(rdmaHost),
    metrics_port: metricsPort,
    metrics_host: host(metricsHost),
    is_listed: isListed,
    master_addr: typeof master === 'number' ? formatEndpoint({ host: String(controlHost), port: master }) : master,
    zone,
    fingerprint: print,
    ...(storageBytes === 0 ? {} : { role: 'storage', pool_bytes: storageBytes }),
    disk_hung: isDiskHung,
  });
}

/**
 * Messages of discovery, methods of the control protocol:
 *
 *     discovery.register   { node, settings?, rows? }                                    -> answer
 *     discovery.heartbeat  { node_id, incarnation, master_id, version, wait_ms, changes, rows? } -> answer, after up to wait_ms
 *     discovery.leave      { node_id, incarnation }                                      -> {}
 *     discovery.known      { node_id, incarnation, master_id, wait_ms }                  -> { unaware: [node id] }, after up to wait_ms
 *     discovery.members    {}                                                            -> answer
 *
 *     answer  { status, master_id, version, age_ms, roster?, refused_by?, differences? }
 *             with the status `refused`: the node of the master, and [[key, the asker's value, that node's value]]
 *     roster  binary: msgpack { members: [node], gone: [[node id, incarnation, has left?]], base?, removed? }, encoded once a
 *             version; with `base` (only if the node asked for `changes`): what has changed since that version. If the
 *             node asked for `rows`, it has `rows` instead of `members`, as described at the top of this file
 *     node    as `NodeInfo.toDict` has it
 *     settings  as `encodeSettings` has them
 */

export const DiscoveryMethod = {
  register: 'discovery.register',
  heartbeat: 'discovery.heartbeat',
  leave: 'discovery.leave',
  known: 'discovery.known',
  members: 'discovery.members',
} as const;

const STATUSES = ['ok', 'unknown', 'replaced', 'full', 'refused'] as const;
const MASTER_ID_MAX_CHARACTERS = 64;

export interface Roster {
  readonly members: ReadonlyMap<string, NodeInfo>;
  /** Nodes that left or expired recently. */
  readonly gone: readonly Departure[];
}

/** A roster that its owner may modify. */
export interface OwnRoster extends Roster {
  readonly members: Map<string, NodeInfo>;
}

/** A whole list, or the changes since the version `base`: members that joined or changed, and ids of removed ones. */
export interface RosterNews extends OwnRoster {
  readonly base: number | undefined;
  readonly removed: readonly string[];
}

export interface MasterAnswer {
  readonly status: (typeof STATUSES)[number];
  /** Id of this start of the master. */
  readonly masterId: string;
  readonly version: number;
  /** Milliseconds that the master has run; a young master does not know all nodes yet. */
  readonly ageMs: number;
  /** The present of the master's node, as a version; 0: it was not sent. */
  readonly clock: number;
  /** The date of the cluster as the master knows it, in milliseconds since 1970; undefined: not sent, or not known. */
  readonly clusterMs: number | undefined;
  /** Number of dates, the master's own among them, that agree with the date of the cluster. */
  readonly clusterDates: number;
  /** The list or its changes; undefined if the asking node has this version. */
  readonly roster: RosterNews | undefined;
  /** Present only with the status `refused`. */
  readonly refusal: Refusal | undefined;
}

/** Encoding of members: maps are for nodes that do not know rows. */
export type MemberForm = 'maps' | 'rows';

export function encodeRoster(codec: MessageCodec, roster: Roster, form: MemberForm): Uint8Array {
  return codec.encode(rosterFields(roster, form));
}

/** Encodes the part of `roster` about the ids `changed`, for a node that has the version `base`. */
export function encodeChanges(
  codec: MessageCodec,
  roster: Roster,
  { base, changed, form }: { readonly base: number; readonly changed: ReadonlySet<string>; readonly form: MemberForm },
): Uint8Array {
  const ids = [...changed];
  const removed = ids.filter((nodeId) => !roster.members.has(nodeId));
  const members = new Map(
    ids.flatMap((nodeId) => {
      const info = roster.members.get(nodeId);
      return info === undefined ? [] : [[nodeId, info] as const];
    }),
  );
  const gone = roster.gone.filter(({ nodeId }) => changed.has(nodeId));
  return codec.encode({ ...rosterFields({ members, gone }, form), base, removed });
}

/**
 * Applies news to the roster `before`, which must not be used afterwards. Undefined: the news do not apply to it, or
 * would make it too long; then `before` is unchanged.
 */
export function rosterAfter(before: OwnRoster | undefined, news: RosterNews, version: number): OwnRoster | undefined {
  if (news.base === undefined) return news;
  if (before === undefined || news.base !== version) return undefined;
  const { members } = before;
  if (sizeAfter(members, news) > MEMBERS_MAX_COUNT) return undefined;
  for (const nodeId of news.removed) members.delete(nodeId);
  for (const [nodeId, info] of news.members) members.set(nodeId, info);
  const departures = [...before.gone, ...news.gone].filter(({ nodeId }) => !members.has(nodeId));
  return { members, gone: departures.slice(-DISCOVERY_DEPARTURES_MAX_COUNT) };
}

function sizeAfter(members: ReadonlyMap<string, NodeInfo>, news: RosterNews): number {
  let size = members.size;
  for (const nodeId of new Set(news.removed)) if (members.has(nodeId) && !news.members.has(nodeId)) size--;
  for (const nodeId of news.members.keys()) if (!members.has(nodeId)) size++;
  return size;
}

function rosterFields(roster: Roster, form: MemberForm): Record<string, unknown> {
  const infos = [...roster.members.values()];
  const gone = roster.gone.map(({ nodeId, incarnation, hasLeft }) =>
    hasLeft ? [nodeId, incarnation, true] : [nodeId, incarnation],
  );
  return form === 'rows' ? { rows: infos.map(encodeRow), gone } : { members: infos.map((info) => info.toDict()), gone };
}

/** Decodes an answer. Throws `ProtocolError`. */
export function decodeAnswer(codec: MessageCodec, value: unknown): MasterAnswer {
  const fields = asMap(value);
  const { status, master_id: masterId } = fields;
  if (!isStatus(status)) throw new ProtocolError(`discovery: status ${shown(status)}`);
  if (typeof masterId !== 'string' || masterId.length > MASTER_ID_MAX_CHARACTERS) {
    throw new ProtocolError('discovery: master_id');
  }
  return {
    status,
    masterId,
    version: wholeField(fields, 'version'),
    ageMs: wholeField(fields, 'age_ms'),
    clock: clockOf(fields),
    clusterMs: dateField(fields, 'cluster_ms'),
    clusterDates: dateField(fields, 'cluster_dates') ?? 0,
    roster: fields.roster instanceof Uint8Array ? decodeRoster(codec, fields.roster) : undefined,
    refusal:
      status === 'refused'
        ? { nodeId: checkNodeId(fields.refused_by), differences: decodeDifferences(fields.differences) }
        : undefined,
  };
}

/** The present of a node, and the date by its wall clock, as fields of a message. */
export function clockFields(clock: SharedClock | undefined): { readonly clock?: number; readonly date_ms?: number } {
  return clock === undefined ? {} : { clock: clock.present(), date_ms: clock.wallMs() };
}

/** A date in a message, in milliseconds since 1970; undefined: there is none. */
export function dateField(fields: Readonly<Record<string, unknown>>, name: string): number | undefined {
  const value = fields[name];
  return Number.isSafeInteger(value) ? (value as number) : undefined;
}

/** The present of a message's node, as a version; 0: it was not sent, as by nodes of older versions. */
export function clockOf({ clock }: Readonly<Record<string, unknown>>): number {
  return isVersion(clock) ? clock : 0;
}

function isStatus(status: unknown): status is MasterAnswer['status'] {
  return (STATUSES as readonly unknown[]).includes(status);
}

/** The node id and incarnation that a message is from. */
export function decodeIdentity(fields: Readonly<Record<string, unknown>>): Departure {
  return { nodeId: checkNodeId(fields.node_id), incarnation: wholeField(fields, 'incarnation') };
}

export function wholeField(fields: Readonly<Record<string, unknown>>, name: string): number {
  const value = fields[name];
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value;
  throw new ProtocolError(`discovery: ${name} must be a whole number`);
}

/** Decodes the answer of `discovery.known`: ids of members. Throws `ProtocolError`. */
export function decodeUnaware(value: unknown): ReadonlySet<string> {
  const { unaware } = asMap(value);
  if (!Array.isArray(unaware) || unaware.length > MEMBERS_MAX_COUNT) throw new ProtocolError('discovery: unaware');
  return new Set(unaware.map(checkNodeId));
}

function decodeRoster(codec: MessageCodec, bytes: Uint8Array): RosterNews {
  const fields = asMap(codec.decode(bytes));
  const { gone, removed = [] } = fields;
  const isRows = fields.rows !== undefined;
  const members = isRows ? fields.rows : fields.members;
  if (
    !Array.isArray(members) ||
    !Array.isArray(gone) ||
    !Array.isArray(removed) ||
    members.length > MEMBERS_MAX_COUNT ||
    gone.length > DISCOVERY_DEPARTURES_MAX_COUNT ||
    removed.length > MEMBERS_MAX_COUNT
  ) {
    throw new ProtocolError('discovery: roster');
  }
  const infos = members.map((member: unknown) => (isRows ? decodeRow(member) : decodeNode(member)));
  return {
    members: new Map(infos.map((info) => [info.nodeId, info])),
    gone: gone.map((entry: unknown) => {
      const [nodeId, incarnation, hasLeft] = Array.isArray(entry) ? (entry as unknown[]) : [];
      const departure = decodeIdentity({ node_id: nodeId, incarnation });
      return hasLeft === true ? { ...departure, hasLeft } : departure;
    }),
    base: fields.base === undefined ? undefined : wholeField(fields, 'base'),
    removed: removed.map((nodeId: unknown) => checkNodeId(nodeId)),
  };
}
