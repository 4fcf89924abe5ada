import { assertAtMost } from '../base/assert.js';
import { HybridClock } from '../base/concurrency/hybrid-clock.js';
import type { Clock } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import { ArgumentError } from '../base/errors.js';
import { DIRECTORY_NOTES_MAX_COUNT } from '../base/limits.js';
import { Signal } from '../base/signal.js';
import { type Keys, pickKeys, stringsOf } from '../core/binding/key-batch.js';
import type { Distances } from '../net/distance.js';
import type { RpcClient } from '../rpc/client.js';
import type { DataLocation } from '../types.js';
import { type ExistsOptions, type FindOptions, Lookups, type ProbablePages } from './lookups.js';
import type { LocatedPages } from './messages/located-pages.js';
import { LocationColumns } from './messages/location-columns.js';
import type { NoteColumns } from './messages/note-columns.js';
import { Taken } from './messages/taken.js';
import { reportShard } from './owners/directory-metrics.js';
import { checkKeys, eachSlice, pick } from './owners/key-lists.js';
import { KnownRings, type Seniority } from './owners/known-rings.js';
import { OwnerChannels, type ResolveControl } from './owners/owner-channels.js';
import {
  addTo,
  batchOf,
  eachRequest,
  groupByOwner,
  keysByOwner,
  type OwnerRing,
  ownersAndNext,
  ownersOf,
  requestsOf,
} from './owners/owners.js';
import type { DirectoryShard } from './shard/shard.js';

export type { ResolveControl } from './owners/owner-channels.js';

/** Options of a {@link DirectoryClient}, beside its ring. */
export interface DirectoryClientOptions {
  /**
   * Id of this node. Its shard is asked without a socket; its own locations are handed out only when no other node has
   * the page.
   */
  readonly nodeId?: string;
  /** Incarnation of this node: added to locations that have none. Default 0. */
  readonly incarnation?: number;
  /** RPC client that is used and not closed. Default: a new one, which `close` closes. */
  readonly rpc?: RpcClient;
  /** The shard that this node keeps. */
  readonly localShard?: DirectoryShard;
  readonly env: Environment;
  /** Deadline of one request; default RPC_CALL_TIMEOUT_MS. */
  readonly timeoutMs?: number;
  /** @internal Clock that observes the versions that shards know of. Default: a new one. */
  readonly versions?: HybridClock;
  /**
   * Resolves when the holders of pages that the own shard has displaced have been told; see `DirectoryServerOptions`.
   */
  readonly displacedTold?: (keys: readonly string[]) => Promise<void>;
  /**
   * How long the owners by a former ring still count after `setRing`; default 0. During this time `delete` goes to them
   * too: until they forget keys that they no longer own, they could become owners again and hand them out. Keys that no
   * owner knows are also looked up there. Former rings must stay usable (see `rings`).
   */
  readonly formerRingMs?: number;
  /**
   * @internal How far owners are from this node; the nearest owner of a key is asked first. Default: all are equally
   * far.
   */
  readonly distances?: () => Distances;
  /** @internal Which nodes probably have pages: these are asked before the owners. Default: not known. */
  readonly map?: ProbablePages | undefined;
}

/**
 * All locations at once, or a function that is called for each batch just before it is sent. Null: nothing to announce
 * for this key.
 */
export type LocationSource =
  | readonly (DataLocation | null)[]
  | ((keys: readonly string[]) => readonly (DataLocation | null)[]);

/**
 * Number of identities (node and incarnation) for which one client remembers that it has put locations: its own, and in
 * tests a few more.
 */
const IDENTITIES_MAX_COUNT = 64;
/**
 * Number of nodes on the ring, beyond `replicas`, that are also asked because they may have been owners before others
 * joined. It is enough while at most this many nodes have joined between two former owners.
 */
const FORMER_OWNERS_COUNT = 2;

/**
 * Sends requests to the directory shards of a key's owners, one request for each owner and batch. If a shard does not
 * answer, the result is a miss or false, never an exception. Only wrong arguments throw (`ArgumentError`), before
 * anything is sent.
 *
 * The client owns the node's statement counter, the generation. It orders every `put`, `announce` and `delete`, so that
 * a delete that arrives late does not drop what was put after it.
 */
export class DirectoryClient {
  /** Keys with a statement that an owner has not acknowledged. It must be told what holds by then. */
  readonly owed = new Signal<[ownerId: string, keys: readonly string[]]>();
  /** Keys of pages for which an owner had no room; they must be stated to it again after a while. */
  readonly refused = new Signal<[ownerId: string, keys: readonly string[]]>();
  /** Announced pages, and their versions, that are older than what the cluster has or had; they must be dropped. */
  readonly outdated = new Signal<[keys: readonly string[], versions: readonly number[]]>();
  readonly #replicas: number;
  readonly #channels: OwnerChannels;
  readonly #lookups: Lookups;
  readonly #nodeId: string;
  #incarnation: number;
  /** Node id -> incarnation of the locations that were put; `delete` removes locations of these identities. */
  readonly #identities = new Map<string, number>();
  readonly #clock: Clock;
  readonly #rings: KnownRings;
  #generation: number;
  #isSilent = false;
  #former: FormerPages | undefined;

  constructor(ring: OwnerRing, resolveControl: ResolveControl, replicas: number, options: DirectoryClientOptions) {
    if (!Number.isSafeInteger(replicas) || replicas < 1)
      throw new ArgumentError(`replicas must be 1 or more, got ${replicas}`);
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
      distances: options.distances ?? (() => undefined),
      map: options.map,
      timeoutMs: options.timeoutMs,
      clock: env.clock,
      metrics: env.metrics,
    });
    // Without an incarnation, only the statement counter tells a later client of the same node from an earlier one.
    this.#generation = options.incarnation === undefined ? Math.floor(env.clock.wallMs()) * 1000 : 0;
    this.#nodeId = options.nodeId ?? '';
    this.#incarnation = options.incarnation ?? 0;
    if (options.localShard !== undefined) reportShard(options.localShard, env.metrics);
    if (options.nodeId !== undefined && options.incarnation !== undefined) {
      this.#identities.set(options.nodeId, options.incarnation);
    }
  }

  /** The generation of the last statement so far. */
  get generation(): number {
    return this.#generation;
  }

  get isSilent(): boolean {
    return this.#isSilent;
  }

  /**
   * If true, the node announces nothing from now on: `put` is refused and `announce` does nothing. If false, it
   * announces again.
   */
  setSilent(isSilent: boolean): void {
    this.#isSilent = isSilent;
  }

  /** Sets the pages from before this node was away, until owners have accepted all of them; see `PutWish`. */
  setFormer(former: FormerPages | undefined): void {
    this.#former = former;
  }

  /** The pages from before this node was away, see {@link setFormer}; a new object after each absence. */
  get former(): FormerPages | undefined {
    return this.#former;
  }

  /** Number of nodes on the ring, clockwise from a key, that own the key. */
  get ownersCount(): number {
    return this.#replicas;
  }

  /**
   * Number of nodes on the ring, clockwise from a key, to which its pages are announced. These are the key's owners
   * and, while some pages are from before this node was away, also nodes that were owners before others joined: they
   * may know of removals that the owners do not know of.
   */
  get announcedCount(): number {
    return this.#former?.isWide === true ? 2 * this.#replicas + FORMER_OWNERS_COUNT : this.#replicas;
  }

  /** Changes the incarnation of this node; all later statements carry the new one. */
  restartAs(incarnation: number): void {
    this.#incarnation = incarnation;
    this.#identities.set(this.#nodeId, incarnation);
  }

  /**
   * Sets the ring for all later calls. The caller may also change that ring in place. With `seniority`, keys that no
   * owner knows are for a while also looked up at nodes that owned them before others joined; this works even for a
   * node that has just joined and has seen no former ring.
   */
  setRing(ring: OwnerRing, seniority?: () => Seniority): void {
    this.#rings.set(ring, seniority);
  }

  /** The rings that this client may still use: the current one and, for a while, former ones. */
  rings(): OwnerRing[] {
    return this.#rings.all();
  }

  /** For each key, the owner that is asked first, as an index into the current ring's nodes. */
  firstOwners(keys: readonly string[]): Uint32Array {
    return this.#lookups.firstAsked(keys);
  }

  /**
   * Announces where pages are. Locations without a generation get the next one. Results are in the order of the
   * entries; true: at least one owner has accepted the location.
   */
  async put(entries: ReadonlyMap<string, DataLocation> | Readonly<Record<string, DataLocation>>): Promise<boolean[]> {
    const pairs = entries instanceof Map ? [...entries] : Object.entries(entries as Record<string, DataLocation>);
    const keys = pairs.map(([key]) => key);
    const locations = pairs.map(([, location]) => location);
    const taken = await this.state(keys, LocationColumns.of(locations));
    return Array.from(taken, (code) => code === Taken.taken);
  }

  /**
   * Like {@link put}, with one `Taken` code for each key. The columns belong to the client from now on, which fills in
   * what they leave open. The result is `outdated` if any owner says so. With `unlessHeld`, it is `held` if the first
   * owner says so, and then no owner keeps the statement. The first owner decides alone, so that exactly one of several
   * nodes that announce the same page at the same time is taken. A page for which another owner has replaced another
   * content is taken whatever the first owner says. With `byOthers`, nodes that were owners before others joined are
   * told as well; a page is then taken only if a node other than this one takes it and all of these owners have
   * answered.
   */
  async state(
    asked: Keys,
    columns: LocationColumns,
    { unlessHeld = false, byOthers = false } = {},
  ): Promise<Uint8Array> {
    checkKeys(stringsOf(asked));
    this.#stamp(columns);
    const codes = new Uint8Array(columns.count);
    if (this.#isSilent) return codes;
    const keys = batchOf(asked);
    const ring = this.#rings.current;
    const next = byOthers ? this.#replicas + FORMER_OWNERS_COUNT : 0;
    const width = this.#replicas + next;
    const unanswered = new Set<number>();
    const owners = byOthers ? ownersAndNext(ring, keys, this.#replicas, next) : ownersOf(ring, keys, width);
    const outdated = new Set<number>();
    const held = new Set<number>();
    const replaced = new Set<number>();
    /** Owner -> indices of pages that it has left out. */
    const leftOut = new Map<string, number[]>();
    // All owners are told at once and not slice by slice, so that a delete called later cannot overtake any part.
    await eachRequest(stringsOf(keys), groupByOwner(ring, owners, width), async (ownerId, request) => {
      const picked = pickKeys(keys, request);
      const answer = await this.#put(ownerId, picked, columns.pick(request), unlessHeld);
      if (answer === undefined) this.owed.tell(ownerId, stringsOf(picked));
      request.forEach((i, j) => {
        const code = answer?.taken[j];
        if (byOthers && code === undefined) unanswered.add(i);
        const isFirst = unlessHeld && ring.nodes[owners[i * width] as number] === ownerId;
        const isTaken = code === Taken.taken || code === Taken.replaced;
        if (isTaken && (!byOthers || ownerId !== this.#nodeId)) codes[i] = Taken.taken;
        if (code === Taken.outdated) outdated.add(i);
        if (code === Taken.replaced) replaced.add(i);
        if (code === Taken.held && isFirst) held.add(i);
        if (code === Taken.held) addTo(leftOut, ownerId, i);
      });
    });
    // If a page that has replaced another content were dropped, neither would be left.
    for (const i of replaced) held.delete(i);
    for (const i of unanswered) codes[i] = Taken.refused;
    for (const i of outdated) codes[i] = Taken.outdated;
    await this.#settleHeld({ keys, columns, codes, outdated, held, leftOut });
    return codes;
  }

  /** Where owners disagree on which pages are held, the first owner's answer counts. */
  async #settleHeld({ keys, columns, codes, outdated, held, leftOut }: HeldOutcome): Promise<void> {
    const retracted = [...held].filter((i) => codes[i] === Taken.taken);
    for (const i of held) if (!outdated.has(i)) codes[i] = Taken.held;
    if (retracted.length > 0) await this.delete(pickKeys(keys, retracted), columns.generation[retracted[0] as number]);
    for (const [ownerId, indices] of leftOut) {
      const missing = indices.filter((i) => !held.has(i) && !outdated.has(i));
      if (missing.length === 0) continue;
      const picked = pickKeys(keys, missing);
      const answer = await this.#put(ownerId, picked, columns.pick(missing), false);
      if (answer === undefined) this.owed.tell(ownerId, stringsOf(picked));
      missing.forEach((i, j) => {
        const code = answer?.taken[j];
        if (code === Taken.outdated) outdated.add(i);
        if (outdated.has(i)) codes[i] = Taken.outdated;
        else if (code === Taken.taken) codes[i] = Taken.taken;
      });
    }
  }

  /** A live location of each key; null: no location is known, or the key's owners do not answer. */
  get(keys: readonly string[]): Promise<(DataLocation | null)[]> {
    return this.#lookups.get(keys);
  }

  /**
   * Hands out what {@link get} would return, as each owner answers: the location of each key once, or never if none is
   * known. Locations on `avoided` nodes, at most DIRECTORY_AVOIDED_MAX_COUNT, come only if there are no others.
   */
  find(keys: Keys, onFound: (found: LocatedPages) => void, options?: FindOptions): Promise<void> {
    return this.#lookups.find(keys, onFound, options);
  }

  /**
   * Returns for each key whether a live location is known on a node that is not avoided; false also if its owners do
   * not answer.
   */
  exists(keys: Keys, options?: ExistsOptions): Promise<boolean[]> {
    return this.#lookups.exists(keys, options);
  }

  /**
   * Drops what this client's node has announced about the keys up to now, or up to `generation`; later statements stay.
   * An owner that does not answer keeps the location; readers then detect the stale page by its stamp.
   */
  async delete(keys: Keys, generation = this.#generation): Promise<void> {
    checkKeys(stringsOf(keys));
    const identities = [...this.#identities];
    await eachSlice(keys, this.#clock, async (asked) => {
      const slice = batchOf(asked);
      const groups = keysByOwner(slice, this.rings(), this.#replicas);
      await eachRequest(stringsOf(slice), groups, async (ownerId, request) => {
        const picked = pickKeys(slice, request);
        const channel = this.#channels.to(ownerId);
        const of = identities.map(([nodeId, incarnation]) => ({ nodeId, incarnation, generation }));
        const done = await Promise.all(of.map((dropped) => channel.delete(picked, dropped)));
        if (done.includes(false)) this.owed.tell(ownerId, stringsOf(picked));
      });
    });
  }

  /**
   * Like {@link delete}, but for one owner only, and for everything that this node has announced up to now. False: the
   * owner has not accepted it.
   */
  async retract(ownerId: string, keys: readonly string[]): Promise<boolean> {
    checkKeys(keys);
    const dropped = { nodeId: this.#nodeId, incarnation: this.#incarnation, generation: this.#generation };
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
   * Reports stale locations, one for each key, to the owners of the keys, because no page was found there. The owners
   * forget them unless the node has announced the page again since. Best effort: an owner that does not answer hands
   * them out again.
   */
  async discard(keys: readonly string[], locations: readonly DataLocation[]): Promise<void> {
    checkKeys(keys);
    const columns = LocationColumns.of(locations);
    const batch = batchOf(keys);
    await eachRequest(keys, keysByOwner(batch, this.rings(), this.#replicas), async (ownerId, request) => {
      await this.#channels.to(ownerId).discard(pickKeys(batch, request), columns.pick(request));
    });
  }

  /**
   * Announces locations to one owner, one batch after the other. A function as `locations` is asked for each batch just
   * before it is sent, so that pages dropped meanwhile are not announced. False: the owner has not answered; the first
   * batch that fails ends the call.
   */
  async announce(ownerId: string, keys: readonly string[], locations: LocationSource): Promise<boolean> {
    checkKeys(keys);
    if (this.#isSilent) return true;
    const all = keys.map((_, i) => i);
    for (const request of requestsOf(keys, all)) {
      const asked = pick(keys, request);
      const found = typeof locations === 'function' ? locations(asked) : pick(locations, request);
      const present = asked.map((_, j) => j).filter((j) => (found[j] ?? null) !== null);
      if (present.length === 0) continue;
      const columns = LocationColumns.of(pick(found, present) as DataLocation[]);
      this.#stamp(columns);
      const answer = await this.#put(ownerId, pick(asked, present), columns);
      if (answer === undefined) return false;
      const { taken } = answer;
      const outdated = present.filter((_, j) => taken[j] === Taken.outdated);
      if (outdated.length === 0) continue;
      const versions = outdated.map((j) => found[j]?.version ?? 0);
      this.outdated.tell(pick(asked, outdated), versions);
    }
    return true;
  }

  /** @internal Hands over to an owner which pages are void. False: it has not answered. */
  async handOver(ownerId: string, notes: NoteColumns): Promise<boolean> {
    const channel = this.#channels.to(ownerId);
    for (let start = 0; start < notes.count; start += DIRECTORY_NOTES_MAX_COUNT) {
      if (!(await channel.note(notes.part(start, DIRECTORY_NOTES_MAX_COUNT)))) return false;
    }
    return true;
  }

  /**
   * Tells an owner that this node has announced again everything that it still has. Earlier statements, up to
   * `generation`, that were not repeated are then void there. False: the owner has not answered.
   */
  async renounce(ownerId: string, generation: number): Promise<boolean> {
    const [nodeId, incarnation] = [this.#nodeId, this.#incarnation];
    return this.#isSilent || this.#channels.to(ownerId).renounce({ nodeId, incarnation, generation });
  }

  /** Closes the connections, unless the RPC client was passed in. Idempotent. */
  async close(): Promise<void> {
    await this.#channels.close();
  }

  async #put(ownerId: string, keys: Keys, columns: LocationColumns, unlessHeld = false) {
    const { start, below: before = 0, met } = this.#former ?? {};
    const below = Math.max(before, met?.get(ownerId) ?? 0);
    // The own shard was away as well, and may have forgotten what others told it when it came back.
    const hasFormer = below > 0 && ownerId !== this.#nodeId && columns.version.some((version) => version < below);
    const wish = { unlessHeld, formerStart: hasFormer ? start : undefined };
    const answer = await this.#channels.put(ownerId, keys, columns, wish);
    if (answer?.taken.includes(Taken.refused) === true) {
      const isRefused = (_: string, i: number): boolean => answer.taken[i] === Taken.refused;
      this.refused.tell(ownerId, stringsOf(keys).filter(isRefused));
    }
    return answer;
  }

  /**
   * Gives the locations the counter's next value, so that they count as statements made now, and remembers their
   * identities.
   */
  #stamp(columns: LocationColumns): void {
    const generation = this.#generation + 1;
    columns.fillOpen({ nodeId: this.#nodeId, incarnation: this.#incarnation, generation });
    this.#generation = columns.generation.reduce((highest, value) => Math.max(highest, value), generation);
    for (const node of columns.nodes) {
      if (this.#identities.size < IDENTITIES_MAX_COUNT || this.#identities.has(node.nodeId)) {
        this.#identities.set(node.nodeId, node.incarnation);
      }
    }
  }

  /**
   * @internal Throws `InvariantError` unless the client's queues and tables are consistent. The local shard is not
   * included.
   */
  verify(): void {
    assertAtMost('directory client: identities', this.#identities.size, IDENTITIES_MAX_COUNT + 1);
    this.#rings.verify();
    this.#channels.verify();
  }
}

/**
 * The pages that are from before this node was away, or from before it met an owner. They were good when its start
 * `start` was lost; see `digestOfStart`.
 */
export interface FormerPages {
  readonly start: number;
  /** Pages with earlier versions are from before this node was away; 0: none is. */
  readonly below: number;
  /** Node that this one has met -> version below which this node's pages are from before they met. */
  readonly met: ReadonlyMap<string, number>;
  /** Whether nodes that were owners before others joined are told as well. */
  readonly isWide: boolean;
}

/** How the owners of a batch have answered, by index of the key in the batch. */
interface HeldOutcome {
  readonly keys: Keys;
  readonly columns: LocationColumns;
  readonly codes: Uint8Array;
  /** Pages that an owner calls outdated, also when they are stated again. */
  readonly outdated: Set<number>;
  readonly held: ReadonlySet<number>;
  readonly leftOut: ReadonlyMap<string, readonly number[]>;
}
