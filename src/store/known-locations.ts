import { assertAtMost } from '../base/assert.js';
import type { Clock } from '../base/environment/clock.js';
import { KNOWN_LOCATION_KEY_MAX_CHARACTERS, KNOWN_LOCATIONS_MAX_COUNT } from '../base/limits.js';
import { NO_STAMP } from '../memory/page-stamp.js';
import type { DataLocation } from '../types.js';

interface KnownLocation {
  readonly location: DataLocation;
  readonly untilMs: number;
}

/**
 * Locations that the directory has answered with a moment ago: reading such a page again saves the lookup.
 *
 * Only of computed pages in the memory of a node that has set them. A page that has gone since then has lost its stamp before its memory is used again, so that reading it is a
 * miss, after which the directory is asked. Named entries and copies are left out: of a newer content, or the clear of the original, the directory may know although their node
 * could not be told.
 */
export class KnownLocations {
  readonly #clock: Clock;
  readonly #maxMs: number;
  /** The latest answers last, and so by `untilMs`. */
  readonly #known = new Map<string, KnownLocation>();

  /** `maxMs`: for how long an answer is used; 0: never. */
  constructor(clock: Clock, maxMs: number) {
    this.#clock = clock;
    this.#maxMs = maxMs;
  }

  /** Nothing is known: calls for many pages need not look for each. */
  get isEmpty(): boolean {
    return this.#known.size === 0;
  }

  /** Undefined: not known, or not any more. */
  get(key: string): DataLocation | undefined {
    const known = this.#known.get(key);
    if (known === undefined) return undefined;
    if (this.#clock.nowMs() < known.untilMs) return known.location;
    this.#known.delete(key);
    return undefined;
  }

  /** The directory has just answered with this. */
  note(key: string, location: DataLocation): void {
    if (this.#maxMs <= 0) return;
    this.#known.delete(key);
    const { kind, tier, stamp, isCopy } = location;
    const isUsable = kind === 'computed' && tier === 'memory' && stamp !== NO_STAMP && !isCopy;
    if (!isUsable || key.length > KNOWN_LOCATION_KEY_MAX_CHARACTERS) return;
    const nowMs = this.#clock.nowMs();
    for (const [oldest, { untilMs }] of this.#known) {
      if (untilMs > nowMs && this.#known.size < KNOWN_LOCATIONS_MAX_COUNT) break;
      this.#known.delete(oldest);
    }
    this.#known.set(key, { location, untilMs: nowMs + this.#maxMs });
  }

  /** The page was not there. */
  forget(key: string): void {
    this.#known.delete(key);
  }

  /** Throws `InvariantError` unless no more are kept than may be. */
  verify(): void {
    assertAtMost('known locations', this.#known.size, KNOWN_LOCATIONS_MAX_COUNT);
  }
}
