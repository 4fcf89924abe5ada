import { assertAtMost } from '../../base/assert.js';
import { DISCOVERY_FORMER_MASTERS_KEPT_MS, DISCOVERY_FORMER_MASTERS_MAX_COUNT } from '../../base/limits.js';

/**
 * Masters that one node has lost, by `host:port`. Time is passed in (monotonic milliseconds).
 *
 * Dead: no master at all has answered for the time-to-live, so that nobody says any more who has gone; these have lost their
 * seats all the same. Former: their hosts have gone without a good-bye, perhaps behind a partition; each is still tried, so
 * that the two sides find each other again although no listed address lives.
 */
export class LostMasters {
  readonly #dead = new Set<string>();
  /** When each was lost, the earliest first. */
  readonly #former = new Map<string, number>();

  get dead(): ReadonlySet<string> {
    return this.#dead;
  }

  markDead(name: string, nowMs: number): void {
    this.#dead.add(name);
    this.markFormer(name, nowMs);
  }

  /** This one answers, or its host is known to live. */
  forget(name: string): void {
    this.#dead.delete(name);
    this.#former.delete(name);
  }

  /** From now on the list of members says who is dead. */
  forgetDead(): void {
    this.#dead.clear();
  }

  markFormer(name: string, nowMs: number): void {
    if (this.#former.has(name)) return;
    this.#former.set(name, nowMs);
    if (this.#former.size > DISCOVERY_FORMER_MASTERS_MAX_COUNT) {
      this.#former.delete(this.#former.keys().next().value as string);
    }
  }

  /** Whether it is still to be tried. */
  isFormer(name: string, nowMs: number): boolean {
    const sinceMs = this.#former.get(name);
    if (sinceMs === undefined) return false;
    if (nowMs - sinceMs < DISCOVERY_FORMER_MASTERS_KEPT_MS) return true;
    this.#former.delete(name);
    return false;
  }

  /** Throws `InvariantError` unless the former ones are within their limit. */
  verify(): void {
    assertAtMost('lost masters: former ones', this.#former.size, DISCOVERY_FORMER_MASTERS_MAX_COUNT);
  }
}
