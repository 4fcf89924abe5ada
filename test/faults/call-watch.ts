import { readFileSync } from 'node:fs';
import { CALLS, type CallKind } from './protocol.js';

/**
 * How long each call may take, in milliseconds. Two owners may have to be asked for a location, one after the other,
 * each within the time to connect and to answer (3 s); a page that does not come takes the time to connect and to stall
 * (4 s), one that is on another node's disk may take 5 s.
 */
export const DEADLINE_MS: Readonly<Record<CallKind, number>> = {
  set: 6_000,
  get: 10_000,
  exists: 6_000,
  clear: 6_000,
  delete: 6_000,
};
/** Beyond the deadline, for the machine's sake. */
export const GRACE_MS = 1_000;

const TURN_MS = 50;
/** A turn that comes later than this had no process to run in: it counts as this much. */
const TURN_MAX_MS = 500;
const STALL_MIN_MS = 1_000;

interface Call {
  readonly kind: CallKind;
  readonly sinceMs: number;
  isReported: boolean;
}

/**
 * Watches calls by a clock that stands still while the process does: a stopped process is not late. Whether a turn of
 * the event loop that came too late has an innocent reason is for the suite to judge, which knows when it stopped whom;
 * what the machine let it wait for a processor is left out here.
 */
export class CallWatch {
  readonly longestMs: Record<CallKind, number> = { set: 0, get: 0, exists: 0, clear: 0, delete: 0 };
  readonly calls: Record<CallKind, number> = { set: 0, get: 0, exists: 0, clear: 0, delete: 0 };
  readonly #open = new Set<Call>();
  readonly #onLate: (detail: string) => void;
  readonly #onStall: (ms: number) => void;
  readonly #timer: NodeJS.Timeout;
  #ranMs = 0;
  #lastMs = performance.now();
  #starvedMs = starvedMs();

  constructor(on: { late(detail: string): void; stall(ms: number): void }) {
    this.#onLate = (detail) => on.late(detail);
    this.#onStall = (ms) => on.stall(ms);
    this.#timer = setInterval(() => this.#turn(), TURN_MS);
  }

  /** What `call` gives; it is late when it has not ended in time, whatever becomes of it. */
  async run<T>(kind: CallKind, call: () => Promise<T>): Promise<T> {
    const entry: Call = { kind, sinceMs: this.#nowMs(), isReported: false };
    this.#open.add(entry);
    this.calls[kind]++;
    try {
      return await call();
    } finally {
      this.#open.delete(entry);
      this.longestMs[kind] = Math.max(this.longestMs[kind], Math.round(this.#nowMs() - entry.sinceMs));
      this.#judge(entry);
    }
  }

  /** So many are under way. */
  get underWay(): number {
    return this.#open.size;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #nowMs(): number {
    return this.#ranMs + Math.min(TURN_MAX_MS, performance.now() - this.#lastMs);
  }

  #turn(): void {
    const gapMs = performance.now() - this.#lastMs;
    this.#ranMs += Math.min(TURN_MAX_MS, gapMs);
    this.#lastMs += gapMs;
    const starved = starvedMs();
    const ownMs = gapMs - (starved - this.#starvedMs);
    this.#starvedMs = starved;
    if (ownMs > STALL_MIN_MS) this.#onStall(Math.round(ownMs));
    for (const entry of this.#open) this.#judge(entry);
  }

  #judge(entry: Call): void {
    const tookMs = this.#nowMs() - entry.sinceMs;
    if (entry.isReported || tookMs <= DEADLINE_MS[entry.kind] + GRACE_MS) return;
    entry.isReported = true;
    this.#onLate(`${entry.kind}: ${Math.round(tookMs)} ms, its deadline is ${DEADLINE_MS[entry.kind]} ms`);
  }
}

/** For so long this process's main thread has waited for a processor until now; 0 where the system does not say. */
export function starvedMs(): number {
  try {
    return Number(readFileSync('/proc/self/schedstat', 'utf8').split(' ')[1]) / 1e6;
  } catch {
    return 0;
  }
}

/** Longest of each kind of several. */
export function longest(of: readonly Readonly<Record<CallKind, number>>[]): Record<CallKind, number> {
  return Object.fromEntries(CALLS.map((kind) => [kind, Math.max(0, ...of.map((each) => each[kind]))])) as Record<
    CallKind,
    number
  >;
}
