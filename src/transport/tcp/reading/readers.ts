import type { Environment } from '../../../base/environment/environment.js';
import type { TcpLimits } from '../protocol/limits.js';
import { withDscp } from '../threads/marked-network.js';
import { onCredentialsRenewed } from '../threads/thread-messages.js';
import { ReadPeers } from './read-peers.js';
import { type ReadBatch, type ReadCounterName, ReadCounters, type ReadRequest } from './read-request.js';
import { ReadingThread } from './reading-thread.js';

export interface ReadersOptions {
  /** Threads that read; 1: the calling thread alone. */
  readonly threads: number;
  readonly limits: TcpLimits;
  readonly env: Environment;
  /** Differentiated services code point of all connections; undefined: that of the system. */
  readonly dscp?: number | undefined;
}

/**
 * Spreads reads over threads, each of which has connections of its own to every peer.
 *
 * The calling thread reads what is small, because handing it to another thread would cost more than receiving it, and
 * what only it can write into. With one thread it reads everything.
 */
export class Readers {
  readonly #limits: TcpLimits;
  readonly #ownCounters = new ReadCounters();
  readonly #own: ReadPeers;
  readonly #threads: readonly ReadingThread[];
  readonly #forget: () => void;

  constructor({ threads, limits, env, dscp }: ReadersOptions) {
    this.#limits = limits;
    this.#own = new ReadPeers(this.#ownCounters, limits, withDscp(env, dscp));
    this.#threads = Array.from({ length: threads > 1 ? threads : 0 }, () => new ReadingThread(limits, env, dscp));
    this.#forget = onCredentialsRenewed(env, () => {
      for (const thread of this.#threads) thread.renewCredentials();
    });
  }

  /** Counters of the calling thread, for operations that reach no peer. */
  get ownCounters(): ReadCounters {
    return this.#ownCounters;
  }

  /** A counter, over all threads. */
  total(name: ReadCounterName): number {
    return this.#threads.reduce((sum, { counters }) => sum + counters.value(name), this.#ownCounters.value(name));
  }

  /** Most bytes that a request of a batch should have, so that all threads get a part of the batch. */
  requestTargetBytes(ops: readonly { readonly length: number }[]): number {
    const { requestTargetBytes, threadedMinBytes } = this.#limits;
    if (this.#threads.length === 0) return requestTargetBytes;
    const batchBytes = ops.reduce((sum, { length }) => sum + length, 0);
    if (batchBytes < threadedMinBytes) return requestTargetBytes;
    const shareBytes = Math.ceil(batchBytes / this.#threads.length);
    return Math.min(requestTargetBytes, Math.max(shareBytes, threadedMinBytes / 2));
  }

  /** Sends requests of one batch to a peer. They end false at once if the peer is not reachable. */
  submit(endpoint: string, requests: readonly ReadRequest[]): void {
    const totalBytes = requests.reduce((sum, request) => sum + request.totalBytes, 0);
    const running = this.#threads.filter(({ isRunning }) => isRunning);
    if (running.length === 0 || totalBytes < this.#limits.threadedMinBytes || this.#own.unreachable.has(endpoint)) {
      this.#own.submit(endpoint, requests);
      return;
    }
    // One thread alone tries a peer that is not reached.
    const trying = running.find(({ unreachable }) => unreachable.has(endpoint));
    const shares = spread(requests, trying === undefined ? running : [trying]);
    if (shares.own.length > 0) this.#own.submit(endpoint, shares.own);
    for (const [thread, share] of shares.threads) thread.submit(endpoint, share);
  }

  /** Aborts the requests of a batch to a peer; see `ReadConnection.abort`. */
  abort(endpoint: string, batch: ReadBatch): void {
    this.#own.abort(endpoint, batch);
    for (const thread of this.#threads) thread.abort(batch);
  }

  /** Whether no thread has found the peer silent or absent when it was last tried. */
  isReachable(endpoint: string): boolean {
    return this.#own.isReachable(endpoint) && this.#threads.every(({ unreachable }) => !unreachable.has(endpoint));
  }

  /** Endpoints of the peers that are not reachable. */
  get unreachable(): ReadonlySet<string> {
    const sets = this.#threads.map(({ unreachable }) => unreachable).filter(({ size }) => size > 0);
    return sets.length === 0
      ? this.#own.unreachable
      : new Set([this.#own.unreachable, ...sets].flatMap((set) => [...set]));
  }

  /** Closes every connection; pending operations end false. Resolves when the threads are gone. */
  async close(): Promise<void> {
    this.#forget();
    this.#own.close();
    await Promise.all(this.#threads.map((thread) => thread.close()));
  }

  /** Throws `InvariantError` unless the calling thread's connections and the reads of each other thread are consistent. */
  verify(): void {
    this.#own.verify();
    for (const thread of this.#threads) thread.verify();
  }
}

/** Shares requests among threads by the bytes that each has to receive. */
function spread(
  requests: readonly ReadRequest[],
  threads: readonly ReadingThread[],
): { readonly own: ReadRequest[]; readonly threads: ReadonlyMap<ReadingThread, ReadRequest[]> } {
  const own: ReadRequest[] = [];
  const shares = new Map<ReadingThread, ReadRequest[]>();
  const bytes = threads.map(({ pendingBytes }) => pendingBytes);
  for (const request of requests) {
    if (!request.isShared) {
      own.push(request);
      continue;
    }
    const at = bytes.indexOf(Math.min(...bytes));
    const thread = threads[at] as ReadingThread;
    bytes[at] = (bytes[at] as number) + request.totalBytes;
    const share = shares.get(thread);
    if (share === undefined) shares.set(thread, [request]);
    else share.push(request);
  }
  return { own, threads: shares };
}
