import { setTimeout as sleep } from 'node:timers/promises';
import { type RandomSource, seededRandom } from '../../src/base/environment/random.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { type CallWatch, DEADLINE_MS, GRACE_MS } from './call-watch.js';
import { type OrderEvent, type OrderLog, sharedMs } from './order.js';
import {
  hasFixedLength,
  keyNumber,
  keyText,
  lengthOf,
  NAMED,
  NAMED_KEYS_COUNT,
  OWN_KEYS_COUNT,
  PAGE_MAX_BYTES,
  type PageHistory,
  type PageKey,
  parseKey,
  SHARED,
  SHARED_KEYS_COUNT,
  versionOf,
} from './pages.js';
import type { CallKind, Canary, Violation } from './protocol.js';

/** Loops of calls, each with its own buffers. */
const LOOPS_COUNT = 3;
const BATCH_MAX_PAGES = 12;
const PAUSE_MAX_MS = 40;
const CLEAR_ONE_IN = 600;
const DELETE_ONE_IN = 60;

export interface WorkloadParts {
  readonly store: MeshCacheStore;
  readonly history: PageHistory;
  readonly order: OrderLog;
  readonly watch: CallWatch;
  readonly node: number;
  readonly nodes: number;
  readonly seed: number;
  readonly canaries: readonly Canary[];
  readonly onViolation: (kind: Violation['kind'], detail: string) => void;
}

/** Buffers for the pages of one call. */
class Slots {
  readonly #region = HostRegion.allocate(BATCH_MAX_PAGES * PAGE_MAX_BYTES);

  bytes(slot: number, length: number): Uint8Array {
    return this.#region.bytes(slot * PAGE_MAX_BYTES, length);
  }

  pointers(count: number): bigint[] {
    return Array.from({ length: count }, (_, slot) => this.#region.addr + BigInt(slot * PAGE_MAX_BYTES));
  }

  free(): void {
    this.#region.free();
  }
}

/** Sets own pages, reads everybody's and checks every byte of what it gets. */
export class Workload {
  readonly #parts: WorkloadParts;
  readonly #random: RandomSource;
  readonly #slots = Array.from({ length: LOOPS_COUNT }, () => new Slots());
  #loops: Promise<void>[] = [];
  #isWorking = false;
  #pagesSet = 0;
  #setFailures = 0;
  #pagesRead = 0;

  constructor(parts: WorkloadParts) {
    this.#parts = parts;
    this.#random = seededRandom(parts.seed);
  }

  counts(): { pagesSet: number; setFailures: number } {
    return { pagesSet: this.#pagesSet, setFailures: this.#setFailures };
  }

  start(): void {
    if (this.#isWorking) return;
    this.#isWorking = true;
    this.#loops = this.#slots.map((slots) => this.#loop(slots));
  }

  /** Resolves when no call is under way. */
  async rest(): Promise<void> {
    this.#isWorking = false;
    await Promise.all(this.#loops.splice(0));
  }

  /** Reads each page once, in any order; returns the keys of those that were not found. */
  async find(keys: readonly string[]): Promise<string[]> {
    const missing: string[] = [];
    const left = keys.map(parseKey);
    await Promise.all(
      this.#slots.map(async (slots) => {
        while (left.length > 0) {
          for (const key of await this.#read(slots, left.splice(0, BATCH_MAX_PAGES))) {
            if (!(await this.#readCopy(key))) missing.push(keyText(key));
          }
        }
      }),
    );
    return missing;
  }

  free(): void {
    for (const slots of this.#slots) slots.free();
  }

  async #loop(slots: Slots): Promise<void> {
    while (this.#isWorking) {
      try {
        await this.#step(slots);
      } catch (error) {
        this.#parts.onViolation('threw', String((error as Error).stack ?? error));
      }
      await sleep(this.#below(PAUSE_MAX_MS));
    }
  }

  async #step(slots: Slots): Promise<void> {
    const dice = this.#below(100);
    if (this.#below(CLEAR_ONE_IN) === 0) await this.#clear();
    else if (this.#below(DELETE_ONE_IN) === 0) await this.#delete();
    else if (dice < 30) await this.#set(slots);
    else if (dice < 82)
      await this.#read(
        slots,
        this.#distinct(1 + this.#below(BATCH_MAX_PAGES), () => this.#anyKey()),
      );
    else if (dice < 94) await this.#readCopy(this.#anyKey());
    else await this.#exists();
  }

  async #set(slots: Slots): Promise<void> {
    const { store, history } = this.#parts;
    const keys = this.#distinct(1 + this.#below(6), () => this.#keyToSet());
    const versions = keys.map((key) => history.begin(key));
    const sizes = keys.map((key, slot) =>
      history.fill(slots.bytes(slot, PAGE_MAX_BYTES), key, versions[slot] as number),
    );
    const [key, pointer, size] = [keys[0] as PageKey, slots.pointers(1)[0] as bigint, sizes[0] as number];
    const set = await this.#stated('set', keys, versions, () =>
      keys.length === 1
        ? store.set(keyText(key), pointer, size).then((isSet) => [isSet])
        : store.batchSet(keys.map(keyText), slots.pointers(keys.length), sizes),
    );
    for (const isSet of set) {
      if (isSet) this.#pagesSet++;
      else this.#setFailures++;
    }
  }

  async #delete(): Promise<void> {
    const keys = this.#distinct(1 + this.#below(3), () => this.#keyToSet());
    await this.#stated('delete', keys, [], () => this.#parts.store.delete(keys.map(keyText)));
  }

  async #clear(): Promise<void> {
    await this.#stated('clear', [], [], async () => {
      await this.#parts.store.clear();
      return [];
    });
  }

  /** Notes a call that changes something, and what it has returned for each key. */
  async #stated(
    kind: 'set' | 'delete' | 'clear',
    keys: readonly PageKey[],
    contents: readonly number[],
    call: () => Promise<boolean[]>,
  ): Promise<boolean[]> {
    const { store, order } = this.#parts;
    const { versions } = store.runtime;
    const common = { kind, beginMs: sharedMs(), lowVersion: versions.next() };
    const results = await this.#call(kind, call);
    const event = (key: number, content: number, isTrue: boolean): Omit<OrderEvent, 'node' | 'process'> => {
      return { ...common, key, content, isTrue, endMs: sharedMs(), highVersion: versions.next() };
    };
    if (kind === 'clear') order.note(event(-1, -1, true));
    keys.forEach((key, i) => {
      const number = keyNumber(key);
      if (number !== undefined) order.note(event(number, contents[i] ?? -1, results[i] === true));
    });
    return results;
  }

  /** The pages that have the same length in all versions, in one call; returns the keys that were not read. */
  async #read(slots: Slots, keys: readonly PageKey[]): Promise<PageKey[]> {
    const fixed = keys.filter(hasFixedLength);
    if (fixed.length === 0) return [...keys];
    const sizes = fixed.map((key) => lengthOf(key, 0));
    const beginMs = sharedMs();
    const read = await this.#call('get', () =>
      this.#parts.store.batchGet(fixed.map(keyText), slots.pointers(fixed.length), sizes),
    );
    fixed.forEach((key, slot) => {
      if (read[slot] === true) this.#check(key, slots.bytes(slot, sizes[slot] as number), beginMs);
    });
    return [...keys.filter((key) => !hasFixedLength(key)), ...fixed.filter((_, slot) => read[slot] !== true)];
  }

  async #readCopy(key: PageKey): Promise<boolean> {
    const beginMs = sharedMs();
    const page = await this.#call('get', () => this.#parts.store.get(keyText(key)));
    if (page !== null) this.#check(key, page, beginMs);
    return page !== null;
  }

  async #exists(): Promise<void> {
    const keys = this.#distinct(BATCH_MAX_PAGES, () => this.#anyKey()).map(keyText);
    const found = await this.#call('exists', () => this.#parts.store.batchExists(keys));
    if (!(found >= 0 && found <= keys.length)) {
      this.#parts.onViolation('wrong', `batchExists of ${keys.length} keys gives ${found}`);
    }
  }

  #check(key: PageKey, bytes: Uint8Array, beginMs: number): void {
    const { history, order, onViolation } = this.#parts;
    const problem = history.problemOf(key, this.#tampered(key, bytes));
    if (problem !== undefined) onViolation('wrong', `${keyText(key)}: ${problem}`);
    const number = keyNumber(key);
    if (problem !== undefined || number === undefined) return;
    const times = { beginMs, endMs: sharedMs(), lowVersion: 0, highVersion: 0 };
    order.note({ kind: 'read', key: number, content: versionOf(bytes), isTrue: true, ...times });
  }

  /** What a planted fault makes of a page. */
  #tampered(key: PageKey, bytes: Uint8Array): Uint8Array {
    const { canaries, history } = this.#parts;
    if (canaries.length === 0 || ++this.#pagesRead % 50 !== 0) return bytes;
    const copy = Uint8Array.from(bytes);
    if (canaries.includes('wrong')) copy[this.#below(copy.length)]! ^= 1;
    if (canaries.includes('foreign')) history.fill(copy, { ...key, index: key.index + 8 }, 0);
    if (canaries.includes('old')) new DataView(copy.buffer).setUint32(12, 0xfffffff0, true);
    return copy;
  }

  /** Planted faults may keep the call from ending, or end it otherwise. */
  #call<T>(kind: CallKind, call: () => Promise<T>): Promise<T> {
    const { canaries, watch } = this.#parts;
    return watch.run(kind, async () => {
      const result = await call();
      if (canaries.includes('hang') && kind === 'exists') await sleep(DEADLINE_MS[kind] + 2 * GRACE_MS);
      if (canaries.includes('throw') && this.#below(50) === 0) throw new Error('a planted error');
      return result;
    });
  }

  #anyKey(): PageKey {
    const { nodes } = this.#parts;
    const dice = this.#below(6);
    if (dice === 0) return { writer: SHARED, index: this.#below(SHARED_KEYS_COUNT) };
    if (dice < 3) return { writer: NAMED, index: this.#below(NAMED_KEYS_COUNT) };
    return { writer: 1 + this.#below(nodes), index: this.#below(OWN_KEYS_COUNT) };
  }

  #keyToSet(): PageKey {
    const dice = this.#below(6);
    if (dice === 0) return { writer: SHARED, index: this.#below(SHARED_KEYS_COUNT) };
    if (dice < 3) return { writer: NAMED, index: this.#below(NAMED_KEYS_COUNT) };
    return { writer: this.#parts.node, index: this.#below(OWN_KEYS_COUNT) };
  }

  #distinct(count: number, draw: () => PageKey): PageKey[] {
    const keys = Array.from({ length: count }, draw);
    return [...new Map(keys.map((key) => [keyText(key), key])).values()];
  }

  #below(count: number): number {
    return this.#random.u32() % count;
  }
}
