import { assert, assertAtMost } from '../../base/assert.js';
import type { Environment } from '../../base/environment/environment.js';
import { ClosedError } from '../../base/errors.js';
import {
  DIRECTORY_REQUEST_MAX_KEYS,
  OWED_STATEMENTS_MAX_KEYS,
  STATEMENT_RETRY_MAX_MS,
  STATEMENT_RETRY_MIN_MS,
} from '../../base/limits.js';
import type { DirectoryClient } from '../../directory/client.js';
import type { DataLocation } from '../../types.js';

export interface OwedStatementsOptions {
  readonly directory: Pick<DirectoryClient, 'remind' | 'retract'>;
  /** Locations of the pages that this node has now; null for the others. */
  readonly locationsOf: (keys: readonly string[]) => (DataLocation | null)[];
  /** States everything to an owner that is owed more than can be remembered. */
  readonly restateAll: (ownerId: string) => Promise<void>;
  readonly env: Environment;
}

interface Debt {
  /** Whether copies are to be dropped with the key, if it is gone; the longest owed first. */
  readonly keys: Map<string, boolean>;
  /** More than can be remembered: everything is stated. */
  isEverything: boolean;
  failures: number;
  cancel: (() => void) | undefined;
}

/**
 * What directory owners have not taken: they are told again, what holds then, until they have or are no members any more. Of
 * each owner at most OWED_STATEMENTS_MAX_KEYS keys are remembered; beyond that it is told of everything.
 */
export class OwedStatements {
  readonly #options: OwedStatementsOptions;
  readonly #debts = new Map<string, Debt>();
  #stopped = false;

  constructor(options: OwedStatementsOptions) {
    this.#options = options;
    options.env.metrics.setGaugeProvider('meshcache_directory_owed_keys', () => this.#count());
  }

  owe(ownerId: string, keys: readonly string[], withCopies: boolean): void {
    if (this.#stopped) return;
    let debt = this.#debts.get(ownerId);
    if (debt === undefined) {
      debt = { keys: new Map(), isEverything: false, failures: 0, cancel: undefined };
      this.#debts.set(ownerId, debt);
      this.#payLater(ownerId, debt);
    }
    remember(
      debt,
      keys.map((key) => [key, withCopies]),
    );
  }

  /** Owners that have left need not be told any more. */
  membersChanged(isMember: (nodeId: string) => boolean): void {
    for (const [ownerId, debt] of this.#debts) {
      if (isMember(ownerId)) continue;
      debt.cancel?.();
      this.#debts.delete(ownerId);
    }
  }

  stop(): void {
    this.#stopped = true;
    for (const { cancel } of this.#debts.values()) cancel?.();
    this.#debts.clear();
  }

  #count(): number {
    let keys = 0;
    for (const debt of this.#debts.values()) keys += debt.isEverything ? OWED_STATEMENTS_MAX_KEYS : debt.keys.size;
    return keys;
  }

  #payLater(ownerId: string, debt: Debt): void {
    const { clock, random } = this.#options.env;
    const pauseMs = Math.min(STATEMENT_RETRY_MIN_MS * 2 ** debt.failures, STATEMENT_RETRY_MAX_MS);
    debt.cancel = clock.after(pauseMs * (0.75 + random.u32() / 2 ** 33), () => {
      debt.cancel = undefined;
      void this.#pay(ownerId, debt);
    });
  }

  async #pay(ownerId: string, debt: Debt): Promise<void> {
    let isPaid = false;
    try {
      isPaid = debt.isEverything ? await this.#payEverything(ownerId, debt) : await this.#payKeys(ownerId, debt);
    } catch (error) {
      // The store is being closed, and its disk tier is already.
      if (error instanceof ClosedError) return;
      this.#options.env.log.log('error', 'telling a directory owner again failed', {
        owner: ownerId,
        error: String(error),
      });
    }
    if (this.#stopped || this.#debts.get(ownerId) !== debt) return;
    debt.failures = isPaid ? 0 : debt.failures + 1;
    if (isPaid && debt.keys.size === 0 && !debt.isEverything) this.#debts.delete(ownerId);
    else this.#payLater(ownerId, debt);
  }

  async #payEverything(ownerId: string, debt: Debt): Promise<boolean> {
    debt.isEverything = false;
    try {
      await this.#options.restateAll(ownerId);
      return true;
    } catch {
      debt.isEverything = true;
      return false;
    }
  }

  /** One batch after the other, until one is not taken. */
  async #payKeys(ownerId: string, debt: Debt): Promise<boolean> {
    const { directory, locationsOf } = this.#options;
    while (debt.keys.size > 0 && !debt.isEverything && !this.#stopped) {
      const batch = [...debt.keys].slice(0, DIRECTORY_REQUEST_MAX_KEYS);
      // What is owed anew while this is under way is owed again.
      for (const [key] of batch) debt.keys.delete(key);
      const keys = batch.map(([key]) => key);
      const locations = locationsOf(keys);
      const gone = batch.filter((_, i) => locations[i] === null);
      const present = keys.filter((_, i) => locations[i] !== null);
      const [plain, withCopies] = [false, true].map((wanted) =>
        gone.filter(([, isWanted]) => isWanted === wanted).map(([key]) => key),
      ) as [string[], string[]];
      const taken = await Promise.all([
        directory.remind(ownerId, present, locationsOf),
        directory.retract(ownerId, plain, false),
        directory.retract(ownerId, withCopies, true),
      ]);
      if (!taken.includes(false)) continue;
      remember(debt, batch);
      return false;
    }
    return true;
  }

  /** Throws `InvariantError` unless of each owner no more is remembered than may be, and nothing once it is stopped. */
  verify(): void {
    for (const [ownerId, { keys, failures }] of this.#debts) {
      assertAtMost(`owed statements: keys of ${ownerId}`, keys.size, OWED_STATEMENTS_MAX_KEYS);
      assert(failures >= 0, () => `owed statements: ${failures} failures of ${ownerId}`);
    }
    assert(!this.#stopped || this.#debts.size === 0, () => `owed statements: ${this.#debts.size} owners after the end`);
  }
}

/** More than may be remembered is everything. */
function remember(debt: Debt, owed: readonly (readonly [key: string, withCopies: boolean])[]): void {
  if (debt.isEverything) return;
  for (const [key, withCopies] of owed) debt.keys.set(key, withCopies || debt.keys.get(key) === true);
  if (debt.keys.size <= OWED_STATEMENTS_MAX_KEYS) return;
  debt.isEverything = true;
  debt.keys.clear();
}
