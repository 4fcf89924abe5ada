import { PeerQueue, type Waiting } from '../../base/concurrency/peer-queue.js';
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
  readonly directory: Pick<DirectoryClient, 'announce' | 'retract'>;
  /** The location of each page that this node has now; null for pages that it does not have. */
  readonly locationsOf: (keys: readonly string[]) => (DataLocation | null)[];
  /** The present owners of keys: owner -> indices of its keys. */
  readonly ownersOf: (keys: readonly string[]) => ReadonlyMap<string, readonly number[]>;
  readonly isMember: (nodeId: string) => boolean;
  /** States all pages to an owner that is owed more keys than can be remembered; resolves with whether it has answered. */
  readonly restateAll: (ownerId: string) => Promise<boolean>;
  readonly env: Environment;
}

/** A statement that is owed; `withCopies`: copies of the page that was there are to be dropped, too. */
interface Owed {
  readonly withCopies: boolean;
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
  readonly #owed: PeerQueue<Owed>;

  constructor(options: OwedStatementsOptions) {
    this.#options = options;
    this.#owed = new PeerQueue({
      name: 'owed statements',
      env: options.env,
      backoff: { minMs: STATEMENT_RETRY_MIN_MS, maxMs: STATEMENT_RETRY_MAX_MS },
      maxCount: OWED_STATEMENTS_MAX_KEYS,
      isMember: options.isMember,
      join: (before, owed) => ({ withCopies: before.withCopies || owed.withCopies }),
      tell: (ownerId, waiting) => this.#tell(ownerId, waiting),
      tellAll: (ownerId) => options.restateAll(ownerId),
      onGone: (waiting) => this.#handOver(waiting),
    });
    options.env.metrics.setGaugeProvider('meshcache_directory_owed_keys', () => this.#owed.count);
  }

  owe(ownerId: string, keys: readonly string[], withCopies: boolean): void {
    this.#owed.add(
      ownerId,
      keys.map((key) => [key, { withCopies }]),
      STATEMENT_RETRY_MIN_MS,
    );
  }

  /** Forgets what is owed to owners that have left, but hands over which copies are to be dropped. */
  membersChanged(): void {
    this.#owed.membersChanged();
  }

  stop(): void {
    this.#owed.stop();
  }

  #handOver(waiting: readonly Waiting<Owed>[]): void {
    const keys = waiting.flatMap(([key, { withCopies }]) => (withCopies ? [key] : []));
    if (keys.length === 0) return;
    const { ownersOf, isMember } = this.#options;
    for (const [ownerId, indices] of ownersOf(keys)) {
      if (!isMember(ownerId)) continue;
      this.#owed.add(
        ownerId,
        indices.map((i) => [keys[i] as string, { withCopies: true }]),
      );
    }
  }

  async #tell(ownerId: string, waiting: readonly Waiting<Owed>[]): Promise<readonly Waiting<Owed>[]> {
    try {
      return await this.#state(ownerId, waiting);
    } catch (error) {
      // The store is being closed, and its disk tier is closed already.
      if (error instanceof ClosedError) return [];
      const { log } = this.#options.env;
      log.log('error', 'repeating statements to a directory owner failed', { owner: ownerId, error: String(error) });
      return [];
    }
  }

  /** States the keys batch by batch, until a batch is not taken. Resolves with those that were taken. */
  async #state(ownerId: string, waiting: readonly Waiting<Owed>[]): Promise<readonly Waiting<Owed>[]> {
    const { directory, locationsOf } = this.#options;
    for (let taken = 0; taken < waiting.length; taken += DIRECTORY_REQUEST_MAX_KEYS) {
      const batch = waiting.slice(taken, taken + DIRECTORY_REQUEST_MAX_KEYS);
      const keys = batch.map(([key]) => key);
      const locations = locationsOf(keys);
      const present = keys.filter((_, i) => locations[i] !== null);
      const plain = keys.filter((_, i) => locations[i] === null && batch[i]?.[1].withCopies === false);
      const withCopies = batch.flatMap(([key, owed]) => (owed.withCopies ? [key] : []));
      const retracted = await Promise.all([
        directory.retract(ownerId, plain, false),
        directory.retract(ownerId, withCopies, true),
      ]);
      // A page that was set since is stated after that: the copies of what was cleared are none of it.
      if (retracted.includes(false) || !(await directory.announce(ownerId, present, locationsOf))) {
        return waiting.slice(0, taken);
      }
    }
    return waiting;
  }

  /** Throws `InvariantError` unless the keys of each owner are within their limit, and none are left after {@link stop}. */
  verify(): void {
    this.#owed.verify();
  }
}
