import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import { REMOVALS_MARGIN_MS, RPC_CALL_TIMEOUT_MS } from '../../base/limits.js';
import { Signal } from '../../base/signal.js';
import { DirectoryClient } from '../../directory/client.js';
import type { Incarnations, PartitionRing } from '../../directory/gains.js';
import type { ProbablePages } from '../../directory/lookups.js';
import { pick } from '../../directory/owners/key-lists.js';
import type { Seniority } from '../../directory/owners/known-rings.js';
import { eachRequestOf, type OwnerRing } from '../../directory/owners/owners.js';
import { DirectoryServer, type OwnPages } from '../../directory/server.js';
import { type Clear, KnownClears } from '../../directory/shard/known-clears.js';
import { DirectoryShard } from '../../directory/shard/shard.js';
import type { Distances } from '../../net/distance.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import type { NodeInfo } from '../../types.js';
import { Clears, type ClearsOptions } from './clears.js';
import { LostStatements } from './lost-statements.js';
import { isOfSameOwners, type MemberChange, startedIn } from './member-log.js';
import { MemberZones } from './member-zones.js';
import { OwnerLists, type Publications } from './owner-lists.js';
import { OwnerRings } from './owner-rings.js';
import { PageDrops } from './page-drops.js';
import { ShardFilling } from './shard-filling.js';
import { ShardUpkeep, SWEEP_SLICE_KEYS } from './shard-upkeep.js';

export interface NodeDirectoryOptions {
  readonly self: NodeInfo;
  readonly vnodes: number;
  readonly replicas: number;
  /** Time after which every node knows of a change of members. */
  readonly settleMs: number;
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  readonly isLive: (nodeId: string, incarnation: number) => boolean;
  readonly rpc: RpcClient;
  /** Which nodes probably have pages; undefined: not known. */
  readonly map?: ProbablePages | undefined;
  /** Source of versions for pages set on this node. */
  readonly versions: HybridClock;
  readonly env: Environment;
}

/** A node's part in the directory: its shard, its client, and the classes that keep both in step with the members. */
export class NodeDirectory {
  readonly client: DirectoryClient;
  /** Source of versions for pages set on this node. */
  readonly versions: HybridClock;
  /** Tells nodes, this one included, to drop pages. */
  readonly drops: PageDrops;
  /** Tells other nodes about clears, and receives theirs. */
  readonly clears: Clears;
  /**
   * Sent when other nodes have, or may have, dropped this one as a member, before its pages are announced to them
   * again.
   */
  readonly away = new Signal<[]>();
  /** Sent when this node's clock was ahead and goes by its date again, before its pages are announced again. */
  readonly begunAgain = new Signal<[]>();
  /**
   * Sent with nodes that have become members, before pages are announced to them. `isEarlier`: at least one of them was
   * up before this node, so it may have deleted pages that this node still has.
   */
  readonly met = new Signal<[nodeIds: readonly string[], isEarlier: boolean]>();
  /**
   * Sent with a change of members, after this node's directory has followed it, and with the ring of the new members.
   */
  readonly changed = new Signal<[change: MemberChange, ring: OwnerRing]>();
  readonly #nodeId: string;
  #members: ReadonlyMap<string, NodeInfo>;
  /** Log of events that other nodes can cause. */
  readonly #lines: SparseLog;
  #hasLengthConflict = false;
  #droppingCount = 0;
  readonly #shard: DirectoryShard;
  readonly #server: DirectoryServer;
  readonly #lists: OwnerLists;
  readonly #upkeep: ShardUpkeep;
  readonly #rings: OwnerRings;
  /** The ring of the present members. */
  #ring: PartitionRing;
  readonly #lost: LostStatements;
  readonly #settleMs: number;
  readonly #rpc: RpcClient;
  readonly #endpointOf: (nodeId: string) => Endpoint | undefined;
  /** Start of this incarnation on the monotonic clock. */
  #startMs: number;
  readonly #zones: MemberZones;
  readonly #env: Environment;

  constructor(options: NodeDirectoryOptions) {
    const { self, vnodes, replicas, settleMs, endpointOf, isLive, rpc, versions, env } = options;
    const { nodeId, incarnation } = self;
    this.#settleMs = settleMs;
    this.#rpc = rpc;
    this.#endpointOf = endpointOf;
    this.#startMs = env.clock.nowMs();
    this.#env = env;
    this.#lines = new SparseLog(env);
    this.#zones = new MemberZones(self);
    this.#rings = new OwnerRings(vnodes);
    const ring = this.#rings.make([nodeId]);
    this.#ring = ring;
    this.versions = versions;
    this.#nodeId = nodeId;
    this.#members = new Map([[nodeId, self]]);
    this.drops = dropsOf(options);
    const clears = new KnownClears();
    const dropUndated = (cleared: readonly Clear[]) => this.#dropUndated(cleared);
    this.clears = clearsOf(options, { known: clears, members: () => this.#members, dropUndated });
    this.#shard = new DirectoryShard({
      isLive,
      clears,
      versions: this.versions,
      nowMs: () => env.clock.nowMs(),
      removalsMaxKeys: env.simulated?.removalsMaxKeys,
      unnoticedMs: Math.max(REMOVALS_MARGIN_MS, 4 * settleMs),
      distancesFrom: (asker) => this.#zones.distancesFrom(asker),
      isDiskHung: (id) => this.#members.get(id)?.isDiskHung === true,
    });
    this.#server = new DirectoryServer({ shard: this.#shard, displacedTold: (keys) => this.drops.told(keys) });
    this.client = new DirectoryClient(ring, endpointOf, replicas, {
      nodeId,
      incarnation,
      rpc,
      localShard: this.#shard,
      // Former owners forget after the delay, counted by their own clocks from when the change reached them.
      formerRingMs: 2 * settleMs,
      versions: this.versions,
      displacedTold: (keys) => this.drops.told(keys),
      distances: () => this.distances(),
      map: options.map,
      env,
    });
    const initial = { ring, incarnations: new Map([[nodeId, incarnation]]) };
    this.#lists = new OwnerLists({ directory: this.client, shard: this.#shard, initial, env });
    this.#upkeep = new ShardUpkeep({ shard: this.#shard, nodeId, replicas, pruneDelayMs: settleMs, clock: env.clock });
    this.#upkeep.start();
    this.#lost = new LostStatements({ nodeId, rpc, env, endpointOf, isLive });
    this.#followShard();
    this.client.owed.listen((ownerId, keys) => this.#lists.owe(ownerId, keys));
    this.client.refused.listen((ownerId, keys) => this.#lists.refused(ownerId, keys));
  }

  #followShard(): void {
    this.#shard.displaced.listen(({ nodeId: holder, key, voidBelow, isTie = false }) => {
      this.drops.tell(holder, [{ key, voidBelow, reason: isTie ? 'tied' : 'superseded' }]);
    });
    this.#shard.lengthsDiffer.listen((key) => this.#lengthsDiffer(key));
    this.#shard.ahead.listen((holder) => this.#isAhead(holder));
    this.#shard.askedByFormer.listen(() => this.#upkeep.pruneLater());
    this.#shard.noted.listen(() => this.#upkeep.noted());
  }

  /** Number of keys in this node's shard. */
  get keys(): number {
    return this.#shard.stats().keys;
  }

  /** Whether every owner has answered the announcement of this node's pages; by then outdated pages are dropped. */
  get isAnnounced(): boolean {
    return !this.client.isSilent && this.#lists.isComplete && this.#droppingCount === 0;
  }

  /** Marks outdated pages as not yet dropped until `dropped` is settled. */
  dropping(dropped: Promise<void>): void {
    this.#droppingCount++;
    void dropped.finally(() => this.#droppingCount--);
  }

  isMember(nodeId: string): boolean {
    return this.#members.has(nodeId);
  }

  /** Distances of other nodes from this one. */
  distances(): Distances {
    return this.#zones.distancesFrom(this.#nodeId);
  }

  /** Handles other nodes' requests to this node's shard. */
  attach(server: RpcServer): void {
    this.#server.attach(server);
    ShardFilling.handle(server, (ownerId, incarnation) => this.#hasTold(ownerId, incarnation));
  }

  /** Answers lookups from this node's own pages, too. */
  answerFrom(ownPages: OwnPages): void {
    this.#server.answerFrom(ownPages);
  }

  /** Starts to announce these pages: to their owners now, and to later owners when they gain them. */
  startAnnouncing(pages: Publications): void {
    this.#lists.start(pages);
    if (!pages.isEmpty) this.#lists.listAll();
  }

  /**
   * Makes all members drop these pages, and forget their locations, if they are older than the version. True: every
   * member has done so. A member that does not answer in time is told again until it answers or leaves.
   *
   * A page set before this call may have a later version than this node's clock gives, if the clock of the node that
   * set it is ahead. The members report such versions and are told once more, with a version later than these, unless
   * `isOver` says that the caller has given up. A page that is still newer was set meanwhile.
   */
  async deleteEverywhere(keys: readonly string[], version: number, isOver: () => boolean): Promise<boolean[]> {
    // One message per member at a time, so that each gets the whole time of a call.
    const outcomes = await eachRequestOf(keys, (request) => this.#deleteSlice(pick(keys, request), version, isOver));
    return outcomes.flat();
  }

  /** Tells another node to drop a page older than this version, because it was away when a newer page was set. */
  dropFrom(nodeId: string, key: string, voidBelow: number): void {
    this.drops.tell(nodeId, [{ key, voidBelow, reason: 'superseded' }]);
  }

  /**
   * Called when the other nodes have dropped this one and it continues under a new incarnation. Its shard's contents
   * are out of date, and the nodes that see it join announce theirs again; its own pages are announced to all owners.
   * With `begunAgain`, this node's clock was ahead and goes by its date again: everything with a version from before is
   * forgotten.
   */
  restartAs(incarnation: number, { begunAgain = false } = {}): void {
    this.#shard.clear(!begunAgain);
    if (begunAgain) {
      this.clears.known.clear();
      this.begunAgain.tell();
    }
    this.client.restartAs(incarnation);
    this.#startMs = this.#env.clock.nowMs();
    this.announceAfterAway();
  }

  /**
   * Called when another node has taken this one's id, or has given it back. Meanwhile nothing is announced; afterwards
   * everything is.
   */
  setReplaced(isReplaced: boolean): void {
    this.client.setSilent(isReplaced);
    if (!isReplaced) this.announceAfterAway();
  }

  /**
   * Announces all pages again: to an owner that has dropped this node's statements, or to all owners because one has
   * forgotten what this node was to drop.
   */
  restate(ownerId?: string): void {
    if (ownerId === undefined) {
      this.#lists.listAll();
      return;
    }
    this.away.tell();
    this.#lists.listAgain(ownerId);
  }

  /**
   * Announces all pages again because other nodes have, or may have, dropped this node's announcements: no master knows
   * it any more, or it was away.
   */
  announceAfterAway(): void {
    this.away.tell();
    this.#lists.listAll();
  }

  /** Follows a change of members. */
  membersChanged(change: MemberChange): void {
    const { before, after, changed } = change;
    this.#tellMet(change);
    for (const nodeId of changed) {
      const incarnation = before.get(nodeId)?.incarnation;
      const now = after.get(nodeId)?.incarnation;
      if (now === incarnation) continue;
      if (now !== undefined) this.#shard.startJoined(nodeId, now);
      if (incarnation === undefined) continue;
      // A node whose clock went back has restarted with an earlier incarnation; that start's announcements stay.
      this.#shard.dropNode(nodeId, incarnation, now);
    }
    this.#zones.changed(after, changed);
    this.#members = after;
    for (const nodeId of startedIn(change, this.#nodeId)) this.#started(nodeId);
    this.clears.membersChanged(change);
    if (isOfSameOwners(change)) {
      this.changed.tell(change, this.#ring);
      return;
    }
    const ring = this.#rings.next(changed, (nodeId) => after.has(nodeId), this.#zones.forRing());
    this.#ring = ring;
    this.client.setRing(ring, () => this.#seniority(ring, after));
    this.#lists.ownersChanged({ ring, incarnations: incarnationsOf(after) }, changed);
    this.#upkeep.ownersChanged(ring);
    this.#rings.keepFor([this.client, this.#lists, this.#upkeep]);
    this.#lost.membersChanged(change);
    this.changed.tell(change, ring);
  }

  /** Makes this node's shard forget deleted pages older than these versions. */
  forgetDeleted(keys: readonly string[], voidBelow: readonly number[]): void {
    keys.forEach((key, i) => void this.#shard.removeAll([key], voidBelow[i] as number));
  }

  /**
   * The newest version known to this node's shard that a page of these keys may have, here or on a node that is away;
   * 0: it knows none.
   */
  newestKnown(keys: readonly string[]): number {
    return this.#shard.newestOf(keys);
  }

  async stop(): Promise<void> {
    this.#upkeep.stop();
    this.#lost.stop();
    this.drops.stop();
    this.clears.stop();
    this.#lists.stop();
  }

  /**
   * How long the members have been up, by the dates of their starts, which come from several hosts and may be wrong. A
   * node's time before it joined does not count: the current date is that of this start plus the time since then.
   */
  #seniority(ring: OwnerRing, members: ReadonlyMap<string, NodeInfo>): Seniority {
    const sinceMs = Float64Array.from(ring.nodes, (nodeId) => members.get(nodeId)?.incarnation ?? 0);
    const nowMs = (members.get(this.#nodeId)?.incarnation ?? 0) + this.#env.clock.nowMs() - this.#startMs;
    return { sinceMs, settledMs: nowMs - this.#settleMs };
  }

  async #dropUndated(clears: readonly Clear[]): Promise<void> {
    for (const _ of this.#shard.voidLocations.dropUndated(clears, SWEEP_SLICE_KEYS)) await this.#env.clock.yield();
  }

  /**
   * Signals which nodes have become members, and whether one was up before this node, or has come while it was alone.
   */
  #tellMet(change: MemberChange): void {
    const { before, after } = change;
    const own = after.get(this.#nodeId)?.incarnation ?? Number.POSITIVE_INFINITY;
    const met = startedIn(change, this.#nodeId);
    // This compares the dates of two hosts, so it may be wrong.
    const isEarlier = before.size === 1 || met.some((nodeId) => (after.get(nodeId)?.incarnation ?? own) < own);
    if (met.length > 0) this.met.tell(met, isEarlier);
  }

  /**
   * Lets nothing that a former start of a node did not answer delay what this start has to hear: from when this node's
   * heartbeats say that it goes by the start, no call that sets or deletes a page may be true before the start has
   * heard.
   */
  #started(nodeId: string): void {
    const endpoint = this.#endpointOf(nodeId);
    if (endpoint !== undefined) this.#rpc.started(endpoint);
    this.drops.started(nodeId);
  }

  /** Whether an incarnation of another node has been told of all pages of this one, and of all void pages. */
  #hasTold(nodeId: string, incarnation: number): boolean {
    const isOwed = this.drops.owes(nodeId) || this.clears.owes(nodeId, incarnation);
    return this.#lists.hasListed(nodeId, incarnation) && !isOwed;
  }

  async #deleteSlice(keys: readonly string[], version: number, isOver: () => boolean): Promise<boolean[]> {
    const members = [...this.#members.keys()];
    let newest = 0;
    const onNewer = (newer: number) => {
      newest = Math.max(newest, newer);
    };
    const tell = async (voidBelow: number): Promise<void> => {
      const drops = keys.map((key) => ({ key, voidBelow, reason: 'deleted' as const, onNewer }));
      for (const nodeId of members) this.drops.tell(nodeId, drops);
      await this.drops.told(keys, RPC_CALL_TIMEOUT_MS);
    };
    await tell(version);
    if (newest > 0) {
      this.versions.see(newest);
      const later = this.versions.next();
      if (isOver()) return keys.map(() => false);
      await tell(later);
    }
    const owed = members.map((nodeId) => this.drops.isOwedBy(nodeId, keys));
    return keys.map((_, i) => owed.every((isOwed) => isOwed[i] === false));
  }

  /** Counts a refused page and logs the node that has stated it. */
  #isAhead(nodeId: string): void {
    this.#env.metrics.count('meshcache_ahead_pages_refused_total');
    this.#lines.log('warn', 'pages refused: their version is far ahead, as of a clock that is or was wrong', {
      node_id: nodeId,
    });
  }

  /** Logs the first conflict of lengths; a metric counts all of them. */
  #lengthsDiffer(key: string): void {
    if (this.#hasLengthConflict) return;
    this.#hasLengthConflict = true;
    this.#env.log.log(
      'warn',
      'two nodes have pages of different lengths under one key: give each configuration a namespace of its own',
      { key, node_id: this.#nodeId },
    );
  }

  /**
   * Throws `InvariantError` unless the shard, and the classes that keep it in step with the members, are consistent.
   */
  verify(): void {
    this.#shard.verify();
    this.client.verify();
    this.#lists.verify();
    this.#upkeep.verify();
    this.drops.verify();
    this.clears.verify();
    this.#lost.verify();
    this.#rings.verify([this.client, this.#lists, this.#upkeep]);
  }
}

function dropsOf({ self, settleMs, endpointOf, rpc, versions, env }: NodeDirectoryOptions): PageDrops {
  const isAhead = (version: number) => versions.isAhead(version);
  return new PageDrops({ nodeId: self.nodeId, rpc, env, endpointOf, isAhead, joinMs: 2 * settleMs });
}

function clearsOf(
  { self, settleMs, endpointOf, rpc, versions, env }: NodeDirectoryOptions,
  own: Pick<ClearsOptions, 'known' | 'members' | 'dropUndated'>,
): Clears {
  const see = (version: number) => versions.see(version);
  const isAhead = (version: number) => versions.isAhead(version);
  return new Clears({ ...own, nodeId: self.nodeId, rpc, env, endpointOf, see, isAhead, settleMs });
}

function incarnationsOf(members: ReadonlyMap<string, NodeInfo>): Incarnations {
  return {
    size: members.size,
    has: (nodeId) => members.has(nodeId),
    get: (nodeId) => members.get(nodeId)?.incarnation,
  };
}
