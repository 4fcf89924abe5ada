import { jittered } from '../../base/concurrency/backoff.js';
import { PeerQueue, type Waiting } from '../../base/concurrency/peer-queue.js';
import type { Environment } from '../../base/environment/environment.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import {
  ANNOUNCE_ASKED_GAP_MS,
  ANNOUNCE_AT_ONCE_NODES_COUNT,
  ANNOUNCE_FULL_MS,
  ANNOUNCE_RETRY_MAX_MS,
  ANNOUNCE_SPREAD_PER_NODE_MS,
  DIRECTORY_NOTES_MAX_COUNT,
  DIRECTORY_REQUEST_MAX_KEYS,
  OWED_STATEMENTS_MAX_KEYS,
  RPC_RETRY_AFTER_MS,
  STATEMENT_RETRY_MAX_MS,
  STATEMENT_RETRY_MIN_MS,
} from '../../base/limits.js';
import { PartitionSet, partitionsOf } from '../../core/ring/partitions.js';
import type { DirectoryClient } from '../../directory/client.js';
import { type Gains, gainedPartitions, type RingView } from '../../directory/gains.js';
import { NoteColumns } from '../../directory/messages/note-columns.js';
import { addTo, type OwnerRing } from '../../directory/owners/owners.js';
import type { NoteVisitor } from '../../directory/shard/removals.js';
import type { DataLocation } from '../../types.js';

/** Notes about void pages. */
export interface Notes {
  /** Visits the notes step by step, see `Removals.eachNote`. */
  eachNote(visit: NoteVisitor): Generator<void, void>;
}

/** The pages that this node has, and that the directory must list. */
export interface Publications extends Notes {
  /** Keys of all pages, a few thousand at a time, so that other work can go on in between. */
  keysInSlices(): Iterable<readonly string[]>;
  /** Whether there are neither pages nor notes. */
  readonly isEmpty: boolean;
  /** The location of each page; null if it is gone. */
  locationsOf(keys: readonly string[]): (DataLocation | null)[];
  /** Drops the pages that are older than these versions; see `PageStatements.drop`. */
  drop(
    keys: readonly string[],
    voidBelow: readonly number[],
    options?: { readonly isTie?: boolean; readonly isDeleted?: boolean },
  ): Promise<void>;
}

export interface OwnerListsOptions {
  readonly directory: DirectoryClient;
  /** This node's shard; the notes that it has taken as an owner are handed over to later owners. */
  readonly shard: Notes & { readonly hasNotes: boolean };
  readonly initial: RingView;
  readonly env: Environment;
}

/** What one incarnation of an owner has yet to be told. */
interface List {
  readonly partitions: PartitionSet;
}

/** Marks a key as owed. It carries no content: whatever holds when it is told is told. */
type Owed = Record<never, never>;

/** Calls a function for each list that has a partition. */
type EachWith = (partition: number, take: (list: Asked) => void) => void;

/** A list for one owner, in a walk through all pages. */
interface Asked {
  readonly ownerId: string;
  readonly partitions: PartitionSet;
  /** Whether the owner has answered all messages so far. */
  isAnswered: boolean;
  resolve(isAnswered: boolean): void;
}

/** Key of the single item that waits in `#lists` for an owner. */
const LIST = '';

/**
 * Tells directory owners what they must know of this node's pages until they have accepted it or are no longer members.
 * When an incarnation of an owner gains partitions, all pages of those are listed to it, preceded by this node's notes
 * about void pages. Statements that an owner has not answered are repeated key by key, with what then holds; they do
 * not wait for lists. At most OWED_STATEMENTS_MAX_KEYS keys are remembered per owner; beyond that, all pages are stated
 * to it.
 *
 * Invariant: since a page came, it was stated to every owner that its partition has had, or its partition is in their
 * lists. This holds because the store states a new page to the owners at that time, and a list is told after its
 * partitions were gained.
 */
export class OwnerLists {
  readonly #directory: DirectoryClient;
  readonly #shard: OwnerListsOptions['shard'];
  readonly #env: Environment;
  readonly #lines: SparseLog;
  /** Lists by incarnation of an owner: a later one knows nothing of what was listed to an earlier one. */
  readonly #lists: PeerQueue<List>;
  /** Owed statements by owner. */
  readonly #owed: PeerQueue<Owed>;
  #publications: Publications | undefined;
  #view: RingView;
  /** Lists that the next walk will tell. */
  #asked: Asked[] = [];
  #isWalking = false;
  /** By owner that asked for all pages again, the time at which they are, or were, listed to it. */
  readonly #askedMs = new Map<string, number>();
  /** By owner, the partitions of pages that it had no room for. */
  #full = new Map<string, PartitionSet>();
  #cancelFull: (() => void) | undefined;
  #isStopped = false;

  constructor({ directory, shard, initial, env }: OwnerListsOptions) {
    this.#directory = directory;
    this.#shard = shard;
    this.#env = env;
    this.#lines = new SparseLog(env);
    this.#view = initial;
    this.#lists = new PeerQueue({
      name: 'owner lists',
      env,
      backoff: { minMs: RPC_RETRY_AFTER_MS, maxMs: ANNOUNCE_RETRY_MAX_MS },
      maxCount: 1,
      isMember: (start) => this.#startOf(ownerOf(start)) === start,
      join: (before, { partitions }) => ({ partitions: before.partitions.with(partitions) }),
      tell: (start, waiting) => this.#tell(ownerOf(start), waiting),
    });
    this.#owed = new PeerQueue({
      name: 'owed statements',
      env,
      backoff: { minMs: STATEMENT_RETRY_MIN_MS, maxMs: STATEMENT_RETRY_MAX_MS },
      maxCount: OWED_STATEMENTS_MAX_KEYS,
      isMember: (ownerId) => this.#view.incarnations.has(ownerId),
      tell: (ownerId, owed) => this.#repeat(ownerId, owed),
      tellAll: (ownerId) => this.restate(ownerId),
    });
    env.metrics.setGaugeProvider('meshcache_directory_owed_keys', () => this.#owed.count);
  }

  /** Starts to list these pages. Before this call, changes of owners are followed with nothing to list. */
  start(publications: Publications): void {
    this.#publications = publications;
  }

  /** Called with keys whose statements an owner has not answered. */
  owe(ownerId: string, keys: readonly string[]): void {
    const owed = keys.map((key) => [key, {}] as const);
    this.#owed.add(ownerId, owed, STATEMENT_RETRY_MIN_MS);
  }

  /** Follows a change of members. `changed` has at least those that have restarted; default: any may have. */
  ownersChanged(view: RingView, changed?: readonly string[]): void {
    // Without pages there is nothing to list: a page that comes later is stated to its owners at that time.
    const pages = this.#publications;
    const hasAny = pages !== undefined && (!pages.isEmpty || this.#shard.hasNotes);
    const gained = hasAny ? this.#gained(this.#view, view, changed) : new Map<string, PartitionSet>();
    this.#view = view;
    this.#lists.membersChanged();
    this.#owed.membersChanged();
    for (const byOwner of [this.#askedMs, this.#full]) {
      for (const ownerId of byOwner.keys()) if (!view.incarnations.has(ownerId)) byOwner.delete(ownerId);
    }
    this.#addAll(gained, this.#spreadMs());
  }

  /** Lists all pages to all owners again, because they may have lost them. */
  listAll(): void {
    this.#addAll(this.#gained(undefined, this.#view));
  }

  /**
   * Lists all pages of an owner to it again, because it has lost them: soon, but at a limited rate, however often this
   * is called.
   */
  listAgain(ownerId: string): void {
    const partitions = this.#gained(undefined, this.#view).get(ownerId);
    if (partitions === undefined) return;
    const nowMs = this.#env.clock.nowMs();
    const isWaiting = this.#lists.has(this.#startOf(ownerId), LIST);
    const restedMs = (this.#askedMs.get(ownerId) ?? Number.NEGATIVE_INFINITY) + ANNOUNCE_ASKED_GAP_MS;
    const dueMs = Math.max(nowMs + RPC_RETRY_AFTER_MS, restedMs);
    if (!isWaiting) this.#askedMs.set(ownerId, dueMs);
    this.#addAll(new Map([[ownerId, partitions]]), dueMs - nowMs);
  }

  /**
   * Lists all pages of an owner to it at once, and then tells it that all older statements are void. Resolves with
   * whether it has answered.
   */
  async restate(ownerId: string): Promise<boolean> {
    const { generation } = this.#directory;
    const partitions = this.#gained(undefined, this.#view).get(ownerId) ?? new PartitionSet();
    if (!(await this.#list(ownerId, partitions))) return false;
    return this.#directory.renounce(ownerId, generation);
  }

  /** Called with keys of pages that an owner had no room for: they are listed to it again after a while. */
  refused(ownerId: string, keys: readonly string[]): void {
    if (this.#isStopped) return;
    const { clock, random } = this.#env;
    const partitions = this.#full.get(ownerId) ?? new PartitionSet();
    this.#full.set(ownerId, partitions);
    for (const partition of partitionsOf(keys)) partitions.add(partition);
    this.#cancelFull ??= clock.after(jittered(ANNOUNCE_FULL_MS, random), () => {
      const full = this.#full;
      this.#full = new Map();
      this.#cancelFull = undefined;
      this.#addAll(full);
    });
  }

  /** Whether every owner has answered for everything that it has gained. */
  get isComplete(): boolean {
    return this.#lists.count === 0;
  }

  /**
   * Whether this incarnation of an owner has answered for everything that it has gained since it became a member. False
   * before {@link start}.
   */
  hasListed(ownerId: string, incarnation: number): boolean {
    const isKnown = this.#publications !== undefined && this.#view.incarnations.get(ownerId) === incarnation;
    return isKnown && !this.#lists.has(this.#startOf(ownerId), LIST);
  }

  /** The rings that are still in use. */
  rings(): OwnerRing[] {
    return [this.#view.ring];
  }

  /** Stops all work: no more pages are requested and nothing is sent. Messages in progress are not awaited. */
  stop(): void {
    this.#isStopped = true;
    this.#lists.stop();
    this.#owed.stop();
    this.#cancelFull?.();
  }

  #startOf(ownerId: string): string {
    return `${this.#view.incarnations.get(ownerId)} ${ownerId}`;
  }

  #gained(before: RingView | undefined, after: RingView, changed?: readonly string[]): Gains {
    const { ownersCount: replicas, announcedCount: width } = this.#directory;
    return gainedPartitions(before, after, { replicas, width, changed });
  }

  /** Lists the pages of these partitions to each owner that is a member, to all of them in one walk. */
  #addAll(listed: Gains, pauseMs = 0): void {
    const members = [...listed].filter(([ownerId]) => this.#view.incarnations.has(ownerId));
    const lists = members.map(
      ([ownerId, partitions]) => [this.#startOf(ownerId), [[LIST, { partitions }] as const]] as const,
    );
    this.#lists.addEach(lists, pauseMs);
  }

  /** A random delay in a large cluster, so that not all nodes list their pages to a new owner at once. */
  #spreadMs(): number {
    const further = this.#view.incarnations.size - ANNOUNCE_AT_ONCE_NODES_COUNT;
    return further <= 0 ? 0 : (this.#env.random.u32() / 2 ** 32) * further * ANNOUNCE_SPREAD_PER_NODE_MS;
  }

  async #tell(ownerId: string, waiting: readonly Waiting<List>[]): Promise<readonly Waiting<List>[]> {
    const [[, list]] = waiting as readonly [Waiting<List>];
    if (await this.#list(ownerId, list.partitions)) return waiting;
    if (!this.#isStopped)
      this.#lines.log('warn', 'directory owner did not take all announced pages', { owner: ownerId });
    return [];
  }

  /** Repeats statements, batch by batch, until a batch is not accepted. Resolves with the accepted ones. */
  async #repeat(ownerId: string, owed: readonly Waiting<Owed>[]): Promise<readonly Waiting<Owed>[]> {
    const publications = this.#publications;
    if (publications === undefined) return [];
    const locationsOf = (keys: readonly string[]) => publications.locationsOf(keys);
    for (let taken = 0; taken < owed.length; taken += DIRECTORY_REQUEST_MAX_KEYS) {
      const keys = owed.slice(taken, taken + DIRECTORY_REQUEST_MAX_KEYS).map(([key]) => key);
      const locations = locationsOf(keys);
      const present = keys.filter((_, i) => locations[i] !== null);
      const gone = keys.filter((_, i) => locations[i] === null);
      const isRetracted = await this.#directory.retract(ownerId, gone);
      if (!isRetracted || !(await this.#directory.announce(ownerId, present, locationsOf))) return owed.slice(0, taken);
    }
    return owed;
  }

  /** Lists the pages of these partitions to an owner in the next walk. Resolves with whether it has answered. */
  #list(ownerId: string, partitions: PartitionSet): Promise<boolean> {
    return new Promise((resolve) => {
      this.#asked.push({ ownerId, partitions, isAnswered: true, resolve });
      if (!this.#isWalking) void this.#walkAll();
    });
  }

  /** Walks through all pages while there are lists to tell. Never rejects. */
  async #walkAll(): Promise<void> {
    this.#isWalking = true;
    // Lists requested later in this turn are told as well.
    await Promise.resolve();
    while (this.#asked.length > 0) {
      const asked = this.#asked;
      this.#asked = [];
      let isDone = false;
      try {
        await this.#walk(asked);
        isDone = !this.#isStopped;
      } catch (error) {
        this.#env.log.log('error', 'announcing pages to directory owners failed', { error: String(error) });
      }
      for (const { isAnswered, resolve } of asked) resolve(isAnswered && isDone);
    }
    this.#isWalking = false;
  }

  async #walk(asked: readonly Asked[]): Promise<void> {
    const publications = this.#publications;
    if (publications === undefined) return;
    const { ring } = this.#view;
    const width = this.#directory.announcedCount;
    const owners = ring.ownersOfPartitions(width);
    const listsOf = listsByOwner(asked, ring.nodes);
    /** Calls `take` for each list that has this partition. */
    const eachWith = (partition: number, take: (list: Asked) => void): void => {
      for (let at = partition * width; at < (partition + 1) * width; at++) {
        for (const each of listsOf[owners[at] as number] ?? []) if (each.partitions.has(partition)) take(each);
      }
    };
    await this.#handOver(publications, eachWith);
    for (const keys of publications.keysInSlices()) {
      const wanted = new Map<Asked, string[]>();
      for (const [i, partition] of partitionsOf(keys).entries())
        eachWith(partition, (list) => addTo(wanted, list, keys[i] as string));
      await Promise.all([...wanted].map(([each, some]) => this.#announce(each, some, publications)));
      await this.#env.clock.yield();
      // No list can be told any more, so the walk ends.
      if (this.#isStopped || asked.every(({ isAnswered }) => !isAnswered)) return;
    }
  }

  /** Hands over the notes about the partitions of the lists, before their pages. */
  async #handOver(publications: Publications, eachWith: EachWith): Promise<void> {
    const notesFor = new Map<Asked, NoteColumns>();
    const tell = async (leastCount: number): Promise<void> => {
      const full = [...notesFor].filter(([, { count }]) => count >= leastCount);
      for (const [list] of full) notesFor.delete(list);
      await Promise.all(
        full.map(async ([list, notes]) => {
          list.isAnswered = await this.#directory.handOver(list.ownerId, notes);
        }),
      );
    };
    const visit: NoteVisitor = (digest, version, partition) =>
      eachWith(partition, (list) => {
        if (!list.isAnswered) return;
        const notes = notesFor.get(list) ?? new NoteColumns();
        notesFor.set(list, notes);
        notes.add(digest, version, partition);
      });
    for (const noted of [this.#shard, publications]) {
      for (const _ of noted.eachNote(visit)) {
        await tell(DIRECTORY_NOTES_MAX_COUNT);
        await this.#env.clock.yield();
        if (this.#isStopped) return;
      }
    }
    await tell(1);
  }

  /** An owner that has not answered gets everything later: it must not delay the others at each step. */
  async #announce(asked: Asked, keys: readonly string[], publications: Publications): Promise<void> {
    if (!asked.isAnswered) return;
    asked.isAnswered = await this.#directory.announce(asked.ownerId, keys, (some) =>
      this.#isStopped ? some.map(() => null) : publications.locationsOf(some),
    );
    this.#env.metrics.count('meshcache_reannounced_keys_total', keys.length);
  }

  /** Throws `InvariantError` unless the lists are being told or will be. */
  verify(): void {
    this.#lists.verify();
    this.#owed.verify();
  }
}

/** The lists for each node, by its position in `nodes`; lists for other nodes are left out. */
function listsByOwner(asked: readonly Asked[], nodes: readonly string[]): readonly (readonly Asked[] | undefined)[] {
  const ofOwner = new Map<string, Asked[]>();
  for (const each of asked) addTo(ofOwner, each.ownerId, each);
  return nodes.map((nodeId) => ofOwner.get(nodeId));
}

/** The node that an incarnation belongs to. */
function ownerOf(start: string): string {
  return start.slice(start.indexOf(' ') + 1);
}
