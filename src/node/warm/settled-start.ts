import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Clock } from '../../base/environment/clock.js';
import type { DirectoryClient } from '../../directory/client.js';

/** Time between two looks at whether the pages are settled, and after {@link SOON_COUNT} of them. */
const SOON_MS = 50;
const LATER_MS = 1000;
const SOON_COUNT = 40;
/** Milliseconds within which nobody can remove so many keys that owners forget one of them. */
const FORGOTTEN_AFTER_MS = 2000;

/** A note, kept beside pages that outlive their process, of the start that has last known all of them to be good. */
export interface StartNote {
  /** See `digestOfStart`; 0: not known. */
  readonly start: number;
  note(start: number): void;
}

export interface SettledStartParts {
  /** The notes beside the pool and on the disk, as far as there are any. */
  readonly notes: readonly StartNote[];
  /** The notes beside pages from before this start. */
  readonly former: readonly StartNote[];
  readonly directory: Pick<DirectoryClient, 'former' | 'setFormer'>;
  readonly versions: Pick<HybridClock, 'afterEarlier'>;
  /** This start of the node. */
  readonly current: () => number;
  /** Whether directory owners have accepted all pages that the node has. */
  readonly isSettled: () => boolean;
  /** How long after an absence the pages settle at the earliest, in ms: a master that has just started learns of the other members only then. */
  readonly quietMs: number;
  readonly clock: Clock;
}

/**
 * The last start of this node in which all its pages were known to be good: directory owners had accepted them, and the node cannot have missed a
 * removal since. After the node was away, it tells owners which start that was. If they have forgotten what was removed since then, they refuse
 * the page.
 */
export class SettledStart {
  readonly #parts: SettledStartParts;
  #start = 0;
  #cancel: (() => void) | undefined;
  #stopped = false;
  readonly #startMs: number;
  /** When this node was away last, or has started. */
  #awayMs: number;

  constructor(parts: SettledStartParts) {
    this.#parts = parts;
    const [first, ...others] = parts.former.map(({ start }) => start);
    this.#start = first !== undefined && others.every((start) => start === first) ? first : 0;
    this.#startMs = parts.clock.nowMs();
    this.#awayMs = this.#startMs;
    if (first !== undefined) this.#sayFormer();
    this.#look();
  }

  /** Called when others have, or may have, dropped this node as a member: what is there already counts as from before, for all owners. */
  wasAway(): void {
    if (this.#stopped) return;
    this.#sayFormer();
    this.#look();
  }

  /**
   * Called when this node meets others: for these, what is there already counts as from before, because they may have removed it without knowing this
   * node. `isEarlier`: one was up before this node. Just after a start without earlier pages there is nothing yet that anybody could have removed and
   * forgotten.
   */
  met(nodeIds: readonly string[], isEarlier: boolean): void {
    const { clock, directory } = this.#parts;
    const { former } = directory;
    const isNew = former === undefined && clock.nowMs() - this.#startMs < FORGOTTEN_AFTER_MS;
    if (this.#stopped || isNew) return;
    if (isEarlier && former !== undefined && former.below > 0) {
      this.wasAway();
      return;
    }
    const below = this.#parts.versions.afterEarlier();
    const met = new Map([...(former?.met ?? []), ...nodeIds.map((nodeId) => [nodeId, below] as const)]);
    const isWide = isEarlier || former?.isWide === true;
    directory.setFormer({ start: this.#start, below: former?.below ?? 0, met, isWide });
    this.#look();
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel?.();
  }

  /** Looks whether the pages are settled, until they are. */
  #look(): void {
    if (this.#cancel === undefined) this.#lookAfter(SOON_MS, 1);
  }

  #sayFormer(): void {
    const { clock, directory } = this.#parts;
    this.#awayMs = clock.nowMs();
    directory.setFormer({
      start: this.#start,
      below: this.#parts.versions.afterEarlier(),
      met: new Map(),
      isWide: true,
    });
  }

  #lookAfter(ms: number, look: number): void {
    this.#cancel = this.#parts.clock.after(ms, () => {
      const isQuiet = this.#parts.clock.nowMs() - this.#awayMs >= this.#parts.quietMs;
      if (!isQuiet || !this.#parts.isSettled()) {
        return this.#lookAfter(look < SOON_COUNT ? SOON_MS : LATER_MS, look + 1);
      }
      this.#cancel = undefined;
      this.#parts.directory.setFormer(undefined);
      this.#start = this.#parts.current();
      for (const note of this.#parts.notes) if (note.start !== this.#start) note.note(this.#start);
    });
  }
}
