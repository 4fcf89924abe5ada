import { assertAtMost } from '../../base/assert.js';
import { digestOf } from './removals.js';

/** Starts of nodes that are remembered, twice as many as a cluster has members; the earliest ones are forgotten. */
const STARTS_MAX_COUNT = 8192;

/** A number for a start of a node, by which a later start of the node refers to it. 0 stands for a start that is not known. */
export function digestOfStart(nodeId: string, incarnation: number): number {
  return digestOf(`${incarnation}\n${nodeId}`);
}

/** Which starts of nodes have been members, and when they ceased to be, by the clock of this node. Starts are named by {@link digestOfStart}. */
export class NodeStarts {
  /** Start -> when it was lost; Infinity: it is a member. */
  readonly #lostMs = new Map<number, number>();

  joined(nodeId: string, incarnation: number): void {
    const start = digestOfStart(nodeId, incarnation);
    if (!this.#lostMs.has(start)) this.#note(start, Number.POSITIVE_INFINITY);
  }

  lost(nodeId: string, incarnation: number, nowMs: number): void {
    const start = digestOfStart(nodeId, incarnation);
    // A start that has come back has missed what happened since it was lost first.
    this.#note(start, Math.min(this.#lostMs.get(start) ?? nowMs, nowMs));
  }

  /** Notes that a start that has come back has stated all its pages again. */
  restated(nodeId: string, incarnation: number): void {
    const start = digestOfStart(nodeId, incarnation);
    if (this.#lostMs.has(start)) this.#lostMs.set(start, Number.POSITIVE_INFINITY);
  }

  /** When the start was lost, also if it has come back since; Infinity: it never was; undefined: nothing is known of it. */
  lostMs(start: number): number | undefined {
    return this.#lostMs.get(start);
  }

  #note(start: number, lostMs: number): void {
    this.#lostMs.delete(start);
    this.#lostMs.set(start, lostMs);
    if (this.#lostMs.size <= STARTS_MAX_COUNT) return;
    const [earliest] = this.#lostMs.keys();
    this.#lostMs.delete(earliest as number);
  }

  verify(): void {
    assertAtMost('node starts', this.#lostMs.size, STARTS_MAX_COUNT);
  }
}
