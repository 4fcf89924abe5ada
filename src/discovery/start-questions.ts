import type { CancelSignal } from '../base/concurrency/cancellation.js';
import type { Clock } from '../base/environment/clock.js';
import { INTRODUCTION_TIMEOUT_MS } from '../base/limits.js';
import type { MemberTable } from './messages/member-table.js';

/** Milliseconds for which heartbeats are collected before it is looked which starts all members go by. */
const LOOK_MS = 2;

/** A start of a node. */
interface NodeStart {
  readonly nodeId: string;
  readonly incarnation: number;
}

/** Questions of starts of nodes for the members that do not go by a list with them yet. */
export class StartQuestions {
  readonly #clock: Clock;
  readonly #table: () => MemberTable;
  /** Each is called with the version that all members go by. */
  readonly #asked = new Set<(followedByAll: number) => void>();
  #cancelLook: (() => void) | undefined;

  constructor(clock: Clock, table: () => MemberTable) {
    this.#clock = clock;
    this.#table = table;
  }

  /**
   * Answers as soon as there are no such members, and otherwise after `waitMs`, at most INTRODUCTION_TIMEOUT_MS. Nobody
   * goes by a list with a start that is no member.
   */
  ask({ nodeId, incarnation }: NodeStart, waitMs: number, signal: CancelSignal): Promise<{ unaware: string[] }> {
    return new Promise((resolve) => {
      const since = (): number | undefined => this.#table().sinceVersion(nodeId, incarnation);
      const end = (): void => {
        cancelTimer();
        signal.removeEventListener('abort', end);
        this.#asked.delete(check);
        resolve({ unaware: this.#table().notFollowing(since() ?? Number.POSITIVE_INFINITY) });
      };
      const check = (followedByAll: number): void => {
        if (followedByAll >= (since() ?? Number.POSITIVE_INFINITY)) end();
      };
      const cancelTimer = this.#clock.after(Math.min(waitMs, INTRODUCTION_TIMEOUT_MS), end);
      signal.addEventListener('abort', end);
      this.#asked.add(check);
      this.look();
    });
  }

  /** Called when members, or what they go by, may have changed. Costs a pass over all members, so calls share one. */
  look(): void {
    if (this.#asked.size === 0 || this.#cancelLook !== undefined) return;
    this.#cancelLook = this.#clock.after(LOOK_MS, () => {
      this.#cancelLook = undefined;
      const followedByAll = this.#table().followedByAll();
      for (const check of [...this.#asked]) check(followedByAll);
    });
  }

  stop(): void {
    this.#cancelLook?.();
  }
}
