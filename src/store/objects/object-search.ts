import { isExpired } from '../../base/expiry.js';
import { OBJECT_ABSENT_MAX_KEYS, OBJECT_ABSENT_MS } from '../../base/limits.js';
import { UNDATED_VERSION } from '../../directory/shard/known-clears.js';
import { type Clearings, isCleared, readClearings } from '../../objects/clear-marker.js';
import { isStorable, type ObjectHeader } from '../../objects/object-format.js';
import type { ObjectStore } from '../../objects/object-store.js';
import type { PageStatements } from '../ground/page-statements.js';
import type { StoreGround } from '../ground/store-ground.js';

/**
 * Version of pages from the object store, which is older than everything that this cluster knows of a key: versions of
 * other clusters, whose clocks are their own, do not compare. So a page that was deleted, or replaced by a named one,
 * does not come back from the store.
 */
export const OBJECT_PAGE_VERSION = UNDATED_VERSION;

/** Keys of damaged objects that are remembered. */
const DAMAGED_MAX_KEYS = 1_024;

/** What is known of a page that the store does not have. */
interface Absence {
  /** Time until which the store is not asked again. */
  readonly untilMs: number;
  /** The length that the page does not have; undefined: there is no page of any length. */
  readonly length: number | undefined;
}

/** What is known of objects before and after they are read: which are worth a request, and which are good. */
export class ObjectSearch {
  readonly #ground: StoreGround;
  readonly #store: ObjectStore;
  readonly #statements: PageStatements;
  /** Keys that the store had no page of, the one that was noted first at the beginning. */
  readonly #absent = new Map<string, Absence>();
  readonly #damaged = new Set<string>();

  constructor(ground: StoreGround, store: ObjectStore, statements: PageStatements) {
    this.#ground = ground;
    this.#store = store;
    this.#statements = statements;
  }

  /** Whether the store may have the page with a length, or with any one, and a page from there would be good. */
  mayHave(key: string, length: number | undefined): boolean {
    const absence = this.#absent.get(key);
    const isKnown = absence !== undefined && (absence.length === undefined || absence.length === length);
    if (isKnown && absence.untilMs > this.#ground.clock.nowMs()) return false;
    return isStorable(key) && !this.#statements.isVoid(key, OBJECT_PAGE_VERSION);
  }

  /** Notes that the store has no good page of the key; with `length`: none of that length. */
  noteAbsent(key: string, length?: number | undefined): void {
    this.#absent.delete(key);
    this.#absent.set(key, { untilMs: this.#ground.clock.nowMs() + OBJECT_ABSENT_MS, length });
    if (this.#absent.size <= OBJECT_ABSENT_MAX_KEYS) return;
    for (const [first] of this.#absent) return void this.#absent.delete(first);
  }

  /** Notes that the store has got a page of the key. */
  notePresent(key: string): void {
    this.#absent.delete(key);
    this.#damaged.delete(key);
  }

  /** Notes that the object of the key has a good header and other bytes than that says. */
  noteDamaged(key: string): void {
    this.noteAbsent(key);
    this.#damaged.add(key);
    if (this.#damaged.size <= DAMAGED_MAX_KEYS) return;
    for (const first of this.#damaged) return void this.#damaged.delete(first);
  }

  /** Whether the object of the key has been found damaged, so that it is to be replaced. */
  isDamaged(key: string): boolean {
    return this.#damaged.has(key);
  }

  /** Whether a header is that of a page of the key that has not expired, by a clock that was not far ahead. */
  isPageOf(key: string, { kind, key: found, version, expires }: ObjectHeader): boolean {
    const { versions } = this.#ground;
    const isPage = kind === 'page' && found === key;
    return isPage && !versions.isAhead(version, expires) && !isExpired(expires, versions.now());
  }

  /** Begins the checks of one call. */
  begin(signal: AbortSignal | undefined): ClearChecks {
    return new ClearChecks(this.#store, signal);
  }
}

/** Whether writers have cleared objects: for one call, which asks once for each writer, after it has begun. */
export class ClearChecks {
  readonly #store: ObjectStore;
  readonly #signal: AbortSignal | undefined;
  readonly #asked = new Map<string, Promise<Clearings | undefined>>();

  constructor(store: ObjectStore, signal: AbortSignal | undefined) {
    this.#store = store;
    this.#signal = signal;
  }

  /** Whether the object is not cleared; false also if that cannot be known. */
  async isGood(header: ObjectHeader): Promise<boolean> {
    const { writer } = header;
    const asked = this.#asked.get(writer) ?? readClearings(this.#store, writer, this.#signal);
    this.#asked.set(writer, asked);
    const clearings = await asked;
    return clearings !== undefined && !isCleared(clearings, header);
  }
}

/** Length of the first window; each further one is twice as long. */
const FIRST_WINDOW_COUNT = 4;

/**
 * Looks for pages that form a chain, in growing windows: from the first page on as far as all of a window are found;
 * or, when the first is missing, from the last one back. So a chain that is not there costs two looks, and pages behind
 * a gap are not looked for. `look` says which pages of a window it has found, and may be given fewer than it could
 * take; `windowMaxCount` says how many from an index on.
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

/** Looks from `start` on towards `end`, until a page of a window is missing. */
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
