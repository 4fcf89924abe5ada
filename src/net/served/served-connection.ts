import { assert, reduced } from '../../base/assert.js';
import type { Sharer } from '../../base/concurrency/shares.js';
import type { Connection } from '../../base/environment/network.js';
import { RECEIVING_MIN_BYTES_PER_S } from '../../base/limits.js';
import { Arrivals } from '../arrivals.js';
import { type ServedEvent, type ServedState, type ServedStep, STEPS_FROM } from './connection-states.js';
import type { ServedConnections } from './served-connections.js';
import { StallWatch } from './stall-watch.js';

/** The protocol of a door, for one connection. None of its methods may throw. */
export interface ServedProtocol {
  readonly served: ServedConnection;
  /** Whether reading from the peer must pause for now. */
  readonly mustWait: boolean;
  /** Takes bytes of the peer. They belong to the callee, unless {@link ServedPeer.areLent}: then they are valid only now. */
  received(bytes: Buffer): void;
  /** Called when the system has taken everything that was written. */
  drained(): void;
  /** Called when the peer sends nothing more. */
  peerEnded(): void;
  /** Called when a message stalls that must arrive at a minimum rate (`rate`) or within the time limit (`end`). */
  slow(awaited: 'rate' | 'end'): void;
  /**
   * Called when the connection has entered a state because of an event. On `ending`, last words may still be written;
   * on `closed`, the socket is closed.
   */
  entered(state: ServedState, event: ServedEvent): void;
  /** Finishes what is in progress, then ends the connection. Idempotent. */
  finish(reason: string): void;
  verify(): void;
}

/** Origin and share of a peer, for limits that it shares with others. */
export interface ServedPeer {
  /** Origin of the peer. Connections of the most frequent origin make room for others first. */
  readonly origin: string;
  /** The sharer whose turns the peer uses; undefined if received bytes are processed at once. */
  readonly sharer?: Sharer;
  /** Whether the socket's bytes are valid only until its listener returns. */
  readonly areLent?: boolean;
}

/** Poll interval for writes whose completion the socket does not report. */
const POLL_MS = 1;
/** Reason for the log; all other reasons come from the door. */
const STUCK = 'the client does not take its answers';

/**
 * One accepted connection. It owns the socket and the connection's life (the table in `connection-states.ts`) with all
 * its deadlines, counts what is in progress, and pauses the peer. The protocol reads what arrives, and writes to the
 * socket.
 *
 * Accounting: `inFlightCount` and `inFlightBytes` count requests that were begun and not settled. They are part of the
 * totals of all connections of the door.
 */
export class ServedConnection {
  readonly #socket: Connection;
  readonly #all: ServedConnections;
  readonly #protocol: ServedProtocol;
  /** Origin of the peer. */
  readonly origin: string;
  readonly #arrivals: Arrivals | undefined;
  readonly #receiving: StallWatch;
  readonly #sending: StallWatch;
  #state: ServedState = 'greeting';
  #steps: Readonly<Record<ServedEvent, ServedStep>> = STEPS_FROM.greeting;
  #reason = '';
  #receivedBytes = 0;
  /** Bytes that the system had taken when the socket was closed. */
  #takenBytesAtEnd = 0;
  #inFlightCount = 0;
  #inFlightBytes = 0;
  #holdsCount = 0;
  #cancelGreeting: () => void;
  #cancelPoll = (): void => {};
  #onTaken: (() => void)[] = [];
  #onEnded: (() => void)[] = [];

  constructor(
    socket: Connection,
    all: ServedConnections,
    protocol: ServedProtocol,
    { origin, sharer, areLent }: ServedPeer,
  ) {
    this.#socket = socket;
    this.#all = all;
    this.#protocol = protocol;
    this.origin = origin;
    const { clock, limits, fairness } = all;
    if (sharer !== undefined && fairness !== undefined) {
      const receive = (bytes: Buffer): void => protocol.received(bytes);
      this.#arrivals = new Arrivals({ ...fairness, sharer, areLent, receive, onWaiting: () => this.updateReading() });
    }
    this.#receiving = new StallWatch(clock, () => this.#receivedBytes, {
      stalled: (minBytes) =>
        this.#raise('slow') && protocol.slow(minBytes === Number.POSITIVE_INFINITY ? 'end' : 'rate'),
    });
    this.#sending = new StallWatch(clock, () => this.takenBytes, {
      isAtRest: () => this.waitingBytes === 0 && this.#state !== 'ending',
      stalled: () => this.#raise('stuck', STUCK),
    });
    this.#cancelGreeting = clock.after(limits.greetingTimeoutMs, () => this.#raise('late', limits.lateReason));
    socket.on('data', (chunk: Buffer) => this.#received(chunk));
    socket.on('drain', () => this.#drained());
    socket.on('end', () => this.#raise('peerEnded') && protocol.peerEnded());
    socket.on('error', (error) => this.#raise('failed', error.message));
    socket.on('close', () => this.#raise('gone', 'closed'));
  }

  get state(): ServedState {
    return this.#state;
  }

  /** Whether nothing is sent any more, because the connection is closed or ended. */
  get isClosed(): boolean {
    return this.#state === 'closed' || this.#state === 'ended';
  }

  /** Whether reading from the peer is paused. */
  get isPaused(): boolean {
    return this.#socket.isPaused();
  }

  /** Why the connection is finishing or closed. */
  get reason(): string {
    return this.#reason;
  }

  /** Bytes that have been received. */
  get receivedBytes(): number {
    return this.#receivedBytes;
  }

  /** Bytes that were written but that the system has not taken yet. */
  get waitingBytes(): number {
    return this.#socket.writableLength;
  }

  /** Bytes that the system has taken. */
  get takenBytes(): number {
    return this.isClosed ? this.#takenBytesAtEnd : this.#socket.bytesWritten - this.waitingBytes;
  }

  /** Earliest time at which the bytes being processed can have been sent, as far as this node knows. */
  get sentAfterMs(): number {
    return this.#arrivals?.sentAfterMs ?? 0;
  }

  get inFlightCount(): number {
    return this.#inFlightCount;
  }

  get inFlightBytes(): number {
    return this.#inFlightBytes;
  }

  get #isReceiving(): boolean {
    return this.#steps.received === 'told';
  }

  /** Must be called when the peer has identified itself; the door then decides about it. */
  greeted(): void {
    this.#raise('greeted');
  }

  /** Must be called when the door has accepted the peer. Idempotent. */
  opened(): void {
    this.#all.greeting.delete(this.#protocol);
    this.#raise('opened');
  }

  /** Receives nothing more, and ends the connection when nothing is in progress any more. Idempotent. */
  finish(reason: string): void {
    this.#raise('finish', reason);
  }

  /** Ends the connection when the peer has received everything that was written. Idempotent. */
  end(reason: string): void {
    this.#raise('end', reason);
  }

  /** Closes the connection at once. Idempotent. */
  close(reason: string): void {
    this.#raise('close', reason);
  }

  /** Closes the connection. Written bytes are sent as far as the system takes them at once. Idempotent. */
  hangUp(reason: string): void {
    if (!this.isClosed) this.#socket.end();
    this.close(reason);
  }

  /** Closes the connection to make room for another one. */
  replace(reason: string): void {
    this.#raise('replaced', reason);
  }

  /** Resolves when the connection is closed and nothing is in progress any more. */
  whenEnded(): Promise<void> {
    if (this.#state === 'ended') return Promise.resolve();
    return new Promise((resolve) => this.#onEnded.push(resolve));
  }

  /**
   * Returns which limit another request of this many bytes would exceed: the count or the bytes of this connection, or
   * those of all connections (`all`).
   */
  tooMuch(bytes: number): 'count' | 'bytes' | 'all' | undefined {
    const { limits } = this.#all;
    if (this.#inFlightCount >= limits.inFlightMaxCount) return 'count';
    const wholeBytes = this.#inFlightBytes + bytes;
    if (wholeBytes > limits.inFlightMaxBytes) return 'bytes';
    // A peer with few requests is always served, however many requests others have.
    if (this.#inFlightCount < limits.grantedCount && wholeBytes <= limits.grantedBytes) return undefined;
    return this.#all.hasRoomFor(bytes) ? undefined : 'all';
  }

  /** Counts a request of this many bytes until it is settled. */
  begin(bytes: number): void {
    this.#inFlightCount++;
    this.#inFlightBytes += bytes;
    this.#all.count(1, bytes);
  }

  /** Stops counting a request that was begun. */
  settle(bytes: number): void {
    this.#inFlightCount = reduced('served connection: in flight count', this.#inFlightCount, 1);
    this.#inFlightBytes = reduced('served connection: in flight bytes', this.#inFlightBytes, bytes);
    this.#all.count(-1, -bytes);
    this.#checkIdle();
  }

  /** Keeps the connection from ending until {@link letGo}, because answers are being created or written. */
  hold(): void {
    this.#holdsCount++;
  }

  letGo(): void {
    this.#holdsCount = reduced('served connection: holds count', this.#holdsCount, 1);
    this.#checkIdle();
  }

  /** Begins to watch a message whose rest must arrive at RECEIVING_MIN_BYTES_PER_S, until {@link messageCame}. */
  awaitAtRate(): void {
    if (!this.#isReceiving) return;
    const { receivingWindowMs } = this.#all.limits;
    this.#receiving.begin(receivingWindowMs, (RECEIVING_MIN_BYTES_PER_S * receivingWindowMs) / 1000);
  }

  /** Begins to watch a message that must arrive completely within the time limit, unless it is watched already. */
  awaitWhole(): void {
    if (!this.#isReceiving || this.#receiving.isWatching) return;
    this.#receiving.begin(this.#all.limits.stallTimeoutMs, Number.POSITIVE_INFINITY);
  }

  /** Stops watching the message, which is complete or was given up. */
  messageCame(): void {
    this.#receiving.end();
  }

  /** Pauses or resumes reading, depending on the protocol and the turns of others. */
  updateReading(): void {
    if (!this.#isReceiving) return;
    const mustWait = this.#arrivals?.isWaiting === true || this.#protocol.mustWait;
    this.#receiving.hold(mustWait);
    if (mustWait) this.#socket.pause();
    else if (this.#socket.isPaused()) this.#socket.resume();
  }

  /**
   * Must be called after the protocol has written. Watches that the peer takes the output and that not too much waits.
   */
  wrote(): void {
    const { clock, limits } = this.#all;
    const { waitingBytes } = this;
    // A peer that asks for one thing after the other asks again as soon as it has the answer.
    clock.expectInput?.();
    if (waitingBytes <= limits.watchedMinBytes || this.isClosed) return;
    if (waitingBytes > limits.outputMaxBytes || this.#all.isFlooded) {
      this.#raise('flooded');
      return;
    }
    if (!this.#sending.isWatching) this.#sending.begin(limits.stallTimeoutMs, 1);
    this.updateReading();
  }

  /** Resolves when the system has taken everything that was written, or the connection is closed. */
  async taken(): Promise<void> {
    while (!this.isClosed && this.waitingBytes > 0) {
      // A socket emits no event for writes below its high-water mark.
      if (!this.#socket.writableNeedDrain) {
        this.#cancelPoll();
        this.#cancelPoll = this.#all.clock.after(POLL_MS, () => this.#tellTaken());
      }
      await new Promise<void>((resolve) => this.#onTaken.push(resolve));
    }
  }

  #received(chunk: Buffer): void {
    if (!this.#raise('received')) return;
    this.#receivedBytes += chunk.length;
    if (this.#arrivals === undefined) this.#protocol.received(chunk);
    else this.#arrivals.add(chunk);
  }

  #drained(): void {
    this.#tellTaken();
    if (!this.#raise('drained')) return;
    this.updateReading();
    this.#protocol.drained();
  }

  #tellTaken(): void {
    for (const resolve of this.#onTaken.splice(0)) resolve();
  }

  #checkIdle(): void {
    if (this.#inFlightCount === 0 && this.#holdsCount === 0) this.#raise('idle');
  }

  /** Applies an event. Returns whether it had an effect. */
  #raise(event: ServedEvent, reason = this.#reason): boolean {
    const step: ServedStep = this.#steps[event];
    if (step === 'ignored') return false;
    if (step === 'never') {
      // Nothing that a peer does may end the node: its connection ends, and `verify` reports the bug.
      const what = `${event} while ${this.#state}`;
      this.#all.impossible(what);
      if (!this.isClosed) this.#enter('closed', event, `a mistake of this node: ${what}`);
      return false;
    }
    if (step !== 'told') this.#enter(step, event, reason);
    return true;
  }

  #enter(state: ServedState, event: ServedEvent, reason: string): void {
    if (state === 'closed') this.#takenBytesAtEnd = this.takenBytes;
    this.#state = state;
    this.#steps = STEPS_FROM[state];
    this.#reason = reason;
    this.#cancelGreeting();
    if (!this.#isReceiving) {
      this.#arrivals?.stop();
      this.#receiving.end();
    }
    if (state === 'closed') this.#leave();
    if (state === 'ended') this.#all.ended(this.#protocol);
    if (state === 'ended') {
      this.#protocol.entered(state, event);
      for (const resolve of this.#onEnded.splice(0)) resolve();
      return;
    }
    // The protocol must act on the new state before `idle` can lead to the next one.
    this.hold();
    this.#protocol.entered(state, event);
    this.letGo();
    if (this.#state !== 'ending' || state !== 'ending') return;
    this.#sending.begin(this.#all.limits.stallTimeoutMs, 1);
    this.#socket.end(() => this.#raise('sent'));
  }

  #leave(): void {
    this.#sending.end();
    this.#cancelPoll();
    this.#socket.destroy();
    this.#all.closed(this.#protocol);
    this.#tellTaken();
  }

  /** Throws `InvariantError` unless its counts are consistent. */
  verify(): void {
    assert(this.#inFlightCount > 0 || this.#inFlightBytes === 0, 'served connection: bytes of no requests');
    const isOver = this.#state !== 'ended' || (this.#inFlightCount === 0 && this.#holdsCount === 0);
    assert(isOver, 'served connection: ended, and something is in progress');
  }
}
