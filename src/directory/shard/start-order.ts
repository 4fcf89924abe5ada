import { assertAtMost } from '../../base/assert.js';
import type { NodeRecord } from './node-records.js';

/** Number of ended starts that are remembered, one per node. Beyond it, the earliest ones are forgotten. */
const ENDED_MAX_COUNT = 1024;

/**
 * Tells which of two starts of a node came first. Incarnations are wall-clock times, so this is usually the lower one.
 * But a node whose clock was set back restarts with a lower incarnation, and statements of its former start may still
 * arrive afterwards. In that case the start that is a member counts as the later one, rather than the one that is known
 * to have ended.
 */
export class StartOrder {
  readonly #isLive: (record: NodeRecord) => boolean;
  /** Node id -> highest incarnation that was a member and no longer is. */
  readonly #ended = new Map<string, number>();

  constructor(isLive: (record: NodeRecord) => boolean) {
    this.#isLive = isLive;
  }

  /** Notes that this start of a node is no longer a member. Infinity, which stands for an unknown start, is ignored. */
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

  /** Whether a start has ended. A higher incarnation that was never a member here may be a new start. */
  #isOver(record: NodeRecord): boolean {
    return record.incarnation <= (this.#ended.get(record.nodeId) ?? 0) && !this.#isLive(record);
  }

  verify(): void {
    assertAtMost('start order: ended starts', this.#ended.size, ENDED_MAX_COUNT);
  }
}
