import { assert, assertAtMost, assertEqual, reduced } from '../../base/assert.js';
import { firstGroup } from '../../base/concurrency/shares.js';
import type { Clock } from '../../base/environment/clock.js';
import {
  DIRECTORY_LATE_ANSWER_MS,
  DIRECTORY_QUEUE_MAX_KEYS,
  DIRECTORY_QUEUE_MAX_MS,
  DIRECTORY_REQUEST_MAX_KEY_BYTES,
  DIRECTORY_REQUEST_MAX_KEYS,
} from '../../base/limits.js';
import { type Keys, stringsOf } from '../../core/binding/key-batch.js';
import { keysMaxBytes } from './owners.js';

/** What one message to an owner carries: keys, and whatever goes with them. */
export interface KeyedRequest {
  readonly keys: Keys;
}

/** How the requests of one queue are sent, and which of them may share a message. */
export interface RequestKind<B extends KeyedRequest, A> {
  canJoin(a: B, b: B): boolean;
  /** Joins the batches into one, in order. */
  join(batches: readonly B[]): B;
  /** Sends a batch. Must not reject. Resolves with undefined if the owner is unreachable or has failed. */
  send(batch: B): Promise<A | undefined>;
  /** Called with a batch that is not sent, because the queue is full or the batch has waited for too long. */
  onUnsent(batch: B): void;
  /** The answer to the keys `from` to `from + count - 1` of a batch. */
  part(answer: A, from: number, count: number): A;
}

export interface RequestQueueOptions {
  /** Number of messages that are in flight at once. */
  readonly atOnce: number;
  readonly clock: Clock;
}

interface Waiting<B, A> {
  readonly batch: B;
  readonly sinceMs: number;
  resolve(answer: A | undefined): void;
}

/**
 * Queue of requests to one owner. Requests made in one turn of the event loop share messages, as far as their kind
 * allows. If nothing is in flight, many of them travel in two messages, see {@link firstGroup}. A few messages are in
 * flight at once; the other requests wait and are joined likewise. Requests are sent in the order in which they were
 * made.
 *
 * If the owner answers late or not at all, a request that has waited for DIRECTORY_QUEUE_MAX_MS is not sent any more,
 * because the waits of a long queue would add up. An owner that answers in time is merely busy, and gets all requests.
 */
export class RequestQueue<B extends KeyedRequest, A> {
  readonly #kind: RequestKind<B, A>;
  readonly #atOnce: number;
  readonly #clock: Clock;
  /** Waiting requests in the order in which they were made. */
  #waiting: Waiting<B, A>[] = [];
  #waitingKeys = 0;
  #underWay = 0;
  /** Whether the last message has failed, or was answered late. */
  #isSlow = false;
  /** Whether a send is scheduled to run after the tasks that are ready now, which may add requests. */
  #isDue = false;

  constructor(kind: RequestKind<B, A>, { atOnce, clock }: RequestQueueOptions) {
    this.#kind = kind;
    this.#atOnce = atOnce;
    this.#clock = clock;
  }

  /** Whether no request is in flight and none waits. */
  get isIdle(): boolean {
    return this.#underWay === 0 && this.#waiting.length === 0;
  }

  /**
   * Queues `batch`, which must fit in one request. Resolves with undefined if the request fails, if more than
   * DIRECTORY_QUEUE_MAX_KEYS keys would wait, or if the batch has waited for too long. Never rejects.
   */
  ask(batch: B): Promise<A | undefined> {
    if (this.#waitingKeys + countOf(batch) > DIRECTORY_QUEUE_MAX_KEYS) {
      this.#kind.onUnsent(batch);
      return Promise.resolve(undefined);
    }
    return new Promise((resolve) => {
      this.#waiting.push({ batch, sinceMs: this.#clock.nowMs(), resolve });
      this.#waitingKeys += countOf(batch);
      if (this.#isDue) return;
      this.#isDue = true;
      // The send runs after everything that was ready to run before it, which may make requests as well.
      void Promise.resolve().then(() => {
        this.#isDue = false;
        this.#next();
      });
    });
  }

  #next(): void {
    this.#giveUpLate();
    while (this.#underWay < this.#atOnce && this.#waiting.length > 0) {
      const together = this.#waiting.splice(0, this.#joinable());
      for (const { batch } of together)
        this.#waitingKeys = reduced('request queue: waiting keys', this.#waitingKeys, countOf(batch));
      this.#underWay++;
      void this.#send(together);
    }
  }

  /** Ends the requests that have waited for too long behind slow answers. */
  #giveUpLate(): void {
    if (!this.#isSlow) return;
    const sinceMs = this.#clock.nowMs() - DIRECTORY_QUEUE_MAX_MS;
    while ((this.#waiting[0]?.sinceMs ?? Number.POSITIVE_INFINITY) <= sinceMs) {
      const { batch, resolve } = this.#waiting.shift() as Waiting<B, A>;
      this.#waitingKeys = reduced('request queue: waiting keys', this.#waitingKeys, countOf(batch));
      this.#kind.onUnsent(batch);
      resolve(undefined);
    }
  }

  /** How many of the longest waiting requests fit in one message. */
  #joinable(): number {
    const first = (this.#waiting[0] as Waiting<B, A>).batch;
    let keys = countOf(first);
    let bytes = keysMaxBytes(stringsOf(first.keys));
    const maxKeys =
      this.#underWay > 0 ? DIRECTORY_REQUEST_MAX_KEYS : firstGroup(this.#waitingKeys, DIRECTORY_REQUEST_MAX_KEYS);
    let count = 1;
    for (; count < this.#waiting.length; count++) {
      const { batch } = this.#waiting[count] as Waiting<B, A>;
      keys += countOf(batch);
      if (keys > maxKeys || !this.#kind.canJoin(first, batch)) break;
      bytes += keysMaxBytes(stringsOf(batch.keys));
      if (bytes > DIRECTORY_REQUEST_MAX_KEY_BYTES) break;
    }
    return count;
  }

  async #send(together: readonly Waiting<B, A>[]): Promise<void> {
    const batches = together.map(({ batch }) => batch);
    const startMs = this.#clock.nowMs();
    const answer = await this.#kind.send(batches.length === 1 ? (batches[0] as B) : this.#kind.join(batches));
    this.#underWay = reduced('request queue: under way', this.#underWay, 1);
    this.#isSlow = answer === undefined || this.#clock.nowMs() - startMs >= DIRECTORY_LATE_ANSWER_MS;
    this.#next();
    let from = 0;
    for (const { batch, resolve } of together) {
      const count = countOf(batch);
      resolve(answer === undefined || together.length === 1 ? answer : this.#kind.part(answer, from, count));
      from += count;
    }
  }

  /**
   * Throws `InvariantError` unless the waiting keys are counted and within the limit, and no request waits that could
   * be sent.
   */
  verify(): void {
    const keys = this.#waiting.reduce((sum, { batch }) => sum + countOf(batch), 0);
    assertEqual('request queue: waiting keys', this.#waitingKeys, keys);
    assertAtMost('request queue: waiting keys', keys, DIRECTORY_QUEUE_MAX_KEYS);
    assertAtMost('request queue: requests under way', this.#underWay, this.#atOnce);
    const isBusy = this.#waiting.length === 0 || this.#isDue || this.#underWay === this.#atOnce;
    assert(isBusy, () => `request queue: ${this.#waiting.length} wait, and ${this.#underWay} are under way`);
  }
}

function countOf({ keys }: KeyedRequest): number {
  return stringsOf(keys).length;
}
