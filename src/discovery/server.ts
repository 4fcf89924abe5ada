import { assert, assertAtMost } from '../base/assert.js';
import type { CancelSignal } from '../base/concurrency/cancellation.js';
import { dateOf, refusedAfter, type SharedClock } from '../base/concurrency/hybrid-clock.js';
import type { Clock } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import { MeshCacheError, ProtocolError } from '../base/errors.js';
import { CLOCK_AHEAD_MAX_MS, MEMBERS_MAX_COUNT } from '../base/limits.js';
import { MessageCodec } from '../rpc/message.js';
import { type RpcContext, RpcServer } from '../rpc/server.js';
import type { NodeInfo } from '../types.js';
import {
  CLOCK_KEY,
  type ClusterSettings,
  decodeSettings,
  differencesOf,
  encodeDifferences,
  FINGERPRINT_KEY,
  type SettingDifference,
} from './messages/cluster-settings.js';
import { asMap, clusterDate, decodeNode, type MemberStatus, MemberTable } from './messages/member-table.js';
import {
  clockFields,
  clockOf,
  DiscoveryMethod,
  dateField,
  decodeIdentity,
  encodeChanges,
  encodeRoster,
  type MemberForm,
  type Roster,
  wholeField,
} from './messages/wire.js';
import { type RefusedNode, RefusedNodes } from './refused-nodes.js';
import { StartQuestions } from './start-questions.js';
import { ChangeGap, timingOf } from './timing.js';

interface ClockCheckParts {
  /** The clock of the node that runs the master, and the id of that node. */
  readonly own: SharedClock;
  readonly ownerId: string;
  readonly clock: Clock;
  readonly table: () => MemberTable;
}

/** Time for which the collected dates of members are reused. They change only when a date jumps. */
const DATES_MAX_AGE_MS = 250;

/** With the dates of this many other members, the median is right whatever the own date is. */
const JUDGES_MIN_COUNT = 2;

type Message = Readonly<Record<string, unknown>>;

/** The node that runs a master: nodes with other settings than its own are refused. */
export interface MasterOwner {
  readonly nodeId: string;
  readonly settings: ClusterSettings;
}

/** Times of a {@link DiscoveryServer}, which its members follow, and the node that runs it. */
export interface DiscoveryServerOptions {
  /** Seconds of silence after which a member is removed; default 6. */
  readonly memberTtl?: number;
  /** Seconds after which a heartbeat without news is answered; default 2. */
  readonly heartbeatInterval?: number;
  /** The node that runs the master; without one, all settings are accepted. */
  readonly owner?: MasterOwner;
  /** The clock of the node that runs the master; default: the master sends none. */
  readonly clock?: SharedClock | undefined;
  readonly env: Environment;
}

/** A heartbeat that waits for news. */
interface Waiter {
  readonly nodeId: string;
  answer(): void;
}

/** The members at the time of the last round of news. */
interface Spread {
  readonly version: number;
  readonly roster: Roster;
  /** The encoded roster by its form and the version that the receiver has (0: none). */
  readonly encoded: Map<string, Uint8Array>;
}

/** The version and form that a heartbeat states. */
interface Known {
  readonly version: number;
  readonly takesChanges: boolean;
  readonly form: MemberForm;
}

/** A version that no list has. */
const NO_VERSION = 0;
/** Number of encoded rosters, by form and version, that are kept. */
const ENCODED_KEPT_COUNT = 64;

/** Number of checks for expired members per time-to-live. */
const TICKS_PER_TTL = 16;
/** Longest time between two checks for expired members. */
const TICK_MAX_MS = 250;

/**
 * A discovery master: keeps the list of members as long as their heartbeats arrive, and tells all members of changes at
 * once. It stores nothing on disk; after a restart the members register again.
 */
export class DiscoveryServer {
  readonly #env: Environment;
  readonly #rpc: RpcServer;
  readonly #heartbeatIntervalMs: number;
  readonly #memberTtlMs: number;
  readonly #codec = new MessageCodec();
  readonly #owner: MasterOwner | undefined;
  readonly #clock: SharedClock | undefined;
  readonly #clocks: ClockCheck | undefined;
  readonly #refused: RefusedNodes;
  #table: MemberTable;
  #masterId: string;
  readonly #waiters = new Map<string, Waiter>();
  readonly #questions: StartQuestions;
  #startedMs = 0;
  #spread: Spread;
  readonly #spreadGap = new ChangeGap();
  #cancelSpread: (() => void) | undefined;
  #cancelTick: (() => void) | undefined;
  #stopped = false;

  /** Throws `ArgumentError` for an invalid host, port or time. */
  constructor(host: string, port: number, options: DiscoveryServerOptions) {
    this.#env = options.env;
    const { heartbeatIntervalMs, memberTtlMs } = timingOf(options);
    this.#heartbeatIntervalMs = heartbeatIntervalMs;
    this.#memberTtlMs = memberTtlMs;
    this.#owner = options.owner;
    this.#clock = options.clock;
    const { clock, owner, env } = options;
    if (clock !== undefined && owner !== undefined) {
      this.#clocks = new ClockCheck({ own: clock, ownerId: owner.nodeId, clock: env.clock, table: () => this.#table });
    }
    this.#refused = new RefusedNodes(this.#env);
    this.#table = new MemberTable(this.#memberTtlMs);
    this.#questions = new StartQuestions(this.#env.clock, () => this.#table);
    this.#masterId = this.#newId();
    this.#spread = this.#encodeTable();
    this.#rpc = new RpcServer({ host, port, service: 'discovery', env: this.#env });
    this.#rpc.handle(DiscoveryMethod.register, (params) => this.#register(params));
    this.#rpc.handle(DiscoveryMethod.heartbeat, (params, context) => this.#heartbeat(params, context));
    this.#rpc.handle(DiscoveryMethod.leave, (params) => this.#leave(params));
    this.#rpc.handle(DiscoveryMethod.known, (params, { signal }) => {
      const fields = asMap(params);
      // What the asking node knows of this master is of another start.
      const waitMs = fields.master_id === this.#masterId ? wholeField(fields, 'wait_ms') : undefined;
      if (waitMs === undefined) throw new ProtocolError('discovery: master_id is not that of this start of the master');
      return this.#questions.ask(decodeIdentity(fields), waitMs, signal);
    });
    this.#rpc.handle(DiscoveryMethod.members, (params) => this.#answer('ok', nothingKnown(params)));
  }

  /** Id of this start of the master. */
  get masterId(): string {
    return this.#masterId;
  }

  /**
   * Starts to listen and resolves with the port. Throws `ConfigError` if the address cannot be used; the cause has the
   * system's code.
   */
  async start(): Promise<number> {
    this.#startedMs = this.#env.clock.nowMs();
    return this.#rpc.start();
  }

  /** Sends pending news and closes; members notice at once and look for other masters. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancelSpread?.();
    this.#cancelTick?.();
    this.#questions.stop();
    if (this.#table.version !== this.#spread.version) {
      this.#spreadNow();
      await this.#env.clock.yield();
    }
    await this.#rpc.stop();
  }

  /** Live members by node id, in a map that belongs to the caller. */
  members(): Map<string, NodeInfo> {
    return this.#table.members();
  }

  /** Nodes that this master has recently refused for their settings. */
  refusedNodes(): RefusedNode[] {
    return this.#refused.list();
  }

  #register(params: unknown): unknown {
    const fields = asMap(params);
    const info = decodeNode(fields.node);
    const settings = decodeSettings(fields.settings);
    if (this.#owner !== undefined) {
      const differences = differencesOf(settings, this.#owner.settings);
      if (differences.length > 0) return this.#refuse(info, this.#owner.nodeId, differences);
    }
    const other = this.#table.disagreeing(info);
    if (other !== undefined) {
      const [theirs, ours] = [info, other].map(({ fingerprint }) => fingerprint?.value ?? '') as [string, string];
      return this.#refuse(info, other.nodeId, [{ key: FINGERPRINT_KEY, theirs, ours }]);
    }
    const date = this.#clocks?.differenceOf(fields);
    if (date !== undefined) return this.#refuseClock(info, date);
    this.#refused.accept(info.nodeId);
    this.#clock?.hear(clockOf(fields));
    const status = this.#table.register(info, this.#env.clock.nowMs(), this.#clocks?.dateAheadMs(fields));
    if (status === 'full') {
      const text = `the cluster has ${MEMBERS_MAX_COUNT} members, no more are allowed`;
      throw new MeshCacheError('ERR_OVERLOADED', text, { retryable: true });
    }
    this.#changed();
    return this.#answer(status, status === 'ok' ? nothingKnown(fields) : undefined);
  }

  #heartbeat(params: unknown, context: RpcContext): unknown {
    const fields = asMap(params);
    const { nodeId, incarnation } = decodeIdentity(fields);
    const member = this.#table.member(nodeId);
    const date = member?.incarnation === incarnation ? this.#clocks?.differenceOf(fields) : undefined;
    if (member !== undefined && date !== undefined) return this.#refuseClock(member, date);
    this.#clock?.hear(clockOf(fields));
    const { form } = nothingKnown(fields);
    const known = { version: wholeField(fields, 'version'), takesChanges: fields.changes === true, form };
    const waitMs = Math.min(wholeField(fields, 'wait_ms'), this.#heartbeatIntervalMs);
    const dateAheadMs = this.#clocks?.dateAheadMs(fields);
    const isOfThis = fields.master_id === this.#masterId;
    // A heartbeat that does not wait comes from a link that this node does not go by, or not yet again.
    const followed = waitMs > 0 ? Math.min(known.version, this.#table.version) : undefined;
    const stated = { dateAheadMs, followedVersion: isOfThis ? followed : NO_VERSION };
    const status = this.#table.heartbeat(nodeId, incarnation, this.#env.clock.nowMs(), stated);
    if (status !== 'ok') return this.#answer(status, undefined);
    this.#questions.look();
    if (!isOfThis) return this.#answer('ok', nothingKnown(fields));
    if (known.version !== this.#spread.version || waitMs === 0) return this.#answer('ok', known);
    // The list is complete once the master is mature, which is news, too.
    const toMaturityMs = this.#memberTtlMs - this.#ageMs();
    return this.#wait(nodeId, known, toMaturityMs > 0 ? Math.min(waitMs, toMaturityMs) : waitMs, context.signal);
  }

  /** Waits for news, at most `waitMs`. Only the latest heartbeat of a node waits. */
  #wait(nodeId: string, known: Known, waitMs: number, signal: CancelSignal): Promise<unknown> {
    this.#waiters.get(nodeId)?.answer();
    const masterId = this.#masterId;
    return new Promise((resolve) => {
      const answer = (): void => {
        cancelTimer();
        signal.removeEventListener('abort', answer);
        if (this.#waiters.get(nodeId) === waiter) this.#waiters.delete(nodeId);
        resolve(this.#answer('ok', masterId === this.#masterId ? known : { ...known, version: NO_VERSION }));
      };
      const waiter = { nodeId, answer };
      const cancelTimer = this.#env.clock.after(waitMs, answer);
      signal.addEventListener('abort', answer);
      this.#waiters.set(nodeId, waiter);
    });
  }

  /** Refuses a node. `refusedBy` is the node with the other settings. */
  #refuse(info: NodeInfo, refusedBy: string, differences: readonly SettingDifference[]): object {
    this.#refused.refuse(info, differences);
    return {
      ...this.#answer('refused', undefined),
      refused_by: refusedBy,
      differences: encodeDifferences(differences),
    };
  }

  /** Refuses a node whose date is too far ahead, even if it is a member. */
  #refuseClock(info: NodeInfo, difference: SettingDifference): object {
    this.#table.refuse(info.nodeId);
    this.#changed();
    return this.#refuse(info, this.#owner?.nodeId ?? info.nodeId, [difference]);
  }

  #leave(params: unknown): unknown {
    const { nodeId, incarnation } = decodeIdentity(asMap(params));
    this.#table.leave(nodeId, incarnation);
    this.#changed();
    return {};
  }

  /** Builds an answer with the news for a node that knows `known`; undefined: the answer has no roster. */
  #answer(status: MemberStatus | 'refused', known: Known | undefined): object {
    return {
      status,
      master_id: this.#masterId,
      version: this.#spread.version,
      age_ms: this.#ageMs(),
      ...clockFields(this.#clock),
      ...this.#clocks?.fields(),
      roster: known === undefined ? null : this.#newsFor(known),
    };
  }

  #newsFor(known: Known): Uint8Array | null {
    const { version, roster, encoded } = this.#spread;
    if (known.version === version) return null;
    const base = known.takesChanges ? known.version : NO_VERSION;
    const name = `${known.form} ${base}`;
    const kept = encoded.get(name);
    if (kept !== undefined) return kept;
    const bytes = this.#encodeFor(roster, base, known.form);
    if (encoded.size < ENCODED_KEPT_COUNT) encoded.set(name, bytes);
    return bytes;
  }

  /** Encodes the changes since the version `base`, or the whole roster if they are unknown or not shorter. */
  #encodeFor(roster: Roster, base: number, form: MemberForm): Uint8Array {
    const isKnown = base !== NO_VERSION && base < this.#spread.version;
    const changed = isKnown ? this.#table.changedSince(base) : undefined;
    if (changed === undefined || changed.size * 2 > roster.members.size) return encodeRoster(this.#codec, roster, form);
    return encodeChanges(this.#codec, roster, { base, changed, form });
  }

  #ageMs(): number {
    return Math.floor(this.#env.clock.nowMs() - this.#startedMs);
  }

  #changed(): void {
    if (this.#stopped) return;
    this.#scheduleTick();
    this.#questions.look();
    if (this.#table.version === this.#spread.version || this.#cancelSpread !== undefined) return;
    const waitMs = this.#spreadGap.plan(this.#env.clock.nowMs(), this.#table.size);
    if (waitMs === 0) this.#spreadNow();
    else this.#cancelSpread = this.#env.clock.after(waitMs, () => this.#spreadNow());
  }

  #spreadNow(): void {
    this.#cancelSpread = undefined;
    this.#spreadGap.acted(this.#env.clock.nowMs());
    this.#spread = this.#encodeTable();
    for (const waiter of [...this.#waiters.values()]) waiter.answer();
  }

  #encodeTable(): Spread {
    const roster = { members: this.#table.members(), gone: [...this.#table.departures] };
    return { version: this.#table.version, roster, encoded: new Map() };
  }

  #newId(): string {
    return Buffer.from(this.#env.random.bytes(8)).toString('hex');
  }

  /** Starts over as a new master without members, because the old list is too old to be used. */
  #startOver(): void {
    this.#masterId = this.#newId();
    this.#startedMs = this.#env.clock.nowMs();
    this.#table = new MemberTable(this.#memberTtlMs);
    this.#cancelSpread?.();
    this.#spreadNow();
  }

  #scheduleTick(): void {
    if (this.#cancelTick !== undefined || this.#table.size === 0) return;
    const { clock } = this.#env;
    const tickMs = Math.min(TICK_MAX_MS, this.#memberTtlMs / TICKS_PER_TTL);
    const dueMs = clock.nowMs() + tickMs;
    this.#cancelTick = clock.after(tickMs, () => void this.#tick(clock.nowMs() - dueMs, tickMs));
  }

  /** Expires silent members. Time in which this process was stopped does not count, because it could not listen. */
  async #tick(lateMs: number, tickMs: number): Promise<void> {
    if (lateMs >= this.#memberTtlMs) {
      // Other masters may have dropped members of this list, and have members that are missing here.
      this.#startOver();
    } else if (lateMs > tickMs) {
      this.#table.excuse(lateMs);
    }
    // Heartbeats that arrived meanwhile are handled first.
    await this.#env.clock.yield();
    this.#cancelTick = undefined;
    if (this.#stopped) return;
    this.#table.expire(this.#env.clock.nowMs());
    this.#changed();
  }

  /** @internal Throws `InvariantError` unless pending news will be sent and expiry is scheduled. */
  verify(): void {
    this.#table.verify();
    this.#refused.verify();
    this.#rpc.verify();
    for (const [nodeId, waiter] of this.#waiters) {
      assert(waiter.nodeId === nodeId, () => `discovery server: ${waiter.nodeId} waits as ${nodeId}`);
    }
    const { version, encoded } = this.#spread;
    assertAtMost('discovery server: the version that was spread, and the last one', version, this.#table.version);
    assertAtMost('discovery server: rosters that are kept encoded', encoded.size, ENCODED_KEPT_COUNT);
    if (this.#stopped) return;
    const isTold = version === this.#table.version || this.#cancelSpread !== undefined;
    assert(isTold, () => `discovery server: version ${this.#table.version} is not spread, and will not be`);
    assert(this.#table.size === 0 || this.#cancelTick !== undefined, 'discovery server: nobody looks who is silent');
  }
}

/** The knowledge of a node that asks for the first time; the request states the form of the answer. */
function nothingKnown(params: unknown): Known {
  const isRows = (params as { readonly rows?: unknown } | null)?.rows === true;
  return { version: NO_VERSION, takesChanges: false, form: isRows ? 'rows' : 'maps' };
}

/**
 * Checks that the clocks of nodes are not too far ahead of the date of the cluster. A node whose date is behind does no
 * harm, because it follows the versions of the others. When two parts of a cluster meet, the larger one is right. A
 * master that goes by its own date refuses nobody and sends no date if, by the date that another master sends, its node
 * is off.
 */
class ClockCheck {
  readonly #parts: ClockCheckParts;
  #dates: readonly number[] = [];
  #datesVersion = 0;
  #datesOfMs = Number.NEGATIVE_INFINITY;

  constructor(parts: ClockCheckParts) {
    this.#parts = parts;
  }

  /** How far the date of a message's node is ahead of the monotonic clock here; undefined: it was not sent. */
  dateAheadMs(message: Message): number | undefined {
    const dateMs = dateField(message, 'date_ms');
    return dateMs === undefined ? undefined : dateMs - this.#parts.clock.nowMs();
  }

  /** Why the node of a message cannot be a member; undefined: its clock is good enough. */
  differenceOf(message: Message): SettingDifference | undefined {
    const clusterMs = this.#clusterMs();
    if (clusterMs === undefined || this.#isOfLarger(message)) return undefined;
    const version = clockOf(message);
    const dateMs = dateField(message, 'date_ms') ?? dateOf(version);
    if (dateMs > clusterMs + CLOCK_AHEAD_MAX_MS) return { key: CLOCK_KEY, theirs: Math.floor(dateMs), ours: clusterMs };
    // A node whose date was ahead keeps giving out versions that are ahead.
    const isAhead = version > refusedAfter(clusterMs);
    return isAhead ? { key: CLOCK_KEY, theirs: Math.floor(dateOf(version)), ours: clusterMs } : undefined;
  }

  /** The date of the cluster, and how many nodes agree with it, as fields of an answer. */
  fields(): { readonly cluster_ms?: number; readonly cluster_dates?: number } {
    const clusterMs = this.#clusterMs();
    if (clusterMs === undefined) return {};
    const aheadMs = clusterMs - this.#parts.clock.nowMs();
    const ownMs = this.#parts.own.wallMs() - this.#parts.clock.nowMs();
    const agreeing = [ownMs, ...this.#dates].filter((date) => Math.abs(date - aheadMs) <= CLOCK_AHEAD_MAX_MS);
    return { cluster_ms: clusterMs, cluster_dates: agreeing.length };
  }

  /**
   * Whether the node of a message is in a part of the cluster with more members than this one. In that case, this
   * master's node is the one that joins the others.
   */
  #isOfLarger({ members }: Message): boolean {
    return typeof members === 'number' && members > this.#parts.table().size;
  }

  #clusterMs(): number | undefined {
    const { own, ownerId, clock, table } = this.#parts;
    const nowMs = clock.nowMs();
    const members = table();
    if (nowMs - this.#datesOfMs >= DATES_MAX_AGE_MS || members.version !== this.#datesVersion) {
      this.#dates = members.datesAheadMs(ownerId).sort((a, b) => a - b);
      this.#datesVersion = members.version;
      this.#datesOfMs = nowMs;
    }
    const isJudge = this.#dates.length >= JUDGES_MIN_COUNT || Math.abs(own.offsetMs) <= CLOCK_AHEAD_MAX_MS;
    return isJudge ? Math.floor(nowMs + clusterDate(own.wallMs() - nowMs, this.#dates)) : undefined;
  }
}
