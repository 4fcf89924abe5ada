import type { Clock } from '../../base/environment/clock.js';
import type { RandomSource } from '../../base/environment/random.js';
import type { PagePriority } from '../../core/index.js';
import type { CheckedStore } from '../check/checked-store.js';
import type { MixedWorkload } from '../scenario/workload.js';
import { below } from '../world/kernel/seeds.js';
import type { KeyKind, MixedKey, MixedKeys } from './mixed-keys.js';
import type { PinCalls } from './pin-calls.js';

export interface MixedCallsParts {
  readonly workload: MixedWorkload;
  readonly keys: MixedKeys;
  readonly store: CheckedStore;
  readonly node: number;
  readonly nodes: number;
  readonly clock: Pick<Clock, 'after'>;
  readonly random: RandomSource;
  /** Decides which sets have an expiry, and which. */
  readonly expiryRandom: RandomSource;
  /** Decides which sets have a priority, and which. */
  readonly priorityRandom: RandomSource;
  /** Pins pages beside these calls. */
  readonly pinCalls?: PinCalls | undefined;
}

const KINDS: readonly KeyKind[] = ['own', 'named', 'computed', 'both'];
/** Number of hot keys, which are the first ones. */
const HOT_KEYS_COUNT = 3;
const DELETED_MAX_COUNT = 3;
const LOOKED_UP_MAX_COUNT = 60;
/**
 * One set of that many has an expiry, of that many milliseconds at most: less than what pages are given to be found
 * after the last fault.
 */
const EXPIRING_ONE_IN = 8;
const EXPIRES_WITHIN_MS = 6_000;
/** The priorities of sets, each as often. */
const PRIORITIES: readonly (PagePriority | undefined)[] = [undefined, undefined, undefined, 'normal', 'low', 'high'];

/** Loops of random calls on one node: sets, reads, lookups, deletes, clears. */
export class MixedCalls {
  readonly #parts: MixedCallsParts;
  readonly #kinds: readonly KeyKind[];
  readonly #scopes: readonly string[];
  #loops: Promise<void>[] = [];
  #isWorking = false;

  constructor(parts: MixedCallsParts) {
    this.#parts = parts;
    this.#kinds = KINDS.filter((kind) => parts.keys.count(kind) > 0);
    this.#scopes = ['', ...parts.workload.namespaces];
  }

  start(): void {
    if (this.#isWorking) return;
    this.#isWorking = true;
    const { workload, pinCalls } = this.#parts;
    this.#loops = Array.from({ length: workload.callers }, () => this.#loop());
    if (pinCalls !== undefined) this.#loops.push(pinCalls.loop(() => this.#isWorking));
  }

  /** Resolves when no call is in progress. */
  async rest(): Promise<void> {
    this.#isWorking = false;
    await Promise.all(this.#loops.splice(0));
  }

  async #loop(): Promise<void> {
    const { clock, workload } = this.#parts;
    while (this.#isWorking) {
      await this.#step();
      await new Promise<void>((resolve) => clock.after(1 + this.#below(workload.pauseMaxMs), resolve));
    }
  }

  async #step(): Promise<void> {
    const { deleteOneIn, clearOneIn, setShare } = this.#parts.workload;
    const scope = this.#scopes[this.#below(this.#scopes.length)] as string;
    if (clearOneIn > 0 && this.#below(clearOneIn) === 0) return this.#clear();
    if (deleteOneIn > 0 && this.#below(deleteOneIn) === 0) return this.#delete(scope);
    const dice = this.#below(1000) / 1000;
    if (dice < setShare) return this.#set(scope);
    // The remaining calls read whole batches, read copies, or look up, in these parts.
    const rest = (dice - setShare) / (1 - setShare);
    if (rest < 0.7) return this.#read(scope);
    if (rest < 0.85) return this.#readCopy(scope);
    return this.#lookUp(scope);
  }

  async #set(scope: string): Promise<void> {
    const { store, workload, keys } = this.#parts;
    const isComputed = this.#below(2) === 0;
    const kinds = isComputed ? ['computed', 'both'] : ['own', 'named', 'both'];
    const chosen = this.#distinct(1 + this.#below(workload.batchMaxPages), scope, kinds, this.#parts.node);
    if (chosen.length === 0) return;
    const terms = { expiresInMs: this.#expiry(), priority: this.#priority() };
    if (isComputed) {
      await store.setComputed(
        chosen.map(({ name }) => name),
        scope,
        terms,
      );
      return;
    }
    const pages = chosen.map(({ name, bytes }) => {
      return { key: name, bytes: bytes ?? keys.lengthOf(this.#parts.random.u32()) };
    });
    await store.setNamed(pages, scope, terms);
  }

  #priority(): PagePriority | undefined {
    return PRIORITIES[below(this.#parts.priorityRandom, PRIORITIES.length)];
  }

  /** Milliseconds after which the pages of a set expire; undefined: they do not. */
  #expiry(): number | undefined {
    const { expiryRandom } = this.#parts;
    if (below(expiryRandom, EXPIRING_ONE_IN) > 0) return undefined;
    return 1 + below(expiryRandom, EXPIRES_WITHIN_MS);
  }

  async #read(scope: string): Promise<void> {
    const { store, workload } = this.#parts;
    const count = 1 + this.#below(workload.batchMaxPages);
    if (this.#below(2) === 0) {
      const chosen = this.#distinct(count, scope, ['computed', 'both']);
      if (chosen.length > 0)
        await store.getComputed(
          chosen.map(({ name }) => name),
          scope,
        );
      return;
    }
    const chosen = this.#distinct(count, scope, ['own', 'named', 'both']);
    const pages = chosen.flatMap(({ name, bytes }) => (bytes === undefined ? [] : [{ key: name, bytes }]));
    if (pages.length > 0) await store.getNamed(pages, scope);
  }

  async #readCopy(scope: string): Promise<void> {
    const [key] = this.#distinct(1, scope, this.#kinds);
    if (key !== undefined) await this.#parts.store.getCopy(key.name, scope);
  }

  async #lookUp(scope: string): Promise<void> {
    const keys = this.#distinct(1 + this.#below(LOOKED_UP_MAX_COUNT), scope, this.#kinds);
    const names = keys.map(({ name }) => name);
    if (names.length > 0) await this.#parts.store.exists(names, scope);
  }

  async #delete(scope: string): Promise<void> {
    const keys = this.#distinct(1 + this.#below(DELETED_MAX_COUNT), scope, this.#kinds);
    const names = keys.map(({ name }) => name);
    if (names.length > 0) await this.#parts.store.delete(names, scope);
  }

  async #clear(): Promise<void> {
    // Clears one namespace, or all of them.
    await this.#parts.store.clear(this.#scopes[this.#below(this.#scopes.length)]);
  }

  /** At most that many distinct keys of these kinds; own keys are those of `owner`, or of any node. */
  #distinct(count: number, scope: string, kinds: readonly string[], owner?: number): MixedKey[] {
    const able = this.#kinds.filter((kind) => kinds.includes(kind));
    if (able.length === 0) return [];
    const keys = new Set<MixedKey>();
    for (let i = 0; i < count; i++) {
      const kind = able[this.#below(able.length)] as KeyKind;
      const node = owner ?? 1 + this.#below(this.#parts.nodes);
      keys.add(this.#parts.keys.key(kind, this.#indexOf(kind), { node, scope }));
    }
    return [...keys];
  }

  #indexOf(kind: KeyKind): number {
    const { keys, workload } = this.#parts;
    const count = keys.count(kind);
    const isHot = this.#below(1000) < workload.hotShare * 1000;
    return this.#below(isHot ? Math.min(HOT_KEYS_COUNT, count) : count);
  }

  #below(count: number): number {
    return below(this.#parts.random, count);
  }
}
