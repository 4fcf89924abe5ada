import { DiskError } from '../../base/errors.js';
import { laterExpiry } from '../../base/expiry.js';
import { DROPPED_KEYS_MAX_COUNT, SET_ATTEMPTS_MAX_COUNT } from '../../base/limits.js';
import { type Keys, pickKeys, stringsOf } from '../../core/binding/key-batch.js';
import { MARK_ABSENT, type PageMark } from '../../core/map/page-map.js';
import type { PageBytesAt } from '../../directory/messages/inline-pages.js';
import { LocationColumns, NAMED } from '../../directory/messages/location-columns.js';
import { Taken } from '../../directory/messages/taken.js';
import { batchOf } from '../../directory/owners/owners.js';
import type { KnownClears } from '../../directory/shard/known-clears.js';
import { type NoteVisitor, Removals } from '../../directory/shard/removals.js';
import type { PageOrigin, PagesOf, PublishedPage } from '../../pool/published-pool.js';
import type { DataLocation, Tier } from '../../types.js';
import type { PageFollower } from '../call/page-feed.js';
import {
  type Announced,
  absentOf,
  type KeyedLocations,
  OwnLocations,
  presentOf,
  type RefusedKeys,
  type StatementRefusal,
} from './own-locations.js';
import type { StoreGround } from './store-ground.js';

/** If publishing takes longer than this after the set began, the set counts as one that has waited. */
const WAITED_MS = 5;

/**
 * Announces this node's pages to the directory and acts on the answers: it drops pages that are older than the
 * cluster's, and computed pages that another node has.
 *
 * The directory has one location per page for this node: in the pool if it is there, else on the disk. Pages of the
 * pool that no owner has accepted yet are not `stated`; they are announced when they are set again, or with a list.
 */
export class PageStatements implements PageFollower {
  readonly #ground: StoreGround;
  readonly #own: OwnLocations;
  /**
   * Versions of pages that this node was told to drop or has set itself. Nothing older is read or copied from other
   * nodes, even if the page has left the pool and a node that was cut off announces an older one to a shard.
   */
  readonly #voids: Removals;
  /** The clears that this node knows of. */
  readonly #clears: KnownClears;
  /** Version at this start; pages that this node has set since then have later ones. */
  readonly #startVersion: number;
  #closed = false;

  constructor(ground: StoreGround) {
    this.#ground = ground;
    this.#own = new OwnLocations(ground);
    this.#voids = new Removals(ground.droppedMaxKeys ?? DROPPED_KEYS_MAX_COUNT, { keepsPartitions: true });
    this.#clears = ground.cluster.clears.known;
    this.#startVersion = ground.versions.afterEarlier();
  }

  /**
   * Announces pages that have just been set, one for each key, null for pages that were not set. Returns the keys of
   * pages that are not set after all, with the reason. `isOver`: whether the caller has given the call up; its pages
   * are then not renewed to be the newest.
   */
  async stateSet(
    keys: Keys,
    published: readonly (PublishedPage | null)[],
    origin: PageOrigin,
    isOver: () => boolean = () => false,
  ): Promise<RefusedKeys> {
    const strings = stringsOf(keys);
    // A computed set states the page that stands for it: one of its own, one that was here, or a copy that arrived first.
    const contentOf = (page: PublishedPage): PageOrigin =>
      origin.kind === 'named' ? origin : { ...page, expires: laterExpiry(page.expires, origin.expires) };
    const told = new Set<string>();
    const indices: number[] = [];
    published.forEach((page, i) => {
      const key = strings[i] as string;
      if (page === null || told.has(key)) return;
      const isStated = page.alreadyPresent && page.state === 'stated' && page.setBy === 0;
      const { kind, expires } = contentOf(page);
      // A named entry becomes the newest even if its bytes are unchanged: another node may have set other bytes
      // meanwhile.
      if (isStated && kind !== 'named' && expires === page.expires) return;
      told.add(key);
      indices.push(i);
    });
    if (indices.length === 0) return new Map();
    const pages = indices.map((i) => published[i] as PublishedPage);
    const columns = this.#own.ofSet(pages, contentOf);
    const entries = this.#ofPresent({ keys: pickKeys(keys, indices), columns }, origin);
    const refused = await this.#announceSet(entries, origin, isOver);
    if (origin.kind === 'named') this.#noteSet(entries, refused);
    return refused;
  }

  /** Announces again what is left of pages that the pool or the disk has dropped. */
  evicted(keys: readonly string[]): void {
    this.restate(keys).catch((error: unknown) => {
      this.#ground.log.log('error', 'telling the directory of dropped pages failed', { error: String(error) });
    });
  }

  /** Withdraws the announcements of pages that have just been cleared here. */
  async retract(keys: readonly string[]): Promise<void> {
    this.#ground.feed.changed(keys);
    await this.#ground.directory.delete(keys);
  }

  /**
   * Drops pages older than the version given for their key. `isTie`: another node may have set content of the version
   * just below it at the same time, and that content stays readable. Resolves when a crash cannot bring the pages back.
   * `isDeleted`: a program asked for the deletion.
   */
  async drop(
    keys: readonly string[],
    voidBelow: readonly number[],
    { isTie = false, isDeleted = false } = {},
  ): Promise<void> {
    if (this.#closed) return;
    const { versions } = this.#ground;
    keys.forEach((key, i) => {
      versions.see(voidBelow[i] as number);
      const noted = (voidBelow[i] as number) - (isTie ? 1 : 0);
      // A version too far ahead is refused anyway; a note of it would be in the way once it is no longer ahead.
      if (!versions.isAhead(noted)) this.#voids.note(key, noted);
    });
    const removed = this.#remove(keys, voidBelow, 'all');
    if (isDeleted) this.#ground.feed.deleted(keys);
    await removed;
  }

  /** Drops copies of other nodes' pages older than the version given for their key. */
  async dropCopies(keys: readonly string[], voidBelow: readonly number[]): Promise<void> {
    if (!this.#closed) await this.#remove(keys, voidBelow, 'copies');
  }

  async #remove(keys: readonly string[], voidBelow: readonly number[], of: PagesOf): Promise<void> {
    const { pool, disk } = this.#ground;
    const gone = pool.removeOlder(keys, voidBelow, of);
    const removed = disk?.removeOlder(keys, voidBelow, of);
    this.dropped(keys, gone);
    await removed;
  }

  /**
   * Called after pages were dropped. `gone`: they have left the pool; `absent`: this node no longer has them, but
   * owners may still list them.
   */
  dropped(keys: readonly string[], gone: readonly string[], absent: readonly string[] = []): void {
    this.#ground.feed.gone(gone);
    this.#ground.metrics.count('meshcache_dropped_pages_total', gone.length);
    this.#ground.feed.changed(keys);
    this.#restateFromDisk(gone);
    if (absent.length > 0) this.#ground.directory.delete(absent).catch(() => {});
  }

  /**
   * Version below which pages of the key are void, from everything that this node was told or has set; 0 if a page of
   * `version`, with the origin `setBy` for a copy, is not void.
   */
  voidBelow(key: string, version: number, setBy: number): number {
    return this.#voids.laterThan(key, version) || (this.isCleared(key, version, setBy) ? version + 1 : 0);
  }

  /**
   * Visits the versions below which pages are void because this node has set newer ones or was told to drop them. See
   * `Removals.eachNote`.
   */
  eachNote(visit: NoteVisitor): Generator<void, void> {
    return this.#voids.eachNote(visit);
  }

  /** Whether a page of this version is void; `setBy`: the origin of a copy. */
  isVoid(key: string, version: number, setBy = 0): boolean {
    return this.#voids.isVoid(key, version) || this.isCleared(key, version, setBy);
  }

  /** Whether a page that the node with this origin has set with this version is cleared. */
  isCleared(key: string, version: number, setBy: number): boolean {
    return this.#clears.isVoid(key, version, setBy);
  }

  /**
   * Announces these pages again, because other nodes could not read them where the directory said. Pages that are gone
   * are deleted from the directory once more, because an earlier deletion may have been lost.
   */
  async restate(asked: readonly string[]): Promise<void> {
    if (this.#closed) return;
    const hidden = new Set(this.#ground.pool.states.earlierAmong(asked));
    const confirmed = hidden.size > 0 ? this.confirm([...hidden]) : undefined;
    const keys = batchOf(hidden.size > 0 ? asked.filter((key) => !hidden.has(key)) : asked);
    const located = { keys, columns: this.#own.find(keys) };
    const gone = absentOf(located);
    this.#ground.feed.changed(asked);
    await Promise.all([confirmed, this.#ground.directory.delete(gone), this.#announceAgain(presentOf(located))]);
  }

  /** The locations to announce for those of `keys` that this node has now; none once it is closed. */
  locationsOf(keys: readonly string[]): (DataLocation | null)[] {
    if (this.#closed) return keys.map(() => null);
    const columns = this.#own.find(keys);
    return keys.map((_, i) => columns.locationAt(i));
  }

  /**
   * Which of the pages are still good, as far as can be known. A page from before this start may have been overwritten
   * or deleted while the node was away. Until all nodes have reported, such a page is announced first, and counts as
   * good if other nodes accept it as directory owners. Good pages of the pool become visible to readers. Once the store
   * is closed, no page is good.
   */
  async confirm(keys: readonly string[]): Promise<boolean[]> {
    const isGood = await this.#areGood(keys);
    const { pool } = this.#ground;
    const hidden = this.#closed ? [] : pool.states.earlierAmong(keys.filter((_, i) => isGood[i]));
    if (hidden.length > 0) {
      pool.states.confirmEarlier(hidden);
      // Until now the directory has a location with a stamp that no page has.
      this.restate(hidden).catch(() => {});
    }
    return isGood;
  }

  async #areGood(keys: readonly string[]): Promise<boolean[]> {
    if (this.#closed) return keys.map(() => false);
    if (this.#ground.settling.isSettled) return keys.map(() => true);
    const columns = this.#own.find(keys);
    const isEarlier = (i: number): boolean => (columns.version[i] as number) < this.#startVersion;
    const earlier = presentOf({ keys, columns }, isEarlier);
    if (earlier.columns.count === 0) return keys.map(() => true);
    const uncertain = new Set(await this.#announceAgain(earlier, { byOthers: true }));
    return keys.map((key) => !uncertain.has(key));
  }

  /**
   * Announces pages of the pool that came from the disk or from other nodes. Returns the keys that no owner has
   * accepted.
   */
  async announcePromoted(keys: readonly string[]): Promise<string[]> {
    if (this.#closed) return [];
    const present = presentOf({ keys, columns: this.#own.findInPool(keys) });
    return present.columns.count > 0 ? this.#announceAgain(present) : [];
  }

  /** The pool locations of those of `keys` that are in the pool now, for other nodes to read. */
  poolLocationsOf(keys: readonly string[]): (DataLocation | null)[] {
    const columns = this.#own.findLive(keys);
    return keys.map((_, i) => columns.locationAt(i));
  }

  /** Whether this node has each page, and is sure of it; see `OwnLocations.marksOf`. */
  marksOf(keys: readonly string[]): PageMark[] {
    return this.#closed ? keys.map(() => MARK_ABSENT) : this.#own.marksOf(keys);
  }

  /** Locations of pages of which this node is sure, if it has been told what happened elsewhere. */
  sureLocationsOf(keys: readonly string[]): LocationColumns {
    const isSure = !this.#closed && this.#ground.cluster.drops.isAnnounced;
    return isSure ? this.#own.findSure(keys) : new LocationColumns(keys.length);
  }

  /** The bytes of a page of the pool at a location; see `PageBytesAt`. */
  readonly bytesAt: PageBytesAt = (key, columns, row, maxBytes) => {
    return this.#closed ? undefined : this.#own.bytesAt(key, columns, row, maxBytes);
  };

  /**
   * Tier of each page; null: this node does not have it, or no directory owner has accepted it. All null once the store
   * is closed.
   */
  tiersOf(keys: readonly string[]): (Tier | null)[] {
    const { pool, disk } = this.#ground;
    if (this.#closed) return keys.map(() => null);
    const isOnDisk = disk?.hasBatch(keys);
    return pool.peekBatch(keys).map((page, i) => {
      if (page !== null) return page.state === 'stated' ? 'memory' : null;
      return isOnDisk?.[i] === 1 ? 'disk' : null;
    });
  }

  /**
   * Drops the pages that were set with a clock that was ahead, and forgets all versions below which pages are void,
   * because they may come from that clock.
   */
  dropAhead(): void {
    const { versions } = this.#ground;
    for (const keys of this.keysInSlices()) {
      const columns = this.#own.find(keys);
      const isAhead = (i: number) => versions.isAhead(columns.version[i] as number, columns.expires[i]);
      const ahead = presentOf({ keys, columns }, isAhead);
      const voidBelow = Array.from(ahead.columns.version, (version) => version + 1);
      // Pages whose removal the disk cannot record are dropped at the next start.
      this.drop(stringsOf(ahead.keys), voidBelow).catch(() => {});
    }
    this.#voids.clear();
  }

  /** A number that distinguishes this start of the node from others. */
  start(): number {
    return this.#ground.cluster.incarnation;
  }

  /** Whether this node has neither pages nor notes of void versions. */
  get isEmpty(): boolean {
    const { pool, disk } = this.#ground;
    return this.#voids.newest === 0 && pool.size === 0 && (disk === undefined || disk.info().entries === 0);
  }

  /** Keys of all pages of this node, slice by slice; pages that come or go meanwhile may be left out. */
  *keysInSlices(): Generator<readonly string[], void> {
    const { pool, disk } = this.#ground;
    for (const tier of this.#closed ? [] : [pool, disk]) {
      for (const keys of tier?.keysInSlices() ?? []) {
        const inPool = tier === pool ? undefined : pool.hasBatch(keys);
        yield inPool === undefined ? keys : keys.filter((_, i) => inPool[i] === 0);
        if (this.#closed) return;
      }
    }
  }

  /** Stops: nothing more is announced. */
  close(): void {
    this.#closed = true;
  }

  /**
   * Announces pages that were just set, repeatedly while owners know newer content; returns the keys that are not set.
   * A named page is announced once more if its owners turn out to know of a clock that is far ahead: a node that is
   * away now may have older content with a later version.
   */
  async #announceSet(entries: KeyedLocations, origin: PageOrigin, isOver: () => boolean): Promise<RefusedKeys> {
    const { pool, disk, versions, config } = this.#ground;
    const unlessHeld = origin.kind === 'computed' && !config.keepDuplicates;
    const refused = new Map<string, StatementRefusal>();
    let { version } = origin;
    for (let left = entries, attempt = 1; ; attempt++) {
      const strings = stringsOf(left.keys);
      const announced = await this.#announce(left, { unlessHeld });
      for (const i of announced.refused) refused.set(strings[i] as string, 'directory');
      if (announced.held.length > 0) await this.#dropHeld(left, announced.held);
      const isBehind = origin.kind === 'named' && versions.jumpedTo > version;
      const outdated = isBehind
        ? strings.filter((key) => !refused.has(key))
        : announced.outdated.map((i) => strings[i] as string);
      if (outdated.length === 0 || this.#closed) return refused;
      const next = versions.next();
      // Newer content may have been set since the caller gave up, and must stay.
      const mayRenew = attempt < SET_ATTEMPTS_MAX_COUNT && !isOver();
      const renewed = mayRenew ? pool.renew(outdated, version, next) : [];
      disk?.renew(renewed);
      if (origin.kind === 'named') for (const key of renewed) this.#voids.note(key, next);
      const isRenewed = new Set(renewed);
      const newest = pool.peekBatch(outdated);
      // A later call has set the page meanwhile, so this result does not matter.
      const lost = outdated.filter((key, i) => !isRenewed.has(key) && (newest[i]?.version ?? 0) <= version);
      for (const key of lost) refused.set(key, 'superseded');
      await this.#dropLost(
        lost,
        lost.map(() => version),
      );
      const others = outdated.filter((key) => !isRenewed.has(key));
      this.#restateNewer(others, version);
      version = next;
      left = presentOf({ keys: renewed, columns: this.#own.findInPool(renewed) });
      if (left.columns.count === 0) return refused;
    }
  }

  /**
   * While a set waited, a copy or a later call's page may have taken its key, and announcing the first page would hide
   * it. The current page is announced instead, because other nodes must drop older content before the call returns: for
   * a named set as a named page, even if it is computed, since owners keep older computed content beside a computed
   * page. For a computed set, a copy is left out: whoever made the copy announces it.
   */
  #ofPresent(entries: KeyedLocations, { kind, version }: PageOrigin): KeyedLocations {
    // If the set did not wait, for example for room, nothing can have come meanwhile.
    if (this.#ground.versions.msUntil(version) > -WAITED_MS) return entries;
    const { keys, columns } = entries;
    const present = this.#own.findInPool(keys);
    const isNewer = (i: number): boolean =>
      present.has(i) && (present.version[i] as number) > (columns.version[i] as number);
    const isForOthers = (i: number): boolean => kind === 'computed' && isNewer(i) && present.setBy[i] !== 0;
    for (let i = 0; i < columns.count; i++) {
      if (!isNewer(i) || isForOthers(i)) continue;
      columns.copy(i, present, i);
      if (kind === 'named') columns.flags[i] = (columns.flags[i] as number) | NAMED;
    }
    return presentOf(entries, (i) => !isForOthers(i));
  }

  /** Notes the versions of set pages. Pages announced with a later version than this are noted already. */
  #noteSet({ keys, columns }: KeyedLocations, refused: RefusedKeys): void {
    stringsOf(keys).forEach((key, i) => {
      if (!refused.has(key)) this.#voids.note(key, columns.version[i] as number);
    });
  }

  /** Drops computed pages that another node has, whose pages are as good. Pinned ones stay, and are announced, too. */
  async #dropHeld(entries: KeyedLocations, held: readonly number[]): Promise<void> {
    if (this.#closed) return;
    const { pool, disk, metrics, pins } = this.#ground;
    const strings = stringsOf(entries.keys);
    const kept = held.filter((i) => pins.has(strings[i] as string));
    const dropped = held.filter((i) => !pins.has(strings[i] as string));
    const keys = dropped.map((i) => strings[i] as string);
    const voidBelow = dropped.map((i) => (entries.columns.version[i] as number) + 1);
    this.#ground.feed.gone(pool.removeOlder(keys, voidBelow));
    this.#ground.feed.changed(keys);
    metrics.count('meshcache_duplicate_pages_total', keys.length);
    // The removal is not awaited: after a crash the disk's page is announced again, and is as good as the other node's.
    // The disk reports its own failures.
    disk?.removeOlder(keys, voidBelow).catch(() => {});
    if (kept.length === 0) return;
    await this.#announceAgain({ keys: pickKeys(entries.keys, kept), columns: entries.columns.pick(kept) });
  }

  /**
   * Drops pages of the version given for their key and older ones: they have lost to newer content, or to content of
   * that version from another node. Ignores failures of the disk to record it; the disk reports those itself.
   */
  async #dropLost(keys: readonly string[], versions: readonly number[]): Promise<void> {
    if (keys.length === 0) return;
    const voidBelow = versions.map((version) => version + 1);
    await this.drop(keys, voidBelow, { isTie: true }).catch(unlessOfDisk);
  }

  /**
   * Announces the disk's copies of pages that the pool has dropped and the directory has forgotten. Not awaited: the
   * directory owners may be waiting for the drop that this is a part of.
   */
  #restateFromDisk(keys: readonly string[]): void {
    const onDisk = this.#ground.disk?.peekBatch(keys) ?? [];
    const left = keys.filter((_, i) => (onDisk[i] ?? null) !== null);
    if (left.length > 0) this.restate(left).catch(() => {});
  }

  /**
   * Announces pages that were here before; pages older than the cluster's are dropped. Returns the keys of the dropped
   * and of the refused pages.
   */
  async #announceAgain(entries: KeyedLocations, { byOthers = false } = {}): Promise<string[]> {
    if (entries.columns.count === 0) return [];
    this.#ground.pool.states.unstate(entries.keys);
    const { refused, outdated } = await this.#announce(entries, { byOthers });
    const keys = stringsOf(entries.keys);
    await this.#dropLost(
      outdated.map((i) => keys[i] as string),
      outdated.map((i) => entries.columns.version[i] as number),
    );
    return [...refused, ...outdated].map((i) => keys[i] as string);
  }

  /**
   * Announces those of these pages again that are newer than `version`. An owner that refuses an older page drops its
   * entry for this node, which may be that of a newer copy announced meanwhile.
   */
  #restateNewer(keys: readonly string[], version: number): void {
    const found = this.#own.find(keys);
    const newer = keys.filter((_, i) => (found.version[i] as number) > version);
    if (newer.length > 0) this.restate(newer).catch(() => {});
  }

  /** Announces locations, and withdraws those of pages that have left meanwhile. */
  async #announce(
    { keys, columns }: KeyedLocations,
    options: { readonly unlessHeld?: boolean; readonly byOthers?: boolean } = {},
  ): Promise<Announced> {
    const { directory } = this.#ground;
    const announced: Announced = { refused: [], outdated: [], held: [] };
    const strings = stringsOf(keys);
    const taken = await directory.state(keys, columns, options);
    if (this.#closed) return announced;
    const { pool, disk } = this.#ground;
    const isTaken = (i: number) => taken[i] === Taken.taken || taken[i] === Taken.replaced;
    const isInPool = pool.states.noteStated(keys, columns.version, isTaken);
    const isOnDisk = disk !== undefined && isInPool.includes(0) ? disk.peekBatch(keys) : [];
    const gone: number[] = [];
    strings.forEach((_, i) => {
      if (taken[i] === Taken.refused) announced.refused.push(i);
      else if (taken[i] === Taken.outdated) announced.outdated.push(i);
      else if (taken[i] === Taken.held) announced.held.push(i);
      if (isInPool[i] === 0 && (isOnDisk[i] ?? null) === null) gone.push(i);
    });
    this.#ground.feed.changed(strings);
    // Earlier deletes of these pages may have overtaken the put.
    if (gone.length > 0) await directory.delete(pickKeys(keys, gone));
    return announced;
  }

  /** Throws `InvariantError` unless the table of void versions is consistent. */
  verify(): void {
    this.#voids.verify();
  }
}

/** Rethrows everything but errors of the disk tier, which reports its own. */
export function unlessOfDisk(error: unknown): void {
  if (!(error instanceof DiskError)) throw error;
}
