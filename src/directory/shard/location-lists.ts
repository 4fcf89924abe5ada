import { assert, assertEqual, reduced } from '../../base/assert.js';
import { type LocationColumns, NAMED } from '../messages/location-columns.js';
import { KeyTable } from './key-table.js';
import { LocationSlab, NO_SLOT } from './location-slab.js';
import { type NodeRecord, NodeRecords } from './node-records.js';

/**
 * The locations of each key as a list: which nodes have its page, and where.
 *
 * Accounting: every location is in exactly one key's list, every key in the table has at least one, and a record's
 * `locations` is the number of slots that name it plus the number of calls that hold it.
 */
export class LocationLists {
  /** Key -> first slot of its list. */
  readonly keys = new KeyTable();
  readonly slab = new LocationSlab();
  readonly records = new NodeRecords();
  locations = 0;
  /** Number of locations that name dropped records. */
  droppedLocations = 0;

  /** Adds the first location of a key; `i`: its position in `locations`. */
  begin(key: string, locations: LocationColumns, i: number, recordIndex: number): void {
    this.keys.set(key, this.#add(locations, i, recordIndex));
  }

  /** Adds a location behind the last slot of a list. */
  append(last: number, locations: LocationColumns, i: number, recordIndex: number): void {
    this.slab.setNext(last, this.#add(locations, i, recordIndex));
  }

  /** Replaces the location in a slot; the slot keeps its place in the list. */
  replace(slot: number, locations: LocationColumns, i: number, recordIndex: number): void {
    const before = this.slab.nodeOf(slot);
    this.#fill(slot, locations, i, recordIndex);
    this.uncount(before);
  }

  #fill(slot: number, locations: LocationColumns, i: number, recordIndex: number): void {
    this.slab.write(slot, locations, i, recordIndex);
    this.recordAt(recordIndex).locations++;
  }

  /**
   * Drops the locations for which `test` returns true. Returns the newest version of the named ones among them; 0: none
   * was named.
   */
  unlinkWhere(key: string, test: (record: NodeRecord, slot: number) => boolean): number {
    const head = this.keys.get(key);
    if (head === undefined) return 0;
    let newestNamed = 0;
    let newHead = head;
    let previous = NO_SLOT;
    for (let slot = head; slot !== NO_SLOT; ) {
      const next = this.slab.nextOf(slot);
      const recordIndex = this.slab.nodeOf(slot);
      if (test(this.recordAt(recordIndex), slot)) {
        if (previous === NO_SLOT) newHead = next;
        else this.slab.setNext(previous, next);
        if ((this.slab.flagsOf(slot) & NAMED) !== 0) newestNamed = Math.max(newestNamed, this.slab.versionOf(slot));
        this.slab.free(slot);
        this.locations = reduced('location lists: locations', this.locations, 1);
        this.uncount(recordIndex);
      } else {
        previous = slot;
      }
      slot = next;
    }
    if (newHead === NO_SLOT) this.keys.delete(key);
    else if (newHead !== head) this.keys.set(key, newHead);
    return newestNamed;
  }

  /** The newest version among the locations of a key, readable or not; 0: the key has none. */
  newestVersionOf(key: string): number {
    let newest = 0;
    for (let slot = this.keys.get(key) ?? NO_SLOT; slot !== NO_SLOT; slot = this.slab.nextOf(slot)) {
      newest = Math.max(newest, this.slab.versionOf(slot));
    }
    return newest;
  }

  recordAt(index: number): NodeRecord {
    return this.records.at(index);
  }

  /** Releases a record: a location, or a call that held the record, no longer names it. */
  uncount(recordIndex: number): void {
    if (this.recordAt(recordIndex).dropped)
      this.droppedLocations = reduced('location lists: dropped', this.droppedLocations, 1);
    this.records.uncount(recordIndex);
  }

  clear(): void {
    this.keys.clear();
    this.slab.clear();
    this.records.clear();
    this.locations = 0;
    this.droppedLocations = 0;
  }

  #add(locations: LocationColumns, i: number, recordIndex: number): number {
    const slot = this.slab.allocate();
    this.locations++;
    this.#fill(slot, locations, i, recordIndex);
    return slot;
  }

  /**
   * Throws `InvariantError` unless the accounting of this class holds. Must not run within a call that holds records.
   */
  verify(): void {
    this.keys.verify();
    const locationsOf: number[] = [];
    let locations = 0;
    let dropped = 0;
    const count = (slot: number): void => {
      const node = this.slab.nodeOf(slot);
      const record = this.records.at(node) as NodeRecord | undefined;
      assert(record !== undefined, () => `location lists: slot ${slot} names no record, but the free place ${node}`);
      locationsOf[node] = (locationsOf[node] ?? 0) + 1;
      locations++;
      if (record.dropped) dropped++;
    };
    this.slab.verify(this.#slots(count));
    this.records.verify(locationsOf);
    assertEqual('location lists: locations', this.locations, locations);
    assertEqual('location lists: locations of dropped nodes', this.droppedLocations, dropped);
  }

  /** The slots of all lists; `count` is called for each slot after it was inspected. */
  *#slots(count: (slot: number) => void): Generator<number, void> {
    for (const key of this.keys.keys()) {
      for (let slot = this.keys.get(key) as number; slot !== NO_SLOT; slot = this.slab.nextOf(slot)) {
        yield slot;
        count(slot);
      }
    }
  }
}
