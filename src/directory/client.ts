import { assertAtMost } from '../base/assert.js';
import { HybridClock } from '../base/concurrency/hybrid-clock.js';
import type { Clock } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import { ArgumentError } from '../base/errors.js';
import type { Keys } from '../core/index.js';
import type { RpcClient } from '../rpc/client.js';
import type { DataLocation } from '../types.js';
import { Lookups } from './lookups.js';
import type { LocatedPages } from './messages/located-pages.js';
import { LocationColumns } from './messages/location-columns.js';
import { Taken } from './messages/taken.js';
import { reportShard } from './owners/directory-metrics.js';
import { checkKeys, eachSlice, pick } from './owners/key-lists.js';
import { KnownRings, type Seniority } from './owners/known-rings.js';
import { OwnerChannels, type ResolveControl } from './owners/owner-channels.js';
import { addTo, eachRequest, keysByOwner, type OwnerRing, ownersOf, requestsOf } from './owners/owners.js';
import { ToldOwners } from './owners/told-owners.js';
import type { DirectoryShard } from './shard/shard.js';

export type { ResolveControl } from './owners/owner-channels.js';

/** What a {@link DirectoryClient} takes beside its ring. */
export interface DirectoryClientOptions {
  /** The own node: its shard is asked without a socket, its own locations are useful to it only when there are no others. */
  readonly nodeId?: string;
  /** The own node's start: goes into its locations that have none. Default 0. */
  readonly incarnation?: number;
  /** Used, not closed, by this client. Default: one of its own, which `close` closes. */
  readonly rpc?: RpcClient;
  /** The own node's shard. */
  readonly localShard?: DirectoryShard;
  readonly env: Environment;
  /** Deadline of one request; default RPC_CALL_TIMEOUT_MS. */
  readonly timeoutMs?: number;
  /** @internal Sees the versions that shards know of. Default: one of its own. */
  readonly versions?: HybridClock;
  /** See `DirectoryServerOptions`: for what the own shard displaces. */
  readonly displacedTold?: () => Promise<void>;
  /** Told of keys whose statement an owner has not answered: it is to be told again what holds then. `withCopies`: see {@link DirectoryClient.delete}. */
  readonly onOwed?: (ownerId: string, keys: readonly string[], withCopies: boolean) => void;
  /** Told of announced pages, and of the versions that they had, that are older than what the cluster has or had: they are to be dropped. */
  readonly onOutdated?: (keys: readonly string[], versions: readonly number[]) => void;
  /**
   * So long after `setRing`, `delete` goes to the owners by the former ring too: until they have forgotten what they do not
   * own any more, they could become owners again and hand it out. For as long, what no owner knows is asked of former ones too.
   * Former rings must stay usable (see `rings`). Default 0.
   */
  readonly formerRingMs?: number;
}

/** Locations given at once, or asked for batch by batch just before each is sent; null: nothing to announce. */
export type LocationSource =
  | readonly (DataLocation | null)[]
  | ((keys: readonly string[]) => readonly (DataLocation | null)[]);

/** Identities that one client remembers having stated locations for: its own, in tests a few more. */
const IDENTITIES_MAX_COUNT = 64;
/** Next nodes on the ring that were owners before others had joined, when not more than so many have joined between two of them. */
const FORMER_OWNERS_COUNT = 2;

/**
 * Asks and tells the shards of a key's owners: one request an owner and batch. A shard that does not answer is a miss or
 * false, never an exception; only wrong arguments throw (`ArgumentError`), before anything is sent.
 *
 * The client owns the node's statement counter: every `put`, `announce` and `delete` is ordered by it, so that a delete
 * that arrives late leaves what was put after it.
 */
export class DirectoryClient {
  readonly #replicas: number;
  readonly #channels: OwnerChannels;
  readonly #lookups: Lookups;
  readonly #nodeId: string;
  #incarnation: number;
  /** Node id -> incarnation of what was put: whose locations `delete` removes. */
  readonly #identities = new Map<string, number>();
  readonly #told = new ToldOwners();
  readonly #clock: Clock;
  readonly #rings: KnownRings;
  readonly #onOwed: NonNullable<DirectoryClientOptions['onOwed']>;
  readonly #onOutdated: NonNullable<DirectoryClientOptions['onOutdated']>;
  #generation: number;
  #isSilent = false;

  constructor(ring: OwnerRing, resolveControl: ResolveControl, replicas: number, options: DirectoryClientOptions) {
    if (!Number.isSafeInteger(replicas) || replicas < 1)
      throw new ArgumentError(`replicas must be 1 or more: ${replicas}`);
    this.#replicas = replicas;
    const env = options.env;
    this.#channels = new OwnerChannels({
      nodeId: options.nodeId ?? '',
      localShard: options.localShard,
      displacedTold: options.displacedTold ?? (async () => {}),
      resolveControl,
      rpc: options.rpc,
      env,
      timeoutMs: options.timeoutMs,
      versions: options.versions ?? new HybridClock(env.clock),
    });
    this.#clock = env.clock;
    this.#rings = new KnownRings(ring, options.formerRingMs ?? 0, env.clock);
    this.#lookups = new Lookups({
      replicas,
      rings: this.#rings,
      channels: this.#channels,
      ownNode: options.localShard && options.nodeId,
      timeoutMs: options.timeoutMs,
      clock: env.clock,
      metrics: env.metrics,
    });
    // Without an incarnation, a later client of the same node is told from an earlier one by its statements only.
    this.#generation = options.incarnation === undefined ? Math.floor(env.clock.wallMs()) * 1000 : 0;
    this.#nodeId = options.nodeId ?? '';
    this.#incarnation = options.incarnation ?? 0;
    if (options.localShard !== undefined) reportShard(options.localShard, env.metrics);
    this.#onOwed = options.onOwed ?? (() => {});
    this.#onOutdated = options.onOutdated ?? (() => {});
    if (options.nodeId !== undefined && options.incarnation !== undefined) {
      this.#identities.set(options.nodeId, options.incarnation);
    }
  }

  /** The last statement up to now. */
  get generation(): number {
    return this.#generation;
  }

  get isSilent(): boolean {
    return this.#isSilent;
  }

  /** True: from now on nothing is stated; `put` is refused, `announce` has nothing to do. False: no longer. */
  setSilent(isSilent: boolean): void {
    this.#isSilent = isSilent;
  }

  /** The own node goes on as another start of itself, under which everything is stated from now on. */
  restartAs(incarnation: number): void {
    this.#incarnation = incarnation;
    this.#identities.set(this.#nodeId, incarnation);
  }

  /**
   * Calls from now on go by this ring. It may also be changed in place. With `seniority`, what no owner knows is for a while asked
   * of those, too, that owned it before others had joined: also by a node that has just joined itself and has seen no former ring.
   */
  setRing(ring: OwnerRing, seniority?: () => Seniority): void {
    this.#rings.set(ring, seniority);
  }

  /** The rings that this client may still ask: the current one and, for a while, former ones. */
  rings(): OwnerRing[] {
    return this.#rings.all();
  }

  /** The first owner of each key by the current ring, as its number in it. */
  firstOwners(keys: readonly string[]): Uint32Array {
    return ownersOf(this.#rings.current, keys, 1);
  }

  /**
   * States where pages are; those without a generation get the next one. True: at least one owner has taken it. In the
   * order of the entries.
   */
  async put(entries: ReadonlyMap<string, DataLocation> | Readonly<Record<string, DataLocation>>): Promise<boolean[]> {
    const pairs = entries instanceof Map ? [...entries] : Object.entries(entries as Record<string, DataLocation>);
    const keys = pairs.map(([key]) => key);
    const locations = pairs.map(([, location]) => location);
    const taken = await this.state(keys, locations);
    return Array.from(taken, (code) => code === Taken.taken);
  }

  /**
   * {@link put}, with one `Taken` a key: `outdated` when any owner says so. With `unlessHeld`, `held` when the first owner
   * says so, and then no owner has the statement. The first owner decides alone, so that of several nodes that state the
   * same page at the same time one is taken. With `byOthers`, nodes that were owners before others
   * had joined are told as well, and taken is what another node takes when all of these have answered.
   */
  async state(
    keys: readonly string[],
    locations: readonly DataLocation[],
    { unlessHeld = false, byOthers = false } = {},
  ): Promise<Uint8Array> {
    checkKeys(keys);
    const columns = this.#state(locations);
    const codes = new Uint8Array(keys.length);
    if (this.#isSilent) return codes;
    const ring = this.#rings.current;
    const replicas = byOthers ? this.#replicas + FORMER_OWNERS_COUNT : this.#replicas;
    const unanswered = new Set<number>();
    const firstOwners = unlessHeld ? ownersOf(ring, keys, 1) : undefined;
    const outdated = new Set<number>();
    const held = new Set<number>();
    /** Owners that have left a page out, of which the first owner has not said that it is held. */
    const leftOut = new Map<string, number[]>();
    // All at once and not slice by slice: a delete that is called later must not get before any of it.
    await eachRequest(keys, keysByOwner(keys, [ring], replicas), async (ownerId, request) => {
      const answer = await this.#put(ownerId, pick(keys, request), columns.pick(request), unlessHeld);
      if (answer === undefined) this.#onOwed(ownerId, pick(keys, request), false);
      request.forEach((i, j) => {
        const code = answer?.taken[j];
        if (byOthers && code === undefined) unanswered.add(i);
        const isFirst = ring.nodes[firstOwners?.[i] as number] === ownerId;
        if (code === Taken.taken && (!byOthers || ownerId !== this.#nodeId)) codes[i] = Taken.taken;
        else if (code === Taken.outdated) outdated.add(i);
        else if (code === Taken.held && isFirst) held.add(i);
        else if (code === Taken.held) addTo(leftOut, ownerId, i);
      });
    });
    for (const i of unanswered) codes[i] = Taken.refused;
    for (const i of outdated) codes[i] = Taken.outdated;
    await this.#settleHeld({ keys, columns, codes, outdated, held, leftOut });
    return codes;
  }

  /** Where owners do not agree on what is held, the first one is followed. */
  async #settleHeld({ keys, columns, codes, outdated, held, leftOut }: HeldOutcome): Promise<void> {
    const retracted = [...held].filter((i) => codes[i] === Taken.taken);
    for (const i of held) if (!outdated.has(i)) codes[i] = Taken.held;
    if (retracted.length > 0) await this.delete(pick(keys, retracted), columns.generation[retracted[0] as number]);
    for (const [ownerId, indices] of leftOut) {
      const missing = indices.filter((i) => !held.has(i) && !outdated.has(i));
      if (missing.length === 0) continue;
      const answer = await this.#put(ownerId, pick(keys, missing), columns.pick(missing), false);
      if (answer === undefined) this.#onOwed(ownerId, pick(keys, missing), false);
      missing.forEach((i, j) => {
        if (answer?.taken[j] === Taken.taken) codes[i] = Taken.taken;
      });
    }
  }

  /** A live location of each key; null: none known, or its owners do not answer. */
  get(keys: readonly string[]): Promise<(DataLocation | null)[]> {
    return this.#lookups.get(keys);
  }

  /** See {@link Lookups.find}. */
  find(keys: Keys, onFound: (found: LocatedPages) => void, avoided: readonly string[] = []): Promise<void> {
    return this.#lookups.find(keys, onFound, avoided);
  }

  /** Whether a live location of each key is known; false also when its owners do not answer. */
  exists(keys: Keys): Promise<boolean[]> {
    return this.#lookups.exists(keys);
  }

  /**
   * Drops what this client's node has stated about the keys up to now, or up to `generation`; what it states later stays.
   * An owner that does not answer keeps it: readers then find out by the page's stamp. `withCopies`: copies that other nodes have made of
   * these pages are dropped, too, where no other node has set the page itself.
   */
  async delete(keys: readonly string[], generation = this.#generation, { withCopies = false } = {}): Promise<void> {
    checkKeys(keys);
    const identities = [...this.#identities];
    await eachSlice(keys, this.#clock, async (slice) => {
      await eachRequest(slice, keysByOwner(slice, this.rings(), this.#replicas), async (ownerId, request) => {
        const picked = pick(slice, request);
        const channel = this.#channels.to(ownerId);
        const of = identities.map(([nodeId, incarnation]) => ({ nodeId, incarnation, generation, withCopies }));
        const done = await Promise.all(of.map((dropped) => channel.delete(picked, dropped)));
        if (done.includes(false)) this.#onOwed(ownerId, picked, withCopies);
      });
    });
  }

  /** Like {@link delete}, to one owner, of what the own node has stated up to now. False: it has not taken it. */
  async retract(ownerId: string, keys: readonly string[], withCopies: boolean): Promise<boolean> {
    checkKeys(keys);
    const dropped = {
      nodeId: this.#nodeId,
      incarnation: this.#incarnation,
      generation: this.#generation,
      withCopies,
    };
    const channel = this.#channels.to(ownerId);
    const done = await Promise.all(
      requestsOf(
        keys,
        keys.map((_, i) => i),
      ).map((request) => channel.delete(pick(keys, request), dropped)),
    );
    return !done.includes(false);
  }

  /**
   * Tells the owners of the keys that these locations, one a key, are stale: no page was there. They forget them, unless the node has stated
   * the page again since. Best effort: an owner that does not answer hands them out again.
   */
  async discard(keys: readonly string[], locations: readonly DataLocation[]): Promise<void> {
    checkKeys(keys);
    const columns = LocationColumns.of(locations, { nodeId: '', incarnation: 0, generation: 0 });
    await eachRequest(keys, keysByOwner(keys, this.rings(), this.#replicas), async (ownerId, request) => {
      await this.#channels.to(ownerId).discard(pick(keys, request), columns.pick(request));
    });
  }

  /**
   * States locations to one owner, one batch after the other. A function as `locations` is asked for each batch just before
   * it is sent, so that what was dropped meanwhile is not announced. False: the owner did not take all of it (ends at the
   * first batch that fails).
   */
  async announce(ownerId: string, keys: readonly string[], locations: LocationSource): Promise<boolean> {
    return (await this.#announce(ownerId, keys, locations)) === 'taken';
  }

  /** Like {@link announce}, but false only when the owner does not answer: what it has no room for is not said again and again. */
  async remind(ownerId: string, keys: readonly string[], locations: LocationSource): Promise<boolean> {
    return (await this.#announce(ownerId, keys, locations)) !== 'unanswered';
  }

  async #announce(
    ownerId: string,
    keys: readonly string[],
    locations: LocationSource,
  ): Promise<'taken' | 'refused' | 'unanswered'> {
    checkKeys(keys);
    if (this.#isSilent) return 'taken';
    const all = keys.map((_, i) => i);
    let outcome: 'taken' | 'refused' = 'taken';
    for (const request of requestsOf(keys, all)) {
      const asked = pick(keys, request);
      const found = typeof locations === 'function' ? locations(asked) : pick(locations, request);
      const present = asked.map((_, j) => j).filter((j) => (found[j] ?? null) !== null);
      if (present.length === 0) continue;
      const batch = pick(found, present) as DataLocation[];
      const answer = await this.#put(ownerId, pick(asked, present), this.#state(batch));
      if (answer === undefined) return 'unanswered';
      const { taken } = answer;
      if (taken.includes(Taken.refused)) outcome = 'refused';
      const outdated = present.filter((_, j) => taken[j] === Taken.outdated);
      if (outdated.length === 0) continue;
      const versions = outdated.map((j) => found[j]?.version ?? 0);
      this.#onOutdated(pick(asked, outdated), versions);
    }
    return outcome;
  }

  /**
   * Tells an owner that it has been told anew of all that the own node still has: what the node had stated up to
   * `generation` and not again since is void there.
   */
  async renounce(ownerId: string, generation: number): Promise<void> {
    const [nodeId, incarnation] = [this.#nodeId, this.#incarnation];
    if (this.#isSilent) return;
    const isTold = await this.#channels.to(ownerId).renounce({ nodeId, incarnation, generation });
    if (isTold) this.#told.renounced(ownerId, generation);
  }

  /** Whether this owner may know of something that the own node has stated. */
  mayKnow(ownerId: string): boolean {
    return this.#told.has(ownerId);
  }

  /** Closes the connections, unless they belong to an RPC client that was handed in. Idempotent. */
  async close(): Promise<void> {
    await this.#channels.close();
  }

  #put(ownerId: string, keys: readonly string[], columns: LocationColumns, unlessHeld = false) {
    // Also when no answer comes: it may have got there.
    this.#told.told(ownerId, this.#generation);
    return this.#channels.put(ownerId, keys, columns, unlessHeld);
  }

  /** The locations as statements of now: with the counter's next value. Remembers whose they are. */
  #state(locations: readonly DataLocation[]): LocationColumns {
    const generation = this.#generation + 1;
    const incarnation = this.#incarnation;
    const columns = LocationColumns.of(locations, { nodeId: this.#nodeId, incarnation, generation });
    this.#generation = columns.generation.reduce((highest, value) => Math.max(highest, value), generation);
    for (const node of columns.nodes) {
      if (this.#identities.size < IDENTITIES_MAX_COUNT || this.#identities.has(node.nodeId)) {
        this.#identities.set(node.nodeId, node.incarnation);
      }
    }
    return columns;
  }

  /** @internal Throws `InvariantError` unless its queues and tables agree with themselves; the own shard is its owner's to verify. */
  verify(): void {
    assertAtMost('directory client: identities', this.#identities.size, IDENTITIES_MAX_COUNT + 1);
    this.#told.verify();
    this.#rings.verify();
    this.#channels.verify();
  }
}

/** How the owners of a batch have answered, by indices of its keys. */
interface HeldOutcome {
  readonly keys: readonly string[];
  readonly columns: LocationColumns;
  readonly codes: Uint8Array;
  readonly outdated: ReadonlySet<number>;
  readonly held: ReadonlySet<number>;
  readonly leftOut: ReadonlyMap<string, readonly number[]>;
}
