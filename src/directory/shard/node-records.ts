import { assert, assertEqual, reduced } from '../../base/assert.js';
import { type LocationNode, NO_LOCATION } from '../messages/location-columns.js';

/** One start of a node, as its locations refer to it. */
export interface NodeRecord extends LocationNode {
  /** Number of locations that name it; the record's place is free when this is 0. */
  locations: number;
  dropped: boolean;
  /** Statements of the node up to this generation are void. */
  floor: number;
  /** Whether it was not live at the last call of {@link DirectoryShard.dropStrangers}. */
  isStranger: boolean;
  /**
   * Number of the call that last inspected this record; `isLive` and the index in the node table hold for that call.
   */
  seenIn: number;
  isLive: boolean;
  tableIndex: number;
}

/**
 * The starts of nodes that a shard's locations name, each by a small index.
 *
 * Accounting: a record's `locations` is the number of slots that name it plus the number of calls that hold it; its
 * place is free when that is 0. A dropped record is not found by its name any more.
 */
export class NodeRecords {
  readonly #records: (NodeRecord | undefined)[] = [];
  readonly #indexOf = new Map<string, number>();
  readonly #free: number[] = [];

  at(index: number): NodeRecord {
    return this.#records[index] as NodeRecord;
  }

  *[Symbol.iterator](): Generator<NodeRecord, void> {
    for (const record of this.#records) if (record !== undefined) yield record;
  }

  /** Holds the record of a node during a call, so that its place is not given to another node. */
  hold(node: LocationNode): number {
    const index = this.#find(node);
    this.at(index).locations++;
    return index;
  }

  uncount(index: number): void {
    const record = this.at(index);
    record.locations = reduced('node records: locations', record.locations, 1);
    if (record.locations > 0) return;
    if (!record.dropped) this.#indexOf.delete(nameOf(record));
    this.#records[index] = undefined;
    this.#free.push(index);
  }

  drop(record: NodeRecord): void {
    record.dropped = true;
    this.#indexOf.delete(nameOf(record));
  }

  clear(): void {
    this.#records.length = 0;
    this.#indexOf.clear();
    this.#free.length = 0;
  }

  #find(node: LocationNode): number {
    const name = nameOf(node);
    const known = this.#indexOf.get(name);
    if (known !== undefined) return known;
    const index = this.#free.pop() ?? this.#records.length;
    const { nodeId, incarnation, endpoint } = node;
    const unseen = { locations: 0, dropped: false, floor: -1, isStranger: false };
    const uncalled = { seenIn: -1, isLive: false, tableIndex: NO_LOCATION };
    this.#records[index] = { nodeId, incarnation, endpoint, ...unseen, ...uncalled };
    this.#indexOf.set(name, index);
    return index;
  }

  /**
   * Throws `InvariantError` unless each place is a record or free, exactly once, and every record that was not dropped
   * is found by its name. `locationsOf`: the number of locations that name each place, counted anew. Must not run
   * within a call that holds records.
   */
  verify(locationsOf: ArrayLike<number>): void {
    const free = new Set(this.#free);
    assertEqual('node records: free places', this.#free.length, free.size);
    let found = 0;
    for (const [index, record] of this.#records.entries()) {
      const isFree = free.delete(index);
      assert(
        isFree === (record === undefined),
        `node records: place ${index} is ${isFree ? '' : 'not '}listed as free`,
      );
      if (record === undefined) continue;
      const { locations, dropped } = record;
      assertEqual(`node records: locations of ${record.nodeId}`, locations, locationsOf[index] ?? 0);
      assert(locations > 0, () => `node records: ${record.nodeId} at place ${index} has no locations`);
      const isFound = this.#indexOf.get(nameOf(record)) === index;
      assert(isFound !== dropped, () => `node records: ${record.nodeId}, dropped ${dropped}, found by name ${isFound}`);
      found += Number(isFound);
    }
    assertEqual('node records: free places beyond the end', free.size, 0);
    assertEqual('node records: names', this.#indexOf.size, found);
  }
}

function nameOf({ nodeId, incarnation, endpoint }: LocationNode): string {
  return `${incarnation}\n${endpoint}\n${nodeId}`;
}
