import type { CancelSignal } from '../base/concurrency/cancellation.js';
import { Mutex } from '../base/concurrency/mutex.js';
import type { Clock } from '../base/environment/clock.js';
import { OBJECT_CLEARED_MAX_PREFIXES, OBJECT_STALL_MS } from '../base/limits.js';
import { crc32, crc32Views } from '../memory/checksum.js';
import type { ObjectHeader } from './object-format.js';
import type { Found, ObjectStore } from './object-store.js';

/** What a writer has cleared: its objects below some generation are void. */
export interface Clearings {
  /** The writer's present generation. */
  readonly generation: number;
  /** Generation below which all its objects are void. */
  readonly all: number;
  /** Prefixes of keys, each with the generation below which objects with such keys are void. */
  readonly prefixes: readonly (readonly [prefix: string, below: number])[];
}

const NOTHING_CLEARED: Clearings = { generation: 0, all: 0, prefixes: [] };
/** Attempts to write a marker that another process writes at the same time. */
const MARKER_ATTEMPTS_MAX_COUNT = 3;

/** Whether an object is void, by what its writer has cleared. */
export function isCleared({ all, prefixes }: Clearings, { key, generation }: ObjectHeader): boolean {
  return generation < all || prefixes.some(([prefix, below]) => generation < below && key.startsWith(prefix));
}

/** Reads from the store what a writer has cleared; undefined: that cannot be known now. */
export async function readClearings(
  store: ObjectStore,
  writer: string,
  signal?: CancelSignal | undefined,
): Promise<Clearings | undefined> {
  return clearingsOf(
    await store.readObject(store.names.ofWriter(writer), { timeoutMs: OBJECT_STALL_MS, signal }),
    writer,
  );
}

/**
 * The marker of this node: an object that says which of its pages are cleared. Each clearing begins a new generation. A
 * page is sent with the generation of the store's marker, so that no object is ever of a later generation than that
 * marker. A clearing thus makes void, without a clock, whatever has been sent before or is on its way.
 */
export class OwnMarker {
  readonly #store: ObjectStore;
  readonly #writer: string;
  readonly #clock: Clock;
  /** What the store's marker says; undefined: not read yet. */
  #stored: Clearings | undefined;
  /** Clearings that the store's marker does not have yet: prefixes of keys, or null for all pages. */
  #unwritten: (readonly string[] | null)[] = [];
  readonly #turns = new Mutex();

  constructor(store: ObjectStore, writer: string, clock: Clock) {
    this.#store = store;
    this.#writer = writer;
    this.#clock = clock;
  }

  /** The generation of pages that are sent now; undefined: none may be sent. */
  get generation(): number | undefined {
    return this.#unwritten.length === 0 ? this.#stored?.generation : undefined;
  }

  /**
   * Reads the marker if that has not been done, and writes what it lacks, or all of it if it is damaged. False: no page
   * may be sent now.
   */
  async ready(): Promise<boolean> {
    if (this.generation !== undefined) return true;
    return this.#turns.run(() => this.#settle());
  }

  /**
   * Makes the pages that have been sent void: for this node from this call on, and for all when the store's marker says
   * so, upon which it resolves with true. The marker is written, and pages may be sent again, only when `removed` has
   * resolved, because from then on no cleared page can be sent.
   */
  async clear(prefixes: readonly string[] | undefined, removed: Promise<void>): Promise<boolean> {
    this.#unwritten.push(prefixes ?? null);
    return this.#turns.run(async () => {
      await removed;
      return this.#settle();
    });
  }

  async #settle(): Promise<boolean> {
    for (let attempt = 0; attempt < MARKER_ATTEMPTS_MAX_COUNT; attempt++) {
      if (this.generation !== undefined) return true;
      const { names } = this.#store;
      const name = names.ofWriter(this.#writer);
      const found = await this.#store.readObject(name, { timeoutMs: OBJECT_STALL_MS });
      if (found.kind === 'failed') return false;
      const stored = clearingsOf(found, this.#writer);
      if (stored !== undefined) this.#stored = stored;
      const unwritten = [...this.#unwritten];
      if (stored !== undefined && unwritten.length === 0) return true;
      const next = withClearings(stored ?? this.#allCleared(), unwritten);
      const body = Buffer.from(JSON.stringify({ all: next.all, prefixes: next.prefixes }));
      const header: ObjectHeader = {
        ...{ kind: 'cleared', key: this.#writer, writer: this.#writer, version: 0, expires: 0 },
        ...{ length: body.length, checksum: crc32(body), generation: next.generation },
      };
      // A write with an unknown outcome must not replace a later marker.
      const replaces = found.kind === 'absent' ? null : found.tag;
      if (replaces === undefined) return false;
      const written = await this.#store.write(name, header, { body: [body], replaces, timeoutMs: OBJECT_STALL_MS });
      if (written === 'conflict') continue;
      if (written !== 'done') return false;
      this.#stored = next;
      this.#unwritten = this.#unwritten.slice(unwritten.length);
    }
    return this.generation !== undefined;
  }

  /**
   * Stands in for a damaged marker: everything counts as cleared, because nobody can tell any more what was. The
   * generation is the clock's seconds, which are above any count of clearings.
   */
  #allCleared(): Clearings {
    const generation = Math.floor(this.#clock.wallMs() / 1000) % 2 ** 32;
    return { generation, all: generation, prefixes: [] };
  }
}

function clearingsOf(found: Found, writer: string): Clearings | undefined {
  if (found.kind === 'absent') return NOTHING_CLEARED;
  if (found.kind !== 'object') return undefined;
  const { header, body } = found.object;
  if (header.kind !== 'cleared' || header.key !== writer || crc32Views(body) !== header.checksum) return undefined;
  try {
    const { all, prefixes } = JSON.parse(Buffer.concat(body).toString()) as Clearings;
    const isRight =
      Number.isSafeInteger(all) && prefixes.every(([text, below]) => typeof text === 'string' && below >= 0);
    return isRight ? { generation: header.generation, all, prefixes } : undefined;
  } catch {
    return undefined;
  }
}

function withClearings(before: Clearings, clearings: readonly (readonly string[] | null)[]): Clearings {
  const generation = before.generation + 1;
  if (clearings.includes(null)) return { generation, all: generation, prefixes: [] };
  const prefixes = new Map(before.prefixes);
  for (const prefix of clearings.flatMap((some) => some ?? [])) prefixes.set(prefix, generation);
  // If there are too many to list, everything counts as cleared, which costs only misses.
  if (prefixes.size > OBJECT_CLEARED_MAX_PREFIXES) return { generation, all: generation, prefixes: [] };
  return { ...before, generation, prefixes: [...prefixes] };
}
