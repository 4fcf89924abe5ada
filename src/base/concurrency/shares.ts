import { assert, assertEqual } from '../assert.js';
import { SPLIT_MESSAGE_MIN_KEYS } from '../limits.js';

/** One of many users of a shared amount, and the group that it belongs to. */
export interface Sharer {
  /** A process or a connection. */
  readonly one: string;
  /** A user, or an address. */
  readonly group: string;
}

/** Part of the amount that others have not taken, which one user, or one group, may have. */
const ONE_FRACTION = 1 / 2;
const GROUP_FRACTION = 3 / 4;

/**
 * Divides an amount so that nobody can take all of it. One user may have half of what nobody else has taken, a group
 * three quarters: a single user gets half of everything, and however many come, something is left for the next one. A
 * user that has nothing may have at least 1.
 *
 * Accounting: what is left plus what `#ones` have is the whole amount; `#groups` have the same total.
 */
export class Shares {
  readonly #amount: number;
  #left: number;
  readonly #ones = new Map<string, number>();
  readonly #groups = new Map<string, number>();

  constructor(amount: number) {
    this.#amount = amount;
    this.#left = amount;
  }

  /** The amount that nobody has. */
  get left(): number {
    return this.#left;
  }

  /** The amount that one user has. */
  of({ one }: Sharer): number {
    return this.#ones.get(one) ?? 0;
  }

  /** Whether this much more is free and within the sharer's share. */
  allows({ one, group }: Sharer, amount: number): boolean {
    if (amount > this.#left) return false;
    return (
      this.#isWithin(this.#ones.get(one), amount, ONE_FRACTION) &&
      this.#isWithin(this.#groups.get(group), amount, GROUP_FRACTION)
    );
  }

  /** Takes an amount that is free, whether {@link allows} permits it or not. */
  take({ one, group }: Sharer, amount: number): void {
    assert(amount <= this.#left, () => `shares: ${amount} taken of ${this.#left}`);
    this.#add(one, group, amount);
  }

  giveBack({ one, group }: Sharer, amount: number): void {
    this.#add(one, group, -amount);
  }

  #isWithin(has = 0, amount: number, fraction: number): boolean {
    return has + amount <= Math.max(1, Math.floor((this.#left + has) * fraction));
  }

  #add(one: string, group: string, amount: number): void {
    this.#left -= amount;
    addTo(this.#ones, one, amount);
    addTo(this.#groups, group, amount);
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    for (const parts of [this.#ones, this.#groups]) {
      const taken = [...parts.values()].reduce((sum, part) => sum + part, 0);
      assertEqual('shares: what is taken and left', this.#left + taken, this.#amount);
      for (const [name, part] of parts) assert(part > 0, () => `shares: ${name} has ${part}`);
    }
  }
}

function addTo(parts: Map<string, number>, name: string, amount: number): void {
  const now = (parts.get(name) ?? 0) + amount;
  if (now === 0) parts.delete(name);
  else parts.set(name, now);
}

/**
 * How many of `count` keys that are asked about at once go into the first message: half of them if they are many, at
 * most `maxCount`. Two messages keep both sides busy; with one, each side would wait while the other works.
 */
export function firstGroup(count: number, maxCount: number): number {
  return count < 2 * SPLIT_MESSAGE_MIN_KEYS ? maxCount : Math.min(maxCount, Math.ceil(count / 2));
}
