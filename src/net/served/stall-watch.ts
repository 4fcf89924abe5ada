import type { Clock } from '../../base/environment/clock.js';

/**
 * Watches that at least a minimum of bytes moves in one direction of a connection in each window. A window in which
 * this node itself has paused the peer does not count.
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
   * `movedBytes` returns the bytes moved since the connection began. `isAtRest` says whether nothing needs to move for
   * now, which ends the watch. `stalled` is called when too little has moved in a window; the watch has then ended.
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
   * Begins to watch. With infinite `minBytes`, the watch must be ended within the window, or within another one if this
   * node pauses the peer at its end.
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

  /** Sets whether this node pauses the peer. */
  hold(isHeld: boolean): void {
    this.#isHeld = isHeld;
    this.#wasHeld ||= isHeld;
  }

  end(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }
}
