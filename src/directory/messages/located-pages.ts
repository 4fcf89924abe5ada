import type { DataLocation } from '../../types.js';
import { LocationColumns, type LocationNode } from './location-columns.js';

/**
 * Pages of a batch and their locations, as one answer of the directory gives them: key `indices[k]` has its location at
 * row `rows[k]` of `columns`. The columns may hold further rows.
 */
export class LocatedPages implements Iterable<readonly [index: number, location: DataLocation]> {
  readonly indices: readonly number[];
  readonly rows: readonly number[];
  readonly columns: LocationColumns;

  constructor(indices: readonly number[], rows: readonly number[], columns: LocationColumns) {
    this.indices = indices;
    this.rows = rows;
    this.columns = columns;
  }

  /**
   * Builds columns from location objects and the indices of their keys. Throws `ArgumentError` for fields that do not
   * fit.
   */
  static of(pairs: readonly (readonly [index: number, location: DataLocation])[]): LocatedPages {
    const columns = LocationColumns.of(pairs.map(([, location]) => location));
    return new LocatedPages(
      pairs.map(([index]) => index),
      pairs.map((_, row) => row),
      columns,
    );
  }

  get count(): number {
    return this.rows.length;
  }

  /** The node of the page at position `k`. */
  nodeAt(k: number): LocationNode {
    return this.columns.nodes[this.columns.node[this.rows[k] as number] as number] as LocationNode;
  }

  locationAt(k: number): DataLocation {
    return this.columns.locationAt(this.rows[k] as number) as DataLocation;
  }

  /** The pages at these positions; the columns are shared. */
  pick(positions: readonly number[]): LocatedPages {
    return new LocatedPages(
      positions.map((k) => this.indices[k] as number),
      positions.map((k) => this.rows[k] as number),
      this.columns,
    );
  }

  /** Yields one object per page, so it is not meant for paths on which pages are read. */
  *[Symbol.iterator](): Iterator<readonly [number, DataLocation]> {
    for (let k = 0; k < this.count; k++) yield [this.indices[k] as number, this.locationAt(k)];
  }
}
