import type { Environment } from '../../base/environment/environment.js';
import { MeshCacheError } from '../../base/errors.js';
import {
  ANTI_ENTROPY_BATCH_MAX_KEYS,
  ANTI_ENTROPY_MAX_KEYS_PER_S,
  ANTI_ENTROPY_ROUND_MS,
  ANTI_ENTROPY_SLICE_KEYS,
} from '../../base/limits.js';
import type { DirectoryClient } from '../../directory/client.js';
import { keysByOwner, type OwnerRing } from '../../directory/owners/owners.js';
import type { Publications } from './announcer.js';

export interface AntiEntropyOptions {
  readonly directory: DirectoryClient;
  readonly publications: Publications;
  readonly replicas: number;
  readonly env: Environment;
  /** Duration of a round when the node has few pages; default ANTI_ENTROPY_ROUND_MS. */
  readonly roundMs?: number;
}

/** Pause after a round that a change of owners has ended, as a fraction of a round's duration. */
const AFTER_CHANGE_FRACTION = 1 / 16;

/** One directory owner, and the keys of this node's pages that it owns. */
interface Share {
  readonly ownerId: string;
  readonly keys: readonly string[];
}

/**
 * Repairs at a low rate what announcements have missed: in each round this node states all its pages to their owners again, owner by owner,
 * spread evenly over the round and never faster than a limit. An owner that has taken all of them is then told that older statements of this
 * node are void. It so forgets pages that are gone even if their delete never arrived.
 *
 * A change of owners, or an absence of this node, ends the round early: the announcer informs the owners, and the next round has them.
 */
export class AntiEntropy {
  readonly #options: AntiEntropyOptions;
  readonly #roundMs: number;
  #cancelPause: () => void = () => {};
  #stopped = false;

  constructor(options: AntiEntropyOptions) {
    this.#options = options;
    this.#roundMs = options.roundMs ?? ANTI_ENTROPY_ROUND_MS;
  }

  start(): void {
    void this.#run();
  }

  /** Ends all work: from now on no ring or page is asked, and nothing is sent. */
  stop(): void {
    this.#stopped = true;
    this.#cancelPause();
  }

  async #run(): Promise<void> {
    const { env } = this.#options;
    // The first pause is random, so that nodes which started together do not have their rounds together.
    await this.#pause(this.#roundMs * (0.5 + env.random.u32() / 2 ** 32));
    while (!this.#stopped) {
      try {
        if (!(await this.#round())) await this.#pause(this.#roundMs * AFTER_CHANGE_FRACTION);
      } catch (error) {
        env.log.log('error', 're-announcing pages failed', { error: String(error) });
        await this.#pause(this.#roundMs);
      }
    }
  }

  /** States all its pages to this owner at once, and that older statements are void. Rejects when the owner does not answer. */
  async restateTo(ownerId: string): Promise<void> {
    const { directory, publications } = this.#options;
    const { generation } = directory;
    const [ring] = directory.rings();
    const share = (await this.#shares(ring)).find((each) => each.ownerId === ownerId);
    // The owner owns no keys any more.
    if (share === undefined) return;
    const isTold = await directory.remind(ownerId, share.keys, (some) => publications.locationsOf(some));
    if (!isTold) throw new MeshCacheError('ERR_UNREACHABLE', `${ownerId} does not answer`);
    await directory.renounce(ownerId, generation);
  }

  /** Runs one round. False: the owners have changed meanwhile, or this node was away, or there was nothing to state. */
  async #round(): Promise<boolean> {
    const { directory, publications, env } = this.#options;
    const { generation, former } = directory;
    const [ring] = directory.rings();
    const shares = await this.#shares(ring);
    // After an absence, owners may have dropped what this round has stated.
    const isOver = (): boolean => this.#stopped || directory.rings()[0] !== ring || directory.former !== former;
    const total = shares.reduce((sum, { keys }) => sum + keys.length, 0);
    const turns = total + shares.length;
    const msPerTurn = Math.max(this.#roundMs / turns, 1000 / ANTI_ENTROPY_MAX_KEYS_PER_S);
    for (const { ownerId, keys } of shares) {
      let isComplete = true;
      for (let start = 0; start < keys.length; start += ANTI_ENTROPY_BATCH_MAX_KEYS) {
        const batch = keys.slice(start, start + ANTI_ENTROPY_BATCH_MAX_KEYS);
        await this.#pause(batch.length * msPerTurn);
        if (isOver()) return false;
        const isTaken = await directory.announce(ownerId, batch, (some) =>
          this.#stopped ? some.map(() => null) : publications.locationsOf(some),
        );
        isComplete &&= isTaken;
        env.metrics.count('meshcache_restated_keys_total', batch.length);
      }
      await this.#pause(msPerTurn);
      if (isOver()) return false;
      if (isComplete) await directory.renounce(ownerId, generation);
    }
    return shares.length > 0;
  }

  /**
   * All owners with their keys, in an order that differs from node to node. An owner without keys is included only if it may remember pages that
   * this node had: in a large cluster most nodes have never heard of any.
   */
  async #shares(ring: OwnerRing | undefined): Promise<Share[]> {
    const { publications, replicas, env } = this.#options;
    if (ring === undefined) return [];
    const keysOf = new Map<string, string[]>(ring.nodes.map((nodeId) => [nodeId, []]));
    const isOver = (): boolean => this.#stopped || this.#options.directory.rings()[0] !== ring;
    for (const keys of publications.keysInSlices()) {
      for (let start = 0; start < keys.length; start += ANTI_ENTROPY_SLICE_KEYS) {
        const slice = keys.slice(start, start + ANTI_ENTROPY_SLICE_KEYS);
        for (const [ownerId, indices] of keysByOwner(slice, [ring], replicas)) {
          const own = keysOf.get(ownerId) as string[];
          for (const i of indices) own.push(slice[i] as string);
        }
        await env.clock.yield();
        if (isOver()) return [];
      }
    }
    const told = [...keysOf].filter(([ownerId, keys]) => keys.length > 0 || this.#options.directory.mayKnow(ownerId));
    return shuffled(told, env).map(([ownerId, keys]) => ({ ownerId, keys }));
  }

  #pause(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      if (this.#stopped) return resolve();
      const cancel = this.#options.env.clock.after(delayMs, resolve);
      this.#cancelPause = () => {
        cancel();
        resolve();
      };
    });
  }
}

function shuffled<T>(items: T[], { random }: Environment): T[] {
  for (let i = items.length - 1; i > 0; i--) {
    const j = random.u32() % (i + 1);
    [items[i], items[j]] = [items[j] as T, items[i] as T];
  }
  return items;
}
