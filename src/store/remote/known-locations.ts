import { assertAtMost } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import { KNOWN_LOCATION_KEY_MAX_CHARACTERS, KNOWN_LOCATIONS_MAX_COUNT } from '../../base/limits.js';
import type { LocatedPages } from '../../directory/messages/located-pages.js';
import { LocationColumns, NAMED, ON_DISK } from '../../directory/messages/location-columns.js';
import { NO_STAMP } from '../../memory/page-stamp.js';

/**
 * Number of locations that share memory, which is freed when all of them are forgotten; they are noted at about the
 * same time.
 */
const CHUNK_ROWS = 32;

/** A known location: one row of an answer. */
export interface KnownLocation {
  readonly columns: LocationColumns;
  readonly row: number;
  readonly untilMs: number;
}

/**
 * Locations that the directory has recently returned: reading such a page again saves the lookup.
 *
 * Holds only computed pages in the memory of the node that has set them. If such a page is gone, it has lost its stamp
 * before its memory is reused, so reading it is a miss, after which the directory is asked. Named entries and copies
 * are left out: the directory may know of newer content, or of a clear of the original, of which their node could not
 * be told.
 */
export class KnownLocations {
  readonly #clock: Clock;
  readonly #maxMs: number;
  /** Known locations, the latest last, so in the order of `untilMs`. */
  readonly #known = new Map<string, KnownLocation>();
  /** Chunk into which locations are copied, so that one kept location does not keep the memory of a whole answer. */
  #chunk = new LocationColumns(0);
  #filledRows = CHUNK_ROWS;

  /** `maxMs`: how long an answer may be reused; 0: never. */
  constructor(clock: Clock, maxMs: number) {
    this.#clock = clock;
    this.#maxMs = maxMs;
  }

  /** Whether no location is known, so that calls need not look up each page here. */
  get isEmpty(): boolean {
    return this.#known.size === 0;
  }

  /** The location of a key; undefined: not known, or expired. */
  get(key: string): KnownLocation | undefined {
    const known = this.#known.get(key);
    if (known === undefined) return undefined;
    if (this.#clock.nowMs() < known.untilMs) return known;
    this.#known.delete(key);
    return undefined;
  }

  /** Notes an answer of the directory; `keys` are the keys of the call. */
  note(keys: readonly string[], found: LocatedPages): void {
    if (this.#maxMs <= 0) return;
    const positions: number[] = [];
    for (let k = 0; k < found.count; k++) {
      const key = keys[found.indices[k] as number] as string;
      this.#known.delete(key);
      if (isUsable(found, k) && key.length <= KNOWN_LOCATION_KEY_MAX_CHARACTERS) positions.push(k);
    }
    if (positions.length === 0) return;
    const untilMs = this.#clock.nowMs() + this.#maxMs;
    this.#makeRoom(positions.length);
    for (const k of positions) {
      if (this.#known.size >= KNOWN_LOCATIONS_MAX_COUNT) return;
      if (this.#filledRows === CHUNK_ROWS) {
        this.#chunk = new LocationColumns(CHUNK_ROWS);
        this.#filledRows = 0;
      }
      const row = this.#filledRows++;
      this.#chunk.copy(row, found.columns, found.rows[k] as number);
      this.#known.set(keys[found.indices[k] as number] as string, { columns: this.#chunk, row, untilMs });
    }
  }

  /** Forgets the location of a page that was not found there. */
  forget(key: string): void {
    this.#known.delete(key);
  }

  /** Forgets expired locations, and the oldest ones, to make room for `count` new ones. */
  #makeRoom(count: number): void {
    const nowMs = this.#clock.nowMs();
    for (const [oldest, { untilMs }] of this.#known) {
      if (untilMs > nowMs && this.#known.size + count <= KNOWN_LOCATIONS_MAX_COUNT) break;
      this.#known.delete(oldest);
    }
  }

  /** Throws `InvariantError` unless the number of locations is within its limit. */
  verify(): void {
    assertAtMost('known locations', this.#known.size, KNOWN_LOCATIONS_MAX_COUNT);
  }
}

function isUsable({ rows, columns }: LocatedPages, k: number): boolean {
  const row = rows[k] as number;
  const isPlain = ((columns.flags[row] as number) & (ON_DISK | NAMED)) === 0 && columns.setBy[row] === 0;
  return isPlain && columns.stamp[row] !== NO_STAMP;
}
