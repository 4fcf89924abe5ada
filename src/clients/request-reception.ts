import type { ByteBudget, ByteHolding } from '../base/concurrency/byte-budget.js';
import type { Sharer } from '../base/concurrency/shares.js';
import type { Clock } from '../base/environment/clock.js';
import { LeastRate } from '../net/least-rate.js';
import { FrameReceiver } from './wire/frame-receiver.js';
import type { FrameHeader } from './wire/messages.js';

export interface RequestReceptionParts {
  /** Memory for request bodies, shared by all clients, and whose share of it is taken. */
  readonly budget: ByteBudget;
  readonly sharer: Sharer;
  readonly clock: Clock;
  readonly receivingWindowMs: number;
  /** Throws for headers that end the connection. */
  readonly check: (header: FrameHeader) => void;
  readonly onFrame: (header: FrameHeader, body: Buffer) => void;
  /** Called when {@link RequestReception.waitsForMemory} has changed. */
  readonly onWaiting: () => void;
  /** Runs what may throw for frames that come later. */
  readonly guarded: (receive: () => void) => void;
  /** Called when a frame does not go on. */
  readonly onSlow: () => void;
}

/** Receives the requests of one client, and takes memory for large bodies as their bytes come. */
export class RequestReception {
  readonly #parts: RequestReceptionParts;
  readonly #receiver: FrameReceiver;
  readonly #rate: LeastRate;
  /** The memory for the body that is arriving; undefined: it needs none of the budget. */
  #holding: ByteHolding | undefined;
  #isWaiting = false;
  #isStopped = false;

  constructor(parts: RequestReceptionParts) {
    const { clock, receivingWindowMs: windowMs, check, onFrame, onSlow } = parts;
    this.#parts = parts;
    this.#rate = new LeastRate({ clock, windowMs, onSlow });
    this.#receiver = new FrameReceiver({
      check,
      onBegin: () => this.#rate.begin(),
      reserve: (bytes) => this.#reserve(bytes),
      onFrame: (header, body) => {
        this.#rate.end();
        this.#holding?.whole();
        onFrame(header, body);
      },
    });
  }

  /** Whether nothing is to be read from the client until there is memory. */
  get waitsForMemory(): boolean {
    return this.#isWaiting;
  }

  /** Whether memory of the budget is taken for the body that is arriving, or has arrived. */
  get isReserved(): boolean {
    return this.#holding !== undefined;
  }

  receive(chunk: Buffer): void {
    this.#rate.received(chunk.length);
    this.#receiver.receive(chunk);
  }

  /** Says whether the client is read. */
  hold(isHeld: boolean): void {
    this.#rate.hold(isHeld);
  }

  /** Hands over the memory of the body that has arrived: returns what gives it back. Undefined: it has none. */
  takeReserved(): (() => void) | undefined {
    const holding = this.#holding;
    this.#holding = undefined;
    return holding && (() => holding.giveBack());
  }

  /** Hands out no more frames, and gives back memory. */
  stop(): void {
    this.#isStopped = true;
    this.#rate.end();
    this.#receiver.stop();
    this.takeReserved()?.();
  }

  #reserve(bytes: number): boolean {
    const { budget, sharer, guarded, onWaiting } = this.#parts;
    this.#holding ??= budget.hold(sharer);
    let isWithin = true;
    let isGranted = false;
    this.#holding.take(bytes, () => {
      isGranted = true;
      if (isWithin || this.#isStopped) return;
      this.#isWaiting = false;
      guarded(() => this.#receiver.resume());
      onWaiting();
    });
    isWithin = false;
    this.#isWaiting = !isGranted;
    if (!isGranted) onWaiting();
    return isGranted;
  }
}
