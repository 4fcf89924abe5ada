import { assert } from '../assert.js';
import type { Clock } from '../environment/clock.js';
import { CLIENTS_TURN_MS } from '../limits.js';
import type { Sharer } from './shares.js';

/** Work that waits. */
interface Work {
  readonly run: () => void;
  /** Whether it goes on after `run`, as the rest of a longer piece of work does. */
  readonly isStep: boolean;
}

/**
 * Divides the time of the main loop between those that cause work there. In one turn of the loop their work is done at once, until it has taken
 * CLIENTS_TURN_MS; what comes then waits for the next turn. Of what waits, one piece of each group is done after the other, and within a group one of
 * each sharer, however much one has waiting: so everybody waits for one piece of work of each other one at most.
 *
 * A piece of work must be short by itself. Longer work is cut into steps, which ask {@link goOn} in between.
 *
 * Accounting: every group in `#waiting` has a sharer, and every sharer at least one piece of work.
 */
export class WorkTurns {
  readonly #clock: Clock;
  /** What waits, by group and sharer; whoever is next is first. */
  readonly #waiting = new Map<string, Map<string, Work[]>>();
  /** When the first work of this turn of the loop began; undefined: there was none yet. */
  #sinceMs: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Does a piece of work now, or later if others are to be served first. */
  run(sharer: Sharer, work: () => void): void {
    if (this.#hasTime()) work();
    else this.#wait(sharer, { run: work, isStep: false });
  }

  /** Whether longer work may go on at once: undefined, or a promise that resolves when it may. */
  goOn(sharer: Sharer): Promise<void> | undefined {
    if (this.#hasTime()) return undefined;
    return new Promise((resolve) => this.#wait(sharer, { run: resolve, isStep: true }));
  }

  #hasTime(): boolean {
    const nowMs = this.#clock.nowMs();
    if (this.#sinceMs === undefined) {
      this.#sinceMs = nowMs;
      this.#awaitTurn();
    }
    return this.#waiting.size === 0 && nowMs - this.#sinceMs < CLIENTS_TURN_MS;
  }

  #wait({ one, group }: Sharer, work: Work): void {
    let ones = this.#waiting.get(group);
    if (ones === undefined) {
      ones = new Map();
      this.#waiting.set(group, ones);
    }
    const own = ones.get(one);
    if (own === undefined) ones.set(one, [work]);
    else own.push(work);
  }

  #awaitTurn(): void {
    void this.#clock.yield().then(() => this.#turn());
  }

  /** Does what waits, as far as there is time. A step is the last of its turn: it goes on when this returns. */
  #turn(): void {
    this.#sinceMs = undefined;
    if (this.#waiting.size === 0) return;
    const startMs = this.#clock.nowMs();
    this.#sinceMs = startMs;
    this.#awaitTurn();
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      next.run();
      if (next.isStep || this.#clock.nowMs() - startMs >= CLIENTS_TURN_MS) return;
    }
  }

  /** Takes the next piece of work; its sharer and its group are the last from then on. */
  #next(): Work | undefined {
    for (const [group, ones] of this.#waiting) {
      const work = nextOf(ones);
      this.#waiting.delete(group);
      if (ones.size > 0) this.#waiting.set(group, ones);
      return work;
    }
    return undefined;
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    for (const [group, ones] of this.#waiting) {
      const isAny = ones.size > 0 && [...ones.values()].every((own) => own.length > 0);
      assert(isAny, () => `work turns: ${group} waits without work`);
    }
  }
}

function nextOf(ones: Map<string, Work[]>): Work | undefined {
  for (const [one, own] of ones) {
    const work = own.shift();
    ones.delete(one);
    if (own.length > 0) ones.set(one, own);
    return work;
  }
  return undefined;
}
