import { assertAtMost } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import { FORMER_RINGS_MAX_COUNT } from '../../base/limits.js';
import type { OwnerRing } from './owners.js';

/** How long the nodes of a ring have been there. */
export interface Seniority {
  /** For each of the ring's nodes since when it is a member, by any clock that is the same for all. */
  readonly sinceMs: ArrayLike<number>;
  /** Nodes that are members since then, or for longer, have been told of all that they own. */
  readonly settledMs: number;
}

interface FormerRing {
  readonly ring: OwnerRing;
  readonly untilMs: number;
}

/** The ring that a client goes by and, for a while after each change, those by which others may know more. */
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

  /** `seniority` is asked when it is needed, and answers for this ring. */
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

  /** That of the current ring, for as long after it was set as a former one is kept. */
  get seniority(): Seniority | undefined {
    return this.#clock.nowMs() < this.#changedMs + this.#keptMs ? this.#seniority?.() : undefined;
  }

  /** All that may still be asked, the current one first. */
  all(): OwnerRing[] {
    return [this.#current, ...this.former];
  }

  /** Throws `InvariantError` unless the former rings are within their limit, in the order in which they are given up. */
  verify(): void {
    assertAtMost('known rings: former rings', this.#former.length, FORMER_RINGS_MAX_COUNT);
    for (const [i, { untilMs }] of this.#former.entries()) {
      assertAtMost('known rings: the end of a former ring and of the next', this.#former[i - 1]?.untilMs ?? 0, untilMs);
    }
  }
}
