import type { EventPlan, SimEvent } from '../kernel/event-heap.js';
import type { TurnEnd } from '../kernel/scheduler.js';
import { chance } from '../kernel/seeds.js';
import type { Fabric } from './fabric.js';
import type { Link } from './link.js';

/** Either end of a stream, as the kernel of its host sees it. */
export interface StreamEnd {
  /** Whether the end is gone, so that its kernel answers with a reset. */
  readonly isGone: boolean;
  /** Called when the system has taken all written data. */
  taken(): void;
  /** Called when more data is in the inbox. */
  arrived(): void;
  wasReset(): void;
  failed(code: string): void;
}

/** Data that arrives together; as an event plan, its arrival. */
export class Burst implements EventPlan {
  readonly kind = 'arrive';
  readonly owner = undefined;
  readonly sequence: number;
  bytes: Buffer = NOTHING;
  lengthBytes = 0;
  /** Bytes that the network charges. */
  chargedBytes = 0;
  /** Whether the stream ends after the bytes. */
  isEnd = false;
  readonly #stream: Stream;

  constructor(stream: Stream, sequence: number) {
    this.#stream = stream;
    this.sequence = sequence;
  }

  get detail(): number {
    return this.lengthBytes;
  }

  run(): void {
    this.#stream.arrive(this);
  }
}

interface Piece {
  readonly bytes: Uint8Array;
  readonly scale: number;
}

interface Acknowledgement {
  readonly atMs: number;
  readonly chargedBytes: number;
}

export interface StreamParts {
  readonly fabric: Fabric;
  readonly link: Link;
  readonly back: Link;
  readonly sender: StreamEnd;
  readonly receiver: StreamEnd;
  readonly plane: string;
  readonly scale: number;
}

const NOTHING = Buffer.alloc(0);
const BURST_MIN_BYTES = 256;
const PIECE_MIN_BYTES = 64;
const RETRY_MIN_MS = 200;
const RETRY_MAX_MS = 120_000;
/** Milliseconds after which Linux gives up, which is after 15 retries. */
const GIVE_UP_AFTER_MS = 924_600;

/**
 * One direction of a connection: data that waits, is in flight, or has arrived and was not read. Writes of one event
 * travel together. Data that meets a host or a link that is down is sent again later, all in order, so that loss only
 * causes delay.
 */
export class Stream implements TurnEnd {
  readonly #parts: StreamParts;
  readonly #queue: Piece[] = [];
  #queuedBytes = 0;
  /** Charged bytes that the system has taken and that have not been acknowledged. */
  #inFlightBytes = 0;
  readonly #acknowledgements: Acknowledgement[] = [];
  /** Read bytes whose acknowledgement does not get through. */
  #heldBytes = 0;
  #acknowledging: SimEvent | undefined;
  /** Bursts of the current event. */
  #open: Burst[] = [];
  #nextSequence = 0;
  #expectedSequence = 0;
  #isEnding = false;
  #hasEnded = false;
  #isSilent = false;
  #lastArrivalMs = 0;
  /** Bursts that could not be delivered, in order. */
  #lost: Burst[] = [];
  #retryMs = RETRY_MIN_MS;
  #lostSinceMs = 0;
  #retry: SimEvent | undefined;
  #cutAfterBytes = Number.POSITIVE_INFINITY;
  /** Whether nothing arrives although the hosts are up. */
  isStalled = false;
  /** Bursts that have arrived and were not read. */
  readonly inbox: Burst[] = [];

  constructor(parts: StreamParts) {
    this.#parts = parts;
  }

  get link(): Link {
    return this.#parts.link;
  }

  get receiver(): StreamEnd {
    return this.#parts.receiver;
  }

  /** Bytes that the system has not taken yet. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** Sets the end of the handshake, before which nothing arrives. */
  beginAt(ms: number): void {
    this.#lastArrivalMs = Math.max(this.#lastArrivalMs, ms);
  }

  write(bytes: Uint8Array): void {
    if (this.#hasEnded || this.#isSilent || bytes.length === 0) return;
    const { scale, fabric } = this.#parts;
    this.#queue.push({ bytes, scale: bytes.length > fabric.shape.ofWritesAbove ? scale : 1 });
    this.#queuedBytes += bytes.length;
    this.#take();
  }

  /** Ends the stream after the written data. */
  end(): void {
    this.#isEnding = true;
    this.#take();
  }

  /** Drops the data that the system has not taken; the end follows the rest. */
  abandon(): void {
    this.#queue.length = 0;
    this.#queuedBytes = 0;
    this.end();
  }

  /** Sends a reset after the data in flight. */
  reset(): void {
    if (this.#isSilent) return;
    this.silence();
    const { fabric, link, receiver } = this.#parts;
    if (!link.isOpen || !link.from.isUp) return;
    const { scheduler } = fabric;
    const atMs = Math.max(this.#lastArrivalMs, link.arrivalOfSmallMs(scheduler.nowMs));
    this.#lastArrivalMs = atMs;
    scheduler.schedule(atMs, {
      kind: 'reset',
      owner: undefined,
      detail: link.to.index,
      run: () => {
        if (link.to.isUp) receiver.wasReset();
      },
    });
  }

  /** Sends nothing more, and repeats nothing, because the sender is gone. */
  silence(): void {
    this.#isSilent = true;
    this.#queue.length = 0;
    this.#queuedBytes = 0;
    this.#open = [];
    this.#lost = [];
    this.#cancelRetry();
  }

  /** Resets both ends when this many more bytes have arrived. */
  cutAfter(bytes: number): void {
    this.#cutAfterBytes = bytes;
  }

  /** Resets both ends. */
  cut(): void {
    const { sender, receiver } = this.#parts;
    receiver.wasReset();
    sender.wasReset();
  }

  /** Notes that the receiver has read the first burst of the inbox. */
  consumed(): void {
    const burst = this.inbox.shift() as Burst;
    const { fabric, back } = this.#parts;
    if (back.isOpen) this.#acknowledge(fabric.scheduler.nowMs + back.latencyMs, burst.chargedBytes);
    else {
      this.#heldBytes += burst.chargedBytes;
      this.#retryLater();
    }
  }

  turnEnded(): void {
    const bursts = this.#open;
    this.#open = [];
    const { link, plane } = this.#parts;
    const traffic = link.from.trafficOf(plane);
    for (const burst of bursts) {
      traffic.sentMessages++;
      traffic.sentBytes += burst.chargedBytes;
      if (this.#lost.length > 0) this.#lose(burst);
      else this.#send(burst);
    }
  }

  /** Lets the system take as much data as may be in flight. */
  #take(): void {
    if (this.#isSilent) return;
    this.#reap();
    const { windowBytes, chunkBytes } = this.#parts.fabric.shape;
    while (this.#queue.length > 0 && this.#inFlightBytes < windowBytes) {
      const { bytes, scale } = this.#queue[0] as Piece;
      const roomBytes = Math.min(chunkBytes, windowBytes - this.#inFlightBytes);
      const count = Math.min(bytes.length, Math.max(PIECE_MIN_BYTES, Math.floor(roomBytes / scale)));
      this.#append(count === bytes.length ? bytes : bytes.subarray(0, count), count * scale);
      if (count === bytes.length) this.#queue.shift();
      else this.#queue[0] = { bytes: bytes.subarray(count), scale };
      this.#queuedBytes -= count;
      this.#inFlightBytes += count * scale;
    }
    if (this.#queue.length > 0) this.#awaitAcknowledgement();
    else if (this.#isEnding && !this.#hasEnded) {
      this.#hasEnded = true;
      (this.#open.at(-1) ?? this.#openBurst()).isEnd = true;
    }
  }

  #append(bytes: Uint8Array, chargedBytes: number): void {
    const last = this.#open.at(-1);
    const hasRoom = last !== undefined && last.chargedBytes + chargedBytes <= this.#parts.fabric.shape.chunkBytes;
    const burst = hasRoom ? last : this.#openBurst();
    const neededBytes = burst.lengthBytes + bytes.length;
    if (neededBytes > burst.bytes.length) {
      // Usually there is only one write, which gets a buffer of its length.
      const isFirst = burst.lengthBytes === 0;
      const larger = Buffer.allocUnsafe(
        isFirst ? neededBytes : Math.max(BURST_MIN_BYTES, 2 * burst.bytes.length, neededBytes),
      );
      larger.set(burst.bytes.subarray(0, burst.lengthBytes));
      burst.bytes = larger;
    }
    burst.bytes.set(bytes, burst.lengthBytes);
    burst.lengthBytes = neededBytes;
    burst.chargedBytes += chargedBytes;
  }

  #openBurst(): Burst {
    if (this.#open.length === 0) this.#parts.fabric.scheduler.atTurnEnd(this);
    const burst = new Burst(this, this.#nextSequence++);
    this.#open.push(burst);
    return burst;
  }

  #send(burst: Burst): void {
    const { fabric, link } = this.#parts;
    if (!link.isOpen || !link.from.isUp) {
      this.#lose(burst);
      return;
    }
    const { scheduler } = fabric;
    const atMs = Math.max(this.#lastArrivalMs, link.arrivalMs(scheduler.nowMs, burst.chargedBytes));
    this.#lastArrivalMs = atMs;
    scheduler.schedule(atMs, burst);
  }

  /** @internal Receives one of this stream's bursts. */
  arrive(burst: Burst): void {
    const { fabric, link, receiver, plane } = this.#parts;
    if (burst.sequence !== this.#expectedSequence || !link.to.isUp || this.isStalled) {
      this.#lose(burst);
      return;
    }
    this.#expectedSequence++;
    this.#retryMs = RETRY_MIN_MS;
    fabric.log.bytes(burst.bytes, burst.lengthBytes);
    const traffic = link.to.trafficOf(plane);
    traffic.receivedMessages++;
    traffic.receivedBytes += burst.chargedBytes;
    if (receiver.isGone) {
      fabric.answerReset(this.#parts);
      return;
    }
    if (burst.lengthBytes > this.#cutAfterBytes) {
      this.#cutWithin(burst);
      return;
    }
    this.#cutAfterBytes -= burst.lengthBytes;
    this.inbox.push(burst);
    receiver.arrived();
  }

  #cutWithin(burst: Burst): void {
    burst.lengthBytes = this.#cutAfterBytes;
    // Later bursts may arrive before the receiver has noticed.
    this.#cutAfterBytes = 0;
    burst.isEnd = false;
    if (burst.lengthBytes > 0) {
      this.inbox.push(burst);
      this.#parts.receiver.arrived();
    }
    this.cut();
  }

  #lose(burst: Burst): void {
    if (this.#isSilent) return;
    if (this.#lost.length === 0) this.#lostSinceMs = this.#parts.fabric.scheduler.nowMs;
    let at = this.#lost.length;
    while (at > 0 && (this.#lost[at - 1] as Burst).sequence > burst.sequence) at--;
    this.#lost.splice(at, 0, burst);
    this.#retryLater();
  }

  #retryLater(): void {
    if (this.#retry !== undefined || this.#isSilent) return;
    const { scheduler } = this.#parts.fabric;
    this.#retry = scheduler.schedule(scheduler.nowMs + this.#retryMs, {
      kind: 'resend',
      owner: undefined,
      detail: this.#lost.length,
      run: () => this.#resend(),
    });
    this.#retryMs = Math.min(2 * this.#retryMs, RETRY_MAX_MS);
  }

  #cancelRetry(): void {
    if (this.#retry !== undefined) this.#parts.fabric.scheduler.cancel(this.#retry);
    this.#retry = undefined;
  }

  #resend(): void {
    this.#retry = undefined;
    const { fabric, link, back, sender } = this.#parts;
    const { nowMs } = fabric.scheduler;
    if (this.#heldBytes > 0 && back.isOpen) {
      this.#acknowledge(nowMs + back.latencyMs, this.#heldBytes);
      this.#heldBytes = 0;
    }
    if (this.#lost.length > 0 && nowMs - this.#lostSinceMs > GIVE_UP_AFTER_MS) {
      this.silence();
      sender.failed('ETIMEDOUT');
      return;
    }
    const isPassable = link.isOpen && link.from.isUp && link.to.isUp && !this.isStalled;
    if (this.#lost.length > 0 && isPassable) {
      const bursts = this.#lost;
      this.#lost = [];
      for (const burst of bursts) this.#send(burst);
    }
    if (this.#lost.length > 0 || this.#heldBytes > 0) this.#retryLater();
  }

  #acknowledge(atMs: number, chargedBytes: number): void {
    this.#acknowledgements.push({ atMs, chargedBytes });
    if (this.#queue.length > 0) this.#awaitAcknowledgement();
  }

  #reap(): void {
    const { nowMs } = this.#parts.fabric.scheduler;
    let count = 0;
    for (const { atMs, chargedBytes } of this.#acknowledgements) {
      if (atMs > nowMs) break;
      this.#inFlightBytes -= chargedBytes;
      count++;
    }
    if (count > 0) this.#acknowledgements.splice(0, count);
  }

  #awaitAcknowledgement(): void {
    const first = this.#acknowledgements[0];
    if (first === undefined || this.#acknowledging !== undefined) return;
    this.#acknowledging = this.#parts.fabric.scheduler.schedule(first.atMs, {
      kind: 'acknowledge',
      owner: undefined,
      run: () => {
        this.#acknowledging = undefined;
        this.#take();
        if (this.#queue.length === 0) this.#parts.sender.taken();
      },
    });
  }
}

/** Position at which received bytes are split into two pieces; 0: they are not split. */
export function splitAt({ to: { random } }: Link, lengthBytes: number, probability: number): number {
  if (lengthBytes < 2 || !chance(random, probability)) return 0;
  return 1 + (random.u32() % (lengthBytes - 1));
}
