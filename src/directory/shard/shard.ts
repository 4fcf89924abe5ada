import { assertAtMost } from '../../base/assert.js';
import { DIRECTORY_LOCATIONS_PER_KEY_COUNT, DIRECTORY_SHARD_MAX_KEYS } from '../../base/limits.js';
import { Signal } from '../../base/signal.js';
import {
  LocationColumns,
  type LocationNode,
  type LocationStamp,
  NAMED,
  NO_LOCATION,
} from '../messages/location-columns.js';
import type { NoteColumns } from '../messages/note-columns.js';
import { Taken } from '../messages/taken.js';
import type { PutWish } from '../messages/wire.js';
import { conflicts, isAsGood, isEitherNamed, isOutlived, replacedBelow } from './contents.js';
import type { Displaced } from './displaced.js';
import { KnownClears, UNDATED_VERSION } from './known-clears.js';
import { LocationChoice, type LocationChoiceOptions } from './location-choice.js';
import { LocationLists } from './location-lists.js';
import { NO_SLOT } from './location-slab.js';
import type { NodeRecord } from './node-records.js';
import type { NoteVisitor } from './removals.js';
import { verifyLocations } from './shard-invariants.js';
import { StartOrder } from './start-order.js';
import { VoidLocations } from './void-locations.js';
import { VoidVersions, type VoidVersionsOptions } from './void-versions.js';

/** Whether this start of a node is a member now; called once for each node in a call. */
export type Liveness = (nodeId: string, incarnation: number) => boolean;

/** Options of a {@link DirectoryShard}. */
export interface DirectoryShardOptions extends LocationChoiceOptions, VoidVersionsOptions {
  /** Default: every node is live. */
  readonly isLive?: Liveness;
  /** Keys accepted, and DIRECTORY_LOCATIONS_PER_KEY_COUNT locations each; default DIRECTORY_SHARD_MAX_KEYS. */
  readonly maxKeys?: number;
}

/** The number of entries that a shard holds, and has refused since its start. */
export interface DirectoryShardStats {
  readonly keys: number;
  readonly locations: number;
  /** Locations of dropped nodes that still take space. */
  readonly droppedLocations: number;
  /** Keys, or further locations of a key, refused because the shard was full. */
  readonly refusedKeys: number;
}

/** The wish for one location; `record` is the index of its node's record. */
type Asked = PutWish & { readonly record: number; readonly unlessHeld: boolean };

/** Keys that one `put` sweeps, beyond its own number, while dropped locations are left. */
const SWEEP_KEYS_PER_PUT = 64;

/**
 * The part of the directory that one node keeps: for each key the nodes that hold its page, and where.
 *
 * Each node that holds a page has one location; an unlisted node would not learn of a newer content. A node's
 * statements about a key are ordered by (start, generation), see `StartOrder`: newer replaces older. The shard is
 * synchronous, without I/O; its only clock is the one by which locations expire.
 *
 * One key has one content: if versioned locations of different nodes conflict (see `conflicts`), the newer one by
 * (version, node id) stays, whatever their order of arrival, so that all replicas agree. A version outlives its
 * location, see `VoidVersions`.
 */
export class DirectoryShard {
  /** Pages whose locations were dropped for a newer content. All signals of a shard fire within its methods. */
  readonly displaced = new Signal<[displaced: Displaced]>();
  /** A computed key that two nodes have announced with different lengths. */
  readonly lengthsDiffer = new Signal<[key: string]>();
  /** A node that has stated a page whose version is too far ahead. */
  readonly ahead = new Signal<[nodeId: string]>();
  /** Fires when a node that was away states its pages, which it also does to nodes that do not own them. */
  readonly askedByFormer = new Signal<[]>();
  /** Fires when locations may be listed that are void by another node's notes. */
  readonly noted = new Signal<[]>();
  readonly #isLive: Liveness;
  readonly #maxKeys: number;
  readonly #lists = new LocationLists();
  readonly #versions: DirectoryShardOptions['versions'];
  readonly #choice: LocationChoice;
  readonly #starts: StartOrder;
  #refusedKeys = 0;
  #lengthConflicts = 0;
  readonly #voids: VoidVersions;
  readonly #clears: KnownClears;
  #newestVersion = 0;
  #newestLost = 0;
  /** Number of the current call; records use it to remember facts of that call. */
  #call = 0;
  #sweep: Generator<string, void> | undefined;
  /**
   * Frees void locations that are still listed.
   * @internal
   */
  readonly voidLocations: VoidLocations;

  constructor(options: DirectoryShardOptions = {}) {
    this.#isLive = options.isLive ?? (() => true);
    this.#maxKeys = options.maxKeys ?? DIRECTORY_SHARD_MAX_KEYS;
    const isLive = (record: NodeRecord) => this.#isLiveRecord(record);
    this.#versions = options.versions;
    this.#voids = new VoidVersions(options);
    this.#clears = options.clears ?? new KnownClears();
    this.#starts = new StartOrder(isLive);
    this.#choice = new LocationChoice(this.#lists, isLive, { ...options, voids: this.#voids });
    this.voidLocations = new VoidLocations({
      lists: this.#lists,
      voids: this.#voids,
      displace: (key, record, voidBelow) => this.#displace(key, record, { voidBelow }),
      unlinkAndNote: (key, test) => this.#unlinkAndNote(key, test),
    });
  }

  /** Computed pages announced with a different length than another node's: a sign of a wrongly shared namespace. */
  get lengthConflicts(): number {
    return this.#lengthConflicts;
  }

  /** The newest version that this shard has been told of. */
  get newestVersion(): number {
    return this.#newestVersion;
  }

  /**
   * The newest version that a page under these keys may have: that of a listed location, or of a page on a lost node,
   * which is hardly newer than the newest version known when the node was lost.
   */
  newestOf(keys: readonly string[]): number {
    return keys.reduce((newest, key) => Math.max(newest, this.#lists.newestVersionOf(key)), this.#newestLost);
  }

  /**
   * Accepts one location for each key and returns one `Taken` code for each. `keys` are kept, so they must be strings
   * of their own, not slices of larger ones. A page whose version is too far ahead is `refused`: its node can tell
   * whether its own clock or this node's is wrong. With `unlessHeld`, a computed page is `held`, and not taken, if
   * another live node has one of the same length. With `formerStart`, a page that may have become void since that start
   * was lost is `outdated`.
   */
  put(keys: readonly string[], locations: LocationColumns, wish: PutWish = {}): Uint8Array {
    const taken = new Uint8Array(keys.length);
    this.#call++;
    if (wish.formerStart !== undefined) this.askedByFormer.tell();
    const { unlessHeld = false, formerStart } = wish;
    const asked = locations.nodes.map((node): Asked => {
      return { record: this.#lists.records.hold(node), unlessHeld, formerStart };
    });
    for (let i = 0; i < keys.length; i++) {
      const node = locations.node[i] as number;
      if (node !== NO_LOCATION) taken[i] = this.#putOne(keys[i] as string, locations, i, asked[node] as Asked);
    }
    for (const { record } of asked) this.#lists.uncount(record);
    this.#versions?.see(this.#newestVersion);
    if (this.#lists.droppedLocations > 0) this.sweep(keys.length + SWEEP_KEYS_PER_PUT);
    return taken;
  }

  /**
   * Returns a live and readable location for each key that has one: memory before disk; equally good ones take turns. A
   * node in `avoided`, from which the page could not be read, is used only if no other is left, and the node `asker`
   * only as the very last.
   */
  get(keys: readonly string[], asker = '', avoided: readonly string[] = []): LocationColumns {
    const found = new LocationColumns(keys.length);
    this.#call++;
    for (let i = 0; i < keys.length; i++) {
      const slot = this.#choice.choose(keys[i] as string, asker, avoided);
      if (slot !== NO_SLOT) this.#copyOut(slot, found, i);
    }
    return found;
  }

  /** One byte for each key; 1: the key has a live location that can be read. */
  exists(keys: readonly string[]): Uint8Array {
    const found = new Uint8Array(keys.length);
    this.#call++;
    for (let i = 0; i < keys.length; i++) {
      if (this.#choice.choose(keys[i] as string) !== NO_SLOT) found[i] = 1;
    }
    return found;
  }

  /** Drops what this start of this node has announced about the keys up to `generation`. */
  delete(keys: readonly string[], said: LocationStamp): void {
    this.#call++;
    const isVoid = (record: NodeRecord, slot: number): boolean => {
      if (record.nodeId !== said.nodeId || record.incarnation !== said.incarnation) return false;
      return this.#lists.slab.generationOf(slot) <= said.generation;
    };
    for (const key of keys) this.#unlinkAndNote(key, isVoid);
  }

  /** Drops every location that is older than `version`, and accepts no such location later. */
  removeAll(keys: readonly string[], version: number): void {
    if (this.#versions?.isAhead(version, 0)) return;
    this.#newestVersion = Math.max(this.#newestVersion, version);
    for (const key of keys) {
      this.#lists.unlinkWhere(key, (record, slot) => {
        if (this.#lists.slab.versionOf(slot) >= version) return false;
        this.#displace(key, record, { voidBelow: version });
        return true;
      });
      this.#voids.note(key, version);
    }
  }

  /** Drops exactly these locations, one for each key, which a reader found stale; later statements stay. */
  discard(keys: readonly string[], locations: LocationColumns): void {
    for (let i = 0; i < keys.length; i++) {
      const node = locations.nodes[locations.node[i] as number];
      if (node === undefined) continue;
      this.#unlinkAndNote(keys[i] as string, (record, slot) => {
        const isSame = record.nodeId === node.nodeId && record.incarnation === node.incarnation;
        return isSame && this.#lists.slab.generationOf(slot) <= (locations.generation[i] as number);
      });
    }
  }

  /** Notes that a start of a node is a member, so that it is known when it is lost. */
  startJoined(nodeId: string, incarnation: number): void {
    this.#voids.startJoined(nodeId, incarnation);
  }

  /**
   * Drops all locations of a node for good; with `incarnation`, only those of this start and older ones, except the
   * start `current`. Later statements count as usual. Returns at once; later `put` and `sweep` calls free the space.
   */
  dropNode(nodeId: string, incarnation = Number.POSITIVE_INFINITY, current?: number): void {
    this.#newestLost = this.#newestVersion;
    this.#starts.ended(nodeId, incarnation);
    this.#voids.startLost(nodeId, incarnation);
    this.dropNodes((node) => node.nodeId !== nodeId || node.incarnation > incarnation || node.incarnation === current);
  }

  /** {@link dropNode} for every node for which `keep` returns false. */
  dropNodes(keep: (node: LocationNode) => boolean): void {
    for (const record of this.#lists.records) {
      if (record.dropped || keep(record)) continue;
      this.#lists.droppedLocations += record.locations;
      this.#lists.records.drop(record);
    }
    this.#sweep = undefined;
  }

  /** Frees the locations of dropped nodes under up to `maxKeys` keys. True: more are left. */
  sweep(maxKeys: number): boolean {
    const budget = Math.min(maxKeys, 2 * this.#lists.keys.size + 2);
    for (let n = 0; n < budget && this.#lists.droppedLocations > 0; n++) {
      this.#sweep ??= this.#lists.keys.keys();
      const next = this.#sweep.next();
      if (next.done) this.#sweep = undefined;
      else this.#unlinkAndNote(next.value, (record) => record.dropped);
    }
    return this.#lists.droppedLocations > 0;
  }

  /**
   * Makes all statements of this start of a node up to `generation` void, because it has repeated those that still
   * hold. Void locations are handed out until a walk over all keys frees them.
   */
  renounce(nodeId: string, incarnation: number, generation: number): void {
    this.#voids.startRestated(nodeId, incarnation);
    this.voidLocations.renounced(nodeId, incarnation, generation);
  }

  /** @internal Visits the notes of this shard: versions below which keys are void. See `Removals.eachNote`. */
  eachNote(visit: NoteVisitor): Generator<void, void> {
    return this.#voids.eachNote(visit);
  }

  /** @internal Whether anything was noted. */
  get hasNotes(): boolean {
    return this.#voids.newest > 0;
  }

  /** @internal Takes over another node's notes. Locations that they make void are not handed out any more. */
  takeNotes(notes: NoteColumns): void {
    const good = notes.where((version) => this.#versions?.isAhead(version, 0) !== true);
    this.#newestVersion = Math.max(this.#newestVersion, good.newest);
    this.#voids.take(good);
    if (this.#voids.isTaking) this.noted.tell();
  }

  /**
   * {@link dropNode} for every start of a node that was not live at the previous call either: its last statements
   * arrived after it had left.
   */
  dropStrangers(): void {
    const strangers = new Set<LocationNode>();
    for (const record of this.#lists.records) {
      const isStranger = !this.#isLive(record.nodeId, record.incarnation);
      if (isStranger && record.isStranger) strangers.add(record);
      record.isStranger = isStranger;
    }
    if (strangers.size > 0) this.dropNodes((node) => !strangers.has(node));
  }

  /** All keys, for walks in slices; keys that come or go meanwhile may be left out. */
  keys(): Generator<string, void> {
    return this.#lists.keys.keys();
  }

  /** Forgets these keys, whichever node announced them. */
  forget(keys: readonly string[]): void {
    for (const key of keys) this.#lists.unlinkWhere(key, () => true);
  }

  /** Forgets all locations, and unless `keepsVoids` the versions below which keys are void. */
  clear(keepsVoids = true): void {
    this.#lists.clear();
    this.#sweep = undefined;
    if (keepsVoids) return;
    this.#newestVersion = this.#newestLost = 0;
    this.#voids.clear();
  }

  /** The current counts. */
  stats(): DirectoryShardStats {
    const { keys, locations, droppedLocations } = this.#lists;
    return { keys: keys.size, locations, droppedLocations, refusedKeys: this.#refusedKeys };
  }

  #putOne(key: string, locations: LocationColumns, i: number, { record, unlessHeld, formerStart }: Asked): number {
    const version = locations.version[i] as number;
    let taken: number = Taken.taken;
    if (this.#versions?.isAhead(version, locations.expires[i] as number)) {
      this.ahead.tell(this.#lists.recordAt(record).nodeId);
      return Taken.refused;
    }
    if (version <= UNDATED_VERSION && locations.setBy[i] !== 0) this.voidLocations.undatedTaken();
    if (version > 0) {
      this.#newestVersion = Math.max(this.#newestVersion, version);
      const isForgotten = this.#voids.isForgotten(version, this.#lists.recordAt(record), formerStart);
      const isCleared = this.#clears.isVoid(key, version, locations.setBy[i] as number);
      const isVoid = isForgotten || isCleared || this.#voids.isVoid(key, version);
      taken = isVoid ? Taken.outdated : this.#compare(key, locations, i, { record, unlessHeld });
      if (taken === Taken.outdated) this.#dropOwn(key, locations, i, record);
      if (taken === Taken.outdated || taken === Taken.held) return taken;
    }
    const head = this.#lists.keys.get(key);
    if (head !== undefined) return this.#putBeside(key, head, locations, i, record) ? taken : Taken.refused;
    if (this.#lists.keys.size >= this.#maxKeys || !this.#hasRoom()) {
      this.#refusedKeys++;
      return Taken.refused;
    }
    this.#lists.begin(key, locations, i, record);
    return taken;
  }

  /** Whether one more location fits. */
  #hasRoom(): boolean {
    return this.#lists.locations < this.#maxKeys * DIRECTORY_LOCATIONS_PER_KEY_COUNT;
  }

  /**
   * Compares a location with those of other nodes and drops locations of older contents. `outdated`: a newer content
   * exists. With `unlessHeld`, `replaced`: older ones were dropped; `held`: another live node has an equally good page
   * that does not expire earlier, and this node has none.
   */
  #compare(key: string, locations: LocationColumns, i: number, { record: own, unlessHeld }: Asked): number {
    const { nodeId } = this.#lists.recordAt(own);
    const version = locations.version[i] as number;
    let isHeld = false;
    let isOwn = false;
    let hasOlder = false;
    for (let slot = this.#lists.keys.get(key) ?? NO_SLOT; slot !== NO_SLOT; slot = this.#lists.slab.nextOf(slot)) {
      const other = this.#lists.recordAt(this.#lists.slab.nodeOf(slot));
      if (other.nodeId === nodeId) {
        if (isOutlived(this.#lists.slab, slot, locations, i)) return Taken.outdated;
        isOwn ||= !other.dropped;
      } else if (conflicts(this.#lists.slab, slot, locations, i)) {
        const otherVersion = this.#lists.slab.versionOf(slot);
        if (!isEitherNamed(this.#lists.slab, slot, locations, i)) {
          this.#lengthConflicts++;
          this.lengthsDiffer.tell(key);
        }
        if (otherVersion > version || (otherVersion === version && other.nodeId > nodeId)) return Taken.outdated;
        hasOlder = true;
      } else {
        isHeld ||= isAsGood(this.#lists.slab, slot, locations, i) && this.#choice.isReadable(key, slot);
      }
    }
    if (hasOlder) {
      this.#unlinkAndNote(key, (record, slot) => {
        if (record.nodeId === nodeId || !conflicts(this.#lists.slab, slot, locations, i)) return false;
        const isTie = this.#lists.slab.versionOf(slot) === version;
        const voidBelow = replacedBelow(this.#lists.slab, slot, locations, i);
        this.#displace(key, record, { voidBelow, isTie });
        return true;
      });
    }
    if (unlessHeld && hasOlder) return Taken.replaced;
    const isComputed = ((locations.flags[i] as number) & NAMED) === 0;
    return unlessHeld && isHeld && isComputed && !isOwn ? Taken.held : Taken.taken;
  }

  /** Drops the node's earlier location: even a statement that is refused says that the earlier one no longer holds. */
  #dropOwn(key: string, locations: LocationColumns, i: number, recordIndex: number): void {
    const { nodeId, incarnation } = this.#lists.recordAt(recordIndex);
    this.#unlinkAndNote(key, (record, slot) => {
      const isOwn = record.nodeId === nodeId && record.incarnation === incarnation;
      return isOwn && this.#lists.slab.generationOf(slot) <= (locations.generation[i] as number);
    });
  }

  #displace(key: string, record: NodeRecord, how: Omit<Displaced, 'nodeId' | 'key'>): void {
    // Liveness does not count here: a node that has just joined announces its pages before all others know of it, and
    // would otherwise never be told.
    if (!record.dropped) this.displaced.tell({ nodeId: record.nodeId, key, ...how });
  }

  /** Puts this node's location into the key's list, which is ordered by the nodes' first statements. */
  #putBeside(key: string, head: number, locations: LocationColumns, i: number, recordIndex: number): boolean {
    const record = this.#lists.recordAt(recordIndex);
    let dropped = NO_SLOT;
    let last = head;
    for (let slot = head; slot !== NO_SLOT; slot = this.#lists.slab.nextOf(slot)) {
      const other = this.#lists.recordAt(this.#lists.slab.nodeOf(slot));
      if (other.dropped) {
        // A dropped named location is not reused here: its version is noted when it is swept.
        if ((this.#lists.slab.flagsOf(slot) & NAMED) === 0) dropped = slot;
      } else if (other.nodeId === record.nodeId) {
        if (this.#starts.isBefore(record, other)) return false;
        const isSameStart = other.incarnation === record.incarnation;
        if (isSameStart && this.#lists.slab.generationOf(slot) > (locations.generation[i] as number)) return false;
        const { slab } = this.#lists;
        const named = (slab.flagsOf(slot) & NAMED) === 0 ? 0 : slab.versionOf(slot);
        this.#lists.replace(slot, locations, i, recordIndex);
        if (named > 0) this.#noteNamed(key, named);
        return true;
      }
      last = slot;
    }
    if (dropped !== NO_SLOT) {
      this.#lists.replace(dropped, locations, i, recordIndex);
      return true;
    }
    if (!this.#hasRoom()) {
      this.#refusedKeys++;
      return false;
    }
    this.#lists.append(last, locations, i, recordIndex);
    return true;
  }

  #copyOut(slot: number, found: LocationColumns, i: number): void {
    this.#lists.slab.read(slot, found, i);
    const record = this.#lists.recordAt(this.#lists.slab.nodeOf(slot));
    if (record.tableIndex === NO_LOCATION) record.tableIndex = found.nodes.push(record) - 1;
    found.node[i] = record.tableIndex;
  }

  #isLiveRecord(record: NodeRecord): boolean {
    if (record.seenIn !== this.#call) {
      record.seenIn = this.#call;
      record.isLive = !record.dropped && this.#isLive(record.nodeId, record.incarnation);
      record.tableIndex = NO_LOCATION;
    }
    return record.isLive;
  }

  /** `unlinkWhere`, followed by {@link #noteNamed} for the newest named location that it drops. */
  #unlinkAndNote(key: string, test: (record: NodeRecord, slot: number) => boolean): void {
    const newest = this.#lists.unlinkWhere(key, test);
    if (newest > 0) this.#noteNamed(key, newest);
  }

  /**
   * Handles the loss of a named location of this version. If it was the last one, its version is remembered and older
   * locations are dropped. Computed pages are compatible with each other whatever was set between them, so they would
   * not show that some of them are void.
   */
  #noteNamed(key: string, version: number): void {
    const { slab } = this.#lists;
    for (let slot = this.#lists.keys.get(key) ?? NO_SLOT; slot !== NO_SLOT; slot = slab.nextOf(slot)) {
      if ((slab.flagsOf(slot) & NAMED) !== 0) return;
    }
    this.#voids.note(key, version);
    this.#lists.unlinkWhere(key, (record, slot) => {
      if (slab.versionOf(slot) === 0 || slab.versionOf(slot) >= version) return false;
      this.#displace(key, record, { voidBelow: version });
      return true;
    });
  }

  /**
   * @internal Throws `InvariantError` unless the tables are consistent and the locations of each key are compatible:
   * one per start of a node, no conflicting contents of different nodes, and none that a removal has made void.
   */
  verify(): void {
    this.#lists.verify();
    this.#starts.verify();
    this.#voids.verify();
    assertAtMost('shard: keys', this.#lists.keys.size, this.#maxKeys);
    assertAtMost('shard: locations', this.#lists.locations, this.#maxKeys * DIRECTORY_LOCATIONS_PER_KEY_COUNT);
    for (const key of this.#lists.keys.keys()) verifyLocations(key, this.#lists, this.#voids);
  }
}
