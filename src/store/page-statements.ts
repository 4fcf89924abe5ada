import { assert } from '../base/assert.js';
import type { HybridClock } from '../base/concurrency/hybrid-clock.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { DROPPED_KEYS_MAX_COUNT, SET_ATTEMPTS_MAX_COUNT } from '../base/limits.js';
import type { DirectoryClient } from '../directory/client.js';
import { Taken } from '../directory/messages/taken.js';
import { Removals } from '../directory/shard/removals.js';
import type { PageOrigin, PublishedPage, PublishedPool } from '../pool/published-pool.js';
import { DataLocation } from '../types.js';
import type { DiskTier } from './disk/disk-tier.js';

export interface PageStatementsParts {
  readonly pool: PublishedPool;
  readonly disk?: DiskTier | undefined;
  readonly directory: Pick<DirectoryClient, 'state' | 'delete'>;
  readonly versions: HybridClock;
  /** What is here since before this start is as good as everything else: all others have said what they know of it. */
  readonly isSettled: () => boolean;
  /** Computed pages are kept here although another node has them. */
  readonly keepsDuplicates: boolean;
  /** Told which pages may have left the pool. */
  readonly onGone?: (keys: readonly string[]) => void;
  readonly identity: { readonly nodeId: string; readonly incarnation: number; readonly dataEndpoint: string };
  readonly metrics: MetricsSink;
}

/** Keys by what became of their announcement; those not named are in the directory. */
interface Announced {
  /** No owner has taken it. */
  readonly refused: string[];
  /** An owner knows of something newer. */
  readonly outdated: string[];
  /** Another node has it. */
  readonly held: string[];
}

/**
 * What this node tells the directory of its pages, and what it does about the answers: pages that are older than what the
 * cluster has are dropped, and so are computed ones that another node has.
 *
 * Of each page the directory has one location of this node: in the pool, if it is there, else on the disk.
 * Accounting: every page of the pool is announced in the directory or its key is in `#unannounced`.
 */
export class PageStatements {
  readonly #parts: PageStatementsParts;
  /** Keys in the pool that no directory shard has taken yet; tried again when they are set again or announced. */
  readonly #unannounced = new Set<string>();
  /** Announcements under way: their keys are in `#unannounced`, in the pool or not. */
  #announcing = 0;
  /** Copies that this node was told to drop: one that was on its way must not come back. */
  readonly #droppedCopies = new Removals(DROPPED_KEYS_MAX_COUNT);
  /**
   * Pages that this node was told to drop, and what it has set itself: nothing older is read or copied from other nodes, also when the page has left
   * the pool and a shard is told of an older one by a node that was cut off.
   */
  readonly #voids = new Removals(DROPPED_KEYS_MAX_COUNT, { keepsKeys: true });
  /** What this node has set since its start has a later version. */
  readonly #startVersion: number;
  #closed = false;

  constructor(parts: PageStatementsParts) {
    this.#parts = parts;
    this.#startVersion = parts.versions.next();
  }

  /** States pages that have just been set, one a key, null for those that were not; returns the keys that are refused. */
  async stateSet(
    keys: readonly string[],
    published: readonly (PublishedPage | null)[],
    origin: PageOrigin,
  ): Promise<Set<string>> {
    const entries = new Map<string, DataLocation>();
    published.forEach((page, j) => {
      const key = keys[j] as string;
      if (page === null) return;
      const isStated = page.alreadyPresent && !this.#unannounced.has(key) && !page.isCopy;
      const { version, kind } = page.alreadyPresent && origin.kind === 'computed' ? page : origin;
      // A named entry is the newest from now on, even if its bytes are the same: another node may have set others meanwhile.
      if (!isStated || kind === 'named') entries.set(key, this.#locationOf(page, { version, kind, isCopy: false }));
    });
    if (entries.size === 0) return new Set();
    const refused = await this.#announceSet(entries, origin);
    if (origin.kind === 'named') this.#noteSet(entries, refused);
    return refused;
  }

  /** What this node had under these keys has just gone, and so do the copies of it. */
  async retract(keys: readonly string[]): Promise<void> {
    for (const key of keys) this.#unannounced.delete(key);
    await this.#parts.directory.delete(keys, undefined, { withCopies: true });
  }

  /**
   * Drops what is older than the version given for its key, with `isCopy` only copies of other nodes' pages. Resolves when a crash cannot bring
   * it back.
   */
  async drop(keys: readonly string[], voidBelow: readonly number[], { isCopy = false } = {}): Promise<void> {
    if (this.#closed) return;
    const { pool, disk, versions } = this.#parts;
    keys.forEach((key, i) => {
      versions.see(voidBelow[i] as number);
      (isCopy ? this.#droppedCopies : this.#voids).note(key, voidBelow[i] as number);
    });
    const gone = pool.removeOlder(keys, voidBelow, { isCopy });
    for (const key of gone) this.#unannounced.delete(key);
    this.#parts.onGone?.(gone);
    this.#parts.metrics.count('meshcache_dropped_pages_total', gone.length);
    const removed = isCopy ? undefined : disk?.removeOlder(keys, voidBelow);
    this.#restateFromDisk(gone);
    await removed;
  }

  /** Where a page of this version is void, for all that this node has been told and has set itself: what is older than the result. Else 0. */
  voidBelow(key: string, version: number): number {
    return this.#voids.laterThan(key, version);
  }

  /** Every key of which this node knows, and what is older than this version of it is void; the last ones at the end. */
  voids(): Iterable<readonly [key: string, voidBelow: number]> {
    return this.#voids.entries();
  }

  /** Whether a copy of a page of that version is void. */
  isVoid(key: string, version: number): boolean {
    return this.#voids.isVoid(key, version) || this.#droppedCopies.isVoid(key, version);
  }

  /**
   * Other nodes were led to these pages and could not read them: those that are gone are dropped from
   * the directory once more, for that word may have been lost, the others are put there anew.
   */
  async restate(keys: readonly string[]): Promise<void> {
    if (this.#closed) return;
    const gone: string[] = [];
    const entries = new Map<string, DataLocation>();
    this.locationsOf(keys).forEach((location, i) => {
      if (location === null) gone.push(keys[i] as string);
      else entries.set(keys[i] as string, location);
    });
    for (const key of gone) this.#unannounced.delete(key);
    await Promise.all([this.#parts.directory.delete(gone), this.#announceAgain(entries)]);
  }

  /** The locations to announce for those of `keys` that this node has now. */
  locationsOf(keys: readonly string[]): (DataLocation | null)[] {
    const inPool = this.poolLocationsOf(keys);
    const onDisk = this.#parts.disk?.peekBatch(keys);
    return inPool.map((location, i) => {
      const written = onDisk?.[i] ?? null;
      return location ?? (written === null ? null : this.#diskLocationOf(written));
    });
  }

  /**
   * Which of the pages are still good, as far as can be known: what lies here since before this start may have been overwritten or deleted
   * while the node was away. Until all that is settled it is stated first, and is good when other nodes take it as owners of the directory.
   */
  async confirm(keys: readonly string[]): Promise<boolean[]> {
    if (this.#parts.isSettled()) return keys.map(() => true);
    const entries = new Map<string, DataLocation>();
    this.locationsOf(keys).forEach((location, i) => {
      if (location !== null && location.version < this.#startVersion) entries.set(keys[i] as string, location);
    });
    if (entries.size === 0) return keys.map(() => true);
    const uncertain = new Set(await this.#announceAgain(entries, { byOthers: true }));
    return keys.map((key) => !uncertain.has(key));
  }

  /** Puts pages of the pool into the directory that were brought there from the disk or from other nodes. Returns the keys that no owner has taken. */
  async announcePromoted(keys: readonly string[]): Promise<string[]> {
    if (this.#closed) return [];
    const entries = new Map<string, DataLocation>();
    this.poolLocationsOf(keys).forEach((location, i) => {
      if (location !== null) entries.set(keys[i] as string, location);
    });
    return entries.size > 0 ? this.#announceAgain(entries) : [];
  }

  /** The locations of those of `keys` that the pool has now. */
  poolLocationsOf(keys: readonly string[]): (DataLocation | null)[] {
    return this.#parts.pool.peekBatch(keys).map((page) => (page === null ? null : this.#locationOf(page)));
  }

  get isEmpty(): boolean {
    const { pool, disk } = this.#parts;
    return pool.size === 0 && (disk === undefined || disk.info().entries === 0);
  }

  /** Keys of everything that this node has, some at a time; what comes or goes meanwhile may be left out. */
  *keysInSlices(): Generator<readonly string[], void> {
    const { pool, disk } = this.#parts;
    if (this.#closed) return;
    yield pool.keys();
    for (const keys of disk?.keysInSlices() ?? []) {
      if (this.#closed) return;
      const inPool = pool.hasBatch(keys);
      yield keys.filter((_, i) => inPool[i] === 0);
    }
  }

  /** From now on nothing is stated. */
  close(): void {
    this.#closed = true;
  }

  #locationOf(page: PublishedPage, origin: PageOrigin = page): DataLocation {
    const { pool, identity } = this.#parts;
    const { stamp, tail } = pool.stampOf(page);
    return new DataLocation({
      nodeId: identity.nodeId,
      incarnation: identity.incarnation,
      rdmaEndpoint: identity.dataEndpoint,
      remoteAddr: pool.baseAddr + BigInt(page.offset),
      rkey: pool.rkey,
      length: page.length,
      checksum: page.checksum,
      version: origin.version,
      kind: origin.kind,
      isCopy: origin.isCopy,
      stamp,
      tail,
    });
  }

  #diskLocationOf(page: PublishedPage): DataLocation {
    const { length, checksum, version, kind } = page;
    const { nodeId, incarnation, dataEndpoint: rdmaEndpoint } = this.#parts.identity;
    return new DataLocation({
      nodeId,
      incarnation,
      rdmaEndpoint,
      remoteAddr: 0n,
      rkey: 0,
      length,
      checksum,
      version,
      kind,
      tier: 'disk',
    });
  }

  /** Announces what has just been set, anew as long as owners know of something newer; returns the keys that are refused. */
  async #announceSet(entries: ReadonlyMap<string, DataLocation>, origin: PageOrigin): Promise<Set<string>> {
    const { pool, disk, versions, keepsDuplicates } = this.#parts;
    const unlessHeld = origin.kind === 'computed' && !keepsDuplicates;
    const refused = new Set<string>();
    let { version } = origin;
    for (let left = entries, attempt = 1; ; attempt++) {
      const announced = await this.#announce(left, { unlessHeld });
      for (const key of announced.refused) refused.add(key);
      this.#dropHeld(announced.held, left);
      const { outdated } = announced;
      if (outdated.length === 0 || this.#closed) return refused;
      const next = versions.next();
      const renewed = attempt < SET_ATTEMPTS_MAX_COUNT ? pool.renew(outdated, version, next) : [];
      disk?.renew(renewed);
      if (origin.kind === 'named') for (const key of renewed) this.#voids.note(key, next);
      const isRenewed = new Set(renewed);
      const newest = pool.peekBatch(outdated);
      // What a later call has set here meanwhile has taken the page's place in the order of things.
      const lost = outdated.filter((key, i) => !isRenewed.has(key) && (newest[i]?.version ?? 0) <= version);
      for (const key of lost) refused.add(key);
      await this.#dropUpTo(lost, version);
      version = next;
      const locations = this.poolLocationsOf(renewed);
      left = new Map(renewed.flatMap((key, i) => (locations[i] ? [[key, locations[i] as DataLocation] as const] : [])));
      if (left.size === 0) return refused;
    }
  }

  /** What was stated with a later version than given here has been noted before. */
  #noteSet(entries: ReadonlyMap<string, DataLocation>, refused: ReadonlySet<string>): void {
    entries.forEach(({ version }, key) => {
      if (!refused.has(key)) this.#voids.note(key, version);
    });
  }

  /** Another node has these, and they do as well. */
  #dropHeld(keys: readonly string[], entries: ReadonlyMap<string, DataLocation>): void {
    if (keys.length === 0 || this.#closed) return;
    const { pool, disk, metrics } = this.#parts;
    const voidBelow = keys.map((key) => (entries.get(key)?.version ?? 0) + 1);
    this.#parts.onGone?.(pool.removeOlder(keys, voidBelow));
    metrics.count('meshcache_duplicate_pages_total', keys.length);
    // Not waited for: after a crash the disk's page is stated anew, and is as good as the other node's. What fails, the disk tells.
    disk?.removeOlder(keys, voidBelow).catch(() => {});
  }

  /** Drops what has this version, or an older one. */
  async #dropUpTo(keys: readonly string[], version: number): Promise<void> {
    if (keys.length === 0) return;
    await this.drop(
      keys,
      keys.map(() => version + 1),
    );
  }

  /**
   * The directory has forgotten these pages of the pool: what the disk has under their keys, which they had hidden, is stated. Not waited for: the
   * owners may be waiting for the drop that this is a part of.
   */
  #restateFromDisk(keys: readonly string[]): void {
    const onDisk = this.#parts.disk?.peekBatch(keys) ?? [];
    const left = keys.filter((_, i) => (onDisk[i] ?? null) !== null);
    if (left.length > 0) this.restate(left).catch(() => {});
  }

  /** Announces pages that have been here; what is older than what the cluster has, or had, is dropped. Returns the keys of those and of what is refused. */
  async #announceAgain(entries: ReadonlyMap<string, DataLocation>, { byOthers = false } = {}): Promise<string[]> {
    const { refused, outdated } = await this.#announce(entries, { byOthers });
    if (outdated.length > 0) {
      await this.drop(
        outdated,
        outdated.map((key) => (entries.get(key)?.version ?? 0) + 1),
      );
    }
    return [...refused, ...outdated];
  }

  /** Puts locations into the directory. */
  async #announce(
    entries: ReadonlyMap<string, DataLocation>,
    options: { readonly unlessHeld?: boolean; readonly byOthers?: boolean } = {},
  ): Promise<Announced> {
    const { directory } = this.#parts;
    const announced: Announced = { refused: [], outdated: [], held: [] };
    const keys = [...entries.keys()];
    for (const key of keys) this.#unannounced.add(key);
    this.#announcing++;
    let taken: Uint8Array;
    try {
      taken = await directory.state(keys, [...entries.values()], options);
    } finally {
      this.#announcing--;
    }
    if (this.#closed) return announced;
    const { pool, disk } = this.#parts;
    const isInPool = pool.hasBatch(keys);
    const isOnDisk = disk !== undefined && isInPool.includes(0) ? disk.peekBatch(keys) : [];
    const gone: string[] = [];
    keys.forEach((key, i) => {
      if (taken[i] === Taken.refused) announced.refused.push(key);
      else if (taken[i] === Taken.outdated) announced.outdated.push(key);
      else if (taken[i] === Taken.held) announced.held.push(key);
      if (taken[i] !== Taken.refused || isInPool[i] === 0) this.#unannounced.delete(key);
      if (isInPool[i] === 0 && (isOnDisk[i] ?? null) === null) gone.push(key);
    });
    // Their deletes may have overtaken the put.
    if (gone.length > 0) await directory.delete(gone);
    return announced;
  }

  /** Throws `InvariantError` unless what no shard has taken is in the pool, or being announced, and what is void is kept consistently. */
  verify(): void {
    this.#voids.verify();
    this.#droppedCopies.verify();
    if (this.#closed || this.#announcing > 0) return;
    const keys = [...this.#unannounced];
    for (const [i, flag] of this.#parts.pool.hasBatch(keys).entries()) {
      assert(flag === 1, () => `page statements: ${JSON.stringify(keys[i])} is to be announced, and not in the pool`);
    }
  }
}
