import { assertAtMost } from '../../base/assert.js';
import { digestOf } from './removals.js';

/** Number of starts that are remembered, twice the most members of a cluster. The earliest are forgotten. */
const STARTS_MAX_COUNT = 8192;

/**
 * A number for a start of a node, by which a later start of the node refers to it. 0 stands for a start that is not
 * known.
 */
export function digestOfStart(nodeId: string, incarnation: number): number {
  return digestOf(`${incarnation}\n${nodeId}`);
}

/** A start of a node that has been a member, by the clock of this node. */
export interface KnownStart {
  readonly joinedMs: number;
  /** When it ceased to be a member, even if it has come back since; Infinity: it never did. */
  readonly lostMs: number;
}

/** Which starts of nodes have been members, and when they ceased to be. Starts are named by {@link digestOfStart}. */
export class NodeStarts {
  readonly #starts = new Map<number, KnownStart>();

  joined(nodeId: string, incarnation: number, nowMs: number): void {
    const start = digestOfStart(nodeId, incarnation);
    if (!this.#starts.has(start)) this.#note(start, { joinedMs: nowMs, lostMs: Number.POSITIVE_INFINITY });
  }

  lost(nodeId: string, incarnation: number, nowMs: number): void {
    const start = digestOfStart(nodeId, incarnation);
    const { joinedMs, lostMs } = this.#starts.get(start) ?? { joinedMs: nowMs, lostMs: nowMs };
    // A start that has come back has missed what happened since it was first lost.
    this.#note(start, { joinedMs, lostMs: Math.min(lostMs, nowMs) });
  }

  /** Notes that a start that has come back has stated all its pages again. */
  restated(nodeId: string, incarnation: number): void {
    const start = digestOfStart(nodeId, incarnation);
    const known = this.#starts.get(start);
    if (known !== undefined) this.#starts.set(start, { ...known, lostMs: Number.POSITIVE_INFINITY });
  }

  get(start: number): KnownStart | undefined {
    return this.#starts.get(start);
  }

  #note(start: number, known: KnownStart): void {
    this.#starts.delete(start);
    this.#starts.set(start, known);
    if (this.#starts.size <= STARTS_MAX_COUNT) return;
    const [earliest] = this.#starts.keys();
    this.#starts.delete(earliest as number);
  }

  verify(): void {
    assertAtMost('node starts', this.#starts.size, STARTS_MAX_COUNT);
  }
}
