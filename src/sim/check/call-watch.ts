import type { ProcessId } from './statements.js';

/** Kinds of store calls, each with its own time bound. */
export type CallKind = 'set' | 'get' | 'exists' | 'delete' | 'clear' | 'pin';

/**
 * The longest time of each kind of call, in milliseconds. To find a location, two owners may have to be asked in turn,
 * each within the time to connect and to answer (3 s). Owners are told of a set page within the time to wait for a turn
 * and to answer (4 s), and once more if it has been evicted meanwhile. A page that does not arrive takes the time to
 * connect and to stall (4 s); one on another node's disk may take 5 s. Slow networks get one more second. A page to be
 * pinned is first looked for on the own disk, and may wait for its turn behind other copies.
 */
export const CALL_BOUNDS_MS: Readonly<Record<CallKind, number>> = {
  set: 10_000,
  get: 11_000,
  exists: 7_000,
  delete: 7_000,
  clear: 7_000,
  pin: 30_000,
};

interface Call extends ProcessId {
  readonly kind: CallKind;
  readonly beginMs: number;
  isReported: boolean;
}

interface CallWatchOptions {
  readonly nowMs: () => number;
  /** Milliseconds since `sinceMs` for which the process was frozen; they do not count. */
  readonly frozenMs: (of: ProcessId, sinceMs: number) => number;
  readonly onLate: (of: ProcessId, kind: CallKind, tookMs: number) => void;
  /** Bounds by kind that replace those of {@link CALL_BOUNDS_MS}. */
  readonly boundsMs?: Partial<Record<CallKind, number>>;
}

/** Reports calls that take longer than their bound. */
export class CallWatch {
  readonly counts: Record<CallKind, number> = { set: 0, get: 0, exists: 0, delete: 0, clear: 0, pin: 0 };
  readonly longestMs: Record<CallKind, number> = { set: 0, get: 0, exists: 0, delete: 0, clear: 0, pin: 0 };
  readonly #open = new Set<Call>();
  readonly #options: CallWatchOptions;
  readonly #boundsMs: Readonly<Record<CallKind, number>>;

  constructor(options: CallWatchOptions) {
    this.#options = options;
    this.#boundsMs = { ...CALL_BOUNDS_MS, ...options.boundsMs };
  }

  /** Registers a call; the returned function must be called when the call ends. */
  begin(kind: CallKind, { node, process }: ProcessId): () => void {
    const call: Call = { kind, node, process, beginMs: this.#options.nowMs(), isReported: false };
    this.counts[kind]++;
    this.#open.add(call);
    return () => {
      if (!this.#open.delete(call)) return;
      const tookMs = this.#judge(call);
      if (tookMs > this.longestMs[kind]) this.longestMs[kind] = tookMs;
    };
  }

  /** Forgets the calls of a process that was killed. */
  cut({ process }: Pick<ProcessId, 'process'>): void {
    for (const call of this.#open) if (call.process === process) this.#open.delete(call);
  }

  /** Checks the calls in progress against their bounds. */
  look(): void {
    for (const call of this.#open) this.#judge(call);
  }

  get openCount(): number {
    return this.#open.size;
  }

  #judge(call: Call): number {
    const { nowMs, frozenMs, onLate } = this.#options;
    let tookMs = nowMs() - call.beginMs;
    const boundMs = this.#boundsMs[call.kind];
    if (tookMs > boundMs) tookMs -= frozenMs(call, call.beginMs);
    if (tookMs > boundMs && !call.isReported) {
      call.isReported = true;
      onLate(call, call.kind, tookMs);
    }
    return tookMs;
  }
}
