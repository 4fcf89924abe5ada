import { assert, assertEqual } from '../base/assert.js';
import type { SharedClock } from '../base/concurrency/hybrid-clock.js';
import type { Environment } from '../base/environment/environment.js';
import type { LogFields } from '../base/environment/log.js';
import { type Endpoint, formatEndpoint } from '../base/environment/network.js';
import type { ConfigError, MeshCacheError } from '../base/errors.js';
import {
  DISCOVERY_LOG_INTERVAL_MS,
  DISCOVERY_OTHER_MASTERS_TIMEOUT_MS,
  DISCOVERY_START_TIMEOUT_MS,
} from '../base/limits.js';
import { RpcClient } from '../rpc/client.js';
import { MessageCodec } from '../rpc/message.js';
import type { NodeInfo } from '../types.js';
import { isEndpoints, parseMasters } from './listed-masters.js';
import { unconfirmed } from './masters/introduced.js';
import { MasterLink } from './masters/master-link.js';
import { DateLog, LostMasters, RefusalLog } from './masters/master-troubles.js';
import { isSameEndpoints, MasterChoice, type MasterRule, seatsOf } from './masters/masters.js';
import { countChanges, hasLeft, isSame, MemberMerging, silentHosts } from './masters/member-merging.js';
import { type MasterView, mergeMembers } from './masters/merging.js';
import { type ClusterSettings, clusterDateOf, type Refusal, refusalError } from './messages/cluster-settings.js';
import { PlannedMerge } from './planned-merge.js';
import { timingOf } from './timing.js';

const BEGUN_AGAIN =
  'the clock of this machine was far ahead and is right again: pages that were set meanwhile are dropped, and this node rejoins as a new incarnation';

/** Callbacks, settings and times of a {@link DiscoveryClient}. */
export interface DiscoveryClientOptions {
  /**
   * Called with all members at a master's first answer, then when one has come, gone, or changed its start or address.
   * The map does not change later. `changed` has the ids of the members concerned, `left` of those that said good-bye.
   */
  readonly onMembers?: (members: Map<string, NodeInfo>, changed: readonly string[], left: readonly string[]) => void;
  /** Called at every failed attempt to reach a listed master. */
  readonly onUnreachable?: (endpoint: Endpoint) => void;
  /**
   * Called when a master that did not restart had forgotten this node, which was unreachable or stopped for longer than
   * the time-to-live. Other nodes may have dropped its announcements, so that it has to re-announce.
   */
  readonly onForgotten?: () => void;
  /**
   * Called when every other node may have dropped this one: no master but its own has heard of it for the time-to-live,
   * and one that did not restart does not know it. If it returns a record of a new incarnation, that is registered, and
   * everything has to be re-announced under it; by default the node keeps its incarnation. With `begunAgain`, the clock
   * of this node, which was too far ahead, goes by its date again, and pages with versions from before have to be
   * dropped.
   */
  readonly onExpired?: (begunAgain: boolean) => NodeInfo | undefined;
  /** Called when a later start of a node with this id has become the member, and when it is no longer a member. */
  readonly onReplaced?: (isReplaced: boolean) => void;
  /** Called when the set of intended masters changes: the listed addresses, and the seats of live hosts. */
  readonly onMasters?: (masters: readonly Endpoint[]) => void;
  /**
   * Whether the master with that id runs in this process; its answers do not show that other nodes hear of this one.
   */
  readonly isOwnMaster?: (masterId: string) => boolean;
  /**
   * Settings that all nodes must share; a master with other settings refuses this node. Default: nothing is compared.
   */
  readonly settings?: ClusterSettings;
  /** The clock of this node; default: none is sent. */
  readonly clock?: SharedClock;
  /** Number of masters; default: the number of listed addresses. */
  readonly maxMasters?: number;
  /** Interval of heartbeats in seconds; default 2. */
  readonly heartbeatInterval?: number;
  /** Time-to-live of a member in seconds; default 6. */
  readonly memberTtl?: number;
  readonly env: Environment;
}

/**
 * Registers this node with every master and keeps the list of members, which always contains this node. While no master
 * answers, the list does not change. The client talks to the listed addresses and to the masters that have a seat (see
 * `chooseMasters`). When no master has answered for the time-to-live, they count as dead, and the next hosts get their
 * seats. The client talks to a master without a seat as long as it answers, and goes on trying one whose host vanished,
 * because it may be behind a partition (`LostMasters`).
 */
export class DiscoveryClient {
  #self: NodeInfo;
  readonly #options: DiscoveryClientOptions;
  readonly #env: Environment;
  readonly #rpc: RpcClient;
  #rule: MasterRule;
  readonly #codec = new MessageCodec();
  /** Links to masters by `host:port`. */
  readonly #links = new Map<string, MasterLink>();
  readonly #lost = new LostMasters();
  #masters: readonly Endpoint[];
  readonly #choice: MasterChoice;
  #cancelSilence: (() => void) | undefined;
  /** All members; each change makes a new map. */
  #members: Map<string, NodeInfo>;
  readonly #merging = new MemberMerging();
  readonly #planned: PlannedMerge;
  /** Resolves the pending `start`, or rejects it with an error. */
  #endStart: ((error?: ConfigError) => void) | undefined;
  #cancelStart: (() => void) | undefined;
  #waitsForOthers = false;
  readonly #refusals: RefusalLog;
  readonly #dates: DateLog;
  #saidUnreachableMs: number | undefined;
  /** Whether the master of this host has failed to answer before any other had answered. */
  #ownHasFailed = false;
  #isReplaced = false;
  #renewedMs = Number.NEGATIVE_INFINITY;
  #hasAnswer = false;
  #started = false;
  #stopping: Promise<void> | undefined;

  /**
   * `addr`: one or several `host:port`, separated by commas, or their endpoints, which {@link setListed} may change.
   * Throws `ConfigError`, and `ArgumentError` for invalid times.
   */
  constructor(addr: string | readonly Endpoint[], nodeInfo: NodeInfo, options: DiscoveryClientOptions) {
    this.#self = nodeInfo;
    this.#options = options;
    this.#refusals = new RefusalLog(nodeInfo.nodeId, options.env);
    this.#dates = new DateLog(nodeInfo.nodeId, options.env);
    this.#env = options.env;
    this.#planned = new PlannedMerge(options.env.clock, timingOf(options));
    this.#rpc = new RpcClient({ service: 'discovery', env: this.#env });
    this.#members = new Map([[nodeInfo.nodeId, nodeInfo]]);
    this.#env.metrics.setGaugeProvider('meshcache_discovery_reachable', () => Number(this.isReachable));
    const { clock } = options;
    this.#env.metrics.setGaugeProvider('meshcache_clock_offset_seconds', () => (clock?.offsetMs ?? 0) / 1000);
    const listed = isEndpoints(addr) ? addr : parseMasters(addr);
    this.#rule = { listed, maxMasters: options.maxMasters ?? listed.length };
    this.#masters = listed;
    this.#choice = new MasterChoice(this.#rule);
    for (const endpoint of listed) this.#link(endpoint);
  }

  /**
   * Resolves when the first master has sent its list of members. If that master runs in this process, `start` also
   * waits for the other listed ones, at most DISCOVERY_OTHER_MASTERS_TIMEOUT_MS. Without a master it resolves after
   * DISCOVERY_START_TIMEOUT_MS, and the client goes on trying. Rejects with `ConfigError` if a master refuses this node
   * for its settings before that.
   */
  async start(): Promise<void> {
    if (this.#started || this.#stopping !== undefined) return;
    this.#started = true;
    await new Promise<void>((resolve, reject) => {
      this.#endStart = (error) => {
        this.#endStart = undefined;
        this.#cancelStart?.();
        if (error === undefined) resolve();
        else reject(error);
      };
      this.#endStartAfter(DISCOVERY_START_TIMEOUT_MS);
      for (const link of this.#links.values()) link.start();
    });
  }

  /** Leaves the cluster; takes at most DISCOVERY_LEAVE_TIMEOUT_MS. Idempotent. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** Whether a master answers. */
  get isReachable(): boolean {
    for (const link of this.#links.values()) if (link.hasView) return true;
    return false;
  }

  /** Whether a master at a listed address answers. */
  get isListedReachable(): boolean {
    return this.#rule.listed.some((endpoint) => this.#links.get(formatEndpoint(endpoint))?.view !== undefined);
  }

  /** Whether a later start of a node with this id has replaced this node as a member. */
  get isReplaced(): boolean {
    return this.#isReplaced;
  }

  /** Members by node id, in a map that belongs to the caller. */
  members(): Map<string, NodeInfo> {
    return new Map(this.#members);
  }

  /**
   * Replaces the listed addresses, at most DISCOVERY_MASTERS_MAX_COUNT. The client talks to a master that is no longer
   * listed as long as it answers.
   */
  setListed(listed: readonly Endpoint[]): void {
    if (isSameEndpoints(listed, this.#rule.listed) || this.#stopping !== undefined) return;
    this.#rule = { ...this.#rule, listed };
    this.#choice.setRule(this.#rule);
    if (this.#started) {
      this.#followMasters();
      return;
    }
    this.#masters = listed;
    this.#links.clear();
    for (const endpoint of listed) this.#link(endpoint);
  }

  /** The masters that have a seat now, as far as this node knows. */
  seats(): Endpoint[] {
    return [...(this.#choice.seatsOf(this.#members) ?? seatsOf(this.#members.values(), this.#rule, this.#lost.dead))];
  }

  /**
   * Replaces the record of this start of the node. It is sent to the masters in place of their next heartbeat, within
   * the interval.
   */
  restate(self: NodeInfo): void {
    if (this.#stopping !== undefined) return;
    this.#self = self;
    this.#members = new Map(this.#members).set(self.nodeId, self);
    if (this.#hasAnswer) this.#options.onMembers?.(this.#members, [self.nodeId], []);
  }

  /** Ids of members that do not go by a list with this start of the node: none as soon as may be, or after `waitMs`. */
  introduced(waitMs: number): Promise<string[]> {
    const parts = { links: this.#links, members: () => this.#members, selfId: this.#self.nodeId };
    return unconfirmed({ ...parts, clock: this.#env.clock, isOver: () => this.#stopping !== undefined }, waitMs);
  }

  /** Masters that refuse this node, by `host:port`. */
  refusals(): ReadonlyMap<string, Refusal> {
    const refusing = [...this.#links].flatMap(([name, { refusal }]) =>
      refusal === undefined ? [] : [[name, refusal] as const],
    );
    return new Map(refusing);
  }

  async #stop(): Promise<void> {
    this.#cancelSilence?.();
    this.#planned.stop();
    this.#endStart?.();
    await Promise.all([...this.#links.values()].map((link) => link.stop()));
    await this.#rpc.close();
  }

  #link(endpoint: Endpoint): MasterLink {
    const { heartbeatIntervalMs, memberTtlMs } = timingOf(this.#options);
    const link: MasterLink = new MasterLink({
      endpoint,
      self: () => this.#self,
      settings: this.#options.settings,
      clock: this.#options.clock,
      membersCount: () => (this.isReachable ? this.#members.size : 1),
      // The own master may send the own date, which says nothing if another master answers.
      tellsDate: (id) => this.#options.isOwnMaster?.(id) !== true || !this.#others().some(({ hasView }) => hasView),
      onDate: () => this.#dates.compared(this.#options.clock?.offsetMs ?? 0),
      rpc: this.#rpc,
      codec: this.#codec,
      env: this.#env,
      heartbeatIntervalMs,
      memberTtlMs,
      onChange: () => this.#changed(),
      followed: () => this.#planned.ended,
      known: (nodeId) => this.#members.get(nodeId),
      onFailure: (error) => this.#failed(endpoint, error),
      isElsewhere: (masterId) => {
        const others = [...this.#links.values()].filter((other) => other !== link && other.view !== undefined);
        return others.some((other) => other.masterId === masterId);
      },
      onUnknown: () => this.#unknown(link, memberTtlMs),
      onForgotten: () => this.#options.onForgotten?.(),
      onReplaced: (isReplaced) => this.#replaced(isReplaced),
      onRefused: (refusal) => this.#refused(formatEndpoint(endpoint), refusal),
    });
    this.#links.set(formatEndpoint(endpoint), link);
    return link;
  }

  /**
   * Opens and closes links so that they match the masters which follow from the members. `changed` has the members that
   * differ from the last call; `lost` has hosts that have just vanished without leaving.
   */
  #followMasters(changed: readonly string[] = [], lost: ReadonlySet<string> = new Set()): void {
    const nowMs = this.#env.clock.nowMs();
    const masters = this.#choice.follow(this.#members, changed, this.#lost.dead);
    const names = new Set(masters.map(formatEndpoint));
    for (const [name, link] of this.#links) {
      if (names.has(name) || link.view !== undefined) continue;
      if (lost.has(name) || lost.has(link.endpoint.host)) this.#lost.markFormer(name, nowMs);
      if (this.#lost.isFormer(name, nowMs) && (this.#lost.dead.has(name) || !this.#isAmongMembers(link))) continue;
      this.#lost.forget(name);
      link.drop();
      this.#links.delete(name);
    }
    for (const endpoint of masters) {
      if (!this.#links.has(formatEndpoint(endpoint))) this.#link(endpoint).start();
    }
    if (isSameEndpoints(masters, this.#masters)) return;
    this.#masters = masters;
    this.#options.onMasters?.(masters);
  }

  /**
   * Handles a master that did not restart and does not know this node. Returns true if other nodes may have dropped
   * announcements.
   */
  #unknown(link: MasterLink, ttlMs: number): boolean {
    if (this.#stopping !== undefined) return false;
    const others = this.#others();
    const heardMs = Math.max(this.#renewedMs, ...others.map((link) => link.heardMs));
    // This incarnation began after this master last heard of the node, and has announced everything since.
    if (link.heardMs < this.#renewedMs) return false;
    if (this.#env.clock.nowMs() - heardMs < ttlMs) return true;
    const silentMs = Math.round(this.#env.clock.nowMs() - heardMs);
    const message = 'this node had expired in the cluster; it rejoins as a new incarnation';
    return !this.#renew(false, message, { silent_ms: silentMs });
  }

  /** Continues as a later start of this node; false: it cannot. */
  #renew(begunAgain: boolean, message: string, facts: LogFields): boolean {
    const renewed = this.#options.onExpired?.(begunAgain);
    if (renewed === undefined) return false;
    this.#renewedMs = this.#env.clock.nowMs();
    this.#self = renewed;
    this.#members = new Map(this.#members).set(renewed.nodeId, renewed);
    this.#env.log.log('warn', message, { node_id: renewed.nodeId, ...facts });
    this.#options.onMembers?.(this.#members, [renewed.nodeId], []);
    return true;
  }

  /** The links to masters that do not run in this process. */
  #others(): MasterLink[] {
    const { isOwnMaster = () => false } = this.#options;
    return [...this.#links.values()].filter((link) => !isOwnMaster(link.masterId));
  }

  #changed(): void {
    if (this.#stopping !== undefined) return;
    const views = this.#views();
    if (views.length === 0) {
      this.#awaitSilence();
      return;
    }
    this.#cancelSilence?.();
    this.#cancelSilence = undefined;
    if (this.#saidUnreachableMs !== undefined) {
      this.#saidUnreachableMs = undefined;
      this.#env.log.log('warn', 'discovery master reached again', { node_id: this.#self.nodeId });
    }
    const isAtOnce = this.#endStart !== undefined || !this.#hasAnswer;
    this.#planned.plan(() => this.#merge(), { members: this.#members.size, isAtOnce });
  }

  #merge(): void {
    const views = this.#views();
    if (this.#stopping !== undefined || views.length === 0) return;
    const { merged, changed } = this.#merging.merge(this.#members, this.#links, this.#self);
    const before = this.#members;
    const ids = changed ?? new Set([...before.keys(), ...merged.keys()]);
    const others = [...ids].filter((nodeId) => !isSame(before.get(nodeId), merged.get(nodeId)));
    const isChanged = !this.#hasAnswer || others.length > 0;
    this.#hasAnswer = true;
    const gone = others.filter((nodeId) => !merged.has(nodeId));
    const left = gone.filter((nodeId) => hasLeft(before.get(nodeId) as NodeInfo, views));
    countChanges(this.#env.metrics, others, { before, after: merged, left });
    const lost = gone.length > 0 ? silentHosts(others, { before, after: merged, views }) : undefined;
    this.#members = merged;
    if (isChanged) this.#options.onMembers?.(merged, others, left);
    this.#followMasters(others, lost);
    this.#endStartIfJoined();
  }

  #endStartAfter(delayMs: number): void {
    this.#cancelStart?.();
    this.#cancelStart = this.#env.clock.after(delayMs, () => this.#endStart?.(), { keepAlive: true });
  }

  /**
   * Ends `start` when it has its answer. This process's own master knows no members at first; another one may know a
   * cluster, or refuse this node.
   */
  #endStartIfJoined(): void {
    if (this.#endStart === undefined || !this.isReachable) return;
    const others = this.#others();
    if (others.some(({ view }) => view !== undefined) || others.every(({ hasOutcome }) => hasOutcome)) this.#endStart();
    else if (!this.#waitsForOthers) {
      this.#waitsForOthers = true;
      this.#endStartAfter(DISCOVERY_OTHER_MASTERS_TIMEOUT_MS);
    }
  }

  #isAmongMembers({ endpoint }: MasterLink): boolean {
    const name = formatEndpoint(endpoint);
    for (const { controlHost, masterAddr } of this.#members.values()) {
      if (controlHost === endpoint.host || masterAddr === name) return true;
    }
    return false;
  }

  /** The views of the masters that answer. */
  #views(): MasterView[] {
    const views: MasterView[] = [];
    for (const [name, { view }] of this.#links) {
      if (view === undefined) continue;
      this.#lost.forget(name);
      views.push(view);
    }
    // The list of a mature master lacks dead nodes. A young master may not have heard of live ones yet, which stay
    // members here.
    if (views.some(({ isMature }) => isMature)) this.#lost.forgetDead();
    return views;
  }

  /**
   * Waits for a master. While none answers, none tells which nodes are gone: after the time-to-live, the masters
   * themselves count as dead. A node that never had an answer has no other candidates.
   */
  #awaitSilence(): void {
    if (!this.#hasAnswer || this.#cancelSilence !== undefined) return;
    const ttlMs = (this.#options.memberTtl ?? 6) * 1000;
    // Waits for the master that answered last, so that all count as dead at once.
    const silentMs = (): number => Math.min(...[...this.#links.values()].map((link) => link.silentMs));
    this.#cancelSilence = this.#env.clock.after(silentMs() < ttlMs ? ttlMs - silentMs() : ttlMs, () => {
      this.#cancelSilence = undefined;
      if (this.#stopping !== undefined || this.isReachable) return;
      if (silentMs() >= ttlMs) {
        for (const name of this.#links.keys()) this.#lost.markDead(name, this.#env.clock.nowMs());
        this.#followMasters();
      }
      this.#awaitSilence();
    });
  }

  #failed(endpoint: Endpoint, error: MeshCacheError): void {
    if (this.#stopping !== undefined) return;
    this.#env.metrics.count('meshcache_discovery_failures_total');
    this.#options.onUnreachable?.(endpoint);
    this.#endStartIfJoined();
    const nowMs = this.#env.clock.nowMs();
    if (this.isReachable) {
      const name = formatEndpoint(endpoint);
      // A vanished master is given up after a day.
      const isGivenUp = !this.#lost.isFormer(name, nowMs) && !this.#masters.some((one) => formatEndpoint(one) === name);
      if (isGivenUp) this.#followMasters();
      return;
    }
    // A host whose master does not answer starts one, so the first failure of the own master is expected.
    const isFirstOfOwn = !this.#ownHasFailed && !this.#hasAnswer && formatEndpoint(endpoint) === this.#self.masterAddr;
    this.#ownHasFailed ||= isFirstOfOwn;
    if (isFirstOfOwn) return;
    if (this.#saidUnreachableMs !== undefined && nowMs - this.#saidUnreachableMs < DISCOVERY_LOG_INTERVAL_MS) return;
    this.#saidUnreachableMs = nowMs;
    this.#env.log.log('warn', 'no discovery master is reachable; this node keeps the members it knows and retries', {
      node_id: this.#self.nodeId,
      addresses: [...this.#links.keys()].join(','),
      members: this.#members.size,
      reason: error.message,
    });
  }

  /** A refusal makes a pending `start` fail; later the node goes on with the masters that accept it, or alone. */
  #refused(master: string, refusal: Refusal): void {
    if (this.#endStart !== undefined) {
      this.#endStart(refusalError(refusal, master));
      return;
    }
    if (this.#stopping !== undefined) return;
    const clusterMs = clusterDateOf(refusal);
    const { clock } = this.#options;
    const isOthers = refusal.nodeId !== this.#self.nodeId;
    const isRight = clusterMs !== undefined && clock?.isRightAt(clusterMs, isOthers) === true;
    if (!isRight) this.#refusals.log(master, refusal);
    else if (clock.beginAgain(clusterMs)) this.#renew(true, BEGUN_AGAIN, { master });
  }

  #replaced(isReplaced: boolean): void {
    if (this.#isReplaced === isReplaced || this.#stopping !== undefined) return;
    this.#isReplaced = isReplaced;
    const { nodeId: node_id, incarnation } = this.#self;
    if (isReplaced) {
      const message = 'another node with the same node_id has started later; this node is no member any more';
      this.#env.log.log('error', message, { node_id, incarnation });
    } else {
      const message = 'the other node with the same node_id has left; this node is a member again';
      this.#env.log.log('info', message, { node_id, incarnation });
    }
    this.#options.onReplaced?.(isReplaced);
  }

  /** @internal Throws `InvariantError` unless this node is a member and there is a link to every master. */
  verify(): void {
    this.#lost.verify();
    this.#rpc.verify();
    const { nodeId } = this.#self;
    assert(this.#members.has(nodeId), () => `discovery client: ${nodeId}, the own node, is no member`);
    for (const [id, info] of this.#members) {
      assert(info.nodeId === id, () => `discovery client: ${info.nodeId} is kept as ${id}`);
    }
    const views = [...this.#links.values()].flatMap(({ view }) => view ?? []);
    const isMerged = this.#hasAnswer && this.#planned.ended === undefined && views.some(({ isMature }) => isMature);
    if (isMerged && this.#stopping === undefined) {
      const whole = mergeMembers(this.#members, views, this.#self);
      assertEqual('discovery client: members, and those of the views', this.#members.size, whole.size);
      for (const [id, info] of whole) {
        assert(isSame(info, this.#members.get(id)), () => `discovery client: ${id} is not as the views have it`);
      }
    }
    for (const name of this.#masters.map(formatEndpoint)) {
      assert(this.#links.has(name), () => `discovery client: no link to the master ${name}`);
    }
  }
}
