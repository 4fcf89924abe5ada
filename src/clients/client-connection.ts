import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.js';
import { ProtocolError } from '../base/errors.js';
import {
  CLIENT_BODY_MAX_BYTES,
  CLIENT_DEADLINE_MS,
  CLIENT_HANDSHAKE_TIMEOUT_MS,
  CLIENT_IN_FLIGHT_MAX_COUNT,
  CLIENT_OUTPUT_MAX_BYTES,
  CLIENT_RUNNING_MAX_COUNT,
  CLIENT_SMALL_BODY_BYTES,
  CLIENT_STALL_TIMEOUT_MS,
} from '../base/limits.js';
import type { Logger } from '../base/log.js';
import type { ByteBudget } from './byte-budget.js';
import type { ClientNamespace } from './client-namespace.js';
import { ClientRegions } from './client-regions.js';
import { ClientRequests } from './client-requests.js';
import type { ClientCounts } from './client-stats.js';
import { FrameReceiver } from './frame-receiver.js';
import {
  decodeFile,
  decodeHello,
  decodeNumber,
  encodeHeader,
  type FileRequest,
  type FrameHeader,
  type HelloRequest,
  RequestType,
  Status,
} from './messages.js';
import { RequestError } from './request-error.js';

/** What a client is on this node once it has said hello. */
export interface AttachedClient {
  readonly namespace: ClientNamespace;
  readonly counts: ClientCounts;
  /** The body of the answer to HELLO. */
  readonly answer: Buffer;
}

export interface ClientConnectionParts {
  readonly socket: Socket;
  /** Memory of bodies that have not been worked off, of all clients. */
  readonly budget: ByteBudget;
  readonly clock: Clock;
  readonly log: Logger;
  /** Throws {@link RequestError}. */
  readonly attach: (hello: HelloRequest, connection: ClientConnection) => Promise<AttachedClient>;
  /** Opens a file of the client's as a region. Throws {@link RequestError}. */
  readonly openFile: (request: FileRequest, connection: ClientConnection) => Promise<void>;
  readonly statsOf: (connection: ClientConnection) => unknown;
  readonly bootToken: Buffer;
  /** Told once, when the connection is gone. */
  readonly onClosed: (connection: ClientConnection) => void;
  /** Told once, after that, when nothing of its requests is under way any more. */
  readonly onEnded: (connection: ClientConnection, reason: string) => void;
}

interface Request {
  readonly header: FrameHeader;
  readonly body: Buffer;
  readonly abort: AbortController;
  readonly cancelDeadline: () => void;
  readonly giveBack: () => void;
  /** Fences that wait for it. */
  readonly onAnswered: (() => void)[];
}

const TYPES: ReadonlySet<number> = new Set(Object.values(RequestType));
const NOTHING = Buffer.alloc(0);

/** One client: takes its requests, has them done, a few at a time, and answers each when nothing touches its memory any more. */
export class ClientConnection {
  readonly regions = new ClientRegions();
  readonly #parts: ClientConnectionParts;
  readonly #receiver: FrameReceiver;
  #state: 'greeting' | 'attaching' | 'open' | 'closed' = 'greeting';
  #name = '';
  #pid = 0;
  #requests: ClientRequests | undefined;
  #counts: ClientCounts | undefined;
  /** Received and not answered, oldest first. */
  readonly #inFlight = new Map<number, Request>();
  readonly #queue: Request[] = [];
  #runningCount = 0;
  #reason = '';
  #isEnded = false;
  #cancelTimer: () => void;
  #takenBytes = 0;
  #cancelStallTimer: () => void = () => {};
  /** Gives back what is held for the body that is coming. */
  #giveBack: () => void = () => {};

  constructor(parts: ClientConnectionParts) {
    this.#parts = parts;
    const { socket, clock } = parts;
    this.#receiver = new FrameReceiver({
      check: (header) => this.#check(header),
      onBegin: ({ bodyBytes }) => this.#reserve(bodyBytes),
      onFrame: (header, body) => this.#onFrame(header, body),
    });
    this.#cancelTimer = clock.after(CLIENT_HANDSHAKE_TIMEOUT_MS, () => this.close('no HELLO in time'));
    socket.on('data', (chunk: Buffer) => this.#received(chunk));
    socket.on('drain', () => this.#runQueue());
    socket.on('error', (error) => this.close(error.message));
    socket.on('end', () => this.close('ended by the client'));
    socket.on('close', () => this.close('closed'));
  }

  /** As the client calls itself; empty before HELLO. */
  get name(): string {
    return this.#name;
  }

  /** In the client's own PID namespace; 0 before HELLO. */
  get pid(): number {
    return this.#pid;
  }

  /** Descriptor of the socket; undefined when it has gone. */
  get socketFd(): number | undefined {
    const { _handle: handle } = this.#parts.socket as unknown as { readonly _handle: { readonly fd?: number } | null };
    return handle?.fd !== undefined && handle.fd >= 0 ? handle.fd : undefined;
  }

  get counts(): ClientCounts | undefined {
    return this.#counts;
  }

  get inFlightCount(): number {
    return this.#inFlight.size;
  }

  /** Ends the connection and what is under way; regions go when nothing touches them any more. Idempotent. */
  close(reason: string): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.#reason = reason;
    this.#cancelTimer();
    this.#cancelStallTimer();
    this.#receiver.stop();
    this.#giveBack();
    this.#parts.socket.destroy();
    for (const request of this.#queue.splice(0)) this.#settle(request);
    this.#parts.onClosed(this);
    for (const { abort } of this.#inFlight.values()) abort.abort();
    void this.regions.removeAll();
    this.#endWhenIdle();
  }

  #received(chunk: Buffer): void {
    if (this.#state === 'closed') return;
    try {
      this.#receiver.receive(chunk);
    } catch (error) {
      this.#violated(error instanceof Error ? error.message : String(error));
    }
  }

  /** Throws for what ends the connection. */
  #check({ bodyBytes, type, status, requestId }: FrameHeader): void {
    if (bodyBytes > CLIENT_BODY_MAX_BYTES) {
      throw new ProtocolError(`a body of ${bodyBytes} bytes, allowed are ${CLIENT_BODY_MAX_BYTES}`);
    }
    if (!TYPES.has(type)) throw new ProtocolError(`a request of type ${type}`);
    if (status !== 0) throw new ProtocolError(`a request with status ${status}`);
    if (requestId === 0) throw new ProtocolError('a request with the id 0');
    if (this.#inFlight.has(requestId)) throw new ProtocolError(`the id ${requestId}, which is in use`);
    const isHello = type === RequestType.hello;
    if (this.#state === 'greeting' && !isHello) throw new ProtocolError('the first request is not HELLO');
    if (this.#state !== 'greeting' && isHello) throw new ProtocolError('a second HELLO');
  }

  /** Memory for a body is to be had before it comes: the client is to send no more until there is some. */
  #reserve(bodyBytes: number): void {
    const { socket, budget } = this.#parts;
    let isGranted = false;
    this.#giveBack = budget.take(bodyBytes, () => {
      isGranted = true;
      if (this.#state === 'closed') return;
      socket.resume();
      this.#watchInput();
    });
    if (!isGranted) socket.pause();
  }

  /** Ends the connection when a frame that has begun does not go on for CLIENT_STALL_TIMEOUT_MS. */
  #watchInput(): void {
    const { socket, clock } = this.#parts;
    const bytesRead = socket.bytesRead;
    this.#cancelStallTimer();
    this.#cancelStallTimer = clock.after(CLIENT_STALL_TIMEOUT_MS, () => {
      if (!this.#receiver.isWithinFrame || socket.isPaused()) return;
      if (socket.bytesRead > bytesRead) this.#watchInput();
      else this.close('half a frame, and no more');
    });
  }

  #onFrame(header: FrameHeader, body: Buffer): void {
    this.#cancelStallTimer();
    if (this.#state === 'greeting') {
      this.#dropReservation();
      void this.#hello(header, body);
      return;
    }
    if (header.type === RequestType.cancel) {
      this.#dropReservation();
      this.#inFlight.get(decodeNumber(body))?.abort.abort();
      return;
    }
    this.#counts?.request();
    if (header.type === RequestType.fence) {
      this.#dropReservation();
      this.#fence(header, body);
      return;
    }
    if (this.#inFlight.size >= CLIENT_IN_FLIGHT_MAX_COUNT) {
      this.#dropReservation();
      this.#fail(header, Status.tooMuch, `${CLIENT_IN_FLIGHT_MAX_COUNT} requests are in flight, no more are allowed`);
      return;
    }
    this.#take(header, body);
  }

  async #hello(header: FrameHeader, body: Buffer): Promise<void> {
    this.#state = 'attaching';
    try {
      const hello = decodeHello(body);
      this.#name = hello.name;
      this.#pid = hello.pid;
      const { namespace, counts, answer } = await this.#parts.attach(hello, this);
      if (this.#isClosed()) return;
      this.#cancelTimer();
      const { regions } = this;
      const { clock } = this.#parts;
      this.#counts = counts;
      this.#requests = new ClientRequests({ namespace, regions, counts, clock });
      this.#state = 'open';
      this.#answer(header, Status.ok, answer);
      this.#runQueue();
    } catch (error) {
      if (this.#isClosed()) return;
      const [status, message] = statusOf(error);
      this.#write(header, status, Buffer.from(message));
      this.#parts.socket.end();
      this.close(message);
    }
  }

  #isClosed(): boolean {
    return this.#state === 'closed';
  }

  #take(header: FrameHeader, body: Buffer): void {
    const { clock } = this.#parts;
    const abort = new AbortController();
    const deadlineMs = Math.min(header.deadlineMs === 0 ? CLIENT_DEADLINE_MS : header.deadlineMs, CLIENT_DEADLINE_MS);
    const onAnswered: (() => void)[] = [];
    const giveBack = this.#giveBack;
    this.#giveBack = () => {};
    const cancelDeadline = clock.after(deadlineMs, () => abort.abort());
    const request: Request = { header, body, abort, cancelDeadline, giveBack, onAnswered };
    this.#inFlight.set(header.requestId, request);
    this.#queue.push(request);
    this.#runQueue();
  }

  #dropReservation(): void {
    this.#giveBack();
    this.#giveBack = () => {};
  }

  #runQueue(): void {
    while (this.#state === 'open' && this.#queue.length > 0 && this.#runningCount < CLIENT_RUNNING_MAX_COUNT) {
      if (this.#parts.socket.writableLength > CLIENT_OUTPUT_MAX_BYTES) return;
      void this.#run(this.#queue.shift() as Request);
    }
  }

  async #run(request: Request): Promise<void> {
    const { header, body, abort } = request;
    this.#runningCount++;
    let status: Status = Status.ok;
    let answer: Buffer = NOTHING;
    try {
      answer = await this.#execute(header, body, abort.signal);
    } catch (error) {
      let message: string;
      [status, message] = statusOf(error);
      answer = Buffer.from(message);
      if (status === Status.failed && !this.#isClosed()) {
        this.#parts.log.log('error', 'a request of a client has failed', { client: this.#name, error: String(error) });
      }
    }
    this.#runningCount--;
    this.#settle(request);
    if (this.#isClosed()) {
      this.#endWhenIdle();
      return;
    }
    if (status === Status.ok) this.#answer(header, status, answer);
    else this.#fail(header, status, answer.toString());
    for (const answered of request.onAnswered) answered();
    this.#runQueue();
  }

  #execute(header: FrameHeader, body: Buffer, signal: AbortSignal): Promise<Buffer> | Buffer {
    switch (header.type) {
      case RequestType.ping:
        return this.#parts.bootToken;
      case RequestType.stats:
        return Buffer.from(JSON.stringify(this.#parts.statsOf(this)));
      case RequestType.file:
        return this.#parts.openFile(decodeFile(body), this).then(() => NOTHING);
      default:
        return (this.#requests as ClientRequests).run(header.type as RequestType, body, signal);
    }
  }

  /** It is not in flight any more. */
  #settle({ header, cancelDeadline, giveBack }: Request): void {
    this.#inFlight.delete(header.requestId);
    cancelDeadline();
    giveBack();
  }

  #fence(header: FrameHeader, body: Buffer): void {
    let id: number;
    try {
      id = decodeNumber(body);
    } catch (error) {
      this.#fail(header, ...statusOf(error));
      return;
    }
    const before = id === 0 ? [...this.#inFlight.values()] : [this.#inFlight.get(id)].filter((r) => r !== undefined);
    let leftCount = before.length;
    const answered = (): void => {
      if (leftCount === 0) this.#answer(header, Status.ok, NOTHING);
    };
    for (const request of before) {
      request.onAnswered.push(() => {
        leftCount--;
        answered();
      });
    }
    answered();
  }

  #fail(header: FrameHeader, status: Status, message: string): void {
    this.#counts?.failed(status);
    this.#answer(header, status, Buffer.from(message));
  }

  #answer(header: FrameHeader, status: Status, body: Buffer): void {
    if (this.#isClosed()) return;
    this.#write(header, status, body);
    if (this.#parts.socket.writableLength > 0) this.#watchOutput();
  }

  #write({ type, requestId }: Pick<FrameHeader, 'type' | 'requestId'>, status: Status, body: Buffer): void {
    const { socket } = this.#parts;
    const header = encodeHeader({ bodyBytes: body.length, type, status, requestId, deadlineMs: 0 });
    if (body.length <= CLIENT_SMALL_BODY_BYTES) {
      socket.write(body.length === 0 ? header : Buffer.concat([header, body]));
      return;
    }
    socket.cork();
    socket.write(header);
    socket.write(body);
    socket.uncork();
  }

  /** Ends the connection when the client takes nothing of its answers for CLIENT_STALL_TIMEOUT_MS. */
  #watchOutput(): void {
    const { socket, clock } = this.#parts;
    this.#cancelTimer();
    this.#takenBytes = socket.bytesWritten - socket.writableLength;
    this.#cancelTimer = clock.after(CLIENT_STALL_TIMEOUT_MS, () => {
      if (socket.writableLength === 0) return;
      if (socket.bytesWritten - socket.writableLength > this.#takenBytes) this.#watchOutput();
      else this.close('the client does not take its answers');
    });
  }

  #violated(message: string): void {
    if (this.#state === 'closed') return;
    this.#counts?.failed(Status.badRequest);
    this.#write({ type: 0, requestId: 0 }, Status.badRequest, Buffer.from(message));
    this.#parts.socket.end();
    this.close(message);
  }

  #endWhenIdle(): void {
    if (this.#isEnded || this.#runningCount > 0 || this.#state !== 'closed') return;
    this.#isEnded = true;
    this.#parts.onEnded(this, this.#reason);
  }
}

function statusOf(error: unknown): [status: Status, message: string] {
  if (error instanceof RequestError) return [error.status, error.message];
  if (error instanceof ProtocolError) return [Status.badRequest, error.message];
  const code = (error as { readonly code?: unknown }).code;
  if (code === 'ERR_ARGUMENT') return [Status.badRequest, (error as Error).message];
  if (code === 'ERR_CLOSED') return [Status.closing, 'the node is closing'];
  return [Status.failed, 'the node has failed; its log says more'];
}
