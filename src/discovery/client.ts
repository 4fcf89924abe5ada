import { assert, assertEqual } from '../base/assert.js';
import type { Environment } from '../base/environment/environment.js';
import { type Endpoint, formatEndpoint, isEveryAddress, parseEndpoint } from '../base/environment/network.js';
import { ConfigError, type MeshCacheError } from '../base/errors.js';
import {
  DISCOVERY_LOG_INTERVAL_MS,
  DISCOVERY_MASTERS_MAX_COUNT,
  DISCOVERY_OTHER_MASTERS_TIMEOUT_MS,
  DISCOVERY_START_TIMEOUT_MS,
} from '../base/limits.js';
import { shown } from '../base/shown.js';
import { RpcClient } from '../rpc/client.js';
import { MessageCodec } from '../rpc/message.js';
import type { NodeInfo } from '../types.js';
import { ChangeGap } from './change-gap.js';
import { LostMasters } from './masters/lost-masters.js';
import { MasterLink } from './masters/master-link.js';
import { isSameEndpoints, MasterChoice, type MasterRule, seatsOf } from './masters/masters.js';
import { countChanges, hasLeft, isSame, MemberMerging, silentHosts } from './masters/member-merging.js';
import { type MasterView, mergeMembers } from './masters/merge.js';
import { type ClusterSettings, describeDifferences, type Refusal, refusalError } from './messages/cluster-settings.js';
import { timingOf } from './timing.js';

/** What a {@link DiscoveryClient} tells, and how often it speaks. */
export interface DiscoveryClientOptions {
  /**
   * Called with all members, a map that stays as it is, at a master's first answer, then when one has come, gone, or changed its start or
   * address; `changed`: the ids of these; `left`: the ids of those that have said good-bye.
   */
  readonly onMembers?: (members: Map<string, NodeInfo>, changed: readonly string[], left: readonly string[]) => void;
  /** Called at every failed attempt to reach a listed master. */
  readonly onUnreachable?: (endpoint: Endpoint) => void;
  /**
   * A master that is not new had forgotten this node, which was cut off or could not run for longer than the time-to-live:
   * what it had announced to other nodes may be dropped there and is to be announced again.
   */
  readonly onForgotten?: () => void;
  /**
   * Every other node may have dropped this one: no master but its own has heard of it for the time-to-live, and one that was
   * there all the time does not know it. What it returns, of a new start, is registered from now on instead; by default it
   * goes on as it was. All that it has announced has to be announced again as that.
   */
  readonly onExpired?: () => NodeInfo | undefined;
  /** Another node with this one's id has started later and is the member now; or, after that, is not any more. */
  readonly onReplaced?: (isReplaced: boolean) => void;
  /** The masters that there are to be, when they change: the listed addresses, and the seats of live hosts. */
  readonly onMasters?: (masters: readonly Endpoint[]) => void;
  /** Whether the master of that id runs in this process, so that its word says nothing of what others have heard. */
  readonly isOwnMaster?: (masterId: string) => boolean;
  /** What all nodes must have alike: a master that has them differently refuses this node. Default: nothing is compared. */
  readonly settings?: ClusterSettings;
  /** Seats of masters; default: as many as addresses are listed. */
  readonly maxMasters?: number;
  /** Seconds; default 2. */
  readonly heartbeatInterval?: number;
  /** Seconds; default 6. */
  readonly memberTtl?: number;
  readonly env: Environment;
}

/**
 * Makes this node a member with every master, and keeps the list of all members. The own node is always one. While no
 * master answers, the members stay as they were. It speaks to the listed addresses and to the masters that have a seat (see
 * `chooseMasters`). When no master has answered for the time-to-live, those that it had count as dead, and the next hosts get
 * their seats. A master that has lost its seat is spoken to for as long as it answers; one whose host has gone without a
 * good-bye is still tried, because it may be behind a partition (`LostMasters`).
 */
export class DiscoveryClient {
  #self: NodeInfo;
  readonly #options: DiscoveryClientOptions;
  readonly #env: Environment;
  readonly #rpc: RpcClient;
  readonly #rule: MasterRule;
  readonly #codec = new MessageCodec();
  /** By `host:port`. */
  readonly #links = new Map<string, MasterLink>();
  readonly #lost = new LostMasters();
  #masters: readonly Endpoint[];
  readonly #choice: MasterChoice;
  #cancelSilence: (() => void) | undefined;
  /** Another map after each change. */
  #members: Map<string, NodeInfo>;
  readonly #mergeGap = new ChangeGap();
  readonly #merging = new MemberMerging();
  /** Cancels the next look at what the masters say, which is due soon. */
  #cancelMerge: (() => void) | undefined;
  /** Ends `start`, which is under way; with an error it rejects. */
  #endStart: ((error?: ConfigError) => void) | undefined;
  #cancelStart: (() => void) | undefined;
  #waitsForOthers = false;
  /** When the log said of each master that it refuses this node. */
  readonly #saidRefusedMs = new Map<string, number>();
  #saidUnreachableMs: number | undefined;
  #isReplaced = false;
  #renewedMs = Number.NEGATIVE_INFINITY;
  #hasAnswer = false;
  #started = false;
  #stopping: Promise<void> | undefined;

  /** `addr`: one or several `host:port`, comma-separated. Throws `ConfigError`, and `ArgumentError` for a time that none can be. */
  constructor(addr: string, nodeInfo: NodeInfo, options: DiscoveryClientOptions) {
    this.#self = nodeInfo;
    this.#options = options;
    this.#env = options.env;
    this.#rpc = new RpcClient({ service: 'discovery', env: this.#env });
    this.#members = new Map([[nodeInfo.nodeId, nodeInfo]]);
    this.#env.metrics.setGaugeProvider('meshcache_discovery_reachable', () => Number(this.isReachable));
    const listed = parseMasters(addr);
    this.#rule = { listed, maxMasters: options.maxMasters ?? listed.length };
    this.#masters = listed;
    this.#choice = new MasterChoice(this.#rule);
    for (const endpoint of listed) this.#link(endpoint);
  }

  /**
   * Resolves with the first master's list of members; when that is this process's own master, the other listed ones are waited
   * for, at most DISCOVERY_OTHER_MASTERS_TIMEOUT_MS. Without a master it resolves after DISCOVERY_START_TIMEOUT_MS, and goes on
   * trying until there is one. Rejects with `ConfigError` when a master refuses this node for its settings before that.
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

  /** Leaves; takes at most DISCOVERY_LEAVE_TIMEOUT_MS. Idempotent. */
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

  /** Whether another node with this one's id has started later: this one is no member any more. */
  get isReplaced(): boolean {
    return this.#isReplaced;
  }

  /** By node id; the map is the caller's. */
  members(): Map<string, NodeInfo> {
    return new Map(this.#members);
  }

  /** The masters that have a seat now, as far as this node knows. */
  seats(): Endpoint[] {
    return seatsOf(this.#members.values(), this.#rule, this.#lost.dead);
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
    this.#cancelMerge?.();
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
      rpc: this.#rpc,
      codec: this.#codec,
      env: this.#env,
      heartbeatIntervalMs,
      memberTtlMs,
      onChange: () => this.#changed(),
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
   * Speaks to the masters that follow from the members of now. `changed`: which of these are others than at the last call; `lost`: hosts
   * that have just gone without a good-bye.
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

  /** A master that has been there all the time does not know this node. True: others may miss what it had announced. */
  #unknown(link: MasterLink, ttlMs: number): boolean {
    if (this.#stopping !== undefined) return false;
    const { isOwnMaster = () => false } = this.#options;
    const others = [...this.#links.values()].filter((link) => !isOwnMaster(link.masterId));
    const heardMs = Math.max(this.#renewedMs, ...others.map((link) => link.heardMs));
    // All that this start has announced was announced later than that.
    if (link.heardMs < this.#renewedMs) return false;
    if (this.#env.clock.nowMs() - heardMs < ttlMs) return true;
    const renewed = this.#options.onExpired?.();
    if (renewed === undefined) return true;
    this.#renewedMs = this.#env.clock.nowMs();
    this.#self = renewed;
    this.#members = new Map(this.#members).set(renewed.nodeId, renewed);
    this.#env.log.log('warn', 'the other nodes had dropped this one; it joins them again as newly started', {
      node_id: renewed.nodeId,
      silent_ms: Math.round(this.#env.clock.nowMs() - heardMs),
    });
    this.#options.onMembers?.(this.#members, [renewed.nodeId], []);
    return false;
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
      this.#env.log.log('info', 'discovery master reached again', { node_id: this.#self.nodeId });
    }
    if (this.#cancelMerge !== undefined) return;
    const isStarting = this.#endStart !== undefined || !this.#hasAnswer;
    const waitMs = isStarting ? 0 : this.#mergeGap.plan(this.#env.clock.nowMs(), this.#members.size);
    if (waitMs === 0) this.#merge(views);
    else this.#cancelMerge = this.#env.clock.after(waitMs, () => this.#mergeLater());
  }

  #mergeLater(): void {
    this.#cancelMerge = undefined;
    const views = this.#views();
    if (this.#stopping === undefined && views.length > 0) this.#merge(views);
  }

  #merge(views: readonly MasterView[]): void {
    this.#mergeGap.acted(this.#env.clock.nowMs());
    const { merged, changed } = this.#merging.merge(this.#members, this.#links, this.#self);
    const before = this.#members;
    const ids = changed ?? new Set([...before.keys(), ...merged.keys()]);
    const others = [...ids].filter((nodeId) => !isSame(before.get(nodeId), merged.get(nodeId)));
    const isChanged = !this.#hasAnswer || others.length > 0;
    this.#hasAnswer = true;
    countChanges(this.#env.metrics, others, { before, after: merged });
    const gone = others.filter((nodeId) => !merged.has(nodeId));
    const left = gone.filter((nodeId) => hasLeft(before.get(nodeId) as NodeInfo, views));
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

  /** The own master knows nobody at first; another one may know a cluster, or refuse this node. */
  #endStartIfJoined(): void {
    if (this.#endStart === undefined || !this.isReachable) return;
    const { isOwnMaster = () => false } = this.#options;
    const others = [...this.#links.values()].filter((link) => !isOwnMaster(link.masterId));
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

  /** What the masters that answer have said. */
  #views(): MasterView[] {
    const views: MasterView[] = [];
    for (const [name, { view }] of this.#links) {
      if (view === undefined) continue;
      this.#lost.forget(name);
      views.push(view);
    }
    // Its list lacks the dead. A young master's does not yet: others that it has not heard of are still members here.
    if (views.some(({ isMature }) => isMature)) this.#lost.forgetDead();
    return views;
  }

  /** No master answers: nobody says any more who has gone. A node that has never had an answer has nobody to choose from. */
  #awaitSilence(): void {
    if (!this.#hasAnswer || this.#cancelSilence !== undefined) return;
    const ttlMs = (this.#options.memberTtl ?? 6) * 1000;
    // Until the last of them has been silent for so long, so that all get dead at once.
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
      // It was tried for a day.
      const isGivenUp = !this.#lost.isFormer(name, nowMs) && !this.#masters.some((one) => formatEndpoint(one) === name);
      if (isGivenUp) this.#followMasters();
      return;
    }
    if (this.#saidUnreachableMs !== undefined && nowMs - this.#saidUnreachableMs < DISCOVERY_LOG_INTERVAL_MS) return;
    this.#saidUnreachableMs = nowMs;
    this.#env.log.log(
      'warn',
      'no discovery master is reachable; this node waits and goes on with the members it knows',
      {
        node_id: this.#self.nodeId,
        addresses: [...this.#links.keys()].join(','),
        members: this.#members.size,
        reason: error.message,
      },
    );
  }

  /** A start that is under way fails; later the node goes on with the masters that take it, or alone. */
  #refused(master: string, refusal: Refusal): void {
    if (this.#endStart !== undefined) {
      this.#endStart(refusalError(refusal, master));
      return;
    }
    if (this.#stopping !== undefined) return;
    const nowMs = this.#env.clock.nowMs();
    const saidMs = this.#saidRefusedMs.get(master) ?? Number.NEGATIVE_INFINITY;
    if (nowMs - saidMs < DISCOVERY_LOG_INTERVAL_MS) return;
    this.#saidRefusedMs.set(master, nowMs);
    this.#env.log.log(
      'error',
      'a discovery master refuses this node: all nodes of a cluster must have the same settings',
      {
        node_id: this.#self.nodeId,
        master,
        master_node_id: refusal.nodeId,
        reason: describeDifferences(refusal.differences, false),
      },
    );
  }

  #replaced(isReplaced: boolean): void {
    if (this.#isReplaced === isReplaced || this.#stopping !== undefined) return;
    this.#isReplaced = isReplaced;
    const { nodeId: node_id, incarnation } = this.#self;
    if (isReplaced) {
      const message = 'another node with the same node_id has started later; this one is no member any more';
      this.#env.log.log('error', message, { node_id, incarnation });
    } else {
      const message = 'the other node with the same node_id has left; this one is a member again';
      this.#env.log.log('info', message, { node_id, incarnation });
    }
    this.#options.onReplaced?.(isReplaced);
  }

  /** @internal Throws `InvariantError` unless the own node is a member, and there is a link to every master. */
  verify(): void {
    this.#lost.verify();
    this.#rpc.verify();
    const { nodeId } = this.#self;
    assert(this.#members.has(nodeId), () => `discovery client: ${nodeId}, the own node, is no member`);
    for (const [id, info] of this.#members) {
      assert(info.nodeId === id, () => `discovery client: ${info.nodeId} is kept as ${id}`);
    }
    const views = [...this.#links.values()].flatMap(({ view }) => view ?? []);
    const isMerged = this.#hasAnswer && this.#cancelMerge === undefined && views.some(({ isMature }) => isMature);
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

function parseMasters(addr: string): Endpoint[] {
  if (typeof addr !== 'string')
    throw new ConfigError(`discovery address: expected host:port as text, got ${shown(addr)}`);
  const texts = addr.split(',').map((text) => text.trim());
  const endpoints = texts.map((text) => {
    const endpoint = parseEndpoint(text);
    if (endpoint !== undefined && isEveryAddress(endpoint.host)) {
      throw new ConfigError(
        `discovery address ${JSON.stringify(text)}: nodes cannot reach each other there; give the address or the name ` +
          "of the master's machine (127.0.0.1 for one machine alone)",
      );
    }
    if (endpoint !== undefined && endpoint.port > 0) return endpoint;
    throw new ConfigError(`discovery address ${JSON.stringify(text)}: expected host:port, or several, comma-separated`);
  });
  const distinct = new Map(endpoints.map((endpoint) => [formatEndpoint(endpoint), endpoint]));
  if (distinct.size > DISCOVERY_MASTERS_MAX_COUNT) {
    throw new ConfigError(`${distinct.size} discovery addresses, at most ${DISCOVERY_MASTERS_MAX_COUNT} are allowed`);
  }
  return [...distinct.values()];
}
