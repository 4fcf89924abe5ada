import { assert, assertAtMost, assertEqual, reduced } from '../../../base/assert.js';
import type { Environment } from '../../../base/environment/environment.js';
import { type Connection, type Endpoint, formatEndpoint, onConnected } from '../../../base/environment/network.js';
import { Gone } from '../../../base/gone.js';
import { KEEP_ALIVE_DELAY_MS } from '../../../base/limits.js';
import { type FrameTags, TAG_BYTES, tagsUnder } from '../../../memory/frame-tags.js';
import type { AnswerTimes } from '../../../net/answer-times.js';
import type { SessionKeys } from '../../../net/auth.js';
import { type AuthFailureReason, type AuthFailures, authError } from '../../../net/auth-failures.js';
import { ClientOpening } from '../../../net/opening.js';
import type { TcpLimits } from '../protocol/limits.js';
import { DATA_HELLO, dataTarget, decodeResponseHeader, HEADER_PART, HELLO_BYTES } from '../protocol/protocol.js';
import { Landing, type LandingOutcome } from './landing.js';
import type { ReadBatch, ReadCounters, ReadRequest } from './read-request.js';
import { HEADER_RECEIVE_BYTES, ReceivedHeader } from './received-header.js';
import { SilenceWatch } from './silence-watch.js';

export interface ReadConnectionParts {
  readonly endpoint: Endpoint;
  /** Buffer of `STAGING_BYTES` that all connections of the thread share. */
  readonly staging: Uint8Array;
  readonly counters: ReadCounters;
  readonly limits: TcpLimits;
  readonly env: Environment;
  readonly authFailures: AuthFailures;
  /** How long the peer usually takes to begin an answer, over all its connections. */
  readonly times: AnswerTimes;
  /** Called when the connection can be used, and when bytes come after {@link onOverdue}. */
  onAnswering(): void;
  /**
   * Called when the peer is silent for longer than it usually takes. All operations end, at once or with the
   * connection. The connection stays open until its stall limit, because the peer may still answer.
   */
  onOverdue(): void;
  /** Called once, when the connection is closed. `isAtFault`: it was never usable, or failed with reads pending. */
  onClose(isAtFault: boolean, reason: string): void;
  /** Called after `onClose` with requests that got no bytes, which another connection has to send. */
  onMoved(requests: readonly ReadRequest[]): void;
}

const REQUEST_ID_LIMIT = 2 ** 32;

/**
 * The connection to one peer. Requests are sent pipelined within a window; answers come back in order and are received
 * straight into their destinations.
 *
 * When the connection fails, it destroys its socket first, so that nothing more is received. Then it ends its
 * operations, so that callers can reuse the memory when they see the results.
 *
 * After each receipt the socket takes the memory for the next bytes, long before they arrive, and does not give it
 * back. Therefore an aborted request whose memory the socket holds ends with the next receipt or, if nothing arrives in
 * time, with the connection. All other aborted requests end at once; their payload is dropped on arrival. TLS behaves
 * the same, because decrypted bytes are copied into the memory that was taken before.
 */
export class ReadConnection {
  readonly #parts: ReadConnectionParts;
  readonly #socket: Connection;
  readonly #landing: Landing;
  readonly #headerTarget: Uint8Array;
  readonly #header = new ReceivedHeader();
  /** Length of the next part of the opening. */
  #openingBytes = HELLO_BYTES;
  /** Tags that requests carry; undefined: none. */
  #sentTags: FrameTags | undefined;
  #state: 'connecting' | 'greeting' | 'open' | 'closed' = 'connecting';
  readonly #opening: ClientOpening;
  /** Requests not sent yet, oldest first. */
  #queued: ReadRequest[] = [];
  /** Requests sent and not completely answered, oldest first. */
  #sent: ReadRequest[] = [];
  /** Request ids of the requests in `#sent`, in the same order. */
  #sentIds: number[] = [];
  #inFlightBytes = 0;
  #nextRequestId = 1;
  #cancelTimer: (() => void) | undefined;
  /** Ends the wait of the requests that were submitted before the connection is open. */
  #cancelOpeningWait: (() => void) | undefined;
  readonly #startedMs: number;
  readonly #silence: SilenceWatch;
  #wasLate = false;
  #wasForeign = false;
  #hasAnswered = false;
  /** Whether the next bytes are received into memory of the oldest request. */
  #isHandedOut = false;
  /** Ends the wait for the next bytes. Set while the oldest request is aborted and has not ended. */
  #endGrace: (() => void) | undefined;
  #isReferenced = true;

  /** Opens the connection; requests may be submitted at once. */
  constructor(parts: ReadConnectionParts) {
    this.#parts = parts;
    const { env, endpoint } = parts;
    const subject = { env, target: dataTarget(endpoint), isEncrypted: () => this.#socket.encrypted === true };
    this.#opening = new ClientOpening(DATA_HELLO, subject, {
      send: (bytes) => this.#socket.write(bytes),
      opened: (_peerHello, keys) => this.#opened(keys),
      refused: (reason) => this.#unauthenticated(reason),
      foreign: (error) => this.#violated(error.message),
    });
    this.#silence = new SilenceWatch({
      limits: parts.limits,
      times: parts.times,
      clock: parts.env.clock,
      dueBytes: () => this.#sent[0]?.totalBytes,
      onOverdue: () => this.#overdue(),
      onStalled: () => this.#late('stalled, or too slow'),
    });
    this.#headerTarget = parts.staging.subarray(0, HEADER_RECEIVE_BYTES);
    this.#landing = new Landing(parts.staging, {
      finished: (request, op, outcome) => this.#finished(request, op, outcome),
    });
    parts.counters.add('connections', 1);
    this.#startedMs = parts.env.clock.nowMs();
    this.#socket = parts.env.network.connect({
      ...parts.endpoint,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_DELAY_MS,
      onread: {
        buffer: () => this.#target(),
        callback: (count, bytes) => this.#received(bytes, count),
      },
    });
    onConnected(this.#socket, () => this.#connected());
    this.#socket.on('error', (error) => this.#lost(error.message));
    this.#socket.on('end', () => this.#lost('ended by the peer'));
    this.#socket.on('close', () => this.#lost('closed'));
    // The stream must flow, otherwise its end would not be noticed.
    this.#socket.resume();
    this.#limitState('connecting');
  }

  /** Whether the opening has succeeded and nothing has failed since. */
  get isOpen(): boolean {
    return this.#state === 'open';
  }

  /** Whether the peer was silent when the connection was given up. */
  get wasLate(): boolean {
    return this.#wasLate;
  }

  /** Whether the peer violated the protocol, or the two sides do not share a secret. */
  get wasForeign(): boolean {
    return this.#wasForeign;
  }

  /** Whether a request has been answered over this connection. */
  get hasAnswered(): boolean {
    return this.#hasAnswered;
  }

  /** Sends the request as soon as the window allows. All its operations end, whatever happens. */
  submit(request: ReadRequest): void {
    if (this.#state === 'closed') {
      this.#parts.counters.add('failedOps', request.failRest());
      return;
    }
    this.#queued.push(request);
    this.#keepAlive(true);
    if (this.#state === 'open') this.#sendQueued();
    else this.#limitOpeningWait();
  }

  /** Lets the process exit while the connection is still opening, because no caller waits for it. */
  probe(): void {
    this.#keepAlive(false);
  }

  /**
   * Ends the operations of a batch as false, at once or as soon as nothing is received into their memory any more.
   * Requests that are still queued are not sent.
   */
  abort(batch: ReadBatch): void {
    if (this.#state === 'closed') return;
    const isOthers = (request: ReadRequest): boolean => request.batch !== batch;
    for (const request of this.#queued) if (!isOthers(request)) this.#endAborted(request);
    this.#queued = this.#queued.filter(isOthers);
    for (const [i, request] of this.#sent.entries()) {
      if (isOthers(request) || request.isAborted) continue;
      if (i === 0 && this.#isHandedOut) this.#awaitReceipt();
      else this.#endAborted(request);
    }
    // Requests behind an aborted one may fit in the window now.
    if (this.#state === 'open') this.#sendQueued();
    this.#restIfUnwanted();
  }

  /** Closes the connection; pending operations end false, at once or after this turn of the event loop. Idempotent. */
  close(reason: string): void {
    this.#close(reason, { isGivenUp: false });
  }

  /**
   * With `isGivenUp` the peer is not at fault. Requests that got no bytes are then moved to another connection instead
   * of failing.
   */
  #close(reason: string, { isGivenUp }: { readonly isGivenUp: boolean }): void {
    if (this.#state === 'closed') return;
    const wasOpen = this.#state === 'open';
    this.#state = 'closed';
    this.#cancelTimer?.();
    this.#endOpeningWait();
    this.#silence.stop();
    this.#endGrace?.();
    this.#socket.destroy();
    this.#landing.abandon();
    const { counters, onClose, onMoved, env } = this.#parts;
    counters.add('connections', -1);
    const handedOut = this.#isHandedOut ? this.#sent[0] : undefined;
    const pending = [...this.#sent, ...this.#queued];
    this.#sent = [];
    this.#queued = [];
    onClose(!isGivenUp && (!wasOpen || pending.length > 0), reason);
    const moved = isGivenUp
      ? pending.filter((request) => request !== handedOut && !request.isAborted && !request.wasMoved)
      : [];
    for (const request of moved) request.wasMoved = true;
    for (const request of pending) {
      if (request !== handedOut && !moved.includes(request)) counters.add('failedOps', request.failRest());
    }
    // A TLS socket that is handing out decrypted bytes continues after it is destroyed, until this turn ends.
    if (handedOut !== undefined) env.clock.yield().then(() => counters.add('failedOps', handedOut.failRest()));
    if (moved.length > 0) onMoved(moved);
  }

  #endAborted(request: ReadRequest): void {
    if (request === this.#sent[0] && this.#landing.restBytes > 0) this.#landing.discard();
    this.#parts.counters.add('failedOps', request.abort());
  }

  /** Ends the oldest request if the memory for its next bytes is gone, because an error here would end the process. */
  #dropIfDetached(): void {
    if (this.#landing.isDetached) this.#endAborted(this.#sent[0] as ReadRequest);
  }

  /** Delays the end of the oldest request, which was aborted, until its memory has been received into once more. */
  #awaitReceipt(): void {
    if (this.#endGrace !== undefined) return;
    const { limits, env } = this.#parts;
    let isOver = false;
    const cancel = env.clock.after(limits.abortGraceMs, () => {
      // This thread may have been busy itself, so bytes that arrived meanwhile are handled first.
      env.clock.yield().then(() => {
        if (!isOver) this.#close('a read was aborted, and its peer sends nothing', { isGivenUp: true });
      });
    });
    this.#endGrace = () => {
      isOver = true;
      cancel();
      this.#endGrace = undefined;
    };
  }

  #keepAlive(isWanted: boolean): void {
    if (this.#isReferenced === isWanted) return;
    this.#isReferenced = isWanted;
    if (isWanted) this.#socket.ref();
    else this.#socket.unref();
  }

  /** Lets the process end if no caller waits for this connection. */
  #restIfUnwanted(): void {
    if (this.#state !== 'open' || this.#queued.length > 0) return;
    if (this.#sent.every((request) => request.isAborted)) this.#keepAlive(false);
  }

  #late(reason: string): void {
    this.#wasLate = true;
    this.close(reason);
  }

  #connected(): void {
    if (this.#state !== 'connecting') return;
    this.#state = 'greeting';
    this.#endOpeningWait();
    if (this.#queued.length > 0) this.#limitOpeningWait();
    this.#opening.greet();
    this.#limitState('greeting');
  }

  /** Gives up the connection if it is still in this state after the connect timeout. */
  #limitState(state: 'connecting' | 'greeting'): void {
    const { limits, env } = this.#parts;
    this.#cancelTimer?.();
    this.#cancelTimer = env.clock.after(limits.connectTimeoutMs, () => {
      // This thread may have been busy itself, so bytes that arrived meanwhile are handled first.
      env.clock.yield().then(() => {
        if (this.#state === state) this.#late(state === 'connecting' ? 'not connected in time' : 'no hello in time');
      });
    });
  }

  /** Ends requests that have waited for the opening longer than the peer usually takes; the opening continues. */
  #limitOpeningWait(): void {
    if (this.#cancelOpeningWait !== undefined) return;
    const { limits, env, times } = this.#parts;
    const patienceMs = times.patienceMs(limits.patienceMinMs, limits.connectTimeoutMs);
    const state = this.#state;
    this.#cancelOpeningWait = env.clock.after(patienceMs, () => {
      // This thread may have been busy itself, so bytes that arrived meanwhile are handled first.
      env.clock.yield().then(() => {
        if (this.#state === state) this.#overdue();
      });
    });
  }

  #endOpeningWait(): void {
    this.#cancelOpeningWait?.();
    this.#cancelOpeningWait = undefined;
  }

  /**
   * Ends all operations because the peer is silent: at once, or together with the connection if the socket holds memory
   * of one.
   */
  #overdue(): void {
    this.#parts.onOverdue();
    if (this.#isHandedOut) {
      this.#late('silent in the middle of a page');
      return;
    }
    for (const request of this.#queued.splice(0)) this.#endAborted(request);
    for (const request of this.#sent) if (!request.isAborted) this.#endAborted(request);
    this.#keepAlive(false);
  }

  /** The buffer that the next bytes are received into. */
  #target(): Uint8Array {
    this.#dropIfDetached();
    const target = this.#landing.restBytes > 0 ? this.#landing.target() : this.#headerTarget;
    this.#isHandedOut = target.buffer !== this.#parts.staging.buffer;
    return target;
  }

  #received(bytes: Uint8Array, count: number): boolean {
    this.#isHandedOut = false;
    if (this.#silence.received()) this.#parts.onAnswering();
    if (this.#landing.restBytes > 0 && bytes.buffer !== this.#parts.staging.buffer) {
      this.#dropIfDetached();
      this.#landing.landed(bytes, count);
      if (this.#endGrace !== undefined) {
        this.#endGrace();
        this.#endAborted(this.#sent[0] as ReadRequest);
      }
      if (this.#landing.restBytes === 0) this.#answered();
    } else {
      this.#parse(bytes, count);
    }
    return true;
  }

  #parse(bytes: Uint8Array, count: number): void {
    for (let at = 0; at < count && this.#state !== 'closed'; ) {
      if (this.#landing.restBytes > 0) {
        this.#dropIfDetached();
        at += this.#landing.accept(bytes, at, count);
        if (this.#landing.restBytes === 0) this.#answered();
      } else {
        at += this.#acceptHeader(bytes, at, count);
      }
    }
  }

  /** Collects a header, or a part of the opening, from received pieces; returns the bytes used. */
  #acceptHeader(bytes: Uint8Array, from: number, to: number): number {
    const isOpen = this.#state === 'open';
    const wantedBytes = isOpen ? this.#header.lengthFor(this.#sent[0]?.opCount ?? 0) : this.#openingBytes;
    const taken = this.#header.take(bytes, { from, to, wantedBytes });
    const whole = this.#header.whole(wantedBytes);
    if (whole !== undefined && isOpen) this.#beginResponse(whole);
    else if (whole !== undefined) this.#takeOpening(whole);
    return taken;
  }

  #takeOpening(part: Buffer): void {
    const nextBytes = this.#opening.take(part);
    if (nextBytes > 0) this.#openingBytes = nextBytes;
  }

  #opened(keys: SessionKeys | undefined): void {
    const tags = tagsUnder(keys);
    this.#state = 'open';
    this.#sentTags = tags?.sent;
    this.#header.open(tags?.received);
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#endOpeningWait();
    const { times, env, onAnswering } = this.#parts;
    // Later openings are not timed: an opening takes more round trips and more computation than an answer.
    if (!times.isKnown) times.note(env.clock.nowMs() - this.#startedMs);
    onAnswering();
    this.#restIfUnwanted();
    this.#sendQueued();
  }

  #beginResponse(header: Buffer): void {
    const response = decodeResponseHeader(header);
    const request = this.#sent[0];
    if (!this.#header.isTagged(header)) {
      this.#violated('an answer that it has not sent, or not like this');
      return;
    }
    const isAnswer = response !== undefined && request !== undefined && response.requestId === this.#sentIds[0];
    if (!isAnswer || !this.#landing.begin(request, response, header, this.#header.tags)) {
      this.#violated('its answer does not fit the request');
      return;
    }
    this.#hasAnswered = true;
    this.#silence.answerBegins();
    if (this.#landing.restBytes === 0) this.#answered();
  }

  #answered(): void {
    const request = this.#sent.shift() as ReadRequest;
    this.#sentIds.shift();
    this.#inFlightBytes = reduced('read connection: in flight bytes', this.#inFlightBytes, request.totalBytes);
    this.#silence.oldestChanged();
    this.#sendQueued();
    this.#restIfUnwanted();
  }

  /** Sends as much as the window allows; a single request that exceeds it goes alone. */
  #sendQueued(): void {
    const { limits } = this.#parts;
    while (this.#queued.length > 0 && this.#sent.length < limits.inFlightMaxCount) {
      const request = this.#queued[0] as ReadRequest;
      if (this.#sent.length > 0 && this.#inFlightBytes + request.totalBytes > limits.inFlightMaxBytes) return;
      this.#queued.shift();
      this.#sent.push(request);
      this.#sentIds.push(this.#nextRequestId);
      this.#inFlightBytes += request.totalBytes;
      const frame = request.encode(this.#nextRequestId, this.#sentTags === undefined ? 0 : TAG_BYTES);
      this.#sentTags?.tagFrame(HEADER_PART, frame);
      this.#socket.write(frame);
      this.#nextRequestId = (this.#nextRequestId + 1) % REQUEST_ID_LIMIT;
      if (this.#sent.length === 1) this.#silence.begin();
    }
  }

  #finished(request: ReadRequest, op: number, outcome: LandingOutcome): void {
    const { counters, env } = this.#parts;
    if (outcome === 'read') {
      counters.add('readOps', 1);
      counters.add('readBytes', request.lengthOf(op));
    } else {
      counters.add('failedOps', 1);
      if (outcome === 'stale') counters.add('staleOps', 1);
      if (outcome === 'wrong-checksum' || outcome === 'altered') {
        counters.add('checksumFailures', 1);
        env.metrics.count('meshcache_checksum_failures_total', 1, { source: 'remote' });
      }
    }
    const isPageKnown = outcome !== 'read' && outcome !== 'altered';
    const gone = !isPageKnown ? Gone.no : outcome === 'wrong-checksum' ? Gone.damaged : Gone.freed;
    request.finish(op, outcome === 'read', gone);
  }

  /** Handles the end of the connection. A server that rejects the proof closes it without an answer. */
  #lost(reason: string): void {
    if (this.#opening.awaitsProof && this.#state === 'greeting') this.#unauthenticated('refused');
    else this.close(reason);
  }

  #unauthenticated(reason: AuthFailureReason): void {
    const peer = formatEndpoint(this.#parts.endpoint);
    this.#parts.authFailures.record(reason, peer);
    this.#violated(authError(reason, peer).message);
  }

  #violated(reason: string): void {
    this.#parts.counters.add('protocolErrors', 1);
    this.#wasForeign = true;
    this.close(reason);
  }

  /**
   * Throws `InvariantError` unless requests in flight are counted and within the window, and no request waits that
   * could be sent.
   */
  verify(): void {
    const peer = formatEndpoint(this.#parts.endpoint);
    if (this.#state === 'closed') {
      assertEqual(`${peer}: requests of a connection that has ended`, this.#sent.length + this.#queued.length, 0);
      return;
    }
    const { inFlightMaxCount, inFlightMaxBytes } = this.#parts.limits;
    const bytes = this.#sent.reduce((sum, { totalBytes }) => sum + totalBytes, 0);
    assertEqual(`${peer}: bytes in flight`, this.#inFlightBytes, bytes);
    assertEqual(`${peer}: ids of requests in flight`, new Set(this.#sentIds).size, this.#sent.length);
    assertAtMost(`${peer}: requests in flight`, this.#sent.length, inFlightMaxCount);
    if (this.#sent.length > 1) assertAtMost(`${peer}: bytes of several requests in flight`, bytes, inFlightMaxBytes);
    const [next] = this.#queued;
    const isFull =
      this.#sent.length === inFlightMaxCount ||
      (this.#sent.length > 0 && bytes + (next?.totalBytes ?? 0) > inFlightMaxBytes);
    const isBusy = next === undefined || this.#state !== 'open' || isFull;
    assert(isBusy, () => `${peer}: ${this.#queued.length} requests wait, and ${this.#sent.length} are in flight`);
    this.#landing.verify();
    const isWanted = this.#landing.restBytes === 0 || this.#sent.length > 0;
    assert(isWanted, () => `${peer}: ${this.#landing.restBytes} bytes are due for no request`);
  }
}
