import { assertAtMost, assertEqual, reduced } from '../../base/assert.js';
import {
  SESSION_MAX_PAGES,
  SESSIONS_MAX_CHARACTERS,
  SESSIONS_MAX_COUNT,
  SESSIONS_MAX_PAGES,
} from '../../base/limits.js';

/** What a caller knows of one of its sessions; every part of it may be wrong. */
export interface SessionNews {
  /** Keys of pages of the session's present request, its head first. Default: none that are not known already. */
  readonly keys?: readonly string[] | undefined;
  /** Milliseconds until the session's next request. Default: not known. */
  readonly waitingMs?: number | undefined;
  /** Whether the session goes on from `keys` alone: its other pages are not part of it any more. Default: false. */
  readonly branched?: boolean | undefined;
  /** Whether the session has no further request. Default: false. */
  readonly ended?: boolean | undefined;
  /** Number of pages at the head of `keys` that other sessions use as well. Default: 0. */
  readonly shared?: number | undefined;
}

/** Pages that will be asked for in so many milliseconds; Infinity: never. */
export interface ExpectedPages {
  readonly keys: readonly string[];
  readonly inMs: number;
}

/** The pages of one session, in the order in which they were told. */
type Session = Set<string>;

/**
 * Remembers which pages belong to which session, so that a caller that knows when a session goes on, or that it has
 * ended, does not have to list its pages again. A page of several sessions is never expected at the time of one of
 * them: the eviction policy learns from its uses.
 *
 * The sessions that were told the longest time ago are forgotten when there are more than SESSIONS_MAX_COUNT, or when
 * their pages or the characters of their keys are above SESSIONS_MAX_PAGES and SESSIONS_MAX_CHARACTERS. A session keeps
 * its first SESSION_MAX_PAGES pages.
 *
 * Accounting: `#uses` has the number of sessions of every page that belongs to one; `#pages` and `#characters` are the
 * totals over all sessions.
 */
export class SessionBook {
  /** The session that was told last is the last one. */
  readonly #sessions = new Map<string, Session>();
  readonly #uses = new Map<string, number>();
  #pages = 0;
  #characters = 0;

  /** Number of sessions. */
  get size(): number {
    return this.#sessions.size;
  }

  /** Notes news of a session; returns what can be expected of its pages. */
  note(
    name: string,
    { keys = [], waitingMs, branched = false, ended = false, shared = 0 }: SessionNews,
  ): ExpectedPages[] {
    const session = this.#sessions.get(name) ?? new Set();
    this.#sessions.delete(name);
    this.#sessions.set(name, session);
    const left: string[] = [];
    if (branched) {
      const stays = new Set(keys);
      for (const key of session) if (!stays.has(key) && this.#take(session, key)) left.push(key);
    }
    for (const key of keys.slice(0, shared)) if (session.has(key)) this.#take(session, key);
    for (const key of keys.slice(shared)) this.#add(session, key);
    if (ended) {
      for (const key of session) if (this.#take(session, key)) left.push(key);
      this.#sessions.delete(name);
    }
    const expected: ExpectedPages[] = left.length > 0 ? [{ keys: left, inMs: Number.POSITIVE_INFINITY }] : [];
    if (waitingMs !== undefined && !ended) {
      const own = [...session].filter((key) => this.#uses.get(key) === 1);
      if (own.length > 0) expected.push({ keys: own, inMs: waitingMs });
    }
    this.#forgetEarliest();
    return expected;
  }

  /** The pages of a session, its head first; empty if it is not known. */
  keysOf(name: string): string[] {
    return [...(this.#sessions.get(name) ?? [])];
  }

  #add(session: Session, key: string): void {
    if (session.has(key) || session.size >= SESSION_MAX_PAGES) return;
    session.add(key);
    this.#uses.set(key, (this.#uses.get(key) ?? 0) + 1);
    this.#pages++;
    this.#characters += key.length;
  }

  /** Takes a page out of a session; returns whether it was the page's only one. */
  #take(session: Session, key: string): boolean {
    session.delete(key);
    this.#pages--;
    this.#characters = reduced('session book: characters', this.#characters, key.length);
    const uses = (this.#uses.get(key) ?? 1) - 1;
    if (uses > 0) this.#uses.set(key, uses);
    else this.#uses.delete(key);
    return uses === 0;
  }

  #forgetEarliest(): void {
    for (const [name, session] of this.#sessions) {
      if (this.#isWithinLimits()) return;
      for (const key of session) this.#take(session, key);
      this.#sessions.delete(name);
    }
  }

  #isWithinLimits(): boolean {
    return (
      this.#sessions.size <= SESSIONS_MAX_COUNT &&
      this.#pages <= SESSIONS_MAX_PAGES &&
      this.#characters <= SESSIONS_MAX_CHARACTERS
    );
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    const uses = new Map<string, number>();
    let [pages, characters] = [0, 0];
    for (const session of this.#sessions.values()) {
      for (const key of session) {
        uses.set(key, (uses.get(key) ?? 0) + 1);
        pages++;
        characters += key.length;
      }
    }
    assertEqual('session book: pages', this.#pages, pages);
    assertEqual('session book: characters', this.#characters, characters);
    assertEqual('session book: distinct pages', this.#uses.size, uses.size);
    for (const [key, count] of uses) assertEqual('session book: sessions of a page', this.#uses.get(key) ?? 0, count);
    assertAtMost('session book: sessions', this.#sessions.size, SESSIONS_MAX_COUNT);
    assertAtMost('session book: pages', pages, SESSIONS_MAX_PAGES);
    assertAtMost('session book: characters', characters, SESSIONS_MAX_CHARACTERS);
  }
}
