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
  /** The location of each page that this node has now; null for pages that it does not have. */
  readonly locationsOf: (keys: readonly string[]) => (DataLocation | null)[];
  /** The present owners of keys: owner -> indices of its keys. */
  readonly ownersOf: (keys: readonly string[]) => ReadonlyMap<string, readonly number[]>;
  /** States all pages to an owner that is owed more keys than can be remembered. */
  readonly restateAll: (ownerId: string) => Promise<void>;
  readonly env: Environment;
}

/** A key whose statement is owed, and whether copies of the page that was there are to be dropped too. */
type Owed = readonly [key: string, withCopies: boolean];

/** The statements that one owner has not taken. */
interface Debt {
  /** See `Owed`; the longest owed first. */
  readonly keys: Map<string, boolean>;
  /** Whether too many keys are owed to remember them: then all pages are stated. */
  isEverything: boolean;
  failures: number;
  cancel: (() => void) | undefined;
}

/**
 * Repeats statements that directory owners have not taken, as they hold at the time, until the owners take them or leave. At most
 * OWED_STATEMENTS_MAX_KEYS keys are remembered for an owner; beyond that, all pages are stated to it.
 *
 * When an owner leaves, the keys whose copies are to be dropped are owed to those who own them then: the owner may be cut off together with a
 * copy, and the copy's holder states it to these when it is back.
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
    const owed = keys.map((key) => [key, withCopies] as const);
    this.#add(ownerId, owed, STATEMENT_RETRY_MIN_MS);
  }

  /** Forgets what is owed to owners that have left, but hands over which copies are to be dropped. */
  membersChanged(isMember: (nodeId: string) => boolean): void {
    for (const [ownerId, debt] of [...this.#debts]) {
      if (isMember(ownerId)) continue;
      debt.cancel?.();
      this.#debts.delete(ownerId);
      this.#handOver(debt);
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

  #add(ownerId: string, owed: readonly Owed[], pauseMs: number): void {
    if (this.#stopped) return;
    let debt = this.#debts.get(ownerId);
    if (debt === undefined) {
      debt = { keys: new Map(), isEverything: false, failures: 0, cancel: undefined };
      this.#debts.set(ownerId, debt);
      this.#payLater(ownerId, debt, pauseMs);
    }
    remember(debt, owed);
  }

  #handOver({ keys: owed }: Debt): void {
    const keys = [...owed].flatMap(([key, withCopies]) => (withCopies ? [key] : []));
    owed.clear();
    if (keys.length === 0) return;
    for (const [ownerId, indices] of this.#options.ownersOf(keys)) {
      const some = indices.map((i) => [keys[i] as string, true] as const);
      this.#add(ownerId, some, 0);
    }
  }

  #payLater(ownerId: string, debt: Debt, pauseMs: number): void {
    const { clock, random } = this.#options.env;
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
      // The store is being closed, and its disk tier is closed already.
      if (error instanceof ClosedError) return;
      this.#options.env.log.log('error', 'repeating statements to a directory owner failed', {
        owner: ownerId,
        error: String(error),
      });
    }
    if (this.#stopped) return;
    // The owner has left meanwhile.
    if (this.#debts.get(ownerId) !== debt) return this.#handOver(debt);
    debt.failures = isPaid ? 0 : debt.failures + 1;
    if (isPaid && debt.keys.size === 0 && !debt.isEverything) this.#debts.delete(ownerId);
    else this.#payLater(ownerId, debt, Math.min(STATEMENT_RETRY_MIN_MS * 2 ** debt.failures, STATEMENT_RETRY_MAX_MS));
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

  /** States the owed keys batch by batch, until a batch is not taken. */
  async #payKeys(ownerId: string, debt: Debt): Promise<boolean> {
    const { directory, locationsOf } = this.#options;
    while (debt.keys.size > 0 && !debt.isEverything && !this.#stopped) {
      const batch = [...debt.keys].slice(0, DIRECTORY_REQUEST_MAX_KEYS);
      // Removed before the request: a key that is owed again meanwhile stays in the list.
      for (const [key] of batch) debt.keys.delete(key);
      const keys = batch.map(([key]) => key);
      const locations = locationsOf(keys);
      const present = keys.filter((_, i) => locations[i] !== null);
      const plain = keys.filter((_, i) => locations[i] === null && batch[i]?.[1] === false);
      const withCopies = batch.filter(([, isWanted]) => isWanted).map(([key]) => key);
      const retracted = await Promise.all([
        directory.retract(ownerId, plain, false),
        directory.retract(ownerId, withCopies, true),
      ]);
      // A page that was set since is stated after that: the copies of what was cleared are none of it.
      if (!retracted.includes(false) && (await directory.remind(ownerId, present, locationsOf))) continue;
      remember(debt, batch);
      return false;
    }
    return true;
  }

  /** Throws `InvariantError` unless the keys of each owner are within their limit, and none are left after {@link stop}. */
  verify(): void {
    for (const [ownerId, { keys, failures }] of this.#debts) {
      assertAtMost(`owed statements: keys of ${ownerId}`, keys.size, OWED_STATEMENTS_MAX_KEYS);
      assert(failures >= 0, () => `owed statements: ${failures} failures of ${ownerId}`);
    }
    assert(!this.#stopped || this.#debts.size === 0, () => `owed statements: ${this.#debts.size} owners after the end`);
  }
}

/** Adds keys to a debt; when they get too many, everything is owed. */
function remember(debt: Debt, owed: readonly Owed[]): void {
  if (debt.isEverything) return;
  for (const [key, withCopies] of owed) debt.keys.set(key, withCopies || debt.keys.get(key) === true);
  if (debt.keys.size <= OWED_STATEMENTS_MAX_KEYS) return;
  debt.isEverything = true;
  debt.keys.clear();
}
