import { assert, assertAtMost } from '../../base/assert.js';
import type { Environment } from '../../base/environment/environment.js';
import {
  ANNOUNCE_ASKED_GAP_MS,
  ANNOUNCE_AT_ONCE_NODES_COUNT,
  ANNOUNCE_RETRY_MAX_MS,
  ANNOUNCE_SPREAD_PER_NODE_MS,
  RPC_RETRY_AFTER_MS,
} from '../../base/limits.js';
import type { DirectoryClient } from '../../directory/client.js';
import { NO_OWNER, type OwnerRing } from '../../directory/owners.js';
import { gainedKeysInSlices, type Incarnations, type RingView } from '../../directory/reannounce.js';
import type { DataLocation } from '../../types.js';

/** The owners before there were any. */
const NOBODY: RingView = { ring: { nodes: [], getNodesBatch: noOwners }, incarnations: new Map() };

/** The pages that this node has published and that must be found. */
export interface Publications {
  /** All of them, some at a time: taken while other work goes on. */
  keysInSlices(): Iterable<readonly string[]>;
  readonly isEmpty: boolean;
  /** Locations of those that are still there, in order; null for the others. */
  locationsOf(keys: readonly string[]): (DataLocation | null)[];
  /** Drops pages that are older than these versions; see `PageStore.drop`. */
  drop(keys: readonly string[], voidBelow: readonly number[], options?: { readonly isCopy?: boolean }): Promise<void>;
  /** What this node knows to be void: it has set something newer, or was told. */
  voids(): Iterable<readonly [key: string, voidBelow: number]>;
}

/** Views that one pass may start from; with more changes during a pass, everybody is told everything again. */
const VIEWS_MAX_COUNT = 16;
/** An owner that does not take what it is told is tried again so often; the pause doubles up to ANNOUNCE_RETRY_MAX_MS. */
const RETRIES_MAX_COUNT = 8;

/**
 * Tells new directory owners what they have to know of this node's pages.
 *
 * Invariant: every page was told to its owners by at least one of `#views`: by the first one, under which all pages of its
 * time were announced, or, as the store puts pages to the owners of the time, by a later one. So whoever owns a page by the
 * last view and did not own it in every one before is told. One pass runs at a time; changes meanwhile start another one.
 */
export class Announcer {
  readonly #directory: DirectoryClient;
  readonly #replicas: number;
  readonly #env: Environment;
  #publications: Publications | undefined;
  /** Oldest first, the current one last. The running pass takes the first `#passViews` of them to the last one of these. */
  #views: RingView[];
  #passViews = 1;
  #pass: Promise<void> | undefined;
  /** Owner -> its attempts that failed, one after the other. */
  readonly #failures = new Map<string, number>();
  /** Owner -> cancels its next attempt. */
  readonly #retries = new Map<string, () => void>();
  /** Owner -> when it is or was told everything because it had asked for that. */
  readonly #askedMs = new Map<string, number>();
  #endSpread: () => void = () => {};
  #stopped = false;

  constructor(options: { directory: DirectoryClient; replicas: number; initial: RingView; env: Environment }) {
    this.#directory = options.directory;
    this.#replicas = options.replicas;
    this.#env = options.env;
    this.#views = [options.initial];
  }

  /** From now on these pages are announced. What changes before is followed, with nothing to announce. */
  start(publications: Publications): void {
    this.#publications = publications;
  }

  ownersChanged(view: RingView): void {
    if (this.#views.length >= VIEWS_MAX_COUNT) this.#views.splice(this.#passViews, Number.POSITIVE_INFINITY, NOBODY);
    this.#views.push(view);
    this.#start();
  }

  /** Starts from nothing: the owners may have dropped what they had been told. */
  announceAll(): void {
    this.#againWithout(NOBODY);
  }

  /** Tells this owner everything once more, which has lost what it was told: soon, but not again and again, however often it is called. */
  announceTo(ownerId: string): void {
    const { incarnations } = this.#views.at(-1) as RingView;
    if (!incarnations.has(ownerId) || this.#retries.has(ownerId)) return;
    const nowMs = this.#env.clock.nowMs();
    const restedMs = (this.#askedMs.get(ownerId) ?? Number.NEGATIVE_INFINITY) + ANNOUNCE_ASKED_GAP_MS;
    const dueMs = Math.max(nowMs + RPC_RETRY_AFTER_MS, restedMs);
    this.#askedMs.set(ownerId, dueMs);
    this.#tellLater(ownerId, dueMs - nowMs);
  }

  /** Whether every owner has answered what it had to be told of. */
  get isComplete(): boolean {
    return this.#views.length === 1 && this.#failures.size === 0 && this.#retries.size === 0;
  }

  /** Whether this start of an owner has been told of every page that it had to be told of, since it became a member. */
  hasAnnounced(ownerId: string, incarnation: number): boolean {
    const isMember = this.#views.every(({ incarnations }) => incarnations.get(ownerId) === incarnation);
    return isMember && !this.#failures.has(ownerId) && !this.#retries.has(ownerId);
  }

  /** The rings that this may still ask. */
  rings(): OwnerRing[] {
    return this.#views.map(({ ring }) => ring);
  }

  /** From now on nothing is asked of rings and publications, and nothing is sent. What is under way is not waited for. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#endSpread();
    for (const cancel of this.#retries.values()) cancel();
  }

  /** Announces as if the owners had been those of `view` before. */
  #againWithout(view: RingView): void {
    const current = this.#views.at(-1) as RingView;
    this.#views.push(view);
    this.ownersChanged(current);
  }

  #start(): void {
    this.#pass ??= this.#runPass();
  }

  /** Never rejects. */
  async #runPass(): Promise<void> {
    let hasFailed = false;
    try {
      await this.#spread();
      await this.#announceChanges();
    } catch (error) {
      hasFailed = true;
      this.#env.log.log('error', 'announcing pages to their new owners failed', { error: String(error) });
    }
    this.#pass = undefined;
    this.#passViews = 1;
    // What has changed after the pass had looked for the last time, and before it was over.
    if (this.#views.length > 1 && !hasFailed && !this.#stopped) this.#start();
  }

  /** In a large cluster all others tell a new owner of their pages: not all at once. */
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
      const outcomes = this.#outcomesSoFar();
      for (const keys of this.#publications?.keysInSlices() ?? []) {
        for (const gained of gainedKeysInSlices(before, target, this.#replicas, keys)) {
          await Promise.all(
            [...gained].map(async ([ownerId, ownerKeys]) => {
              // Who has failed is told everything later: it must not hold up the others slice by slice.
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

  /** Who failed and is told again by this pass has been told all, if there is nothing left to tell. */
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

  /** Tells this owner everything once more after a while, as one that knows nothing. */
  #retryLater(ownerId: string): void {
    // Members that come and go make one pass after the other: those that fail until then are not attempts of their own.
    if (this.#retries.has(ownerId)) return;
    const failures = (this.#failures.get(ownerId) ?? 0) + 1;
    this.#failures.set(ownerId, failures);
    const willRetry = failures <= RETRIES_MAX_COUNT;
    this.#env.log.log('warn', 'a directory owner has not taken all pages that were announced to it', {
      owner: ownerId,
      attempts: failures,
      will_retry: willRetry,
    });
    if (!willRetry) return;
    this.#tellLater(ownerId, Math.min(RPC_RETRY_AFTER_MS * 2 ** (failures - 1), ANNOUNCE_RETRY_MAX_MS));
  }

  #tellLater(ownerId: string, pauseMs: number): void {
    if (this.#retries.has(ownerId) || this.#stopped) return;
    const jitter = 0.75 + this.#env.random.u32() / 2 ** 34;
    const cancel = this.#env.clock.after(pauseMs * jitter, () => {
      this.#retries.delete(ownerId);
      const { ring, incarnations } = this.#views.at(-1) as RingView;
      if (!incarnations.has(ownerId)) return;
      this.#againWithout({ ring, incarnations: without(incarnations, ownerId) });
    });
    this.#retries.set(ownerId, cancel);
  }

  /** Throws `InvariantError` unless its views are those of a pass, and every owner that has failed will be told again or was given up. */
  verify(): void {
    assertAtMost('announcer: views of the pass', this.#passViews, this.#views.length);
    // While a pass runs on as many as there may be, two more stand for all that came since.
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

function noOwners(keys: readonly string[], n: number): Uint32Array {
  return new Uint32Array(keys.length * n).fill(NO_OWNER);
}
