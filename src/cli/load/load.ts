import type { Clock } from '../../base/environment/clock.js';
import { addCounts, noCounts, type RunCounts, type RunResult } from '../cluster/agent-protocol.js';

/** Requests per message if there is only one target. */
const SLICE_REQUESTS = 64;

/** A process that executes requests in order; {@link ClusterAgent} is one. */
export interface LoadTarget {
  /** `atMs`: time of the requests in a trace; the targets' reads of each other's pages then wait for `tellReads`. */
  run(requests: readonly (readonly string[])[], atMs?: number): Promise<RunResult>;
  /** Tells other targets of the reads of their pages by requests up to this time of the trace. */
  tellReads?(untilMs: number): Promise<void>;
}

export interface LoadRequest {
  readonly keys: readonly string[];
  /** Requests of one conversation never overlap, whatever the concurrency. */
  readonly conversation?: number;
  /** Index of the target that executes the request; undefined: each target in turn. */
  readonly target?: number;
  /** Milliseconds since the trace's start; undefined: the time of the request is that of the clock. */
  readonly atMs?: number;
}

interface LoadOptions {
  /** Most requests in progress in the whole cluster; each process executes one at a time. */
  readonly concurrency: number;
  readonly clock: Clock;
  /** Milliseconds of the trace after which targets hear of reads of their pages by others. Default: 0. */
  readonly reportDelayMs?: number;
  /** No request is started after this many milliseconds. */
  readonly maxMs?: number;
  readonly signal?: AbortSignal;
  onProgress?(counts: Readonly<RunCounts>, elapsedMs: number): void;
}

export interface LoadResult {
  readonly counts: RunCounts;
  /** Microseconds of each read call, ascending. */
  readonly readLatenciesUs: Float64Array;
  /** Microseconds of each lookup call, ascending. */
  readonly lookupLatenciesUs: Float64Array;
  readonly wallMs: number;
}

/**
 * Sends requests to their targets, or else round-robin, in order, and adds up the results. With a concurrency of 1, a request
 * starts when the previous one has ended. If a target fails, rejects with the first failure once all requests in
 * progress have ended.
 */
export async function runLoad(
  targets: readonly LoadTarget[],
  requests: AsyncIterable<LoadRequest> | Iterable<LoadRequest>,
  options: LoadOptions,
): Promise<LoadResult> {
  const dispatcher = new Dispatcher(targets, options);
  const startedMs = options.clock.nowMs();
  for await (const slice of slices(requests, targets.length === 1 ? SLICE_REQUESTS : 1)) {
    if (options.clock.nowMs() - startedMs >= (options.maxMs ?? Number.POSITIVE_INFINITY)) break;
    options.signal?.throwIfAborted();
    await dispatcher.dispatch(slice);
    options.onProgress?.(dispatcher.counts, options.clock.nowMs() - startedMs);
  }
  await dispatcher.drain();
  options.signal?.throwIfAborted();
  return {
    counts: dispatcher.counts,
    readLatenciesUs: sortedTogether(dispatcher.readLatenciesUs),
    lookupLatenciesUs: sortedTogether(dispatcher.lookupLatenciesUs),
    wallMs: options.clock.nowMs() - startedMs,
  };
}

/** Combines the results of loads that were run one after the other. */
export function joinLoads(loads: readonly LoadResult[]): LoadResult {
  const counts = noCounts();
  for (const load of loads) addCounts(counts, load.counts);
  return {
    counts,
    readLatenciesUs: sortedTogether(loads.map((load) => load.readLatenciesUs)),
    lookupLatenciesUs: sortedTogether(loads.map((load) => load.lookupLatenciesUs)),
    wallMs: loads.reduce((sum, load) => sum + load.wallMs, 0),
  };
}

/** The smallest value that at least `share` (0 to 1) of the ascending values do not exceed; NaN without values. */
export function quantile(sorted: Float64Array, share: number): number {
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}

class Dispatcher {
  readonly counts = noCounts();
  readonly readLatenciesUs: Float64Array[] = [];
  readonly lookupLatenciesUs: Float64Array[] = [];
  readonly #targets: readonly LoadTarget[];
  readonly #concurrency: number;
  readonly #targetEnds: Promise<void>[];
  readonly #conversationEnds = new Map<number, Promise<void>>();
  readonly #underWay = new Set<Promise<void>>();
  readonly #reportDelayMs: number;
  /** Requests in a trace's time whose reads other targets have not been told of, in order. */
  readonly #untold: { readonly target: LoadTarget; readonly atMs: number }[] = [];
  #dispatched = 0;
  #failure: { readonly error: unknown } | undefined;

  constructor(
    targets: readonly LoadTarget[],
    options: { readonly concurrency: number; readonly reportDelayMs?: number },
  ) {
    this.#targets = targets;
    this.#concurrency = options.concurrency;
    this.#reportDelayMs = options.reportDelayMs ?? 0;
    this.#targetEnds = targets.map(() => Promise.resolve());
  }

  /** Resolves when the slice has been queued; it is sent as soon as its target and its conversations are free. */
  async dispatch(slice: readonly LoadRequest[]): Promise<void> {
    while (this.#underWay.size >= this.#concurrency) await Promise.race(this.#underWay);
    if (this.#failure !== undefined) return this.drain();
    const target = slice[0]?.target ?? this.#dispatched++ % this.#targets.length;
    const before = [this.#targetEnds[target], ...slice.map((request) => this.#endOf(request.conversation))];
    const end = Promise.all(before)
      .then(() => this.#run(this.#targets[target] as LoadTarget, slice))
      .catch((error: unknown) => {
        this.#failure ??= { error };
      })
      .finally(() => this.#underWay.delete(end));
    this.#underWay.add(end);
    this.#targetEnds[target] = end;
    for (const { conversation } of slice) if (conversation !== undefined) this.#conversationEnds.set(conversation, end);
  }

  async drain(): Promise<void> {
    await Promise.all(this.#underWay);
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  #endOf(conversation: number | undefined): Promise<void> | undefined {
    return conversation === undefined ? undefined : this.#conversationEnds.get(conversation);
  }

  async #run(target: LoadTarget, slice: readonly LoadRequest[]): Promise<void> {
    if (this.#failure !== undefined) return;
    // A single target reads no page of another one.
    const atMs = this.#targets.length > 1 ? slice[0]?.atMs : undefined;
    if (atMs !== undefined) await this.#tellReads(atMs);
    const result = await target.run(
      slice.map((request) => request.keys),
      atMs,
    );
    if (atMs !== undefined) this.#untold.push({ target, atMs });
    addCounts(this.counts, result.counts);
    this.readLatenciesUs.push(result.readLatenciesUs);
    this.lookupLatenciesUs.push(result.lookupLatenciesUs);
  }

  /** Tells the targets, one after the other, of the reads of which they hear at this time of the trace. */
  async #tellReads(nowMs: number): Promise<void> {
    for (;;) {
      const [first] = this.#untold;
      if (first === undefined || first.atMs + this.#reportDelayMs > nowMs) return;
      this.#untold.shift();
      await first.target.tellReads?.(first.atMs);
    }
  }
}

async function* slices(
  requests: AsyncIterable<LoadRequest> | Iterable<LoadRequest>,
  length: number,
): AsyncGenerator<LoadRequest[]> {
  let slice: LoadRequest[] = [];
  for await (const request of requests) {
    slice.push(request);
    if (slice.length < length) continue;
    yield slice;
    slice = [];
  }
  if (slice.length > 0) yield slice;
}

function sortedTogether(parts: readonly Float64Array[]): Float64Array {
  const all = new Float64Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all.sort();
}
