import type { ProcessId } from './statements.js';

export type CallKind = 'set' | 'get' | 'exists' | 'delete' | 'clear';

/**
 * How long each call may take, in milliseconds. Two owners may have to be asked for a location, one after the other, each within the time to
 * connect and to answer (3 s); a page that does not come takes the time to connect and to stall (4 s), one that is on another
 * node's disk may take 5 s. A second more, for networks that are slow.
 */
export const CALL_BOUNDS_MS: Readonly<Record<CallKind, number>> = {
  set: 7_000,
  get: 11_000,
  exists: 7_000,
  delete: 7_000,
  clear: 7_000,
};

interface Call extends ProcessId {
  readonly kind: CallKind;
  readonly beginMs: number;
  isReported: boolean;
}

export interface CallWatchOptions {
  readonly nowMs: () => number;
  /** For how long the process has stood still since then: that does not count. */
  readonly frozenMs: (of: ProcessId, sinceMs: number) => number;
  readonly onLate: (of: ProcessId, kind: CallKind, tookMs: number) => void;
  /** By kind, instead of {@link CALL_BOUNDS_MS}. */
  readonly boundsMs?: Partial<Record<CallKind, number>>;
}

/** Sees to it that no call lives longer than its bound. */
export class CallWatch {
  readonly counts: Record<CallKind, number> = { set: 0, get: 0, exists: 0, delete: 0, clear: 0 };
  readonly longestMs: Record<CallKind, number> = { set: 0, get: 0, exists: 0, delete: 0, clear: 0 };
  readonly #open = new Set<Call>();
  readonly #options: CallWatchOptions;
  readonly #boundsMs: Readonly<Record<CallKind, number>>;

  constructor(options: CallWatchOptions) {
    this.#options = options;
    this.#boundsMs = { ...CALL_BOUNDS_MS, ...options.boundsMs };
  }

  /** A call begins; the result ends it. */
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

  /** The process has been killed. */
  cut({ process }: Pick<ProcessId, 'process'>): void {
    for (const call of this.#open) if (call.process === process) this.#open.delete(call);
  }

  /** Looks at the calls that are under way. */
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
