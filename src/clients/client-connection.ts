import { assert } from '../base/assert.js';
import type { ByteBudget } from '../base/concurrency/byte-budget.js';
import type { PauseWatch } from '../base/concurrency/pause-watch.js';
import type { Sharer, Shares } from '../base/concurrency/shares.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';
import type { Clock } from '../base/environment/clock.js';
import type { Connection } from '../base/environment/network.js';
import type { SparseLog } from '../base/environment/sparse-log.js';
import { ProtocolError } from '../base/errors.js';
import { CLIENT_SMALL_BODY_BYTES, RECEIVING_MIN_BYTES_PER_S } from '../base/limits.js';
import type { PeerCredentials } from '../native/unix-sockets.js';
import { callTime } from '../store/call/call-time.js';
import type { ClientLimits } from './client-limits.js';
import { ClientOutput } from './client-output.js';
import { RequestReception } from './request-reception.js';
import type { AbsentBudget } from './requests/absent-memory.js';
import type { AttachedClient } from './requests/attached-client.js';
import type { ClientAccess } from './requests/client-access.js';
import { ClientRegions } from './requests/client-regions.js';
import { CANCELLED, ClientRequests, type RequestWait } from './requests/client-requests.js';
import type { ClientCounts } from './requests/client-stats.js';
import { type ClientRequest, type RequestBeginning, RequestsInFlight } from './requests-in-flight.js';
import { ASKED_BYTES, askedRequest, FLAG_ASKED } from './wire/asked-instant.js';
import { BodyReader } from './wire/body.js';
import { decodeFingerprint, encodeFingerprintNotice, type FingerprintRequest } from './wire/fingerprint-messages.js';
import { decodeLookups } from './wire/lookup-messages.js';
import {
  type AnswerBody,
  decodeFile,
  decodeHello,
  decodeNumber,
  type FileRequest,
  type FrameHeader,
  type HelloRequest,
  RequestType,
  Status,
} from './wire/messages.js';
import { RequestError, statusOf } from './wire/request-error.js';
import { CANCELLABLE_TYPES, mayBeginLate, REQUEST_TYPES } from './wire/request-types.js';

export interface ClientConnectionParts {
  readonly socket: Connection;
  readonly limits: ClientLimits;
  /** Memory for request bodies in progress, shared by all clients. */
  readonly budget: ByteBudget;
  /** What the node has paid for in the memory of clients. */
  readonly paid: AbsentBudget;
  /** The client's process and its user. */
  readonly sharer: Sharer;
  readonly credentials: PeerCredentials | undefined;
  /** Regions of all clients. */
  readonly regionShares: Shares;
  /** Divides the time of the main loop between clients. */
  readonly turns: WorkTurns;
  readonly clock: Clock;
  /** Tells since when a request that does not say it may have been sent. */
  readonly pauses: Pick<PauseWatch, 'sentAfterMs'>;
  /** For what clients cause. */
  readonly lines: SparseLog;
  /** Attaches the client. Throws {@link RequestError}. */
  readonly attach: (hello: HelloRequest, connection: ClientConnection) => Promise<AttachedClient>;
  /** Opens a file of the client as a region. Throws {@link RequestError}. */
  readonly openFile: (request: FileRequest, connection: ClientConnection) => Promise<void>;
  readonly statsOf: (connection: ClientConnection) => unknown;
  /** Whether the client may have so much more in answers. */
  readonly mayHaveAnswers: (connection: ClientConnection, moreBytes: number) => boolean;
  readonly bootToken: Buffer;
  /**
   * Tells the attached clients of a name, whose namespaces the asking one may use, their fingerprint. Returns their
   * number.
   */
  readonly tellFingerprint: (request: FingerprintRequest, asking: ClientConnection) => number;
  /** Called once, when the connection has ended. */
  readonly onClosed: (connection: ClientConnection) => void;
  /** Called once, after `onClosed`, when no request is in progress any more. */
  readonly onEnded: (connection: ClientConnection, reason: string) => void;
}

const NOTHING = Buffer.alloc(0);
const NO_REQUEST = { type: 0, requestId: 0 };

/**
 * One client: receives its requests, runs a few at a time, and answers each when nothing touches the client's memory
 * any more.
 */
export class ClientConnection {
  readonly regions: ClientRegions;
  readonly #parts: ClientConnectionParts;
  readonly #reception: RequestReception;
  readonly #output: ClientOutput;
  #state: 'greeting' | 'attaching' | 'open' | 'finishing' | 'closed' = 'greeting';
  #name = '';
  #pid = 0;
  #isTold = false;
  #requests: ClientRequests | undefined;
  #attached: Pick<AttachedClient, 'access' | 'counts'> | undefined;
  readonly #inFlight: RequestsInFlight;
  #reason = '';
  #isEnded = false;
  readonly #cancelHelloTimer: () => void;

  constructor(parts: ClientConnectionParts) {
    this.#parts = parts;
    this.regions = new ClientRegions(parts.paid, { shares: parts.regionShares, sharer: parts.sharer });
    this.#inFlight = new RequestsInFlight(parts.limits);
    const { socket, clock, limits } = parts;
    this.#reception = new RequestReception({
      ...parts,
      receivingWindowMs: limits.receivingWindowMs,
      check: (header) => this.#check(header),
      onFrame: (header, body) => this.#onFrame(header, body),
      onWaiting: () => this.#updateReading(),
      guarded: (receive) => this.#guarded(receive),
      onSlow: () => this.#tooSlow(),
    });
    const onStalled = (): void => this.close('the client does not take its answers');
    const mayHave = (moreBytes: number) => parts.mayHaveAnswers(this, moreBytes);
    const { stallTimeoutMs, outputMaxBytes: maxBytes } = limits;
    this.#output = new ClientOutput({ socket, clock, maxBytes, mayHave, stallTimeoutMs, onStalled });
    this.#cancelHelloTimer = clock.after(limits.handshakeTimeoutMs, () => this.close('no HELLO in time'));
    socket.on('data', (chunk: Buffer) => this.#reception.receive(chunk));
    socket.on('drain', () => {
      this.#updateReading();
      this.#runQueue();
    });
    socket.on('error', (error) => this.close(error.message));
    socket.on('end', () => this.close('ended by the client'));
    socket.on('close', () => this.close('closed'));
  }

  /** Name that the client gave; empty before HELLO. */
  get name(): string {
    return this.#name;
  }

  /** Process id in the client's own PID namespace; 0 before HELLO. */
  get pid(): number {
    return this.#pid;
  }

  get credentials(): PeerCredentials | undefined {
    return this.#parts.credentials;
  }

  /** The process and the user whose share it takes. */
  get sharer(): Sharer {
    return this.#parts.sharer;
  }

  /** What the client may do; undefined before HELLO was answered. */
  get access(): ClientAccess | undefined {
    return this.#attached?.access;
  }

  /** Counters of the client; undefined before HELLO was answered. */
  get counts(): ClientCounts | undefined {
    return this.#attached?.counts;
  }

  get inFlightCount(): number {
    return this.#inFlight.count;
  }

  /** Bytes of answers that the client has not read yet, or that are being made. */
  get answerBytes(): number {
    return this.#output.bytes;
  }

  get isClosed(): boolean {
    return this.#state === 'closed';
  }

  /** Tells the client which fingerprint its namespace is to have. Returns whether it takes such notices. */
  tellFingerprint(fingerprint: string): boolean {
    if (!this.#isTold || this.#state !== 'open') return false;
    const header = { type: RequestType.fingerprint, requestId: 0 };
    this.#output.write(header, Status.ok, encodeFingerprintNotice(fingerprint));
    return true;
  }

  /**
   * Ends requests that the client may not make any more, and the connection if it is of nobody who may use the node.
   */
  usersChanged(): void {
    const { access } = this;
    if (access === undefined || this.isClosed) return;
    if (!access.isValid) this.#endWith(Status.denied, `user ${access.name} may not use this node any more`);
    for (const { header, abort } of this.#inFlight.all()) if (!access.allows(header.type)) abort.abort();
  }

  /** Accepts no more requests, ends and answers those in progress, then ends the connection. Idempotent. */
  finish(reason: string): void {
    if (this.#state === 'open') this.#state = 'finishing';
    else this.close(reason);
    if (this.isClosed) return;
    this.#reason = reason;
    this.#reception.stop();
    for (const { abort } of this.#inFlight.all()) abort.abort();
    this.#runQueue();
    this.#closeWhenAnswered();
  }

  /** Closes after the last answer, which tells the client that requests without an answer were never begun. */
  #closeWhenAnswered(): void {
    const { socket } = this.#parts;
    if (this.#state !== 'finishing' || this.#inFlight.count > 0 || socket.writableEnded) return;
    this.#output.write(NO_REQUEST, Status.closing, Buffer.from(this.#reason));
    socket.end(() => this.close(this.#reason));
  }

  /**
   * Ends the connection and the requests in progress. Regions are released when nothing touches them any more.
   * Idempotent.
   */
  close(reason: string): void {
    if (this.isClosed) return;
    this.#state = 'closed';
    this.#reason = reason;
    this.#cancelHelloTimer();
    this.#output.close();
    this.#reception.stop();
    this.#parts.socket.destroy();
    this.#inFlight.dropWaiting();
    this.#parts.onClosed(this);
    for (const { abort } of this.#inFlight.all()) abort.abort();
    this.#requests?.close();
    this.regions.removeAll().catch((error: unknown) => {
      this.#parts.lines.log('error', 'releasing memory of a client failed', { error: String(error) });
    });
    this.#endWhenIdle();
  }

  /** Runs `receive`; if it throws, the connection ends. */
  #guarded(receive: () => void): void {
    if (this.isClosed) return;
    try {
      receive();
    } catch (error) {
      if (!(error instanceof ProtocolError)) {
        this.#parts.lines.log('error', 'request of a client failed', { client: this.#name, error: String(error) });
      }
      this.#violated(statusOf(error)[1]);
    }
  }

  /** Throws for headers that end the connection. */
  #check({ bodyBytes, type, status, requestId }: FrameHeader): void {
    const maxBytes = this.#parts.limits.bodyMaxBytes + (status === FLAG_ASKED ? ASKED_BYTES : 0);
    if (bodyBytes > maxBytes) throw new ProtocolError(`a body of ${bodyBytes} bytes, allowed are ${maxBytes}`);
    if (!REQUEST_TYPES.has(type)) throw new ProtocolError(`a request of type ${type}`);
    if (status !== 0 && status !== FLAG_ASKED) throw new ProtocolError(`a request with flags ${status}`);
    if (requestId === 0) throw new ProtocolError('a request with the id 0');
    if (this.#inFlight.get(requestId) !== undefined) throw new ProtocolError(`the id ${requestId}, which is in use`);
    const isHello = type === RequestType.hello;
    if (this.#state === 'greeting' && !isHello) throw new ProtocolError('the first request is not HELLO');
    if (this.#state !== 'greeting' && isHello) throw new ProtocolError('a second HELLO');
    if (isHello && bodyBytes > CLIENT_SMALL_BODY_BYTES) {
      throw new ProtocolError(`a HELLO of ${bodyBytes} bytes, allowed are ${CLIENT_SMALL_BODY_BYTES}`);
    }
  }

  /** Ends a connection on which a body does not go on: it would hold memory that others need. */
  #tooSlow(): void {
    const { lines, limits } = this.#parts;
    const perS = RECEIVING_MIN_BYTES_PER_S;
    const message = `a body of which less than ${perS} bytes a second have come for ${limits.receivingWindowMs / 1000} s`;
    lines.log('warn', 'client disconnected', { client: this.#name, reason: message }, 'slow');
    this.#violated(message);
  }

  /**
   * Stops reading while there is no memory for the client's requests, others have their turn, or the client does not
   * read its answers.
   */
  #updateReading(): void {
    if (this.isClosed) return;
    const { socket } = this.#parts;
    const isToWait = this.#reception.isWaiting || this.#output.isFull;
    this.#reception.hold(isToWait);
    if (isToWait) socket.pause();
    else if (socket.isPaused()) socket.resume();
  }

  #onFrame(header: FrameHeader, received: Buffer): void {
    const { body, askedMs } = askedRequest(header, received);
    if (this.#state === 'greeting') {
      void this.#hello(header, body);
      return;
    }
    if (header.type === RequestType.cancel) {
      this.#reception.takeReserved()?.();
      this.#inFlight.get(decodeNumber(body))?.abort.abort(CANCELLED);
      return;
    }
    if (header.type === RequestType.lookups) {
      this.#reception.takeReserved()?.();
      const { asked, found } = decodeLookups(body);
      if (this.access?.allows(header.type) === true) this.counts?.lookup(asked, found);
      return;
    }
    this.counts?.request();
    if (header.type === RequestType.fence || (header.type === RequestType.ping && this.#state === 'open')) {
      this.#reception.takeReserved()?.();
      this.#answerNow(header, body);
      return;
    }
    const tooMuch = this.#inFlight.tooMuch(header.type, body, this.#reception.isReserved);
    if (tooMuch === undefined) {
      this.#take(header, body, askedMs);
    } else {
      this.#reception.takeReserved()?.();
      this.#fail(header, Status.tooMuch, tooMuch);
    }
  }

  async #hello(header: FrameHeader, body: Buffer): Promise<void> {
    this.#state = 'attaching';
    this.#cancelHelloTimer();
    const request = this.#begin({ header, body });
    try {
      const hello = decodeHello(body);
      this.#name = hello.name;
      this.#pid = hello.pid;
      this.#isTold = hello.isTold ?? false;
      const { answer, ...attached } = await this.#parts.attach(hello, this);
      if (this.isClosed) return;
      this.#attached = attached;
      const goOn = () => this.#parts.turns.goOn(this.sharer);
      this.#requests = new ClientRequests({ ...attached, regions: this.regions, goOn });
      this.#state = 'open';
      // Requests that arrived meanwhile.
      for (let left = this.#inFlight.count - 1; left > 0; left--) this.counts?.request();
      this.#inFlight.settle(request);
      this.#answer(header, Status.ok, answer);
      for (const answered of request.onAnswered) answered();
      this.#runQueue();
    } catch (error) {
      this.#endWith(...statusOf(error), header);
    }
  }

  #take(header: FrameHeader, body: Buffer, saidMs: number | undefined): void {
    const { clock, limits } = this.#parts;
    const nowMs = clock.nowMs();
    const askedMs = Math.min(nowMs, saidMs ?? this.#reception.sentAfterMs);
    const untilMs = askedMs + Math.min(header.deadlineMs || limits.deadlineMs, limits.deadlineMs);
    const abort = new AbortController();
    const cancelDeadline = clock.after(Math.max(0, untilMs - nowMs), () => abort.abort());
    const request = this.#begin({ header, body, time: callTime(clock, askedMs, untilMs), abort, cancelDeadline });
    this.#inFlight.wait(request);
    if (CANCELLABLE_TYPES.has(header.type)) {
      request.abort.signal.addEventListener('abort', () => this.#endQueued(request), { once: true });
    }
    this.#runQueue();
  }

  /** Adds a request to those in flight. */
  #begin(beginning: Omit<RequestBeginning, 'giveBack'>): ClientRequest {
    const giveBack = this.#reception.takeReserved();
    return this.#inFlight.begin(giveBack === undefined ? beginning : { ...beginning, giveBack });
  }

  #runQueue(): void {
    while (this.#requests !== undefined && !this.isClosed) {
      if (this.#output.isFull) return;
      const next = this.#inFlight.runNext();
      if (next === undefined) return;
      this.#parts.turns.run(this.sharer, () => void this.#run(next));
    }
  }

  /** Answers a request that was cancelled before it began, without waiting for others. */
  #endQueued(request: ClientRequest): void {
    if (this.#requests === undefined || this.isClosed) return;
    if (this.#inFlight.runNow(request)) void this.#run(request);
  }

  /**
   * Runs a request that has left the queue, and answers it. One that its client has given up is not begun: it ends as
   * if it were cancelled.
   */
  async #run(request: ClientRequest): Promise<void> {
    const { header, body, abort, time } = request;
    if (time.isOver() || this.isClosed) abort.abort(CANCELLED);
    let status: Status = Status.ok;
    let answer: AnswerBody = NOTHING;
    const pages = this.#output.begin();
    try {
      answer = await this.#execute(header, body, { signal: abort.signal, time, pages });
    } catch (error) {
      let message: string;
      [status, message] = statusOf(error);
      answer = Buffer.from(message);
      if (status === Status.failed && !this.isClosed) {
        this.#parts.lines.log('error', 'request of a client failed', { client: this.#name, error: String(error) });
      }
    }
    pages.end();
    this.#inFlight.ended(request);
    if (this.isClosed) {
      this.#endWhenIdle();
      return;
    }
    if (status === Status.ok) this.#answer(header, status, answer);
    else this.#fail(header, status, answer.toString());
    for (const answered of request.onAnswered) answered();
    this.#runQueue();
    this.#closeWhenAnswered();
  }

  #execute(header: FrameHeader, body: Buffer, wait: RequestWait): Promise<AnswerBody> | Buffer {
    const { statsOf } = this.#parts;
    if (wait.time.isOver() && !mayBeginLate(header.type)) {
      throw new RequestError(Status.tooLate, 'the time of the request was over before it began; nothing was done');
    }
    this.access?.check(header.type);
    switch (header.type) {
      case RequestType.ping:
        return this.#ping(body);
      case RequestType.stats:
        new BodyReader(body).end();
        return Buffer.from(JSON.stringify(statsOf(this)));
      case RequestType.fingerprint: {
        const told = Buffer.alloc(4);
        told.writeUInt32LE(this.#parts.tellFingerprint(decodeFingerprint(body), this));
        return told;
      }
      case RequestType.file:
        return this.#parts.openFile(decodeFile(body), this).then(() => NOTHING);
    }
    return (this.#requests as ClientRequests).run(header.type as RequestType, body, wait);
  }

  /** Answers FENCE and PING, which skip the queue. */
  #answerNow(header: FrameHeader, body: Buffer): void {
    try {
      if (header.type === RequestType.fence) this.#fence(header, decodeNumber(body));
      else this.#answer(header, Status.ok, this.#ping(body));
    } catch (error) {
      this.#fail(header, ...statusOf(error));
    }
  }

  #ping(body: Buffer): Buffer {
    new BodyReader(body).end();
    return this.#parts.bootToken;
  }

  /** Answers when request `id` has ended; with `id` 0, when all earlier requests have. */
  #fence(header: FrameHeader, id: number): void {
    const { inFlightMaxCount } = this.#parts.limits;
    const before = this.#inFlight.awaitedBy(id);
    if (before.length === 0) {
      this.#answer(header, Status.ok, NOTHING);
      return;
    }
    if (this.#inFlight.fenceCount >= inFlightMaxCount) {
      throw new RequestError(Status.tooMuch, `${inFlightMaxCount} fences are in flight, no more are allowed`);
    }
    const fence = this.#begin({ header, body: NOTHING });
    let leftCount = before.length;
    const answered = (): void => {
      if (--leftCount > 0) return;
      this.#inFlight.settle(fence);
      this.#answer(header, Status.ok, NOTHING);
      for (const next of fence.onAnswered) next();
    };
    for (const request of before) request.onAnswered.push(answered);
  }

  #fail(header: FrameHeader, status: Status, message: string): void {
    this.counts?.failed(status);
    this.#answer(header, status, Buffer.from(message));
  }

  #answer(header: FrameHeader, status: Status, body: AnswerBody): void {
    if (this.isClosed) return;
    this.#output.write(header, status, body);
    this.#updateReading();
  }

  #violated(message: string): void {
    this.#endWith(Status.badRequest, message);
  }

  /** Ends the connection with a last answer, which is to no request as a rule. */
  #endWith(status: Status, message: string, header: Pick<FrameHeader, 'type' | 'requestId'> = NO_REQUEST): void {
    if (this.isClosed) return;
    this.counts?.failed(status);
    this.#output.write(header, status, Buffer.from(message));
    this.#parts.socket.end();
    this.close(message);
  }

  #endWhenIdle(): void {
    if (this.#isEnded || this.#inFlight.runningCount > 0 || !this.isClosed) return;
    this.#isEnded = true;
    this.#parts.onEnded(this, this.#reason);
  }

  /** Throws `InvariantError` unless its requests and its regions are consistent. */
  verify(): void {
    this.#inFlight.verify();
    this.regions.verify();
    const isAny = this.#requests !== undefined || this.#inFlight.runningCount === 0;
    assert(isAny, () => `client ${this.#name}: ${this.#inFlight.runningCount} requests run before it is attached`);
    assert(!this.isClosed || !this.#reception.isReserved, () => `client ${this.#name}: closed, and memory is reserved`);
  }
}
