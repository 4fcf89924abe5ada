import { assert, reduced } from '../../base/assert.js';
import type { Sharer } from '../../base/concurrency/shares.js';
import type { Connection } from '../../base/environment/network.js';
import { RECEIVING_MIN_BYTES_PER_S } from '../../base/limits.js';
import { Arrivals } from '../arrivals.js';
import { type ServedEvent, type ServedState, type ServedStep, STEPS_FROM } from './connection-states.js';
import type { ServedConnections } from './served-connections.js';
import { StallWatch } from './stall-watch.js';

/** What a door makes of a connection. None of its methods may throw. */
export interface ServedProtocol {
  readonly served: ServedConnection;
  /** Whether the peer is to be held up: nothing more is read from it for now. */
  readonly mustWait: boolean;
  /** Takes bytes of the peer, which belong to the callee. */
  received(bytes: Buffer): void;
  /** The system has taken everything that was written. */
  drained(): void;
  /** The peer sends nothing more. */
  peerEnded(): void;
  /** A message does not go on that has to: at a rate, or to its end. */
  slow(awaited: 'rate' | 'end'): void;
  /**
   * The connection has entered a state, by an event. On `ending` last words may still be written; on `closed` the
   * socket is closed.
   */
  entered(state: ServedState, event: ServedEvent): void;
  /** Finishes what is in progress, and ends the connection. Idempotent. */
  finish(reason: string): void;
  verify(): void;
}

/** The peer of a connection, for what it shares with others. */
export interface ServedPeer {
  /** Tells where the peer is from, among connections that make way for others. */
  readonly origin: string;
  /** The sharer whose turns the peer takes; undefined: what comes is taken at once. */
  readonly sharer?: Sharer;
}

/** Pause before looking again whether the socket has taken what it does not tell of. */
const POLL_MS = 1;
/** Reasons for the log; the others are those of the door. */
const STUCK = 'the client does not take its answers';

/**
 * One accepted connection: it owns the socket and the life of the connection, by the table of `connection-states.ts`,
 * with all its deadlines; counts what is in progress; and holds the peer up. The protocol reads what comes, and writes
 * to the socket.
 *
 * Accounting: `inFlightCount` and `inFlightBytes` are those of requests that were begun and not settled, and a part of
 * those of all connections of the door.
 */
export class ServedConnection {
  readonly #socket: Connection;
  readonly #all: ServedConnections;
  readonly #protocol: ServedProtocol;
  /** Where the peer is from. */
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

  constructor(socket: Connection, all: ServedConnections, protocol: ServedProtocol, { origin, sharer }: ServedPeer) {
    this.#socket = socket;
    this.#all = all;
    this.#protocol = protocol;
    this.origin = origin;
    const { clock, limits, fairness } = all;
    if (sharer !== undefined && fairness !== undefined) {
      const receive = (bytes: Buffer): void => protocol.received(bytes);
      this.#arrivals = new Arrivals({ ...fairness, sharer, receive, onWaiting: () => this.updateReading() });
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

  /** Whether nothing is sent any more. */
  get isClosed(): boolean {
    return this.#state === 'closed' || this.#state === 'ended';
  }

  /** Whether nothing is read from the peer for now. */
  get isPaused(): boolean {
    return this.#socket.isPaused();
  }

  /** Why the connection is finishing or closed. */
  get reason(): string {
    return this.#reason;
  }

  /** Bytes that have come. */
  get receivedBytes(): number {
    return this.#receivedBytes;
  }

  /** Bytes that were written and that the system has not taken yet. */
  get waitingBytes(): number {
    return this.#socket.writableLength;
  }

  /** Bytes that the system has taken. */
  get takenBytes(): number {
    return this.isClosed ? this.#takenBytesAtEnd : this.#socket.bytesWritten - this.waitingBytes;
  }

  /** The earliest time at which what is being taken was sent, as far as the node knows. */
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

  /** The peer has said who it is, and the door decides about it. */
  greeted(): void {
    this.#raise('greeted');
  }

  /** The door has accepted the peer. Idempotent. */
  opened(): void {
    this.#all.greeting.delete(this.#protocol);
    this.#raise('opened');
  }

  /** Receives nothing more, and ends the connection when nothing is in progress any more. Idempotent. */
  finish(reason: string): void {
    this.#raise('finish', reason);
  }

  /** Ends the connection when the peer has what was written. Idempotent. */
  end(reason: string): void {
    this.#raise('end', reason);
  }

  /** Closes the connection at once. Idempotent. */
  close(reason: string): void {
    this.#raise('close', reason);
  }

  /** Closes the connection; what was written goes as far as the system takes it at once. Idempotent. */
  hangUp(reason: string): void {
    if (!this.isClosed) this.#socket.end();
    this.close(reason);
  }

  /** Closes the connection of a peer that keeps others out. */
  replace(reason: string): void {
    this.#raise('replaced', reason);
  }

  /** Resolves when nothing is in progress any more, and the connection is closed. */
  whenEnded(): Promise<void> {
    if (this.#state === 'ended') return Promise.resolve();
    return new Promise((resolve) => this.#onEnded.push(resolve));
  }

  /** Why a request of so many bytes is too much: by its count or bytes, or by those of all connections. */
  tooMuch(bytes: number): 'count' | 'bytes' | 'all' | undefined {
    const { limits } = this.#all;
    if (this.#inFlightCount >= limits.inFlightMaxCount) return 'count';
    const wholeBytes = this.#inFlightBytes + bytes;
    if (wholeBytes > limits.inFlightMaxBytes) return 'bytes';
    // A peer with few requests is always served, however many others have.
    if (this.#inFlightCount < limits.grantedCount && wholeBytes <= limits.grantedBytes) return undefined;
    return this.#all.hasRoomFor(bytes) ? undefined : 'all';
  }

  /** Counts a request of so many bytes until it is settled. */
  begin(bytes: number): void {
    this.#inFlightCount++;
    this.#inFlightBytes += bytes;
    this.#all.count(1, bytes);
  }

  /** A request that was begun is in progress no more. */
  settle(bytes: number): void {
    this.#inFlightCount = reduced('served connection: in flight count', this.#inFlightCount, 1);
    this.#inFlightBytes = reduced('served connection: in flight bytes', this.#inFlightBytes, bytes);
    this.#all.count(-1, -bytes);
    this.#checkIdle();
  }

  /** Keeps the connection from ending until {@link letGo}: answers are being made or written. */
  hold(): void {
    this.#holdsCount++;
  }

  letGo(): void {
    this.#holdsCount = reduced('served connection: holds count', this.#holdsCount, 1);
    this.#checkIdle();
  }

  /** A message has begun, the rest of which must come at RECEIVING_MIN_BYTES_PER_S, until {@link messageCame}. */
  awaitAtRate(): void {
    if (!this.#isReceiving) return;
    const { receivingWindowMs } = this.#all.limits;
    this.#receiving.begin(receivingWindowMs, (RECEIVING_MIN_BYTES_PER_S * receivingWindowMs) / 1000);
  }

  /** A message has begun, which must come whole within the time limit, unless it is watched already. */
  awaitWhole(): void {
    if (!this.#isReceiving || this.#receiving.isWatching) return;
    this.#receiving.begin(this.#all.limits.stallTimeoutMs, Number.POSITIVE_INFINITY);
  }

  /** The message is whole, or is given up. */
  messageCame(): void {
    this.#receiving.end();
  }

  /** Stops or goes on reading, as the protocol and the turns of others demand it. */
  updateReading(): void {
    if (!this.#isReceiving) return;
    const mustWait = this.#arrivals?.isWaiting === true || this.#protocol.mustWait;
    this.#receiving.hold(mustWait);
    if (mustWait) this.#socket.pause();
    else if (this.#socket.isPaused()) this.#socket.resume();
  }

  /** To be called when the protocol has written: watches that the peer takes it, and that not too much waits. */
  wrote(): void {
    const { limits } = this.#all;
    const { waitingBytes } = this;
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
      // A socket tells nothing of writes below its high-water mark.
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

  /** Lets an event happen. Returns whether it matters. */
  #raise(event: ServedEvent, reason = this.#reason): boolean {
    const step: ServedStep = this.#steps[event];
    if (step === 'ignored') return false;
    if (step === 'never') {
      // Whatever a peer does must not end the node: its connection ends, and `verify` tells.
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
    // What the protocol does about it comes before what follows from that.
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

  /** Throws `InvariantError` unless its counts are possible. */
  verify(): void {
    assert(this.#inFlightCount > 0 || this.#inFlightBytes === 0, 'served connection: bytes of no requests');
    const isOver = this.#state !== 'ended' || (this.#inFlightCount === 0 && this.#holdsCount === 0);
    assert(isOver, 'served connection: ended, and something is in progress');
  }
}
