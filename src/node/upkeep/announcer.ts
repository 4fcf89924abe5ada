import { assert, assertAtMost } from '../../base/assert.js';
import { jittered, pauseAfter } from '../../base/concurrency/backoff.js';
import type { Environment } from '../../base/environment/environment.js';
import {
  ANNOUNCE_ASKED_GAP_MS,
  ANNOUNCE_AT_ONCE_NODES_COUNT,
  ANNOUNCE_RETRY_MAX_MS,
  ANNOUNCE_SPREAD_PER_NODE_MS,
  RPC_RETRY_AFTER_MS,
} from '../../base/limits.js';
import { stringsOf } from '../../core/binding/key-batch.js';
import { PARTITIONS_COUNT } from '../../core/ring/partitions.js';
import type { DirectoryClient } from '../../directory/client.js';
import { Gains, type Incarnations, type RingView } from '../../directory/gains.js';
import { NO_OWNER, type OwnerRing } from '../../directory/owners/owners.js';
import type { DataLocation } from '../../types.js';

/** A view in which no key has an owner. */
const NOBODY: RingView = {
  ring: {
    nodes: [],
    getNodesBatch: (keys, n) => new Uint32Array(stringsOf(keys).length * n).fill(NO_OWNER),
    ownersOfPartitions: (n) => new Uint32Array(PARTITIONS_COUNT * n).fill(NO_OWNER),
  },
  incarnations: new Map(),
};

/** The pages that this node has, and that the directory must list. */
export interface Publications {
  /** Keys of all pages, some at a time, so that other work can go on in between. */
  keysInSlices(): Iterable<readonly string[]>;
  readonly isEmpty: boolean;
  /** The location of each page; null for pages that are gone. */
  locationsOf(keys: readonly string[]): (DataLocation | null)[];
  /** Drops the pages that are older than these versions; see `PageStatements.drop`. */
  drop(
    keys: readonly string[],
    voidBelow: readonly number[],
    options?: { readonly isCopy?: boolean; readonly isTie?: boolean; readonly isDeleted?: boolean },
  ): Promise<void>;
  /** Keys whose pages below a version are void, as far as this node knows: it has set newer ones, or was told to drop them. */
  voids(): Iterable<readonly [key: string, voidBelow: number]>;
}

/** Views that one pass may start from. If more changes happen during a pass, all pages are announced to all owners again. */
const VIEWS_MAX_COUNT = 16;
/** Attempts to announce to an owner that fails. The pause between two attempts doubles, up to ANNOUNCE_RETRY_MAX_MS. */
const RETRIES_MAX_COUNT = 8;

/**
 * Announces this node's pages to the directory owners that gain them.
 *
 * Invariant: every page was announced to its owners of at least one of `#views`: of the first view, if the page existed then, else of a later one,
 * because the store announces a new page to the owners of its time. A pass therefore announces each page to those owners of the last view
 * that did not own it in every earlier view. One pass runs at a time; changes meanwhile start another one.
 */
export class Announcer {
  readonly #directory: DirectoryClient;
  readonly #env: Environment;
  #publications: Publications | undefined;
  /** Views of the owners, the oldest first, the current one last. A running pass covers the first `#passViews`: it announces what owners have gained by the last of them. */
  #views: RingView[];
  #passViews = 1;
  #pass: Promise<void> | undefined;
  /** Owner -> number of its last attempts, all of which have failed. */
  readonly #failures = new Map<string, number>();
  /** Owner -> function that cancels the next attempt. */
  readonly #retries = new Map<string, () => void>();
  /** Owner that asked for all pages again -> time at which they are, or were, announced to it. */
  readonly #askedMs = new Map<string, number>();
  #endSpread: () => void = () => {};
  #stopped = false;

  constructor(options: { directory: DirectoryClient; initial: RingView; env: Environment }) {
    this.#directory = options.directory;
    this.#env = options.env;
    this.#views = [options.initial];
  }

  /** Begins to announce these pages. Before, changes of owners are followed with nothing to announce. */
  start(publications: Publications): void {
    this.#publications = publications;
  }

  ownersChanged(view: RingView): void {
    if (this.#views.length >= VIEWS_MAX_COUNT) this.#views.splice(this.#passViews, Number.POSITIVE_INFINITY, NOBODY);
    this.#views.push(view);
    this.#start();
  }

  /** Announces all pages to all owners again, because they may have dropped what they knew. */
  announceAll(): void {
    this.#againWithout(NOBODY);
  }

  /** Announces all its pages again to an owner that has lost what it knew: soon, but at a limited rate, however often this is called. */
  announceTo(ownerId: string): void {
    const { incarnations } = this.#views.at(-1) as RingView;
    if (!incarnations.has(ownerId) || this.#retries.has(ownerId)) return;
    const nowMs = this.#env.clock.nowMs();
    const restedMs = (this.#askedMs.get(ownerId) ?? Number.NEGATIVE_INFINITY) + ANNOUNCE_ASKED_GAP_MS;
    const dueMs = Math.max(nowMs + RPC_RETRY_AFTER_MS, restedMs);
    this.#askedMs.set(ownerId, dueMs);
    this.#tellLater(ownerId, dueMs - nowMs);
  }

  /** Whether every owner has answered all announcements that it needs. */
  get isComplete(): boolean {
    return this.#views.length === 1 && this.#failures.size === 0 && this.#retries.size === 0;
  }

  /** Whether this start of an owner has taken all announcements that it needs since it became a member. */
  hasAnnounced(ownerId: string, incarnation: number): boolean {
    const isMember = this.#views.every(({ incarnations }) => incarnations.get(ownerId) === incarnation);
    return isMember && !this.#failures.has(ownerId) && !this.#retries.has(ownerId);
  }

  /** The rings that the announcer may still ask. */
  rings(): OwnerRing[] {
    return this.#views.map(({ ring }) => ring);
  }

  /** Ends all work: from now on no ring or page is asked, and nothing is sent. Messages in progress are not waited for. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#endSpread();
    for (const cancel of this.#retries.values()) cancel();
  }

  /** Announces all pages that owners have gained since `view`, as if that had been the view before. */
  #againWithout(view: RingView): void {
    const current = this.#views.at(-1) as RingView;
    this.#views.push(view);
    this.ownersChanged(current);
  }

  #start(): void {
    this.#pass ??= this.#runPass();
  }

  /** Runs a pass, and another one if owners have changed meanwhile. Never rejects. */
  async #runPass(): Promise<void> {
    let hasFailed = false;
    try {
      await this.#spread();
      await this.#announceChanges();
    } catch (error) {
      hasFailed = true;
      this.#env.log.log('error', 'announcing pages to new directory owners failed', { error: String(error) });
    }
    this.#pass = undefined;
    this.#passViews = 1;
    // Owners may have changed after the pass looked for changes for the last time.
    if (this.#views.length > 1 && !hasFailed && !this.#stopped) this.#start();
  }

  /** Waits for a random time in a large cluster, so that not all nodes announce their pages to a new owner at once. */
  async #spread(): Promise<void> {
    const { random, clock } = this.#env;
    const { incarnations } = this.#views.at(-1) as RingView;
    const further = incarnations.size - ANNOUNCE_AT_ONCE_NODES_COUNT;
    if (further <= 0) return;
    const waitMs = (random.u32() / 2 ** 32) * further * ANNOUNCE_SPREAD_PER_NODE_MS;
    await new Promise<void>((resolve) => {
      const cancel = clock.after(waitMs, resolve);
      this.#endSpread = () => {
        cancel();
        resolve();
      };
    });
  }

  async #announceChanges(): Promise<void> {
    while (this.#views.length > 1 && !this.#stopped) {
      const before = this.#views.slice(0, -1);
      const target = this.#views.at(-1) as RingView;
      this.#passViews = this.#views.length;
      const { ownersCount, announcedCount } = this.#directory;
      const outcomes = this.#outcomesSoFar();
      const gains = new Gains(before, target, ownersCount, announcedCount);
      for (const keys of this.#publications?.keysInSlices() ?? []) {
        for (const gained of gains.of(keys)) {
          await Promise.all(
            [...gained].map(async ([ownerId, ownerKeys]) => {
              // An owner that has failed gets everything later: it must not delay the others slice by slice.
              if (outcomes.get(ownerId) !== false) outcomes.set(ownerId, await this.#announceTo(ownerId, ownerKeys));
            }),
          );
          await this.#env.clock.yield();
          if (this.#stopped) return;
        }
      }
      this.#views = this.#views.slice(this.#passViews - 1);
      this.#passViews = 1;
      this.#passEnded(outcomes);
    }
  }

  /** Owners that have failed before and are tried again in this pass: they count as complete unless an announcement of the pass fails. */
  #outcomesSoFar(): Map<string, boolean> {
    const outcomes = new Map<string, boolean>();
    for (const [ownerId, failures] of this.#failures) {
      if (failures <= RETRIES_MAX_COUNT && !this.#retries.has(ownerId)) outcomes.set(ownerId, true);
    }
    return outcomes;
  }

  #passEnded(outcomes: ReadonlyMap<string, boolean>): void {
    const { incarnations } = this.#views.at(-1) as RingView;
    for (const [ownerId, isComplete] of outcomes) {
      if (isComplete) this.#failures.delete(ownerId);
      else this.#retryLater(ownerId);
    }
    for (const byOwner of [this.#failures, this.#askedMs]) {
      for (const ownerId of byOwner.keys()) if (!incarnations.has(ownerId)) byOwner.delete(ownerId);
    }
  }

  async #announceTo(ownerId: string, keys: readonly string[]): Promise<boolean> {
    const publications = this.#publications;
    if (publications === undefined) return true;
    const isComplete = await this.#directory.announce(ownerId, keys, (some) =>
      this.#stopped ? some.map(() => null) : publications.locationsOf(some),
    );
    this.#env.metrics.count('meshcache_reannounced_keys_total', keys.length);
    return isComplete;
  }

  /** Announces everything to this owner again after a while, as if it knew nothing. */
  #retryLater(ownerId: string): void {
    // While members come and go, passes follow each other quickly: their failures before the next retry count as one.
    if (this.#retries.has(ownerId)) return;
    const failures = (this.#failures.get(ownerId) ?? 0) + 1;
    this.#failures.set(ownerId, failures);
    const willRetry = failures <= RETRIES_MAX_COUNT;
    this.#env.log.log('warn', 'directory owner did not take all announced pages', {
      owner: ownerId,
      attempts: failures,
      will_retry: willRetry,
    });
    if (!willRetry) return;
    this.#tellLater(ownerId, pauseAfter(failures, { minMs: RPC_RETRY_AFTER_MS, maxMs: ANNOUNCE_RETRY_MAX_MS }));
  }

  #tellLater(ownerId: string, pauseMs: number): void {
    if (this.#retries.has(ownerId) || this.#stopped) return;
    const cancel = this.#env.clock.after(jittered(pauseMs, this.#env.random), () => {
      this.#retries.delete(ownerId);
      const { ring, incarnations } = this.#views.at(-1) as RingView;
      if (!incarnations.has(ownerId)) return;
      this.#againWithout({ ring, incarnations: without(incarnations, ownerId) });
    });
    this.#retries.set(ownerId, cancel);
  }

  /** Throws `InvariantError` unless the views belong to a pass, and every owner that has failed will be tried again or was given up. */
  verify(): void {
    assertAtMost('announcer: views of the pass', this.#passViews, this.#views.length);
    // During a pass that started from the maximum, two more views stand for all later changes.
    assertAtMost('announcer: views', this.#views.length, VIEWS_MAX_COUNT + 2);
    assert(this.#passViews >= 1, () => `announcer: ${this.#passViews} views of the pass`);
    assert(this.#passViews === 1 || this.#pass !== undefined, () => `announcer: ${this.#passViews} views of no pass`);
    if (this.#stopped || this.#views.length > 1) return;
    const { incarnations } = this.#views[0] as RingView;
    for (const [ownerId, failures] of this.#failures) {
      const isPending = this.#retries.has(ownerId) || failures > RETRIES_MAX_COUNT || !incarnations.has(ownerId);
      assert(isPending, () => `announcer: ${ownerId} has failed ${failures} times and is not told again`);
    }
  }
}

function without(incarnations: Incarnations, ownerId: string): Incarnations {
  return {
    size: incarnations.size - 1,
    has: (nodeId) => nodeId !== ownerId && incarnations.has(nodeId),
    get: (nodeId) => (nodeId === ownerId ? undefined : incarnations.get(nodeId)),
  };
}
