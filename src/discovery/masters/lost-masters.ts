import { assertAtMost } from '../../base/assert.js';
import { DISCOVERY_FORMER_MASTERS_KEPT_MS, DISCOVERY_FORMER_MASTERS_MAX_COUNT } from '../../base/limits.js';

/**
 * Masters that one node has lost, by `host:port`. Time is passed in (monotonic milliseconds).
 *
 * Dead masters: no master has answered for the time-to-live, so that none tells which nodes are gone; they lose their
 * seats. Former masters: their hosts vanished without leaving, perhaps behind a partition. They are still tried, so
 * that the two sides of a partition find each other again even if no listed address lives.
 */
export class LostMasters {
  readonly #dead = new Set<string>();
  /** Time at which each former master was lost, the earliest first. */
  readonly #former = new Map<string, number>();

  get dead(): ReadonlySet<string> {
    return this.#dead;
  }

  markDead(name: string, nowMs: number): void {
    this.#dead.add(name);
    this.markFormer(name, nowMs);
  }

  /** Forgets a master that answers, or whose host is known to live. */
  forget(name: string): void {
    this.#dead.delete(name);
    this.#former.delete(name);
  }

  /** Forgets dead masters, because the list of members tells again which nodes are gone. */
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

  /** Whether a master is a former one that is still tried. */
  isFormer(name: string, nowMs: number): boolean {
    const sinceMs = this.#former.get(name);
    if (sinceMs === undefined) return false;
    if (nowMs - sinceMs < DISCOVERY_FORMER_MASTERS_KEPT_MS) return true;
    this.#former.delete(name);
    return false;
  }

  /** Throws `InvariantError` unless the former masters are within their limit. */
  verify(): void {
    assertAtMost('lost masters: former ones', this.#former.size, DISCOVERY_FORMER_MASTERS_MAX_COUNT);
  }
}
