import type { MeshCacheStore } from '../../node/meshcache-store.js';
import type { SessionRequest, SessionsWorkload } from '../scenario/workload.js';
import { below, chance, forkedRandom, fraction } from '../world/kernel/seeds.js';
import { pageKey, type RequestSource } from './requests.js';
import type { SimCluster } from './sim-cluster.js';

/**
 * Requests of sessions in a closed loop: each begins when the one before it has been answered, and the time between
 * them has passed. After an answer, the program of the node that gave it tells the store what comes next, as the
 * workload says it.
 */
export class SessionRequests implements RequestSource {
  /** Resolves when all requests have been answered. */
  readonly over: Promise<void>;
  readonly #workload: SessionsWorkload;
  readonly #cluster: SimCluster;
  /** Indices of the requests that wait for each request; those that wait for none are under -1. */
  readonly #waiting = new Map<number, number[]>();
  /** Milliseconds from the answer to each request until the thread's next one, as told; Infinity: it has ended. */
  readonly #toldMs: readonly number[];
  /** Prefetches in progress, by thread; a request of the thread ends them. */
  readonly #prefetches = new Map<number, AbortController>();
  #left: number;
  #end = (): void => {};
  #isRunning = false;

  constructor(workload: SessionsWorkload, cluster: SimCluster) {
    this.#workload = workload;
    this.#cluster = cluster;
    this.#left = workload.requests.length;
    this.#toldMs = toldTimes(workload, cluster.scenario.seed);
    for (const [i, { after = -1 }] of workload.requests.entries()) {
      const waiting = this.#waiting.get(after);
      if (waiting === undefined) this.#waiting.set(after, [i]);
      else waiting.push(i);
    }
    this.over = new Promise((resolve) => (this.#end = resolve));
  }

  start(): void {
    this.#isRunning = true;
    if (this.#left === 0) this.#end();
    for (const i of this.#waiting.get(-1) ?? []) this.#plan(i);
  }

  stop(): void {
    this.#isRunning = false;
    for (const ends of this.#prefetches.values()) ends.abort();
  }

  #plan(i: number): void {
    this.#cluster.after((this.#workload.requests[i] as SessionRequest).waitMs, () => void this.#make(i));
  }

  #planFollowing(i: number, isAnswered: boolean): void {
    const { requests } = this.#workload;
    for (const next of this.#waiting.get(i) ?? []) if (requests[next]?.isAnswered === isAnswered) this.#plan(next);
  }

  async #make(i: number): Promise<void> {
    if (!this.#isRunning) return;
    const { hashIds, session, thread, answerMs } = this.#workload.requests[i] as SessionRequest;
    this.#prefetches.get(thread)?.abort();
    this.#prefetches.delete(thread);
    this.#planFollowing(i, false);
    const keys = hashIds.map((id) => pageKey(`trace-${id}`));
    const sent = keys.length === 0 ? undefined : await this.#cluster.send({ keys, session });
    await this.#cluster.sleep(Math.max(0, answerMs - (sent?.outcome.setMs ?? 0)));
    if (!this.#isRunning) return;
    if (sent !== undefined && this.#workload.told !== 'nothing') {
      void sent.node.run(({ store }) => this.#tell(store, i, keys));
    }
    this.#planFollowing(i, true);
    if (--this.#left === 0) this.#end();
  }

  /** Tells a store when the next request comes, as a part of the program around the store. */
  async #tell(store: MeshCacheStore, i: number, keys: readonly string[]): Promise<void> {
    const { thread } = this.#workload.requests[i] as SessionRequest;
    const inS = (this.#toldMs[i] as number) / 1000;
    const name = `thread-${thread}`;
    if (inS === Number.POSITIVE_INFINITY) return store.tell(name, { keys, ended: true });
    await store.tell(name, { keys, branched: true, waiting: inS });
    if (this.#workload.told !== 'prefetch' || !this.#isRunning) return;
    const ends = new AbortController();
    this.#prefetches.set(thread, ends);
    await store.prefetch(keys, { by: inS, signal: ends.signal });
  }
}

/** The times that are told, of which some are wrong. */
function toldTimes({ requests, toldWrong, toldError }: SessionsWorkload, seed: number): number[] {
  const random = forkedRandom(seed, 'told');
  const times = requests.map(({ nextInMs = Number.POSITIVE_INFINITY }) => nextInMs);
  return times.map((ms) => {
    if (chance(random, toldWrong)) return times[below(random, times.length)] as number;
    return toldError === 0 ? ms : Math.round(ms * (1 + toldError * (2 * fraction(random) - 1)));
  });
}
