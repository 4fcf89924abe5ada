import { assertAtMost } from '../../base/assert.js';
import type { NodeRecord } from './node-records.js';

/** Ended starts that are remembered, one for each node; the earliest ones are forgotten. */
const ENDED_MAX_COUNT = 1024;

/**
 * Which of two starts of a node came first. Incarnations are wall-clock times, so that mostly the lower one did; but a
 * node whose clock was set back starts anew with a lower one, and what its former start said last may arrive after
 * that. Then the start that is a member counts, and not the one that is known to have ended.
 */
export class StartOrder {
  readonly #isLive: (record: NodeRecord) => boolean;
  /** Node id -> highest incarnation that was a member and is not any more. */
  readonly #ended = new Map<string, number>();

  constructor(isLive: (record: NodeRecord) => boolean) {
    this.#isLive = isLive;
  }

  /** Notes that this start of a node is not a member any more; Infinity: it is not known which. */
  ended(nodeId: string, incarnation: number): void {
    if (incarnation === Number.POSITIVE_INFINITY) return;
    const highest = Math.max(this.#ended.get(nodeId) ?? 0, incarnation);
    this.#ended.delete(nodeId);
    this.#ended.set(nodeId, highest);
    if (this.#ended.size <= ENDED_MAX_COUNT) return;
    const [earliest] = this.#ended.keys();
    this.#ended.delete(earliest as string);
  }

  /** Whether start `a` of a node was before start `b` of the same node. */
  isBefore(a: NodeRecord, b: NodeRecord): boolean {
    if (a.incarnation === b.incarnation) return false;
    const [lower, higher] = a.incarnation < b.incarnation ? [a, b] : [b, a];
    const isTurned = this.#isOver(higher) && this.#isLive(lower);
    return isTurned ? a === higher : a === lower;
  }

  /** Whether a start has ended. A higher incarnation that was never a member here may be a start that is new. */
  #isOver(record: NodeRecord): boolean {
    return record.incarnation <= (this.#ended.get(record.nodeId) ?? 0) && !this.#isLive(record);
  }

  verify(): void {
    assertAtMost('start order: ended starts', this.#ended.size, ENDED_MAX_COUNT);
  }
}
