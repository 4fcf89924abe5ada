import type { Clock } from '../../base/environment/clock.js';
import type { MessageEnd, Thread, ThreadProgram, Threads } from '../../base/environment/threads.js';

/**
 * Threads whose programs run on the calling thread, in turns of `clock`. One message arrives in each turn, in the order
 * of posting and never during the call that posts it, so that the same calls always give the same order. Messages are
 * not cloned, so a sender must not change them after posting.
 */
export function inlineThreads(clock: Clock): Threads {
  return { canCopy: false, start: (program) => new InlineThread(program, clock) };
}

class InlineThread implements Thread {
  readonly messages: MessageEnd;
  readonly ended: Promise<string | undefined>;

  constructor({ data, inline }: ThreadProgram, clock: Clock) {
    const own = new InlineEnd(clock);
    const programs = new InlineEnd(clock);
    own.peer = programs;
    programs.peer = own;
    this.messages = own;
    this.ended = this.#run(() => inline(data, programs), programs);
  }

  /** Closes the messages, which ends the program. A program cannot be interrupted. */
  async terminate(): Promise<void> {
    this.messages.close();
    await this.ended;
  }

  async #run(program: () => Promise<void>, messages: InlineEnd): Promise<string | undefined> {
    // Lets the starter of the thread post before the program runs.
    await messages.turn();
    try {
      if (!messages.isClosed) await program();
      return undefined;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    } finally {
      messages.close();
      await messages.peer.closed;
    }
  }
}

/** One end of a message channel. Closing an end reaches the other one after all of its messages. */
class InlineEnd implements MessageEnd {
  peer!: InlineEnd;
  readonly closed: Promise<void>;
  readonly #clock: Clock;
  readonly #waiting: unknown[] = [];
  #listener: ((message: unknown) => void) | undefined;
  #resolveClosed: () => void = () => {};
  #isClosed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.closed = new Promise((resolve) => {
      this.#resolveClosed = resolve;
    });
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  post(message: unknown): void {
    const { peer } = this;
    if (this.#isClosed || peer.#isClosed) return;
    peer.#waiting.push(message);
    if (peer.#listener !== undefined) peer.#later(() => peer.#deliver());
  }

  onMessage(listener: (message: unknown) => void): void {
    this.#listener = listener;
    for (const _ of this.#waiting) this.#later(() => this.#deliver());
  }

  receive(): unknown {
    return this.#waiting.shift();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#close();
    this.peer.#later(() => this.peer.#close());
  }

  onClose(listener: () => void): void {
    this.closed.then(listener);
  }

  /** Resolves after a turn of the clock. */
  turn(): Promise<void> {
    return new Promise((resolve) => this.#later(resolve));
  }

  /** Delivers the next message; does nothing if it has been received meanwhile. */
  #deliver(): void {
    if (this.#isClosed || this.#waiting.length === 0) return;
    this.#listener?.(this.#waiting.shift());
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#resolveClosed();
  }

  #later(fn: () => void): void {
    this.#clock.after(0, fn, { keepAlive: true });
  }
}
