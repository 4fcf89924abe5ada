import type { CancelSignal } from '../../base/concurrency/cancellation.js';
import { isExpired } from '../../base/expiry.js';
import { OBJECT_ABSENT_MAX_KEYS, OBJECT_ABSENT_MS } from '../../base/limits.js';
import { UNDATED_VERSION } from '../../directory/shard/known-clears.js';
import { type Clearings, isCleared, readClearings } from '../../objects/clear-marker.js';
import { isStorable, type ObjectHeader } from '../../objects/object-format.js';
import type { ObjectStore } from '../../objects/object-store.js';
import type { PageStatements } from '../ground/page-statements.js';
import type { StoreGround } from '../ground/store-ground.js';

/**
 * Version of pages from the object store: older than everything that this cluster knows of a key, because versions of
 * other clusters, with other clocks, are not comparable. So a page that was deleted, or replaced by a named one, does
 * not return from the store.
 */
export const OBJECT_PAGE_VERSION = UNDATED_VERSION;

/** Number of remembered keys of damaged objects. */
const DAMAGED_MAX_KEYS = 1_024;

/** Record of a page that the store does not have. */
interface Absence {
  /** Time until which the store is not asked again. */
  readonly untilMs: number;
  /** The length that the store does not have; undefined: it has the page in no length. */
  readonly length: number | undefined;
}

/** Knows which objects are worth a request, and which of those found are good. */
export class ObjectSearch {
  readonly #ground: StoreGround;
  readonly #store: ObjectStore;
  readonly #statements: PageStatements;
  /** Keys for which the store had no page, the earliest noted first. */
  readonly #absent = new Map<string, Absence>();
  readonly #damaged = new Set<string>();

  constructor(ground: StoreGround, store: ObjectStore, statements: PageStatements) {
    this.#ground = ground;
    this.#store = store;
    this.#statements = statements;
  }

  /** Whether the store may have the page with this length (or with any), and the page would be good. */
  mayHave(key: string, length: number | undefined): boolean {
    const absence = this.#absent.get(key);
    const isKnown = absence !== undefined && (absence.length === undefined || absence.length === length);
    if (isKnown && absence.untilMs > this.#ground.clock.nowMs()) return false;
    return isStorable(key) && !this.#statements.isVoid(key, OBJECT_PAGE_VERSION);
  }

  /** Notes that the store has no good page of the key; with `length`, none of that length. */
  noteAbsent(key: string, length?: number | undefined): void {
    this.#absent.delete(key);
    this.#absent.set(key, { untilMs: this.#ground.clock.nowMs() + OBJECT_ABSENT_MS, length });
    if (this.#absent.size <= OBJECT_ABSENT_MAX_KEYS) return;
    for (const [first] of this.#absent) return void this.#absent.delete(first);
  }

  /** Notes that the store has received a page of the key. */
  notePresent(key: string): void {
    this.#absent.delete(key);
    this.#damaged.delete(key);
  }

  /** Notes that the object of the key has a good header, but its bytes do not match it. */
  noteDamaged(key: string): void {
    this.noteAbsent(key);
    this.#damaged.add(key);
    if (this.#damaged.size <= DAMAGED_MAX_KEYS) return;
    for (const first of this.#damaged) return void this.#damaged.delete(first);
  }

  /** Whether the object of the key was found damaged and should be replaced. */
  isDamaged(key: string): boolean {
    return this.#damaged.has(key);
  }

  /** Whether a header belongs to an unexpired page of the key, set with a clock that was not far ahead. */
  isPageOf(key: string, { kind, key: found, version, expires }: ObjectHeader): boolean {
    const { versions } = this.#ground;
    const isPage = kind === 'page' && found === key;
    return isPage && !versions.isAhead(version, expires) && !isExpired(expires, versions.now());
  }

  /** Begins the checks of one call. */
  begin(signal: CancelSignal | undefined): ClearChecks {
    return new ClearChecks(this.#store, signal);
  }
}

/** Finds out for one call whether writers have cleared objects; asks once per writer, after the call has begun. */
export class ClearChecks {
  readonly #store: ObjectStore;
  readonly #signal: CancelSignal | undefined;
  readonly #asked = new Map<string, Promise<Clearings | undefined>>();

  constructor(store: ObjectStore, signal: CancelSignal | undefined) {
    this.#store = store;
    this.#signal = signal;
  }

  /** Whether the object is known not to be cleared; false if that cannot be determined. */
  async isGood(header: ObjectHeader): Promise<boolean> {
    const { writer } = header;
    const asked = this.#asked.get(writer) ?? readClearings(this.#store, writer, this.#signal);
    this.#asked.set(writer, asked);
    const clearings = await asked;
    return clearings !== undefined && !isCleared(clearings, header);
  }
}

/** Length of the first window; each later one is twice as long. */
const FIRST_WINDOW_COUNT = 4;

/**
 * Searches for pages that form a chain, in growing windows: forward from the first page until a window has a gap; or,
 * if the first page is missing, backward from the last one. So a missing chain costs two lookups, and pages after a gap
 * are not searched. `look` returns which pages of a window were found; `windowMaxCount` limits the window from an index
 * on.
 */
export async function searchChain(
  count: number,
  look: (indices: readonly number[]) => Promise<readonly boolean[]>,
  windowMaxCount: (index: number, step: 1 | -1) => number,
): Promise<void> {
  if (count === 0) return;
  if ((await look([0]))[0] === true) return follow(1, count, 1, look, windowMaxCount);
  if (count > 1 && (await look([count - 1]))[0] === true) return follow(count - 2, 0, -1, look, windowMaxCount);
}

/** Searches from `start` towards `end` until a window has a missing page. */
async function follow(
  start: number,
  end: number,
  step: 1 | -1,
  look: (indices: readonly number[]) => Promise<readonly boolean[]>,
  windowMaxCount: (index: number, step: 1 | -1) => number,
): Promise<void> {
  const left = (at: number): number => (step === 1 ? end - at : at - end);
  let windowCount = FIRST_WINDOW_COUNT;
  for (let at = start; left(at) > 0; ) {
    const length = Math.max(1, Math.min(windowCount, left(at), windowMaxCount(at, step)));
    const found = await look(Array.from({ length }, (_, i) => at + i * step));
    if (found.includes(false)) return;
    at += length * step;
    windowCount *= 2;
  }
}
