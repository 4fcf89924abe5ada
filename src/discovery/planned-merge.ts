import type { Clock } from '../base/environment/clock.js';
import { ChangeGap, type timingOf } from './timing.js';

/** A merge that waits for its time. */
interface Planned {
  readonly cancel: () => void;
  readonly ended: Promise<void>;
  readonly end: () => void;
}

/** Decides when a node takes over what the masters say: at once after a quiet time, see {@link ChangeGap}. */
export class PlannedMerge {
  readonly #clock: Clock;
  readonly #waitMaxMs: number;
  readonly #gap = new ChangeGap();
  #planned: Planned | undefined;

  /** The times are those of `timingOf`: heartbeats wait for the merge, and must not come after the time-to-live. */
  constructor(clock: Clock, { heartbeatIntervalMs, memberTtlMs }: ReturnType<typeof timingOf>) {
    this.#clock = clock;
    this.#waitMaxMs = Math.max(0, (memberTtlMs - heartbeatIntervalMs) / 2);
  }

  /** Ends with the planned merge; undefined: none is planned. */
  get ended(): Promise<void> | undefined {
    return this.#planned?.ended;
  }

  /** Calls `merge` at once or later, unless that is planned already. `members`: their number. */
  plan(merge: () => void, { members, isAtOnce }: { readonly members: number; readonly isAtOnce: boolean }): void {
    if (this.#planned !== undefined) return;
    const waitMs = isAtOnce ? 0 : Math.min(this.#waitMaxMs, this.#gap.plan(this.#clock.nowMs(), members));
    if (waitMs === 0) {
      this.#merge(merge);
      return;
    }
    let end = (): void => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const cancel = this.#clock.after(waitMs, () => {
      this.#planned = undefined;
      try {
        this.#merge(merge);
      } finally {
        end();
      }
    });
    this.#planned = { cancel, ended, end };
  }

  /** Cancels the planned merge. */
  stop(): void {
    this.#planned?.cancel();
    this.#planned?.end();
    this.#planned = undefined;
  }

  #merge(merge: () => void): void {
    this.#gap.acted(this.#clock.nowMs());
    merge();
  }
}
