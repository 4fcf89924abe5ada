// A node process of the tests of named keys: sets and reads keys that others set, too, checks every byte and notes what
// it has set and read. Ends when its IPC channel does.

import { setTimeout as sleep } from 'node:timers/promises';
import { seededRandom } from '../../../src/base/environment/random.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { systemClock } from '../../../src/system/system-clock.js';
import { createStore } from '../../_support/node/store-fixture.js';
import { type OrderEvent, OrderLog, sharedMs } from '../../faults/order.js';
import {
  hasFixedLength,
  keyNumber,
  keyText,
  lengthOf,
  NAMED,
  PAGE_MAX_BYTES,
  PageHistory,
  type PageKey,
  versionOf,
} from '../../faults/pages.js';

export interface NamedSetup {
  /** Number of the node, below 16; its versions contain it. */
  readonly node: number;
  readonly seed: number;
  /** Folder for the logs. */
  readonly folder: string;
  readonly discoveryPort: number;
  readonly config: Readonly<Record<string, unknown>>;
  /** Index of the first key; the number of keys follows. */
  readonly firstKey: number;
  readonly keys: number;
  /** Percentage of calls that set something. */
  readonly setPercent: number;
}

export type NamedAsk = 'count' | 'rest' | 'readAll' | 'close';

export interface NamedCounts {
  readonly setsTrue: number;
  readonly setsFalse: number;
  /** Keys that were read, and keys of those that were found. */
  readonly reads: number;
  readonly hits: number;
  readonly members: number;
  /** Reasons why pages were wrong. */
  readonly problems: readonly string[];
}

/** The content that was read for each key's index, or -1. */
export type NamedContents = readonly number[];

export type NamedMessage =
  | { readonly kind: 'ready' }
  | { readonly kind: 'reply'; readonly ask: NamedAsk; readonly value: NamedCounts | NamedContents | null };

const LOOPS_COUNT = 6;
const BATCH_MAX_PAGES = 256;
const SET_MAX_PAGES = 32;
/** Pages of unknown length that one step reads. */
const COPIES_MAX_COUNT = 8;
const PROBLEMS_MAX_COUNT = 10;
/** A process that only answers from memory must let its timers run. */
const PAUSE_EVERY_STEPS = 16;

class NamedAgent {
  readonly #setup: NamedSetup;
  readonly #store: MeshCacheStore;
  readonly #history: PageHistory;
  readonly #order: OrderLog;
  readonly #random;
  readonly #regions = Array.from({ length: LOOPS_COUNT }, () => HostRegion.allocate(BATCH_MAX_PAGES * PAGE_MAX_BYTES));
  #loops: Promise<void>[] = [];
  #isWorking = true;
  #counts = { setsTrue: 0, setsFalse: 0, reads: 0, hits: 0 };
  readonly #problems: string[] = [];

  constructor(setup: NamedSetup, store: MeshCacheStore) {
    this.#setup = setup;
    this.#store = store;
    this.#history = new PageHistory(setup.folder, { seed: setup.seed, writer: setup.node });
    this.#order = new OrderLog(setup.folder, setup.node);
    this.#random = seededRandom((setup.seed + process.pid) >>> 0);
    this.#loops = this.#regions.map((region) => this.#loop(region));
  }

  async answer(ask: NamedAsk): Promise<NamedCounts | NamedContents | null> {
    if (ask === 'count') return { ...this.#counts, members: this.#store.stats().members, problems: this.#problems };
    if (ask === 'readAll') return this.#readAll();
    this.#isWorking = false;
    if (ask === 'close') await this.#store.close();
    await Promise.all(this.#loops);
    if (ask === 'close') this.#order.close();
    return null;
  }

  async #loop(region: HostRegion): Promise<void> {
    for (let step = 0; this.#isWorking; step++) {
      try {
        if (this.#below(100) < this.#setup.setPercent) await this.#set(region);
        else await this.#read(region, this.#someKeys(BATCH_MAX_PAGES));
      } catch (error) {
        if (!this.#isWorking) return;
        this.#problem(String((error as Error).stack ?? error));
      }
      if (step % PAUSE_EVERY_STEPS === 0) await sleep(1);
    }
  }

  async #set(region: HostRegion): Promise<void> {
    const keys = this.#someKeys(SET_MAX_PAGES);
    const { versions: clock } = this.#store.runtime;
    const versions = keys.map((key) => this.#history.begin(key));
    const sizes = keys.map((key, i) => this.#history.fill(bytesOf(region, i), key, versions[i] as number));
    const begun = { kind: 'set' as const, beginMs: sharedMs(), lowVersion: clock.next() };
    const isSet = await this.#store.batchSet(keys.map(keyText), pointersOf(region, keys.length), sizes);
    const ended = { endMs: sharedMs(), highVersion: clock.next() };
    keys.forEach((key, i) => {
      const isTrue = isSet[i] === true;
      this.#counts[isTrue ? 'setsTrue' : 'setsFalse']++;
      this.#order.note({ ...begun, ...ended, key: keyNumber(key) as number, content: versions[i] as number, isTrue });
    });
  }

  /** Reads keys with pages of one length in one call, the others one by one. */
  async #read(region: HostRegion, keys: readonly PageKey[]): Promise<void> {
    const fixed = keys.filter(hasFixedLength);
    if (fixed.length > 0) {
      const sizes = fixed.map((key) => lengthOf(key, 0));
      const beginMs = sharedMs();
      const read = await this.#store.batchGet(fixed.map(keyText), pointersOf(region, fixed.length), sizes);
      this.#counts.reads += fixed.length;
      fixed.forEach((key, i) => {
        if (read[i] === true) this.#check(key, bytesOf(region, i).subarray(0, sizes[i]), beginMs);
      });
    }
    await Promise.all(
      keys
        .filter((key) => !hasFixedLength(key))
        .slice(0, COPIES_MAX_COUNT)
        .map((key) => this.#readCopy(key)),
    );
  }

  async #readCopy(key: PageKey): Promise<number> {
    const beginMs = sharedMs();
    const page = await this.#store.get(keyText(key));
    this.#counts.reads++;
    return page === null ? -1 : this.#check(key, page, beginMs);
  }

  /** Reads each key once, as an application does that does not know lengths. */
  async #readAll(): Promise<NamedContents> {
    const contents: number[] = [];
    for (let i = 0; i < this.#setup.keys; ) {
      const some = Array.from({ length: Math.min(32, this.#setup.keys - i) }, () => this.#key(i++));
      contents.push(...(await Promise.all(some.map((key) => this.#readCopy(key)))));
    }
    return contents;
  }

  /** Checks a page and returns its content. */
  #check(key: PageKey, bytes: Uint8Array, beginMs: number): number {
    this.#counts.hits++;
    const problem = this.#history.problemOf(key, bytes);
    if (problem !== undefined) this.#problem(`${keyText(key)}: ${problem}`);
    const content = versionOf(bytes);
    const read: Omit<OrderEvent, 'node' | 'process'> = {
      kind: 'read',
      key: keyNumber(key) as number,
      content,
      beginMs,
      endMs: sharedMs(),
      lowVersion: 0,
      highVersion: 0,
      isTrue: true,
    };
    this.#order.note(read);
    return content;
  }

  #problem(detail: string): void {
    if (this.#problems.length < PROBLEMS_MAX_COUNT) this.#problems.push(detail);
  }

  #someKeys(maxCount: number): PageKey[] {
    const indices = Array.from({ length: 1 + this.#below(maxCount) }, () => this.#below(this.#setup.keys));
    return [...new Set(indices)].map((i) => this.#key(i));
  }

  #key(i: number): PageKey {
    return { writer: NAMED, index: this.#setup.firstKey + i };
  }

  #below(count: number): number {
    return this.#random.u32() % count;
  }
}

function bytesOf(region: HostRegion, slot: number): Uint8Array {
  return region.bytes(slot * PAGE_MAX_BYTES, PAGE_MAX_BYTES);
}

function pointersOf(region: HostRegion, count: number): bigint[] {
  return Array.from({ length: count }, (_, slot) => region.addr + BigInt(slot * PAGE_MAX_BYTES));
}

function send(message: NamedMessage): void {
  if (process.connected) process.send?.(message);
}

process.once('disconnect', () => process.exit());
process.once('message', async (setup: NamedSetup) => {
  const store = await createStore(setup.discoveryPort, setup.config, systemClock);
  const agent = new NamedAgent(setup, store);
  process.on('message', async (ask: NamedAsk) => {
    send({ kind: 'reply', ask, value: await agent.answer(ask) });
    if (ask === 'close') process.disconnect();
  });
  send({ kind: 'ready' });
});
