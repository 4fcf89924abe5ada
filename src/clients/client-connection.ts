import { assert } from '../base/assert.js';
import { Cancellation } from '../base/concurrency/cancellation.js';
import type { Sharer } from '../base/concurrency/shares.js';
import type { Connection } from '../base/environment/network.js';
import { ProtocolError } from '../base/errors.js';
import { CLIENT_SMALL_BODY_BYTES, RECEIVING_MIN_BYTES_PER_S } from '../base/limits.js';
import type { PeerCredentials } from '../native/unix-sockets.js';
import { ReceivingMemory } from '../net/receiving-memory.js';
import type { ServedEvent, ServedState } from '../net/served/connection-states.js';
import { ServedConnection, type ServedProtocol } from '../net/served/served-connection.js';
import { callTime } from '../store/call/call-options.js';
import { ClientOutput } from './client-output.js';
import type { ClientServer } from './client-server.js';
import type { AttachedClient } from './requests/attached-client.js';
import type { ClientAccess } from './requests/client-access.js';
import { ClientRegions } from './requests/client-regions.js';
import { CANCELLED, ClientRequests, type RequestWait } from './requests/client-requests.js';
import type { ClientCounts } from './requests/client-stats.js';
import { type ClientRequest, type RequestBeginning, RequestsInFlight } from './requests-in-flight.js';
import { ASKED_BYTES, askedRequest, FLAG_ASKED } from './wire/asked-instant.js';
import { BodyReader } from './wire/body.js';
import { decodeFingerprint, encodeFingerprintNotice } from './wire/fingerprint-messages.js';
import { FrameReceiver } from './wire/frame-receiver.js';
import { decodeLookups } from './wire/lookup-messages.js';
import {
  type AnswerBody,
  decodeFile,
  decodeHello,
  decodeNumber,
  type FrameHeader,
  RequestType,
  Status,
} from './wire/messages.js';
import { RequestError, statusOf } from './wire/request-error.js';
import { CANCELLABLE_TYPES, mayBeginLate, REQUEST_TYPES } from './wire/request-types.js';

/** The process at the other end of a connection. */
export interface ClientPeer {
  /** The process and its user. */
  readonly sharer: Sharer;
  readonly credentials: PeerCredentials | undefined;
}

const NOTHING = Buffer.alloc(0);
const NO_REQUEST = { type: 0, requestId: 0 };

/**
 * Serves one client: receives its requests, runs a few at a time, and answers each one when nothing touches the
 * client's memory any more.
 */
export class ClientConnection implements ServedProtocol {
  readonly served: ServedConnection;
  readonly regions: ClientRegions;
  /** The process and user whose shares of the limits this client uses. */
  readonly sharer: Sharer;
  readonly credentials: PeerCredentials | undefined;
  readonly #server: ClientServer;
  readonly #receiver: FrameReceiver;
  /** Memory reserved for the body that is arriving or has just arrived. */
  readonly #memory: ReceivingMemory;
  readonly #output: ClientOutput;
  readonly #inFlight: RequestsInFlight;
  #name = '';
  #pid = 0;
  #isTold = false;
  #requests: ClientRequests | undefined;
  #attached: Pick<AttachedClient, 'access' | 'counts'> | undefined;

  constructor(socket: Connection, server: ClientServer, { sharer, credentials }: ClientPeer) {
    this.#server = server;
    this.sharer = sharer;
    this.credentials = credentials;
    const { limits, paid, regionShares: shares, budget, connections } = server;
    this.regions = new ClientRegions(paid, { shares, sharer });
    this.served = new ServedConnection(socket, connections, this, { origin: sharer.one, sharer });
    this.#inFlight = new RequestsInFlight(limits, this.served);
    this.#memory = new ReceivingMemory(budget, sharer, () => {
      this.#guarded(() => this.#receiver.resume());
      this.served.updateReading();
    });
    this.#receiver = new FrameReceiver({
      check: (header) => this.#check(header),
      onBegin: () => this.served.awaitAtRate(),
      reserve: (bytes) => {
        const isThere = this.#memory.take(bytes);
        if (!isThere) this.served.updateReading();
        return isThere;
      },
      onFrame: (header, body) => {
        this.served.messageCame();
        this.#memory.whole();
        this.#onFrame(header, body);
      },
    });
    const mayHave = (moreBytes: number): boolean => server.mayHaveAnswers(this, moreBytes);
    this.#output = new ClientOutput(socket, this.served, { maxBytes: limits.outputMaxBytes, mayHave });
  }

  /** Name that the client gave; empty before HELLO. */
  get name(): string {
    return this.#name;
  }

  /** Process id in the client's own PID namespace; 0 before HELLO. */
  get pid(): number {
    return this.#pid;
  }

  /** Rights of the client; undefined until HELLO is answered. */
  get access(): ClientAccess | undefined {
    return this.#attached?.access;
  }

  /** Counters of the client; undefined until HELLO is answered. */
  get counts(): ClientCounts | undefined {
    return this.#attached?.counts;
  }

  get inFlightCount(): number {
    return this.#inFlight.count;
  }

  /** Bytes of answers that the client has not read yet or that are being built. */
  get answerBytes(): number {
    return this.#output.bytes;
  }

  get isClosed(): boolean {
    return this.served.isClosed;
  }

  /**
   * Whether reading must pause, because there is no memory for the client's requests or the client does not read its
   * answers.
   */
  get mustWait(): boolean {
    return this.#memory.isWaiting || this.#output.isFull;
  }

  received(bytes: Buffer): void {
    this.#guarded(() => this.#receiver.receive(bytes));
  }

  drained(): void {
    this.#runQueue();
  }

  peerEnded(): void {
    this.close('ended by the client');
  }

  /** Ends a connection whose body arrives too slowly, because it holds memory that others need. */
  slow(): void {
    const { lines, limits } = this.#server;
    const perS = RECEIVING_MIN_BYTES_PER_S;
    const message = `a body of which less than ${perS} bytes a second have come for ${limits.receivingWindowMs / 1000} s`;
    lines.log('warn', 'client disconnected', { client: this.#name, reason: message }, 'slow');
    this.#violated(message);
  }

  entered(state: ServedState, event: ServedEvent): void {
    if (state === 'finishing' || state === 'closed') {
      this.#receiver.stop();
      this.#memory.handOver()?.();
    }
    if (state === 'finishing') {
      for (const { abort } of this.#inFlight.all()) abort.abort();
      this.#runQueue();
    } else if (state === 'ending') {
      // The last answer tells the client that requests without an answer were never begun.
      this.#output.write(NO_REQUEST, Status.closing, Buffer.from(this.served.reason));
    } else if (state === 'closed') {
      this.#closed(event);
    } else if (state === 'ended') {
      this.#server.ended(this);
    }
  }

  /**
   * Tells the client the new fingerprint of its namespace. Returns false if it accepts no such notices or is not
   * attached.
   */
  tellFingerprint(fingerprint: string): boolean {
    if (!this.#isTold || this.served.state !== 'open') return false;
    const header = { type: RequestType.fingerprint, requestId: 0 };
    this.#output.write(header, Status.ok, encodeFingerprintNotice(fingerprint));
    return true;
  }

  /**
   * Ends requests that the client is no longer allowed to make, and the connection if its user may no longer use the
   * node.
   */
  usersChanged(): void {
    const { access } = this;
    if (access === undefined || this.isClosed) return;
    if (!access.isValid) this.#endWith(Status.denied, `user ${access.name} may not use this node any more`);
    for (const { header, abort } of this.#inFlight.all()) if (!access.allows(header.type)) abort.abort();
    if (!access.allows(RequestType.prefetch)) this.#requests?.dropLater();
  }

  /** Accepts no more requests, ends and answers those in progress, then ends the connection. Idempotent. */
  finish(reason: string): void {
    const { state } = this.served;
    if (state === 'greeting' || state === 'opening') this.close(reason);
    else this.served.finish(reason);
  }

  /**
   * Ends the connection and the requests in progress. Regions are released when nothing touches them any more.
   * Idempotent.
   */
  close(reason: string): void {
    this.served.close(reason);
  }

  #closed(event: ServedEvent): void {
    if (event === 'replaced') this.#server.replaced(this);
    this.#inFlight.dropWaiting();
    this.#server.closed(this);
    for (const { abort } of this.#inFlight.all()) abort.abort();
    this.#requests?.close();
    this.regions.removeAll().catch((error: unknown) => {
      this.#server.lines.log('error', 'releasing memory of a client failed', { error: String(error) });
    });
  }

  /** Runs `receive`; if it throws, the connection ends. */
  #guarded(receive: () => void): void {
    if (this.isClosed) return;
    try {
      receive();
    } catch (error) {
      if (!(error instanceof ProtocolError)) {
        this.#server.lines.log('error', 'request of a client failed', { client: this.#name, error: String(error) });
      }
      this.#violated(statusOf(error)[1]);
    }
  }

  /** Throws for headers that end the connection. */
  #check({ bodyBytes, type, status, requestId }: FrameHeader): void {
    const maxBytes = this.#server.limits.bodyMaxBytes + (status === FLAG_ASKED ? ASKED_BYTES : 0);
    if (bodyBytes > maxBytes) throw new ProtocolError(`a body of ${bodyBytes} bytes, allowed are ${maxBytes}`);
    if (!REQUEST_TYPES.has(type)) throw new ProtocolError(`a request of type ${type}`);
    if (status !== 0 && status !== FLAG_ASKED) throw new ProtocolError(`a request with flags ${status}`);
    if (requestId === 0) throw new ProtocolError('a request with the id 0');
    if (this.#inFlight.get(requestId) !== undefined) throw new ProtocolError(`the id ${requestId}, which is in use`);
    const isHello = type === RequestType.hello;
    if (this.served.state === 'greeting' && !isHello) throw new ProtocolError('the first request is not HELLO');
    if (this.served.state !== 'greeting' && isHello) throw new ProtocolError('a second HELLO');
    if (isHello && bodyBytes > CLIENT_SMALL_BODY_BYTES) {
      throw new ProtocolError(`a HELLO of ${bodyBytes} bytes, allowed are ${CLIENT_SMALL_BODY_BYTES}`);
    }
  }

  #onFrame(header: FrameHeader, received: Buffer): void {
    const { body, askedMs } = askedRequest(header, received);
    if (this.served.state === 'greeting') {
      void this.#hello(header, body);
      return;
    }
    if (header.type === RequestType.cancel) {
      this.#memory.handOver()?.();
      this.#inFlight.get(decodeNumber(body))?.abort.abort(CANCELLED);
      return;
    }
    if (header.type === RequestType.lookups) {
      this.#memory.handOver()?.();
      const { asked, found } = decodeLookups(body);
      if (this.access?.allows(header.type) === true) this.counts?.lookup(asked, found);
      return;
    }
    this.counts?.request();
    if (header.type === RequestType.fence || (header.type === RequestType.ping && this.served.state === 'open')) {
      this.#memory.handOver()?.();
      this.#answerNow(header, body);
      return;
    }
    const tooMuch = this.#inFlight.tooMuch(header.type, body, this.#memory.isHeld);
    if (tooMuch === undefined) {
      this.#take(header, body, askedMs);
    } else {
      this.#memory.handOver()?.();
      this.#fail(header, Status.tooMuch, tooMuch);
    }
  }

  async #hello(header: FrameHeader, body: Buffer): Promise<void> {
    this.served.greeted();
    const request = this.#begin({ header, body });
    try {
      const hello = decodeHello(body);
      this.#name = hello.name;
      this.#pid = hello.pid;
      this.#isTold = hello.isTold ?? false;
      const { answer, ...attached } = await this.#server.attach(hello, this);
      if (this.isClosed) return;
      this.#attached = attached;
      const goOn = () => this.#server.turns.goOn(this.sharer);
      this.#requests = new ClientRequests({ ...attached, regions: this.regions, goOn });
      this.served.opened();
      // Counts requests that arrived before HELLO was answered, which nothing counted on arrival.
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
    const { limits, connections } = this.#server;
    const { clock } = connections;
    const nowMs = clock.nowMs();
    const askedMs = Math.min(nowMs, saidMs ?? this.served.sentAfterMs);
    const untilMs = askedMs + Math.min(header.deadlineMs || limits.deadlineMs, limits.deadlineMs);
    const abort = new Cancellation();
    const cancelDeadline = clock.after(Math.max(0, untilMs - nowMs), () => abort.abort());
    const request = this.#begin({ header, body, time: callTime(clock, askedMs, untilMs), abort, cancelDeadline });
    this.#inFlight.wait(request);
    this.#runQueue();
    if (this.#inFlight.isLast(request) && CANCELLABLE_TYPES.has(header.type)) {
      abort.addEventListener('abort', () => this.#endQueued(request));
    }
  }

  /** Adds a request to those in flight. */
  #begin(beginning: Omit<RequestBeginning, 'giveBack'>): ClientRequest {
    const giveBack = this.#memory.handOver();
    return this.#inFlight.begin(giveBack === undefined ? beginning : { ...beginning, giveBack });
  }

  #runQueue(): void {
    while (this.#requests !== undefined && !this.isClosed) {
      if (this.#output.isFull) return;
      const next = this.#inFlight.runNext();
      if (next === undefined) return;
      this.#server.turns.run(this.sharer, () => void this.#run(next));
    }
  }

  /** Answers a request that was cancelled before it began, without waiting for others. */
  #endQueued(request: ClientRequest): void {
    if (this.#requests === undefined || this.isClosed) return;
    if (this.#inFlight.runNow(request)) void this.#run(request);
  }

  /**
   * Runs a request that has left the queue, and answers it. A request that its client has given up is not begun; it
   * ends as if it were cancelled.
   */
  async #run(request: ClientRequest): Promise<void> {
    const { header, body, abort, time } = request;
    if (time.isOver() || this.isClosed) abort.abort(CANCELLED);
    let status: Status = Status.ok;
    let answer: AnswerBody = NOTHING;
    const pages = this.#output.begin();
    try {
      answer = await this.#execute(header, body, { signal: abort, time, pages });
    } catch (error) {
      let message: string;
      [status, message] = statusOf(error);
      answer = Buffer.from(message);
      if (status === Status.failed && !this.isClosed) {
        this.#server.lines.log('error', 'request of a client failed', { client: this.#name, error: String(error) });
      }
    }
    pages.end();
    this.#inFlight.ended(request);
    if (!this.isClosed) {
      if (status === Status.ok) this.#answer(header, status, answer);
      else this.#fail(header, status, answer.toString());
      for (const answered of request.onAnswered) answered();
      this.#runQueue();
    }
    this.#inFlight.answered();
  }

  #execute(header: FrameHeader, body: Buffer, wait: RequestWait): Promise<AnswerBody> | Buffer {
    if (wait.time.isOver() && !mayBeginLate(header.type)) {
      throw new RequestError(Status.tooLate, 'the time of the request was over before it began; nothing was done');
    }
    this.access?.check(header.type);
    switch (header.type) {
      case RequestType.ping:
        return this.#ping(body);
      case RequestType.stats:
        new BodyReader(body).end();
        return Buffer.from(JSON.stringify(this.#server.statsOf(this)));
      case RequestType.fingerprint: {
        const told = Buffer.alloc(4);
        told.writeUInt32LE(this.#server.tellFingerprint(decodeFingerprint(body), this));
        return told;
      }
      case RequestType.file:
        return this.#server.openFile(decodeFile(body), this).then(() => NOTHING);
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
    return this.#server.bootToken;
  }

  /** Answers when request `id` has ended; with `id` 0, when all earlier requests have. */
  #fence(header: FrameHeader, id: number): void {
    const { inFlightMaxCount } = this.#server.limits;
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
  }

  #violated(message: string): void {
    this.#endWith(Status.badRequest, message);
  }

  /** Ends the connection with a last answer, which usually belongs to no request. */
  #endWith(status: Status, message: string, header: Pick<FrameHeader, 'type' | 'requestId'> = NO_REQUEST): void {
    if (this.isClosed) return;
    this.counts?.failed(status);
    this.#output.write(header, status, Buffer.from(message));
    this.served.hangUp(message);
  }

  /** Throws `InvariantError` unless its requests and its regions are consistent. */
  verify(): void {
    this.#inFlight.verify();
    this.regions.verify();
    const isAny = this.#requests !== undefined || this.#inFlight.runningCount === 0;
    assert(isAny, () => `client ${this.#name}: ${this.#inFlight.runningCount} requests run before it is attached`);
    assert(!this.isClosed || !this.#memory.isHeld, () => `client ${this.#name}: closed, and memory is reserved`);
  }
}
