import type { Clock } from '../../base/environment/clock.js';
import { HostRegion } from '../../memory/host-region.js';
import { noCounts, type RunCounts, type RunResult } from './agent-protocol.js';
import { PageContent } from './page-content.js';

/** Most pages of one read or write call; serving frameworks use batches of this size. */
const BATCH_MAX_PAGES = 128;
/** Largest host buffer of one process; with large pages it limits the batch size. */
const HOST_BUFFER_MAX_BYTES = 512 * 2 ** 20;
const CLEARED = 0xa5;
/** Bytes generated or checked before yielding to the event loop, in which the node answers its peers. */
const WORK_SLICE_BYTES = 2 ** 20;

/** The part of a store that a serving process uses. */
export interface PageStore {
  batchExists(keys: string[]): Promise<number>;
  batchGetV1(keys: string[], hostIndices: ArrayLike<number>): Promise<boolean[]>;
  batchSetV1(keys: string[], hostIndices: ArrayLike<number>): Promise<boolean[]>;
  stats(): {
    readonly hits: { readonly local: number; readonly remote: number; readonly disk: number };
    readonly disk?: { readonly queueBytes: number } | null;
    readonly placement?: { readonly unplacedPages: number } | null;
  };
}

/** The host KV buffer of a serving process, with one page per slot. With two components, K and V have a half each. */
export class HostBuffer {
  readonly region: HostRegion;
  /** Tokens per page. A slot counts as one token, so host indices are slot numbers. */
  readonly pageSize = 1;
  readonly slots: number;
  readonly #components: number;
  readonly #componentBytes: number;

  constructor({ pageBytes, components }: { pageBytes: number; components: 1 | 2 }) {
    this.slots = Math.max(1, Math.min(BATCH_MAX_PAGES, Math.floor(HOST_BUFFER_MAX_BYTES / pageBytes)));
    this.#components = components;
    this.#componentBytes = pageBytes / components;
    this.region = HostRegion.allocate(this.slots * pageBytes);
  }

  getPageBufferMeta(hostIndices: ArrayLike<number | bigint>): { ptrs: bigint[]; sizes: number[] } {
    const ptrs: bigint[] = [];
    const sizes: number[] = [];
    for (let i = 0; i < hostIndices.length; i++) {
      for (let component = 0; component < this.#components; component++) {
        ptrs.push(this.region.addr + BigInt(this.#offset(Number(hostIndices[i]), component)));
        sizes.push(this.#componentBytes);
      }
    }
    return { ptrs, sizes };
  }

  fill(content: PageContent, slot: number, key: string): void {
    this.#eachComponent(slot, (bytes, position) => content.fill(bytes, key, position));
  }

  wrongBytes(content: PageContent, slot: number, key: string): number {
    let wrong = 0;
    this.#eachComponent(slot, (bytes, position) => {
      wrong += content.wrongBytes(bytes, key, position);
    });
    return wrong;
  }

  /** Overwrites a slot, so that a read that delivers nothing cannot pass with the bytes of an earlier request. */
  clear(slot: number): void {
    this.#eachComponent(slot, (bytes) => bytes.fill(CLEARED));
  }

  #eachComponent(slot: number, use: (bytes: Uint8Array, positionBytes: number) => void): void {
    for (let component = 0; component < this.#components; component++) {
      use(this.region.bytes(this.#offset(slot, component), this.#componentBytes), component * this.#componentBytes);
    }
  }

  #offset(slot: number, component: number): number {
    return (component * this.slots + slot) * this.#componentBytes;
  }
}

/**
 * Executes requests as a serving process does: looks up the longest prefix in the cluster, reads it, and sets the rest.
 * Every delivered byte is checked. A page that the lookup reported but the read did not deliver ends the prefix and is
 * set again with the rest. Requests of one runner must not overlap.
 */
export class RequestRunner {
  readonly #store: PageStore;
  readonly #buffer: HostBuffer;
  readonly #clock: Clock;
  readonly #pageBytes: number;
  readonly #content = new PageContent();
  readonly #slots: readonly number[];
  #workedBytes = 0;
  #counts = noCounts();
  #readLatenciesUs: number[] = [];
  #lookupLatenciesUs: number[] = [];

  /** `buffer` must already be registered with the store. */
  constructor(store: PageStore, buffer: HostBuffer, options: { readonly pageBytes: number; readonly clock: Clock }) {
    this.#store = store;
    this.#buffer = buffer;
    this.#clock = options.clock;
    this.#pageBytes = options.pageBytes;
    this.#slots = Array.from({ length: buffer.slots }, (_, slot) => slot);
  }

  async run(requests: readonly (readonly string[])[]): Promise<RunResult> {
    this.#counts = noCounts();
    this.#readLatenciesUs = [];
    this.#lookupLatenciesUs = [];
    const before = { ...this.#store.stats().hits };
    for (const keys of requests) {
      await this.#request(keys as string[]);
      await this.#drainDisk();
    }
    const after = this.#store.stats().hits;
    this.#counts.localHits = after.local - before.local;
    this.#counts.remoteHits = after.remote - before.remote;
    this.#counts.diskHits = after.disk - before.disk;
    return {
      counts: this.#counts,
      readLatenciesUs: Float64Array.from(this.#readLatenciesUs),
      lookupLatenciesUs: Float64Array.from(this.#lookupLatenciesUs),
    };
  }

  async #request(keys: string[]): Promise<void> {
    this.#counts.requests++;
    this.#counts.asked += keys.length;
    if (keys.length === 0) return;
    const existing = await this.#lookUp(keys);
    const hits = await this.#readPrefix(keys, existing);
    if (hits < existing) this.#counts.staleMisses++;
    this.#counts.prefixHits += hits;
    await this.#setFrom(keys, hits);
  }

  /**
   * Waits, outside all measured times, until the disk and storage nodes have taken all pages. In practice they do so
   * between requests; here requests follow each other without a pause.
   */
  async #drainDisk(): Promise<void> {
    for (;;) {
      const { disk, placement } = this.#store.stats();
      if ((disk?.queueBytes ?? 0) === 0 && (placement?.unplacedPages ?? 0) === 0) return;
      await this.#clock.yield();
    }
  }

  async #lookUp(keys: string[]): Promise<number> {
    const startedMs = this.#clock.nowMs();
    const existing = await this.#store.batchExists(keys);
    const us = (this.#clock.nowMs() - startedMs) * 1000;
    this.#counts.lookupUs += us;
    this.#lookupLatenciesUs.push(us);
    return existing;
  }

  /** Reads the first `existing` pages in order; returns how many were read before the first miss. */
  async #readPrefix(keys: readonly string[], existing: number): Promise<number> {
    for (let first = 0; first < existing; first += this.#slots.length) {
      const batch = keys.slice(first, Math.min(first + this.#slots.length, existing));
      await this.#eachPage(batch, (slot) => this.#buffer.clear(slot));
      const startedMs = this.#clock.nowMs();
      const results = await this.#store.batchGetV1(batch, this.#slots.slice(0, batch.length));
      const us = (this.#clock.nowMs() - startedMs) * 1000;
      this.#counts.readUs += us;
      this.#readLatenciesUs.push(us);
      await this.#checkBatch(batch, results);
      const firstMiss = results.indexOf(false);
      if (firstMiss >= 0) return first + firstMiss;
    }
    return existing;
  }

  /** Checks all delivered pages, including those after a miss: `true` must always mean correct bytes. */
  async #checkBatch(keys: readonly string[], results: readonly boolean[]): Promise<void> {
    await this.#eachPage(keys, (slot, key) => {
      if (results[slot] !== true) return;
      this.#counts.readBytes += this.#pageBytes;
      this.#counts.wrongBytes += this.#buffer.wrongBytes(this.#content, slot, key);
    });
  }

  async #setFrom(keys: readonly string[], from: number): Promise<void> {
    for (let first = from; first < keys.length; first += this.#slots.length) {
      const batch = keys.slice(first, first + this.#slots.length);
      await this.#eachPage(batch, (slot, key) => this.#buffer.fill(this.#content, slot, key));
      const startedMs = this.#clock.nowMs();
      const results = await this.#store.batchSetV1(batch, this.#slots.slice(0, batch.length));
      this.#counts.setUs += (this.#clock.nowMs() - startedMs) * 1000;
      countSets(this.#counts, results, this.#pageBytes);
    }
  }

  /** Calls `work` for each page of a batch, with its index as the slot. Yields to the event loop now and then. */
  async #eachPage(keys: readonly string[], work: (slot: number, key: string) => void): Promise<void> {
    for (let slot = 0; slot < keys.length; slot++) {
      work(slot, keys[slot] as string);
      this.#workedBytes += this.#pageBytes;
      if (this.#workedBytes < WORK_SLICE_BYTES) continue;
      this.#workedBytes = 0;
      await this.#clock.yield();
    }
  }
}

function countSets(counts: RunCounts, results: readonly boolean[], pageBytes: number): void {
  for (const isSet of results) {
    if (isSet) {
      counts.set++;
      counts.setBytes += pageBytes;
    } else {
      counts.setFailures++;
    }
  }
}
