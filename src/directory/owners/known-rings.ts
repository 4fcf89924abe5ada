import { assertAtMost } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import { FORMER_RINGS_MAX_COUNT } from '../../base/limits.js';
import type { OwnerRing } from './owners.js';

/** How long the nodes of a ring have been members. */
export interface Seniority {
  /**
   * Time at which each of the ring's nodes became a member, in milliseconds of any clock that is the same for all
   * nodes.
   */
  readonly sinceMs: ArrayLike<number>;
  /** Nodes that have been members since this time, or longer, have been told of everything that they own. */
  readonly settledMs: number;
}

interface FormerRing {
  readonly ring: OwnerRing;
  readonly untilMs: number;
}

/** The ring that a client uses and, for a while after each change, former rings whose owners may know more. */
export class KnownRings {
  readonly #clock: Clock;
  readonly #keptMs: number;
  #current: OwnerRing;
  #former: FormerRing[] = [];
  #seniority: (() => Seniority) | undefined;
  #changedMs = Number.NEGATIVE_INFINITY;

  /** `keptMs`: how long former rings are kept. */
  constructor(ring: OwnerRing, keptMs: number, clock: Clock) {
    this.#current = ring;
    this.#keptMs = keptMs;
    this.#clock = clock;
  }

  get current(): OwnerRing {
    return this.#current;
  }

  /** Sets the current ring. `seniority` is called when it is needed, and must answer for this ring. */
  set(ring: OwnerRing, seniority?: () => Seniority): void {
    const nowMs = this.#clock.nowMs();
    if (ring !== this.#current && this.#keptMs > 0) {
      this.#former.push({ ring: this.#current, untilMs: nowMs + this.#keptMs });
      if (this.#former.length > FORMER_RINGS_MAX_COUNT) this.#former.shift();
    }
    this.#current = ring;
    this.#seniority = seniority;
    this.#changedMs = nowMs;
  }

  /** The former rings, the oldest first. */
  get former(): OwnerRing[] {
    const nowMs = this.#clock.nowMs();
    this.#former = this.#former.filter(({ untilMs }) => untilMs > nowMs);
    return this.#former.map(({ ring }) => ring);
  }

  /** Seniority of the current ring's nodes, available after a change for as long as a former ring is kept. */
  get seniority(): Seniority | undefined {
    return this.#clock.nowMs() < this.#changedMs + this.#keptMs ? this.#seniority?.() : undefined;
  }

  /** All rings that may still be used, the current one first. */
  all(): OwnerRing[] {
    return [this.#current, ...this.former];
  }

  /**
   * Throws `InvariantError` unless the number of former rings is within its limit and they are ordered by when they
   * expire.
   */
  verify(): void {
    assertAtMost('known rings: former rings', this.#former.length, FORMER_RINGS_MAX_COUNT);
    for (const [i, { untilMs }] of this.#former.entries()) {
      assertAtMost('known rings: the end of a former ring and of the next', this.#former[i - 1]?.untilMs ?? 0, untilMs);
    }
  }
}
