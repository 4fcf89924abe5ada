import type { RandomSource } from '../../base/environment/random.js';
import type { ConversationWorkload, TraceWorkload } from '../scenario/workload.js';
import { fraction } from '../world/kernel/seeds.js';
import type { RequestOutcome } from './request-serving.js';

/** A request on its way to a node. */
export interface SimRequest {
  /** One key for each page; requests with equal keys have equal prefixes. */
  readonly keys: readonly string[];
  /** Conversation of the request; undefined if unknown. */
  readonly session: string | number | undefined;
}

export interface RequestSourceParts {
  /** Calls `fn` after that much virtual time. */
  readonly after: (delayMs: number, fn: () => void) => void;
  /** Sends a request. Resolves when it has been served, with undefined if its node went down; may never resolve. */
  readonly send: (request: SimRequest) => Promise<RequestOutcome | undefined>;
  readonly random: RandomSource;
}

/** Makes requests until it is stopped. */
export interface RequestSource {
  start(): void;
  stop(): void;
}

/** Length of keys, the same as of the content hashes that they stand for. */
const KEY_CHARACTERS = 64;

/** The key of a page: its name, padded to the length of a content hash. */
export function pageKey(name: string): string {
  return name.padEnd(KEY_CHARACTERS, '.');
}

/** Requests at the times of a trace. A trace's id stands for the same page in all of them. */
export class TraceRequests implements RequestSource {
  readonly #workload: TraceWorkload;
  readonly #parts: RequestSourceParts;
  #next = 0;
  #startMs = 0;
  #isRunning = false;

  constructor(workload: TraceWorkload, parts: RequestSourceParts) {
    this.#workload = workload;
    this.#parts = parts;
  }

  start(): void {
    this.#isRunning = true;
    this.#startMs = this.#workload.requests[0]?.timestampMs ?? 0;
    this.#plan(this.#startMs);
  }

  stop(): void {
    this.#isRunning = false;
  }

  /** Plans the next request; `nowMs` is the trace's time. */
  #plan(nowMs: number): void {
    const request = this.#workload.requests[this.#next];
    if (request === undefined || !this.#isRunning) return;
    this.#parts.after((request.timestampMs - nowMs) / this.#workload.speed, () => {
      if (!this.#isRunning) return;
      this.#next++;
      const keys = request.hashIds.map((id) => pageKey(`trace-${id}`));
      void this.#parts.send({ keys, session: request.session });
      this.#plan(request.timestampMs);
    });
  }
}

/** Requests of conversations: each turn has the pages of all earlier ones and some more. */
export class ConversationRequests implements RequestSource {
  readonly #workload: ConversationWorkload;
  readonly #parts: RequestSourceParts;
  #conversations = 0;
  #isRunning = false;

  constructor(workload: ConversationWorkload, parts: RequestSourceParts) {
    this.#workload = workload;
    this.#parts = parts;
  }

  start(): void {
    this.#isRunning = true;
    this.#plan();
  }

  stop(): void {
    this.#isRunning = false;
  }

  #plan(): void {
    this.#parts.after(this.#exponential(1000 / this.#workload.startsPerS), () => {
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
      await this.#parts.send({ keys: [...keys], session });
      if (this.#unit() * turns < 1) return;
      await new Promise<void>((resolve) => this.#parts.after(this.#exponential(thinkMs), resolve));
    }
  }

  /** A random time, rounded so that engines whose logarithms differ in the last bit agree. */
  #exponential(mean: number): number {
    return Math.round(-Math.log(1 - this.#unit()) * mean * 1024) / 1024;
  }

  #unit(): number {
    return fraction(this.#parts.random);
  }
}
