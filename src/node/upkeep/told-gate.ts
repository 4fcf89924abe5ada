import type { Clock } from '../../base/environment/clock.js';

/** Pause before a node asks again whether the others have told it everything. */
const AGAIN_MS = 1_000;

/**
 * Opens when all other nodes have told this one what they know: until then it cannot tell a page of the object store, or one of its own from before its
 * start, from one that was replaced while it was away.
 */
export class ToldGate {
  readonly #waitForDirectory: () => Promise<boolean>;
  readonly #clock: Clock;
  #isOpen = false;
  #isClosed = false;
  #cancel: () => void = () => {};

  /** `waitForDirectory` resolves with true when all have told it, with false when that took too long. */
  constructor(waitForDirectory: () => Promise<boolean>, clock: Clock) {
    this.#waitForDirectory = waitForDirectory;
    this.#clock = clock;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Begins to wait, when the node has joined. */
  start(): void {
    void this.#waitForDirectory().then((isComplete) => {
      this.#isOpen = isComplete;
      if (!isComplete && !this.#isClosed) this.#cancel = this.#clock.after(AGAIN_MS, () => this.start());
    });
  }

  /** Ends waiting. */
  close(): void {
    this.#isClosed = true;
    this.#cancel();
  }
}
