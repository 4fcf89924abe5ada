import type { ByteBudget, ByteHolding } from '../base/concurrency/byte-budget.js';
import type { PauseWatch } from '../base/concurrency/pause-watch.js';
import type { Sharer } from '../base/concurrency/shares.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';
import type { Clock } from '../base/environment/clock.js';
import { Arrivals, LeastRate } from '../net/arrivals.js';
import { FrameReceiver } from './wire/frame-receiver.js';
import type { FrameHeader } from './wire/messages.js';

export interface RequestReceptionParts {
  /** Memory for request bodies, shared by all clients, and whose share of it is taken. */
  readonly budget: ByteBudget;
  readonly sharer: Sharer;
  readonly turns: WorkTurns;
  readonly pauses: Pick<PauseWatch, 'sentAfterMs'>;
  readonly clock: Clock;
  readonly receivingWindowMs: number;
  /** Throws for headers that end the connection. */
  readonly check: (header: FrameHeader) => void;
  readonly onFrame: (header: FrameHeader, body: Buffer) => void;
  /** Called when {@link RequestReception.isWaiting} has changed. */
  readonly onWaiting: () => void;
  /** Runs what may throw for frames. */
  readonly guarded: (receive: () => void) => void;
  /** Called when a frame does not go on. */
  readonly onSlow: () => void;
}

/** Receives the requests of one client, and takes memory for large bodies as their bytes come. */
export class RequestReception {
  readonly #parts: RequestReceptionParts;
  readonly #receiver: FrameReceiver;
  readonly #rate: LeastRate;
  readonly #arrivals: Arrivals;
  /** The memory for the body that is arriving; undefined: it needs none of the budget. */
  #holding: ByteHolding | undefined;
  #waitsForMemory = false;
  #isStopped = false;

  constructor(parts: RequestReceptionParts) {
    const { clock, receivingWindowMs: windowMs, check, onFrame, onSlow, guarded } = parts;
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
    const receive = (bytes: Buffer): void => guarded(() => this.#receiver.receive(bytes));
    this.#arrivals = new Arrivals({ ...parts, receive });
  }

  /** Whether nothing is to be read from the client for now: there is no memory, or it is the turn of others. */
  get isWaiting(): boolean {
    return this.#waitsForMemory || this.#arrivals.isWaiting;
  }

  /** The earliest time at which the frame that has come was sent, as far as the node knows. */
  get sentAfterMs(): number {
    return this.#arrivals.sentAfterMs;
  }

  /** Whether memory of the budget is taken for the body that is arriving, or has arrived. */
  get isReserved(): boolean {
    return this.#holding !== undefined;
  }

  /** Takes what has come, at once or when it is the client's turn. */
  receive(chunk: Buffer): void {
    this.#rate.received(chunk.length);
    this.#arrivals.add(chunk);
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
    this.#arrivals.stop();
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
      this.#waitsForMemory = false;
      guarded(() => this.#receiver.resume());
      onWaiting();
    });
    isWithin = false;
    this.#waitsForMemory = !isGranted;
    if (!isGranted) onWaiting();
    return isGranted;
  }
}
