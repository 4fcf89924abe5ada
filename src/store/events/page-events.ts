import { assert, assertAtMost, assertEqual, reduced } from '../../base/assert.js';
import type { Environment } from '../../base/environment/environment.js';
import {
  EVENT_MAX_CHANGES,
  EVENT_MAX_CHARACTERS,
  EVENTS_KEPT_MAX_CHARACTERS,
  EVENTS_KEPT_MAX_COUNT,
  EVENTS_KEPT_MS,
} from '../../base/limits.js';
import type { Tier } from '../../types.js';

/** Time in which changes are collected into one batch. */
const BATCH_MS = 20;
/** Number of changed keys that are recorded at once, without waiting for the rest of the time. */
const COLLECTED_MAX_COUNT = 8192;

/** The tier in which this node has a page now; null: it no longer has it. Only the last change of a key counts. */
export interface PageChange {
  /** The object key. */
  readonly key: string;
  readonly tier: Tier | null;
}

/**
 * One event of the stream. `reset`: everything known of this node's pages is void, and a list of them begins; `listed`:
 * pages of that list; `complete`: the list is complete; `changed`: pages have been added, moved or removed since. A
 * reader that resumes after a position gets the events that follow it.
 */
export type PageEvent<Change extends PageChange = PageChange> =
  | { readonly kind: 'reset' }
  | { readonly kind: 'listed'; readonly changes: readonly Change[] }
  | { readonly kind: 'complete'; readonly position: string }
  | {
      readonly kind: 'changed';
      readonly position: string;
      readonly atMs: number;
      readonly changes: readonly Change[];
    };

/** Where a stream of page events begins and when it ends. */
export interface FollowOptions {
  /**
   * Position of the last event that the reader has received. Without it, or if it is too old, the stream begins with a
   * list.
   */
  readonly after?: string | undefined;
  /** Ends the stream. */
  readonly signal?: AbortSignal | undefined;
}

/** The pages of this node as the directory lists them. */
export interface ListedPages {
  /** A number that distinguishes this start of the node from others. */
  start(): number;
  /** Tier of each page; null: this node does not have it, or the directory has not accepted it. */
  tiersOf(keys: readonly string[]): (Tier | null)[];
  /** Keys of all pages, slice by slice; pages that come or go meanwhile may be left out. */
  keysInSlices(): Iterable<readonly string[]>;
}

interface Batch {
  readonly sequence: number;
  readonly atMs: number;
  readonly changes: readonly PageChange[];
}

/**
 * The changes of this node's pages, for routers that keep a list of them. A change says where a page is now, not what
 * happened: a reader may get one twice without harm, and several changes of one page within {@link BATCH_MS} become
 * one.
 *
 * Nothing is recorded, and {@link note} costs nothing, while there is no reader and there was none for EVENTS_KEPT_MS.
 * Otherwise the last changes are kept, at most EVENTS_KEPT_MAX_COUNT with EVENTS_KEPT_MAX_CHARACTERS in their keys; a
 * reader that falls behind further begins with a new list.
 */
export class PageEvents {
  readonly #pages: ListedPages;
  readonly #env: Pick<Environment, 'clock'>;
  /** Part of all positions, created for the first reader: positions of other starts of this node are worthless. */
  #epoch = '';
  #batches: Batch[] = [];
  /** Number of changes in `#batches`, and of characters in their keys. */
  #keptCount = 0;
  #keptCharacters = 0;
  /** Sequence number of the last batch; 0 before the first one. */
  #last = 0;
  /** All batches after this one are kept. */
  #keptAfter = 0;
  readonly #changed = new Set<string>();
  readonly #waiting = new Set<() => void>();
  #readers = 0;
  #isRecording = false;
  #cancelBatch: (() => void) | undefined;
  #cancelForget: (() => void) | undefined;
  #isClosed = false;

  constructor(pages: ListedPages, env: Pick<Environment, 'clock'>) {
    this.#pages = pages;
    this.#env = env;
  }

  /** Number of readers. */
  get readers(): number {
    return this.#readers;
  }

  /** Notes that these pages may have changed. */
  note(keys: readonly string[]): void {
    if (!this.#isRecording || keys.length === 0) return;
    for (const key of keys) this.#changed.add(key);
    if (this.#changed.size >= COLLECTED_MAX_COUNT) this.#record();
    else this.#cancelBatch ??= this.#env.clock.after(BATCH_MS, () => this.#record());
  }

  /** Streams events until the signal is aborted or the node closes. */
  async *follow({ after, signal }: FollowOptions = {}): AsyncGenerator<PageEvent, void> {
    if (this.#isClosed || signal?.aborted) return;
    const isOver = () => this.#isClosed || signal?.aborted === true;
    this.#begin();
    signal?.addEventListener('abort', this.#wake, { once: true });
    try {
      let at = this.#sequenceOf(after);
      while (!isOver()) {
        if (at === undefined || at < this.#keptAfter) {
          at = this.#last;
          yield { kind: 'reset' };
          for (const keys of this.#pages.keysInSlices()) {
            yield* this.#list(keys);
            await this.#env.clock.yield();
            if (isOver()) return;
          }
          yield { kind: 'complete', position: this.#positionOf(at) };
          // The reader may have been slow, so the state is checked again.
          continue;
        }
        const next = this.#batches[this.#batches.length - (this.#last - at)];
        if (next === undefined) {
          await new Promise<void>((resolve) => this.#waiting.add(resolve));
        } else {
          at = next.sequence;
          const { atMs, changes } = next;
          yield { kind: 'changed', position: this.#positionOf(at), atMs, changes };
        }
      }
    } finally {
      signal?.removeEventListener('abort', this.#wake);
      this.#end();
    }
  }

  /** Ends all streams. */
  close(): void {
    this.#isClosed = true;
    this.#stopRecording();
    this.#wake();
  }

  #begin(): void {
    this.#readers++;
    this.#isRecording = true;
    if (this.#epoch === '') this.#epoch = this.#pages.start().toString(36);
    this.#cancelForget?.();
    this.#cancelForget = undefined;
  }

  #end(): void {
    this.#readers = reduced('page events: readers', this.#readers, 1);
    if (this.#readers > 0 || this.#isClosed) return;
    this.#cancelForget = this.#env.clock.after(EVENTS_KEPT_MS, () => this.#stopRecording());
  }

  #stopRecording(): void {
    this.#isRecording = false;
    this.#cancelBatch?.();
    this.#cancelForget?.();
    this.#cancelBatch = undefined;
    this.#cancelForget = undefined;
    this.#changed.clear();
    this.#batches = [];
    this.#keptCount = 0;
    this.#keptCharacters = 0;
    // Changes are no longer recorded, so no earlier position can be resumed.
    this.#last++;
    this.#keptAfter = this.#last;
  }

  #record(): void {
    this.#cancelBatch?.();
    this.#cancelBatch = undefined;
    const keys = [...this.#changed];
    this.#changed.clear();
    const atMs = this.#env.clock.wallMs();
    for (const part of partsOf(keys)) {
      this.#last++;
      this.#batches.push({ sequence: this.#last, atMs, changes: this.#changesOf(part) });
      this.#keptCount += part.length;
      this.#keptCharacters += charactersOf(part);
    }
    let forgotten = 0;
    while (this.#keptCount > EVENTS_KEPT_MAX_COUNT || this.#keptCharacters > EVENTS_KEPT_MAX_CHARACTERS) {
      const oldest = this.#batches[forgotten++] as Batch;
      this.#keptCount = reduced('page events: kept count', this.#keptCount, oldest.changes.length);
      this.#keptCharacters = reduced(
        'page events: kept characters',
        this.#keptCharacters,
        charactersOf(oldest.changes.map(({ key }) => key)),
      );
      this.#keptAfter = oldest.sequence;
    }
    this.#batches.splice(0, forgotten);
    this.#wake();
  }

  *#list(keys: readonly string[]): Generator<PageEvent, void> {
    for (const part of partsOf(keys)) {
      const changes = this.#changesOf(part).filter(({ tier }) => tier !== null);
      if (changes.length > 0) yield { kind: 'listed', changes };
    }
  }

  #changesOf(keys: readonly string[]): PageChange[] {
    const tiers = this.#pages.tiersOf(keys);
    return keys.map((key, i) => ({ key, tier: tiers[i] ?? null }));
  }

  #positionOf(sequence: number): string {
    return `${this.#epoch}-${sequence}`;
  }

  /** The sequence number of a position of this start that can be resumed; undefined for all others. */
  #sequenceOf(position: string | undefined): number | undefined {
    const [epoch, digits = ''] = position?.split('-') ?? [];
    if (epoch !== this.#epoch || !/^\d{1,15}$/.test(digits)) return undefined;
    const sequence = Number(digits);
    return sequence >= this.#keptAfter && sequence <= this.#last ? sequence : undefined;
  }

  readonly #wake = (): void => {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  };

  /** Throws `InvariantError` unless the kept batches follow one another, and are within their limit. */
  verify(): void {
    assertEqual('page events: batches after the forgotten ones', this.#batches.length, this.#last - this.#keptAfter);
    let [count, characters] = [0, 0];
    for (const [i, { sequence, changes }] of this.#batches.entries()) {
      assertEqual('page events: sequence of a batch', sequence, this.#keptAfter + 1 + i);
      count += changes.length;
      characters += charactersOf(changes.map(({ key }) => key));
    }
    assertEqual('page events: changes that are kept', this.#keptCount, count);
    assertEqual('page events: characters that are kept', this.#keptCharacters, characters);
    assertAtMost('page events: changes that are kept', count, EVENTS_KEPT_MAX_COUNT);
    assertAtMost('page events: characters that are kept', characters, EVENTS_KEPT_MAX_CHARACTERS);
    assert(
      this.#isRecording || this.#readers === 0 || this.#isClosed,
      'page events: somebody reads, and nothing is recorded',
    );
  }
}

/**
 * Splits keys into parts of at most EVENT_MAX_CHANGES keys and EVENT_MAX_CHARACTERS; a longer key is a part of its own.
 */
function* partsOf(keys: readonly string[]): Generator<readonly string[], void> {
  let start = 0;
  let characters = 0;
  for (const [i, { length }] of keys.entries()) {
    if (i > start && (i - start >= EVENT_MAX_CHANGES || characters + length > EVENT_MAX_CHARACTERS)) {
      yield keys.slice(start, i);
      start = i;
      characters = 0;
    }
    characters += length;
  }
  if (start < keys.length) yield keys.slice(start);
}

function charactersOf(keys: readonly string[]): number {
  return keys.reduce((sum, { length }) => sum + length, 0);
}
