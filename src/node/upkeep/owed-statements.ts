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
  readonly isMember: (nodeId: string) => boolean;
  /** States all pages to an owner that is owed more keys than can be remembered; resolves with whether it has answered. */
  readonly restateAll: (ownerId: string) => Promise<boolean>;
  readonly env: Environment;
}

/** What is owed under a key is what holds when it is told: the item says nothing but that it is another one. */
type Owed = Record<never, never>;

/**
 * Repeats statements that directory owners have not taken, as they hold at the time, until the owners take them or leave. At most
 * OWED_STATEMENTS_MAX_KEYS keys are remembered for an owner; beyond that, all pages are stated to it.
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
      tell: (ownerId, waiting) => this.#tell(ownerId, waiting),
      tellAll: (ownerId) => options.restateAll(ownerId),
    });
    options.env.metrics.setGaugeProvider('meshcache_directory_owed_keys', () => this.#owed.count);
  }

  owe(ownerId: string, keys: readonly string[]): void {
    this.#owed.add(
      ownerId,
      keys.map((key) => [key, {}]),
      STATEMENT_RETRY_MIN_MS,
    );
  }

  /** Forgets what is owed to owners that have left. */
  membersChanged(): void {
    this.#owed.membersChanged();
  }

  stop(): void {
    this.#owed.stop();
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
      const gone = keys.filter((_, i) => locations[i] === null);
      const isRetracted = await directory.retract(ownerId, gone);
      if (!isRetracted || !(await directory.announce(ownerId, present, locationsOf))) return waiting.slice(0, taken);
    }
    return waiting;
  }

  /** Throws `InvariantError` unless the keys of each owner are within their limit, and none are left after {@link stop}. */
  verify(): void {
    this.#owed.verify();
  }
}
