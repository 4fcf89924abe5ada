import { DIRECTORY_LOCATIONS_MAX_COUNT, DIRECTORY_SHARD_MAX_KEYS } from '../base/limits.js';
import { KeyTable } from './key-table.js';
import { LocationColumns, type LocationNode, NO_LOCATION } from './location-columns.js';
import { LocationSlab, NO_SLOT } from './location-slab.js';

/** Whether this start of a node is a member now; asked once a node and call. */
export type Liveness = (nodeId: string, incarnation: number) => boolean;

/** What a {@link DirectoryShard} may be told. */
export interface DirectoryShardOptions {
  /** Default: every node is live. */
  readonly isLive?: Liveness;
  /** Keys that the shard takes; default DIRECTORY_SHARD_MAX_KEYS. */
  readonly maxKeys?: number;
}

/** What a shard holds, and what it has refused since its start. */
export interface DirectoryShardStats {
  readonly keys: number;
  readonly locations: number;
  /** Locations of dropped nodes that still take space. */
  readonly droppedLocations: number;
  /** New keys refused because the shard was full. */
  readonly refusedKeys: number;
}

/** One start of a node, as its locations refer to it. */
interface NodeRecord extends LocationNode {
  /** Locations that name it; the record's place is free when none does. */
  locations: number;
  dropped: boolean;
  /** Its statements up to this one are void. */
  floor: number;
  /** It was not live when {@link DirectoryShard.dropStrangers} was called last. */
  isStranger: boolean;
  /** Of the call in which it was last looked at: whether it was live, and its index in that call's node table. */
  seenIn: number;
  isLive: boolean;
  tableIndex: number;
}

/** Whose locations somebody wants only when there are no others. */
interface Wishes {
  readonly asker: string;
  readonly avoided: readonly string[];
}

const NOBODY: Wishes = { asker: '', avoided: [] };

/** Keys that one `put` sweeps beyond its own number while dropped locations are left. */
const SWEEP_KEYS_PER_PUT = 64;

/**
 * The part of the directory that one node keeps: for each key the nodes that hold its page, and where.
 *
 * At most DIRECTORY_LOCATIONS_MAX_COUNT locations a key, one a node. What a node says about a key is ordered by (incarnation,
 * generation): newer replaces older, never the other way round. Synchronous, no clock, no I/O.
 *
 * Accounting: every location is in exactly one key's list, every key in the table has at least one, and a record's
 * `locations` is the number of slots that name it.
 */
export class DirectoryShard {
  readonly #isLive: Liveness;
  readonly #maxKeys: number;
  readonly #keys = new KeyTable();
  readonly #slab = new LocationSlab();
  readonly #records: (NodeRecord | undefined)[] = [];
  readonly #recordOf = new Map<string, number>();
  readonly #freeRecords: number[] = [];
  #locations = 0;
  #droppedLocations = 0;
  #refusedKeys = 0;
  /** Number of the current call, for what records remember of it. */
  #call = 0;
  /** Turns from reader to reader, so that they spread over the nodes that have a page. */
  #turn = 0;
  #sweep: Generator<string, void> | undefined;
  /** There may be locations below their record's floor. */
  #hasVoid = false;

  constructor(options: DirectoryShardOptions = {}) {
    this.#isLive = options.isLive ?? (() => true);
    this.#maxKeys = options.maxKeys ?? DIRECTORY_SHARD_MAX_KEYS;
  }

  /**
   * Takes one location a key; `keys` are kept (strings of their own, not slices of larger ones). 1: the shard has this
   * statement now. 0: not taken, because the shard is full or has a newer statement of the same node.
   */
  put(keys: readonly string[], locations: LocationColumns): Uint8Array {
    const taken = new Uint8Array(keys.length);
    const records = locations.nodes.map((node) => this.#hold(node));
    for (let i = 0; i < keys.length; i++) {
      const node = locations.node[i] as number;
      if (node === NO_LOCATION) continue;
      taken[i] = this.#putOne(keys[i] as string, locations, i, records[node] as number) ? 1 : 0;
    }
    for (const record of records) this.#uncount(record);
    if (this.#droppedLocations > 0) this.sweep(keys.length + SWEEP_KEYS_PER_PUT);
    return taken;
  }

  /**
   * One live location a key, none where there is no live one: in memory rather than on disk; several of these take
   * turns. One of the nodes `avoided`, by which it could not be read, is handed out only when there is no other, and one of
   * the node `asker` only when there is not even that.
   */
  get(keys: readonly string[], asker = '', avoided: readonly string[] = []): LocationColumns {
    const found = new LocationColumns(keys.length);
    this.#call++;
    for (let i = 0; i < keys.length; i++) {
      const slot = this.#choose(keys[i] as string, { asker, avoided });
      if (slot !== NO_SLOT) this.#copyOut(slot, found, i);
    }
    return found;
  }

  /** 1 for each key that has a live location. */
  exists(keys: readonly string[]): Uint8Array {
    const found = new Uint8Array(keys.length);
    this.#call++;
    for (let i = 0; i < keys.length; i++) {
      if (this.#choose(keys[i] as string, NOBODY) !== NO_SLOT) found[i] = 1;
    }
    return found;
  }

  /** Drops what this start of this node has said about the keys up to `generation`, nothing that it said later. */
  delete(keys: readonly string[], nodeId: string, incarnation: number, generation: number): void {
    for (const key of keys) {
      this.#unlinkWhere(key, (record, slot) => {
        const isSame = record.nodeId === nodeId && record.incarnation === incarnation;
        return isSame && this.#slab.generationOf(slot) <= generation;
      });
    }
  }

  /**
   * Never hands out a location of this node again (with `incarnation`: of this start or an older one); what it says later
   * counts as usual. Takes no time: the space comes back with later calls of `put` and `sweep`.
   */
  dropNode(nodeId: string, incarnation = Number.POSITIVE_INFINITY): void {
    this.dropNodes((node) => node.nodeId !== nodeId || node.incarnation > incarnation);
  }

  /** {@link dropNode} for every node of which `keep` says false. */
  dropNodes(keep: (node: LocationNode) => boolean): void {
    for (const record of this.#records) {
      if (record === undefined || record.dropped || keep(record)) continue;
      record.dropped = true;
      this.#droppedLocations += record.locations;
      this.#recordOf.delete(recordName(record));
    }
    this.#sweep = undefined;
  }

  /** Frees what dropped nodes have left under up to `maxKeys` keys. True: there is more to do. */
  sweep(maxKeys: number): boolean {
    const budget = Math.min(maxKeys, 2 * this.#keys.size + 2);
    for (let n = 0; n < budget && this.#droppedLocations > 0; n++) {
      this.#sweep ??= this.#keys.keys();
      const next = this.#sweep.next();
      if (next.done) this.#sweep = undefined;
      else this.#unlinkWhere(next.value, (record) => record.dropped);
    }
    return this.#droppedLocations > 0;
  }

  /**
   * What this start of a node has stated up to `generation` is void; it has stated anew what still holds. Takes no time: such
   * locations are handed out until {@link dropVoid} comes by.
   */
  renounce(nodeId: string, incarnation: number, generation: number): void {
    for (const record of this.#records) {
      if (record?.nodeId !== nodeId || record.incarnation !== incarnation || record.floor >= generation) continue;
      record.floor = generation;
      this.#hasVoid = true;
    }
  }

  /** Frees void locations, key by key; nothing to be done when there are none. A walk that is given up begins anew. */
  *dropVoid(sliceKeys: number): Generator<void, void> {
    if (!this.#hasVoid) return;
    this.#hasVoid = false;
    let left = sliceKeys;
    for (const key of this.#keys.keys()) {
      this.#unlinkWhere(key, (record, slot) => this.#slab.generationOf(slot) <= record.floor);
      if (--left > 0) continue;
      yield;
      left = sliceKeys;
    }
  }

  /**
   * {@link dropNode} for every start of a node that was not live at the call before either: its last words have come
   * after it had gone. Who has just joined and is not known here yet has until the next call.
   */
  dropStrangers(): void {
    const strangers = new Set<LocationNode>();
    for (const record of this.#records) {
      if (record === undefined) continue;
      const isStranger = !this.#isLive(record.nodeId, record.incarnation);
      if (isStranger && record.isStranger) strangers.add(record);
      record.isStranger = isStranger;
    }
    if (strangers.size > 0) this.dropNodes((node) => !strangers.has(node));
  }

  /** All keys, for walks in slices; keys that come or go meanwhile may be left out. */
  keys(): Generator<string, void> {
    return this.#keys.keys();
  }

  /** Forgets these keys, whoever stated them. */
  forget(keys: readonly string[]): void {
    for (const key of keys) this.#unlinkWhere(key, () => true);
  }

  /** Forgets all keys. */
  clear(): void {
    this.#keys.clear();
    this.#slab.clear();
    this.#records.length = 0;
    this.#recordOf.clear();
    this.#freeRecords.length = 0;
    this.#locations = 0;
    this.#droppedLocations = 0;
    this.#sweep = undefined;
  }

  /** Counts of now. */
  stats(): DirectoryShardStats {
    return {
      keys: this.#keys.size,
      locations: this.#locations,
      droppedLocations: this.#droppedLocations,
      refusedKeys: this.#refusedKeys,
    };
  }

  #putOne(key: string, locations: LocationColumns, i: number, recordIndex: number): boolean {
    const head = this.#keys.get(key);
    if (head === undefined) {
      if (this.#keys.size >= this.#maxKeys) {
        this.#refusedKeys++;
        return false;
      }
      const slot = this.#slab.allocate();
      this.#locations++;
      this.#fill(slot, locations, i, recordIndex);
      this.#keys.set(key, slot);
      return true;
    }
    return this.#putBeside(head, locations, i, recordIndex);
  }

  /** The key has locations: finds this node's, or a place for it. The list's order is that of the nodes' first statements. */
  #putBeside(head: number, locations: LocationColumns, i: number, recordIndex: number): boolean {
    const record = this.#recordAt(recordIndex);
    let dropped = NO_SLOT;
    let last = head;
    let count = 0;
    for (let slot = head; slot !== NO_SLOT; slot = this.#slab.nextOf(slot)) {
      const other = this.#recordAt(this.#slab.nodeOf(slot));
      if (other.dropped) {
        dropped = slot;
      } else if (other.nodeId === record.nodeId) {
        if (other.incarnation > record.incarnation) return false;
        const isOlder =
          other.incarnation === record.incarnation &&
          this.#slab.generationOf(slot) > (locations.generation[i] as number);
        if (isOlder) return false;
        this.#replace(slot, locations, i, recordIndex);
        return true;
      }
      last = slot;
      count++;
    }
    if (dropped !== NO_SLOT) {
      this.#replace(dropped, locations, i, recordIndex);
    } else if (count < DIRECTORY_LOCATIONS_MAX_COUNT) {
      const slot = this.#slab.allocate();
      this.#locations++;
      this.#fill(slot, locations, i, recordIndex);
      this.#slab.setNext(last, slot);
    } else {
      this.#replace(this.#leastUseful(head), locations, i, recordIndex);
    }
    return true;
  }

  /** Of a full list: one that is not live, else the last: the first is most often who has set the page, and the others have copied it. */
  #leastUseful(head: number): number {
    let last = head;
    for (let slot = head; slot !== NO_SLOT; slot = this.#slab.nextOf(slot)) {
      const record = this.#recordAt(this.#slab.nodeOf(slot));
      if (!this.#isLive(record.nodeId, record.incarnation)) return slot;
      last = slot;
    }
    return last;
  }

  /** The slot keeps its place in the list. */
  #replace(slot: number, locations: LocationColumns, i: number, recordIndex: number): void {
    const before = this.#slab.nodeOf(slot);
    this.#fill(slot, locations, i, recordIndex);
    this.#uncount(before);
  }

  #fill(slot: number, locations: LocationColumns, i: number, recordIndex: number): void {
    this.#slab.write(slot, locations, i, recordIndex);
    this.#recordAt(recordIndex).locations++;
  }

  #copyOut(slot: number, found: LocationColumns, i: number): void {
    this.#slab.read(slot, found, i);
    const record = this.#recordAt(this.#slab.nodeOf(slot));
    if (record.tableIndex === NO_LOCATION) record.tableIndex = found.nodes.push(record) - 1;
    found.node[i] = record.tableIndex;
  }

  /** The slot to hand out for a key; NO_SLOT: none is live. */
  #choose(key: string, wishes: Wishes): number {
    const head = this.#keys.get(key);
    if (head === undefined) return NO_SLOT;
    let own = NO_SLOT;
    let last = NO_SLOT;
    let only = NO_SLOT;
    let count = 0;
    let tier = 0;
    for (let slot = head; slot !== NO_SLOT; slot = this.#slab.nextOf(slot)) {
      const record = this.#recordAt(this.#slab.nodeOf(slot));
      if (!this.#isLiveRecord(record)) continue;
      if (record.nodeId === wishes.asker) {
        own = slot;
        continue;
      }
      if (wishes.avoided.includes(record.nodeId)) {
        last = slot;
        continue;
      }
      const slotTier = this.#slab.tierOf(slot);
      if (count > 0 && slotTier > tier) continue;
      count = count > 0 && slotTier === tier ? count + 1 : 1;
      only = slot;
      tier = slotTier;
    }
    if (count === 0) return last === NO_SLOT ? own : last;
    return count === 1 ? only : this.#inTurn(head, count, { ...wishes, tier });
  }

  #inTurn(head: number, count: number, { asker, avoided, tier }: Wishes & { readonly tier: number }): number {
    this.#turn = (this.#turn + 1) >>> 0;
    let left = this.#turn % count;
    for (let slot = head; slot !== NO_SLOT; slot = this.#slab.nextOf(slot)) {
      const record = this.#recordAt(this.#slab.nodeOf(slot));
      if (!this.#isLiveRecord(record) || this.#slab.tierOf(slot) !== tier) continue;
      if (record.nodeId === asker || avoided.includes(record.nodeId)) continue;
      if (left-- === 0) return slot;
    }
    return NO_SLOT;
  }

  #isLiveRecord(record: NodeRecord): boolean {
    if (record.seenIn !== this.#call) {
      record.seenIn = this.#call;
      record.isLive = !record.dropped && this.#isLive(record.nodeId, record.incarnation);
      record.tableIndex = NO_LOCATION;
    }
    return record.isLive;
  }

  #unlinkWhere(key: string, test: (record: NodeRecord, slot: number) => boolean): void {
    const head = this.#keys.get(key);
    if (head === undefined) return;
    let newHead = head;
    let previous = NO_SLOT;
    for (let slot = head; slot !== NO_SLOT; ) {
      const next = this.#slab.nextOf(slot);
      const recordIndex = this.#slab.nodeOf(slot);
      if (test(this.#recordAt(recordIndex), slot)) {
        if (previous === NO_SLOT) newHead = next;
        else this.#slab.setNext(previous, next);
        this.#slab.free(slot);
        this.#locations--;
        this.#uncount(recordIndex);
      } else {
        previous = slot;
      }
      slot = next;
    }
    if (newHead === NO_SLOT) this.#keys.delete(key);
    else if (newHead !== head) this.#keys.set(key, newHead);
  }

  #recordAt(index: number): NodeRecord {
    return this.#records[index] as NodeRecord;
  }

  /** The record of a node for the time of a call, within which its place is not given to another one. */
  #hold(node: LocationNode): number {
    const index = this.#recordIndex(node);
    this.#recordAt(index).locations++;
    return index;
  }

  #recordIndex(node: LocationNode): number {
    const name = recordName(node);
    const known = this.#recordOf.get(name);
    if (known !== undefined) return known;
    const index = this.#freeRecords.pop() ?? this.#records.length;
    const { nodeId, incarnation, endpoint } = node;
    const unseen = { locations: 0, dropped: false, floor: -1, isStranger: false };
    const uncalled = { seenIn: -1, isLive: false, tableIndex: NO_LOCATION };
    this.#records[index] = { nodeId, incarnation, endpoint, ...unseen, ...uncalled };
    this.#recordOf.set(name, index);
    return index;
  }

  #uncount(recordIndex: number): void {
    const record = this.#recordAt(recordIndex);
    record.locations--;
    if (record.dropped) this.#droppedLocations--;
    if (record.locations > 0) return;
    if (!record.dropped) this.#recordOf.delete(recordName(record));
    this.#records[recordIndex] = undefined;
    this.#freeRecords.push(recordIndex);
  }
}

function recordName({ nodeId, incarnation, endpoint }: LocationNode): string {
  return `${incarnation}\n${endpoint}\n${nodeId}`;
}
