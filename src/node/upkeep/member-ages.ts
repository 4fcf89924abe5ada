import type { Clock } from '../../base/environment/clock.js';
import type { NodeInfo } from '../../types.js';

interface Age {
  readonly incarnation: number;
  readonly sinceMs: number;
}

/**
 * Since when members have been there, by the own node's clock. Who appears is new, unless the own node is new itself: then who started
 * before it, by their incarnations, was there already, for as long as these differ. Nobody is asked for the date; where dates differ
 * between machines, only these last ages are wrong.
 */
export class MemberAges {
  readonly #clock: Clock;
  readonly #settleMs: number;
  readonly #known = new Map<string, Age>();
  #ownIncarnation: number;
  #ownSinceMs: number;

  /** `settleMs`: for how long the own node is new. */
  constructor({ nodeId, incarnation }: Pick<NodeInfo, 'nodeId' | 'incarnation'>, settleMs: number, clock: Clock) {
    this.#clock = clock;
    this.#settleMs = settleMs;
    this.#ownIncarnation = incarnation;
    this.#ownSinceMs = clock.nowMs();
    this.#known.set(nodeId, { incarnation, sinceMs: this.#ownSinceMs });
  }

  /** The own node goes on as another start of itself, which is new. */
  restartAs(incarnation: number): void {
    this.#ownIncarnation = incarnation;
    this.#ownSinceMs = this.#clock.nowMs();
    this.#known.clear();
  }

  /** These are the members from now on; others than `changed` are as before. */
  changed(members: ReadonlyMap<string, NodeInfo>, changed: Iterable<string>): void {
    for (const nodeId of changed) {
      const incarnation = members.get(nodeId)?.incarnation;
      if (incarnation === undefined) this.#known.delete(nodeId);
      else if (this.#known.get(nodeId)?.incarnation !== incarnation) {
        this.#known.set(nodeId, { incarnation, sinceMs: this.#sinceMsOf(incarnation) });
      }
    }
    // Since the own node goes on as another start, nobody is known.
    if (this.#known.size !== members.size) this.changed(members, members.keys());
  }

  /** Milliseconds of the own clock; of no member: now. */
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
