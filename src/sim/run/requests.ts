import type { Clock } from '../../base/environment/clock.js';
import type { RandomSource } from '../../base/environment/random.js';
import type { CheckedStore } from '../check/checked-store.js';
import type { ConversationWorkload, TraceWorkload } from '../scenario/workload.js';
import { forkedRandom, fraction } from '../world/kernel/seeds.js';
import type { SimCluster } from './sim-cluster.js';

/** A request on its way to a node. */
export interface SimRequest {
  /** One key for each page; requests with equal keys have equal prefixes. */
  readonly keys: readonly string[];
  /** Conversation of the request; undefined if unknown. */
  readonly session: string | number | undefined;
}

/** Makes requests until it is stopped. */
export interface RequestSource {
  /** Resolves when there are no more requests; a source without it makes them for the whole duration. */
  readonly over?: Promise<void>;
  start(): void;
  stop(): void;
}

/** Length of keys, which is that of the content hashes that they stand for. */
const KEY_CHARACTERS = 64;

/** The key of a page: its name, padded to the length of a content hash. */
export function pageKey(name: string): string {
  return name.padEnd(KEY_CHARACTERS, '.');
}

/** Requests at the times of a trace. A hash id stands for the same page in all requests. */
export class TraceRequests implements RequestSource {
  readonly #workload: TraceWorkload;
  readonly #cluster: SimCluster;
  #next = 0;
  #startMs = 0;
  #isRunning = false;

  constructor(workload: TraceWorkload, cluster: SimCluster) {
    this.#workload = workload;
    this.#cluster = cluster;
  }

  start(): void {
    this.#isRunning = true;
    this.#startMs = this.#workload.requests[0]?.timestampMs ?? 0;
    this.#plan(this.#startMs);
  }

  stop(): void {
    this.#isRunning = false;
  }

  /** Plans the next request. `nowMs`: the current time of the trace. */
  #plan(nowMs: number): void {
    const request = this.#workload.requests[this.#next];
    if (request === undefined || !this.#isRunning) return;
    this.#cluster.after((request.timestampMs - nowMs) / this.#workload.speed, () => {
      if (!this.#isRunning) return;
      this.#next++;
      const keys = request.hashIds.map((id) => pageKey(`trace-${id}`));
      void this.#cluster.send({ keys, session: request.session });
      this.#plan(request.timestampMs);
    });
  }
}

/** Requests of conversations: each turn has the pages of all earlier ones and some more. */
export class ConversationRequests implements RequestSource {
  readonly #workload: ConversationWorkload;
  readonly #cluster: SimCluster;
  readonly #random: RandomSource;
  #conversations = 0;
  #isRunning = false;

  constructor(workload: ConversationWorkload, cluster: SimCluster) {
    this.#workload = workload;
    this.#cluster = cluster;
    this.#random = forkedRandom(cluster.scenario.seed, 'requests');
  }

  start(): void {
    this.#isRunning = true;
    this.#plan();
  }

  stop(): void {
    this.#isRunning = false;
  }

  #plan(): void {
    this.#cluster.after(this.#exponential(1000 / this.#workload.startsPerS), () => {
      if (!this.#isRunning) return;
      const session = this.#conversations++;
      const shared = Array.from({ length: this.#workload.sharedPages }, (_, i) => pageKey(`system-${i}`));
      void this.#converse(session, shared);
      this.#plan();
    });
  }

  async #converse(session: number, keys: string[]): Promise<void> {
    const { turns, pagesPerTurn, thinkMs } = this.#workload;
    while (this.#isRunning) {
      const added = 1 + Math.floor(this.#exponential(pagesPerTurn));
      for (let i = 0; i < added; i++) keys.push(pageKey(`conversation-${session}-${keys.length}`));
      await this.#cluster.send({ keys: [...keys], session });
      if (this.#unit() * turns < 1) return;
      await new Promise<void>((resolve) => this.#cluster.after(this.#exponential(thinkMs), resolve));
    }
  }

  /** An exponentially distributed time, rounded so that engines whose logarithms differ in the last bit agree. */
  #exponential(mean: number): number {
    return Math.round(-Math.log(1 - this.#unit()) * mean * 1024) / 1024;
  }

  #unit(): number {
    return fraction(this.#random);
  }
}

/** Most pages of one call of a serving program. */
const BATCH_PAGES = 64;

/** Outcome of one request, in pages. */
export interface RequestOutcome {
  readonly asked: number;
  /** Pages read before the first miss. */
  readonly found: number;
  /** Found pages that were in the pool of the node when the request came. */
  readonly local: number;
  /** Milliseconds until the found pages were in the memory of the program. */
  readonly waitMs: number;
  /** Milliseconds from then until the others were set. */
  readonly setMs: number;
}

/**
 * Serves requests as a serving program does: looks up the longest prefix in the cluster, reads it, computes the rest
 * and sets it.
 */
export class RequestServing {
  readonly #store: CheckedStore;
  readonly #clock: Clock;
  readonly #computeMsPerPage: number;

  /** @internal `computeMsPerPage`: milliseconds that computing a missing page takes. */
  constructor(store: CheckedStore, clock: Clock, computeMsPerPage: number) {
    this.#store = store;
    this.#clock = clock;
    this.#computeMsPerPage = computeMsPerPage;
  }

  /** Serves one request; its keys are in the order of the prefix. */
  async serve(keys: readonly string[]): Promise<RequestOutcome> {
    const startMs = this.#clock.nowMs();
    const tiers = this.#store.store.tiersOf(keys);
    const existing = await this.#store.exists(keys);
    const found = await this.#readPrefix(keys, existing);
    const readMs = this.#clock.nowMs();
    await this.#pass(this.#computeMsPerPage * (keys.length - found));
    for (let from = found; from < keys.length; from += BATCH_PAGES) {
      await this.#store.setComputed(keys.slice(from, from + BATCH_PAGES));
    }
    const local = tiers.slice(0, found).filter((tier) => tier === 'memory').length;
    return { asked: keys.length, found, local, waitMs: readMs - startMs, setMs: this.#clock.nowMs() - readMs };
  }

  /** The number of pages read before the first miss. */
  async #readPrefix(keys: readonly string[], existing: number): Promise<number> {
    for (let from = 0; from < existing; from += BATCH_PAGES) {
      const read = await this.#store.getComputed(keys.slice(from, Math.min(from + BATCH_PAGES, existing)));
      const firstMiss = read.indexOf(false);
      if (firstMiss >= 0) return from + firstMiss;
    }
    return existing;
  }

  async #pass(ms: number): Promise<void> {
    if (ms > 0) await new Promise<void>((resolve) => this.#clock.after(ms, resolve));
  }
}
