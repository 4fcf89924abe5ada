import type { Clock } from '../../base/environment/clock.js';

/**
 * Watches that bytes go on moving in one direction of a connection: in each window at least so many. A window in which
 * this node has held the peer up does not count.
 */
export class StallWatch {
  readonly #clock: Pick<Clock, 'after'>;
  readonly #movedBytes: () => number;
  readonly #isAtRest: () => boolean;
  readonly #stalled: (minBytes: number) => void;
  #cancel: (() => void) | undefined;
  #isHeld = false;
  #wasHeld = false;

  /**
   * `movedBytes`: since the connection began. `isAtRest`: whether nothing has to move for now, so that the watch ends.
   * `stalled` is called when too little has moved in a window; the watch has ended then.
   */
  constructor(
    clock: Pick<Clock, 'after'>,
    movedBytes: () => number,
    on: { readonly isAtRest?: () => boolean; readonly stalled: (minBytes: number) => void },
  ) {
    this.#clock = clock;
    this.#movedBytes = movedBytes;
    this.#isAtRest = on.isAtRest ?? (() => false);
    this.#stalled = on.stalled;
  }

  get isWatching(): boolean {
    return this.#cancel !== undefined;
  }

  /**
   * Watches from now on. With infinitely many bytes the watch must be ended within the window, or within another one if
   * this node holds the peer up at the end of it.
   */
  begin(windowMs: number, minBytes: number): void {
    this.end();
    const movedBytes = this.#movedBytes();
    this.#wasHeld = this.#isHeld;
    this.#cancel = this.#clock.after(windowMs, () => {
      this.#cancel = undefined;
      const isExcused = minBytes === Number.POSITIVE_INFINITY ? this.#isHeld : this.#wasHeld;
      if (this.#isAtRest()) return;
      if (isExcused || this.#movedBytes() - movedBytes >= minBytes) this.begin(windowMs, minBytes);
      else this.#stalled(minBytes);
    });
  }

  /** Says whether this node holds the peer up. */
  hold(isHeld: boolean): void {
    this.#isHeld = isHeld;
    this.#wasHeld ||= isHeld;
  }

  end(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }
}
