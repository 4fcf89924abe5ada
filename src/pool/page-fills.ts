import { assert } from '../base/assert.js';
import { within } from '../base/environment/clock.js';
import { POOL_FILL_WAIT_MS } from '../base/limits.js';
import { FILLS_CALLER } from '../core/pool/request-terms.js';
import type { PageBytes } from './page-batch.js';
import { NO_ORIGIN, type PageOrigin, type Vacancy, type Wish } from './page-index.js';
import type { PageLease } from './page-leases.js';
import type { PoolGround } from './pool-ground.js';

const FILLS = { caller: FILLS_CALLER };

/**
 * Writes pages to their targets; resolves with one checksum per target, null if there is no target or the page failed.
 */
export type Fill = (targets: readonly (PageBytes | null)[]) => Promise<readonly (number | null)[]>;

/** Details of the pages that a call fills. */
export interface FilledPages {
  /** The origin of each page. Default: pages that are never compared. */
  readonly origins?: readonly PageOrigin[];
  /** State of the pages once they have their bytes; default: `live`. */
  readonly state?: 'live' | 'unconfirmed';
}

/** Pages of a call to be filled, and leases of existing ones; targets and leases have one element per key. */
interface EmptyBatch extends Required<FilledPages> {
  readonly vacancies: readonly Vacancy[];
  readonly targets: readonly (PageBytes | null)[];
  readonly leases: (PageLease | null)[];
}

/** Pages of one pool that are being filled from elsewhere: hidden and held until they have arrived or failed. */
export class PageFills {
  readonly #ground: PoolGround;
  /** For each key whose page is being filled, a promise that resolves when the fill has ended, successful or not. */
  readonly #fills = new Map<string, Promise<void>>();

  constructor(ground: PoolGround) {
    this.#ground = ground;
  }

  get isIdle(): boolean {
    return this.#fills.size === 0;
  }

  /** Resolves when all current fills have ended. */
  async ended(): Promise<void> {
    await Promise.all(this.#fills.values());
  }

  /** Waits until none of these keys is being filled, at most POOL_FILL_WAIT_MS. */
  async awaitFor(keys: readonly string[]): Promise<void> {
    const fills = keys.map((key) => this.#fills.get(key)).filter((fill) => fill !== undefined);
    if (fills.length > 0) await within(this.#ground.clock, POOL_FILL_WAIT_MS, Promise.all(fills));
  }

  /** Fills pages from elsewhere; see `PublishedPool.fillPages`. */
  async fill(
    keys: readonly string[],
    lengths: readonly number[],
    fill: Fill,
    { origins = [], state = 'live' }: FilledPages = {},
  ): Promise<(PageLease | null)[]> {
    const removed = this.#makeWay(keys);
    // Leases come first, so that existing pages are not evicted for new ones.
    const leases = this.#lease(keys);
    const wishes = keys.map((key, i): Wish => {
      const isVacant = leases[i] === null && !this.#ground.index.isHeld(key);
      return { key, length: lengths[i] as number, here: null, intent: isVacant ? 'new' : 'nothing', request: FILLS };
    });
    const { vacancies, gone } = this.#placeEach(wishes, origins);
    for (const key of removed) gone.add(key);
    const targets: (PageBytes | null)[] = keys.map(() => null);
    for (const { index, offset } of vacancies) {
      const length = lengths[index] as number;
      targets[index] = { views: [this.#ground.memory.bytes(offset, length)], length };
    }
    const batch = { vacancies, targets, leases, origins, state };
    const filled = vacancies.length === 0 ? leases : this.#fillVacancies(batch, fill);
    try {
      this.#ground.tellGone(gone);
    } finally {
      await filled;
    }
    return filled;
  }

  /**
   * Places the pages one after the other, holding each before the next is placed. Otherwise a page without room would
   * evict an earlier one of the same call, whose range would then be in quarantine: if the batch did not fit, no page
   * would arrive.
   */
  #placeEach(wishes: readonly Wish[], origins: readonly PageOrigin[]): { vacancies: Vacancy[]; gone: Set<string> } {
    const { index: pages } = this.#ground;
    const vacancies: Vacancy[] = [];
    const gone = new Set<string>();
    for (const [index, wish] of wishes.entries()) {
      const placement = pages.place([wish]);
      for (const key of placement.gone) gone.add(key);
      for (const vacancy of placement.vacancies) {
        pages.holdUnfilled([vacancy], [origins[index] ?? NO_ORIGIN]);
        vacancies.push({ ...vacancy, index });
      }
    }
    return { vacancies, gone };
  }

  /** Adds leases of the filled pages to `leases`. Ends all leases if `fill` rejects. */
  async #fillVacancies(batch: EmptyBatch, fill: Fill): Promise<(PageLease | null)[]> {
    const { vacancies, targets, leases } = batch;
    let end: () => void = () => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    for (const { key } of vacancies) this.#fills.set(key, ended);
    let sums: readonly (number | null)[] = [];
    try {
      sums = await fill(targets);
      return leases;
    } catch (error) {
      if (!this.#ground.index.isFreed) this.#unlease(leases);
      throw error;
    } finally {
      for (const vacancy of vacancies) {
        const { index, key } = vacancy;
        if (!this.#ground.index.isFreed) leases[index] = this.#endFill(vacancy, batch, sums[index] ?? null);
        this.#fills.delete(key);
      }
      end();
    }
  }

  #endFill(vacancy: Vacancy, { targets, origins, state }: EmptyBatch, checksum: number | null): PageLease | null {
    const { key, index } = vacancy;
    if (checksum === null) {
      this.#ground.index.abandonHeld(vacancy);
      return null;
    }
    const { length } = targets[index] as PageBytes;
    const page = this.#ground.index.fillHeld(vacancy, length, checksum, origins[index], state);
    if (page === null) return null;
    this.#ground.filled(key, page);
    return this.#ground.leases.take(key, page);
  }

  /** Removes existing pages that must make way for new ones; returns their keys. */
  #makeWay(keys: readonly string[]): string[] {
    const removed = this.#ground.index.states.makingWay(keys);
    for (const key of removed) this.#ground.remove(key);
    return removed;
  }

  #lease(keys: readonly string[]): (PageLease | null)[] {
    const { index, leases } = this.#ground;
    return index.peekBatch(keys).map((page, i) => page && leases.take(keys[i] as string, page));
  }

  #unlease(leases: readonly (PageLease | null)[]): void {
    for (const lease of leases) if (lease !== null) this.#ground.leases.end(lease);
  }

  /** Throws `InvariantError` unless each page that is being filled is held. */
  verify(): void {
    for (const key of this.#fills.keys()) {
      assert(this.#ground.index.isHeld(key), () => `page fills: ${JSON.stringify(key)} is being filled and not held`);
    }
  }
}
