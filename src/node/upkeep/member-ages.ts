import type { Clock } from '../../base/environment/clock.js';
import type { NodeInfo } from '../../types.js';

/** How long a start of a node has been a member. */
interface Age {
  readonly incarnation: number;
  readonly sinceMs: number;
}

/**
 * Estimates since when each node has been a member, by this node's clock. A node that appears counts as new. While this node is new itself, it
 * cannot know that: a node with an earlier incarnation then counts as older by the difference of the two incarnations. If the dates of the
 * machines differ, only these estimates are wrong.
 */
export class MemberAges {
  readonly #clock: Clock;
  readonly #settleMs: number;
  readonly #known = new Map<string, Age>();
  #ownIncarnation: number;
  #ownSinceMs: number;

  /** `settleMs`: how long this node counts as new. */
  constructor({ nodeId, incarnation }: Pick<NodeInfo, 'nodeId' | 'incarnation'>, settleMs: number, clock: Clock) {
    this.#clock = clock;
    this.#settleMs = settleMs;
    this.#ownIncarnation = incarnation;
    this.#ownSinceMs = clock.nowMs();
    this.#known.set(nodeId, { incarnation, sinceMs: this.#ownSinceMs });
  }

  /** Called when this node goes on as a later start of itself, which is new again. */
  restartAs(incarnation: number): void {
    this.#ownIncarnation = incarnation;
    this.#ownSinceMs = this.#clock.nowMs();
    this.#known.clear();
  }

  /** Replaces the members; only those in `changed` may differ from before. */
  changed(members: ReadonlyMap<string, NodeInfo>, changed: Iterable<string>): void {
    for (const nodeId of changed) {
      const incarnation = members.get(nodeId)?.incarnation;
      if (incarnation === undefined) this.#known.delete(nodeId);
      else if (this.#known.get(nodeId)?.incarnation !== incarnation) {
        this.#known.set(nodeId, { incarnation, sinceMs: this.#sinceMsOf(incarnation) });
      }
    }
    // After `restartAs` no member is known: all of them are looked at.
    if (this.#known.size !== members.size) this.changed(members, members.keys());
  }

  /** Since when the node has been a member, in milliseconds of this node's clock; now, if it is not a member. */
  sinceMs(nodeId: string): number {
    return this.#known.get(nodeId)?.sinceMs ?? this.#clock.nowMs();
  }

  #sinceMsOf(incarnation: number): number {
    const nowMs = this.#clock.nowMs();
    const isNew = nowMs - this.#ownSinceMs < this.#settleMs;
    const aheadMs = this.#ownIncarnation - incarnation;
    return isNew && aheadMs >= 0 ? this.#ownSinceMs - aheadMs : nowMs;
  }
}
