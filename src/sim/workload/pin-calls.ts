import type { Clock } from '../../base/environment/clock.js';
import type { RandomSource } from '../../base/environment/random.js';
import type { CheckedStore } from '../check/checked-store.js';
import type { MixedWorkload } from '../scenario/workload.js';
import { below } from '../world/kernel/seeds.js';
import type { KeyKind, MixedKeys } from './mixed-keys.js';

export interface PinCallsParts {
  readonly workload: MixedWorkload;
  readonly keys: MixedKeys;
  readonly store: CheckedStore;
  readonly nodes: number;
  readonly clock: Pick<Clock, 'after'>;
  readonly random: RandomSource;
}

const KINDS: readonly KeyKind[] = ['own', 'named', 'computed', 'both'];
const PINNED_MAX_COUNT = 6;
const PIN_MAX_MS = 15_000;

/** A loop on one node that pins and unpins random pages. */
export class PinCalls {
  readonly #parts: PinCallsParts;
  readonly #kinds: readonly KeyKind[];
  readonly #scopes: readonly string[];

  constructor(parts: PinCallsParts) {
    this.#parts = parts;
    this.#kinds = KINDS.filter((kind) => parts.keys.count(kind) > 0);
    this.#scopes = ['', ...parts.workload.namespaces];
  }

  /** Resolves when `isWorking` gives false after a call. */
  async loop(isWorking: () => boolean): Promise<void> {
    const { clock, workload, store } = this.#parts;
    while (isWorking()) {
      const pauseMs = 1 + this.#below(2 * workload.pinEveryMs);
      await new Promise<void>((resolve) => clock.after(pauseMs, resolve));
      store.checkPins();
      if (isWorking()) await this.#step();
      store.checkPins();
    }
  }

  async #step(): Promise<void> {
    const { store } = this.#parts;
    const scope = this.#scopes[this.#below(this.#scopes.length)] as string;
    const keys = this.#keys(1 + this.#below(PINNED_MAX_COUNT), scope);
    if (keys.length === 0) return;
    if (this.#below(4) === 0) await store.unpin(keys, scope);
    else await store.pin(keys, { forMs: 1 + this.#below(PIN_MAX_MS), scope });
  }

  /** Random keys, more often computed ones, whose content stays the same. */
  #keys(count: number, scope: string): { readonly name: string; readonly isComputed: boolean }[] {
    const { keys, nodes } = this.#parts;
    const chosen = new Map<string, boolean>();
    for (let i = 0; i < count && this.#kinds.length > 0; i++) {
      const isComputed = keys.count('computed') > 0 && this.#below(2) === 0;
      const kind = isComputed ? 'computed' : (this.#kinds[this.#below(this.#kinds.length)] as KeyKind);
      const node = 1 + this.#below(nodes);
      const { name } = keys.key(kind, this.#below(keys.count(kind)), { node, scope });
      chosen.set(name, kind === 'computed');
    }
    return [...chosen].map(([name, isComputed]) => ({ name, isComputed }));
  }

  #below(count: number): number {
    return below(this.#parts.random, count);
  }
}
