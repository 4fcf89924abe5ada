import { assert, assertAtMost, assertEqual } from '../../base/assert.js';
import { parseEndpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import {
  DISCOVERY_CHANGES_MAX_COUNT,
  DISCOVERY_DEPARTURES_MAX_COUNT,
  MEMBERS_MAX_COUNT,
  NODE_ENDPOINT_MAX_CHARACTERS,
  NODE_ID_MAX_BYTES,
  ZONE_MAX_CHARACTERS,
} from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import { NodeInfo } from '../../types.js';

const HOST_MAX_CHARACTERS = 255;

/** Decodes the record of a node; throws `ProtocolError` if it is invalid. */
export function decodeNode(value: unknown): NodeInfo {
  const info = NodeInfo.fromDict(asMap(value));
  checkNodeId(info.nodeId);
  for (const host of [info.controlHost, info.rdmaHost, info.tcpHost, info.metricsHost]) {
    if (host.length > HOST_MAX_CHARACTERS) throw new ProtocolError('discovery: host name too long');
  }
  if (info.controlHost === '' || info.controlPort === 0) throw new ProtocolError('discovery: no control address');
  if (info.masterAddr !== '') checkMasterAddr(info.masterAddr);
  if (info.zone !== undefined && (info.zone.length > ZONE_MAX_CHARACTERS || hasControls(info.zone))) {
    throw new ProtocolError('discovery: zone');
  }
  return info;
}

/** Returns the value as a map. Throws `ProtocolError` if it is not one. */
export function asMap(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new ProtocolError('discovery: not a map');
}

/** Returns the value as a node id. Throws `ProtocolError` if it is not one. */
export function checkNodeId(value: unknown): string {
  const isId = typeof value === 'string' && value !== '' && bytesOf(value) <= NODE_ID_MAX_BYTES;
  if (isId && !hasControls(value)) return value;
  throw new ProtocolError('discovery: node_id');
}

/** Upper bound of the text's length in UTF-8; exact near the limit. */
function bytesOf(text: string): number {
  const maxBytes = 3 * text.length;
  return maxBytes <= NODE_ID_MAX_BYTES ? maxBytes : Buffer.byteLength(text);
}

/**
 * Whether the text has control characters (`\p{Cc}`). A loop is used for speed, because every heartbeat and every
 * member of a list is checked.
 */
function hasControls(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x20 || (unit >= 0x7f && unit < 0xa0)) return true;
  }
  return false;
}

function checkMasterAddr(addr: string): void {
  const endpoint = addr.length <= NODE_ENDPOINT_MAX_CHARACTERS ? parseEndpoint(addr) : undefined;
  if (endpoint === undefined || endpoint.port === 0) throw new ProtocolError(`discovery: master_addr ${shown(addr)}`);
}

export type MemberStatus = 'ok' | 'unknown' | 'replaced' | 'full';

interface Member {
  readonly info: NodeInfo;
  lastSeenMs: number;
  /** How far its date is ahead of the master's monotonic clock, in milliseconds; undefined: it was not sent. */
  dateAheadMs: number | undefined;
  /** The first version that has this start. */
  readonly sinceVersion: number;
  /** The version that the member goes by; 0: it has not said so yet. */
  followedVersion: number;
}

/** What a member states with a heartbeat. */
interface Stated {
  /** How far its date is ahead of the master's monotonic clock, in milliseconds; undefined: it was not sent. */
  readonly dateAheadMs?: number | undefined;
  /** The version that it goes by; 0: none of this master's; undefined: as it stated before. */
  readonly followedVersion?: number | undefined;
}

/** A start of a node that is no longer a member. */
export interface Departure {
  readonly nodeId: string;
  readonly incarnation: number;
  /** Set if the node left; otherwise it was silent for the time-to-live and may return. */
  readonly hasLeft?: true;
}

/**
 * The members as one master knows them: soft state that their heartbeats keep alive. Time is passed in (monotonic
 * milliseconds). For each node id, the newest incarnation counts.
 */
export class MemberTable {
  readonly #ttlMs: number;
  readonly #members = new Map<string, Member>();
  #departures: Departure[] = [];
  #version = 1;
  /** Ids of the members of the last changes, one for each version up to `#version`. */
  readonly #changes: string[] = [];

  constructor(ttlMs: number) {
    this.#ttlMs = ttlMs;
  }

  /** Version of the membership; every change makes a new one. */
  get version(): number {
    return this.#version;
  }

  get size(): number {
    return this.#members.size;
  }

  get departures(): readonly Departure[] {
    return this.#departures;
  }

  members(): Map<string, NodeInfo> {
    return new Map([...this.#members].map(([nodeId, { info }]) => [nodeId, info]));
  }

  /** Ids of members that joined, left or changed since `version`; undefined: that is too long ago, or unknown. */
  changedSince(version: number): ReadonlySet<string> | undefined {
    const count = this.#version - version;
    if (count < 0 || count > this.#changes.length) return undefined;
    return new Set(this.#changes.slice(this.#changes.length - count));
  }

  /** How far the dates of the members, except one, are ahead of the master's monotonic clock, in milliseconds. */
  datesAheadMs(exceptId: string): number[] {
    const dates: number[] = [];
    for (const [nodeId, { dateAheadMs }] of this.#members) {
      if (nodeId !== exceptId && dateAheadMs !== undefined) dates.push(dateAheadMs);
    }
    return dates;
  }

  register(info: NodeInfo, nowMs: number, dateAheadMs?: number): MemberStatus {
    const known = this.#members.get(info.nodeId);
    if (known !== undefined && known.info.incarnation > info.incarnation) return 'replaced';
    if (known === undefined && this.#members.size >= MEMBERS_MAX_COUNT) return 'full';
    const isSameStart = known?.info.incarnation === info.incarnation;
    const { sinceVersion, followedVersion } = isSameStart
      ? known
      : { sinceVersion: this.#version + 1, followedVersion: 0 };
    this.#members.set(info.nodeId, { info, lastSeenMs: nowMs, dateAheadMs, sinceVersion, followedVersion });
    if (known === undefined) this.#departures = this.#departures.filter(({ nodeId }) => nodeId !== info.nodeId);
    if (known === undefined || !isSameInfo(known.info, info)) this.#changed(info.nodeId);
    return 'ok';
  }

  /** A member whose fingerprint for this node's namespace differs from this node's; undefined: there is none. */
  disagreeing({ nodeId, fingerprint }: NodeInfo): NodeInfo | undefined {
    if (fingerprint === undefined) return undefined;
    for (const { info } of this.#members.values()) {
      if (info.nodeId !== nodeId && info.fingerprint?.differsFrom(fingerprint)) return info;
    }
    return undefined;
  }

  heartbeat(nodeId: string, incarnation: number, nowMs: number, stated: Stated = {}): MemberStatus {
    const known = this.#members.get(nodeId);
    if (known === undefined || known.info.incarnation < incarnation) return 'unknown';
    if (known.info.incarnation > incarnation) return 'replaced';
    known.lastSeenMs = nowMs;
    known.dateAheadMs = stated.dateAheadMs;
    known.followedVersion = stated.followedVersion ?? known.followedVersion;
    return 'ok';
  }

  /** The first version that has this start of a node; undefined: it is no member. */
  sinceVersion(nodeId: string, incarnation: number): number | undefined {
    const member = this.#members.get(nodeId);
    return member?.info.incarnation === incarnation ? member.sinceVersion : undefined;
  }

  /** The latest version that every member goes by. */
  followedByAll(): number {
    let lowest = this.#version;
    for (const { followedVersion } of this.#members.values()) lowest = Math.min(lowest, followedVersion);
    return lowest;
  }

  /** Ids of the members that go by an earlier version. */
  notFollowing(version: number): string[] {
    return [...this.#members].flatMap(([nodeId, { followedVersion }]) => (followedVersion < version ? [nodeId] : []));
  }

  /** The record of a member; undefined: the node is not a member. */
  member(nodeId: string): NodeInfo | undefined {
    return this.#members.get(nodeId)?.info;
  }

  /** Removes a member that the master refuses from now on. */
  refuse(nodeId: string): void {
    const incarnation = this.#members.get(nodeId)?.info.incarnation;
    if (incarnation !== undefined) this.#remove({ nodeId, incarnation });
  }

  /** Removes a member that leaves; without effect for another incarnation than the present one. */
  leave(nodeId: string, incarnation: number): void {
    if (this.#members.get(nodeId)?.info.incarnation !== incarnation) return;
    this.#remove({ nodeId, incarnation, hasLeft: true });
  }

  /** Removes members that have been silent for the time-to-live. */
  expire(nowMs: number): void {
    for (const [nodeId, member] of this.#members) {
      if (nowMs - member.lastSeenMs < this.#ttlMs) continue;
      this.#remove({ nodeId, incarnation: member.info.incarnation });
    }
  }

  /** Extends the time of all members by `byMs`, during which this process could not listen. */
  excuse(byMs: number): void {
    for (const member of this.#members.values()) member.lastSeenMs += byMs;
  }

  #remove(departure: Departure): void {
    this.#members.delete(departure.nodeId);
    this.#departures.push(departure);
    if (this.#departures.length > DISCOVERY_DEPARTURES_MAX_COUNT) this.#departures.shift();
    this.#changed(departure.nodeId);
  }

  #changed(nodeId: string): void {
    this.#version++;
    this.#changes.push(nodeId);
    if (this.#changes.length > DISCOVERY_CHANGES_MAX_COUNT) this.#changes.shift();
  }

  /**
   * Throws `InvariantError` unless members, departures and changes agree with each other and are within their limits.
   */
  verify(): void {
    for (const [nodeId, { info }] of this.#members) {
      assert(info.nodeId === nodeId, () => `member table: ${info.nodeId} is kept as ${nodeId}`);
    }
    const gone = new Set(this.#departures.map(({ nodeId }) => nodeId));
    assertEqual('member table: departures', this.#departures.length, gone.size);
    for (const nodeId of gone) assert(!this.#members.has(nodeId), () => `member table: ${nodeId} is here and has gone`);
    assertAtMost('member table: members', this.#members.size, MEMBERS_MAX_COUNT);
    assertAtMost('member table: departures', gone.size, DISCOVERY_DEPARTURES_MAX_COUNT);
    const changes = Math.min(this.#version - 1, DISCOVERY_CHANGES_MAX_COUNT);
    assertEqual('member table: changes', this.#changes.length, changes);
  }
}

/** Whether two records are of the same start of a node and equal in every field. */
export function isSameInfo(a: NodeInfo, b: NodeInfo): boolean {
  if (a === b) return true;
  return (
    a.nodeId === b.nodeId &&
    a.incarnation === b.incarnation &&
    a.controlHost === b.controlHost &&
    a.controlPort === b.controlPort &&
    a.rdmaHost === b.rdmaHost &&
    a.rdmaPort === b.rdmaPort &&
    a.tcpHost === b.tcpHost &&
    a.tcpPort === b.tcpPort &&
    a.protocols.join() === b.protocols.join() &&
    a.metricsHost === b.metricsHost &&
    a.metricsPort === b.metricsPort &&
    a.isListed === b.isListed &&
    a.masterAddr === b.masterAddr &&
    a.zone === b.zone &&
    String(a.fingerprint) === String(b.fingerprint) &&
    a.role === b.role &&
    a.poolBytes === b.poolBytes &&
    a.isDiskHung === b.isDiskHung
  );
}

/**
 * The date of a cluster as one of its masters knows it: the median of the dates of its members, including the master's
 * own node. One wrong date, even the master's, thus changes nothing in a cluster of three or more; of two nodes, the
 * one that runs the master is right. All dates are given as how far they are ahead of one monotonic clock; `others` are
 * in ascending order.
 */
export function clusterDate(own: number, others: readonly number[]): number {
  const isLater = others.findIndex((date) => date >= own);
  const place = isLater < 0 ? others.length : isLater;
  const at = (i: number): number => (i === place ? own : (others[i < place ? i : i - 1] as number));
  const [low, high] = [at(others.length >> 1), at((others.length + 1) >> 1)];
  // With an even number, two are in the middle: the one nearer to the master's own date counts.
  return own - low <= high - own ? low : high;
}
