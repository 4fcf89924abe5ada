import { assert, assertAtMost, assertEqual } from '../base/assert.js';
import type { CancelSignal } from '../base/concurrency/cancellation.js';
import type { Environment } from '../base/environment/environment.js';
import { type Connection, type Endpoint, formatEndpoint, onConnected } from '../base/environment/network.js';
import { ArgumentError, type ErrorCode, MeshCacheError } from '../base/errors.js';
import {
  RPC_BUFFERED_MAX_BYTES,
  RPC_CONNECT_TIMEOUT_MS,
  RPC_FRAME_MAX_BYTES,
  RPC_HANDSHAKE_TIMEOUT_MS,
  RPC_IN_FLIGHT_MAX_COUNT,
  RPC_SILENCE_MAX_MS,
} from '../base/limits.js';
import { tagsUnder } from '../memory/frame-tags.js';
import type { SessionKeys } from '../net/auth.js';
import { type AuthFailureReason, authError } from '../net/auth-failures.js';
import { ClientOpening } from '../net/opening.js';
import {
  decodeHello,
  FRAME_HEADER_BYTES,
  type Frame,
  FrameError,
  FrameReader,
  FrameType,
  RPC_HELLO,
  writeFrameHeader,
} from './frame.js';
import { FrameWriter } from './frame-writer.js';
import type { MessageCodec } from './message.js';
import { type RpcService, rpcTarget } from './service.js';

/** Error codes that a peer may pass on to the caller. Any other code arrives as `ERR_REMOTE`. */
const REMOTE_CODES: ReadonlySet<string> = new Set<ErrorCode>([
  'ERR_ARGUMENT',
  'ERR_PROTOCOL',
  'ERR_AUTH',
  'ERR_CLOSED',
  'ERR_OVERLOADED',
  'ERR_REMOTE',
]);

export interface OneCall {
  readonly method: string;
  readonly params: unknown;
  readonly timeoutMs: number;
  readonly signal?: CancelSignal | undefined;
  /** Whether waiting for the answer keeps the process alive. */
  readonly keepAlive: boolean;
}

interface PendingCall {
  readonly call: OneCall;
  readonly sentMs: number;
  readonly deadlineMs: number;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: MeshCacheError) => void;
  /** Abort listener of the call; undefined if the call cannot be aborted. */
  readonly onAbort: (() => void) | undefined;
}

export interface ConnectionEnd {
  readonly error: MeshCacheError;
  /** Whether the peer has said hello, so that it was reachable at some time. */
  readonly wasReady: boolean;
  /** Whether the connection was closed because answers were overdue and nothing arrived. */
  readonly wasSilent: boolean;
  /** Milliseconds until an attempt to connect failed; 0 when it had succeeded. */
  readonly failedAfterMs: number;
}

export interface ConnectionOwner {
  /** Called when the peer has said hello and, if this node has secrets, has authenticated itself. */
  ready(): void;
  /** Called when the two sides do not share a secret; `ended` follows. */
  unauthenticated(reason: AuthFailureReason): void;
  ended(end: ConnectionEnd): void;
}

export interface ClientConnectionParts {
  readonly endpoint: Endpoint;
  /** Purpose of the connection. */
  readonly service: RpcService;
  readonly env: Environment;
  readonly codec: MessageCodec;
  readonly owner: ConnectionOwner;
}

/** The client's side of one connection. It owns the socket. Every call ends, at the latest with the connection. */
export class ClientConnection {
  readonly #endpoint: Endpoint;
  readonly #env: Environment;
  readonly #codec: MessageCodec;
  readonly #owner: ConnectionOwner;
  readonly #socket: Connection;
  readonly #reader: FrameReader;
  readonly #writer: FrameWriter;
  readonly #calls = new Map<number, PendingCall>();
  readonly #startedMs: number;
  #queued: Buffer[] = [];
  #queuedBytes = 0;
  #requestMaxBytes = RPC_FRAME_MAX_BYTES;
  readonly #opening: ClientOpening;
  #ready = false;
  #ended = false;
  #silent = false;
  #nextRequestId = 1;
  #keepAliveCount = 0;
  #lastReceivedMs: number;
  #cancelTimer: () => void;
  /**
   * Time of the next search for overdue calls; infinite if no timer runs. All calls share one timer, because most end
   * long before their deadline.
   */
  #watchedMs = Number.POSITIVE_INFINITY;
  #cancelWatch = () => {};

  constructor({ endpoint, service, env, codec, owner }: ClientConnectionParts) {
    this.#endpoint = endpoint;
    this.#env = env;
    this.#codec = codec;
    this.#owner = owner;
    const target = rpcTarget(service, endpoint);
    const subject = { env, target, isEncrypted: () => this.#socket.encrypted === true };
    this.#opening = new ClientOpening(RPC_HELLO, subject, {
      send: (bytes) => this.#writer.write(bytes),
      opened: (peerHello, tags) => this.#opened(peerHello, tags),
      refused: (reason) => this.#refuse(reason),
      foreign: (error) => {
        throw error;
      },
    });
    this.#startedMs = env.clock.nowMs();
    this.#lastReceivedMs = this.#startedMs;
    this.#socket = env.network.connect({ host: endpoint.host, port: endpoint.port, noDelay: true, keepAlive: true });
    this.#socket.unref();
    this.#writer = new FrameWriter(this.#socket, env.clock);
    this.#reader = new FrameReader({
      opening: (bytes) => this.#opening.take(bytes),
      frame: (frame) => this.#frame(frame),
    });
    this.#cancelTimer = this.#afterInput(RPC_CONNECT_TIMEOUT_MS, () => this.#fail('no connection in time'));
    onConnected(this.#socket, () => this.#connected());
    this.#socket.on('data', (chunk: Buffer) => this.#received(chunk));
    this.#socket.on('error', (error) => this.#lost(error.message, error));
    this.#socket.on('close', () => this.#lost('the connection ended'));
  }

  /**
   * Sends a call. Rejects with `MeshCacheError`: ERR_UNREACHABLE, ERR_TIMEOUT, ERR_OVERLOADED, ERR_CLOSED (aborted) or
   * the peer's error.
   */
  call(call: OneCall): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#calls.size >= RPC_IN_FLIGHT_MAX_COUNT) {
        const text = `more than ${RPC_IN_FLIGHT_MAX_COUNT} calls at once to ${this.#name}`;
        throw new MeshCacheError('ERR_OVERLOADED', text, { retryable: true });
      }
      if (this.#queuedBytes + this.#writer.bufferedBytes > RPC_BUFFERED_MAX_BYTES) {
        throw new MeshCacheError('ERR_OVERLOADED', `${this.#name} is not reading its requests`, { retryable: true });
      }
      const sentMs = this.#env.clock.nowMs();
      const bytes = this.#codec.encode([call.method, call.params, sentMs, call.timeoutMs], FRAME_HEADER_BYTES);
      if (bytes.length - FRAME_HEADER_BYTES > this.#requestMaxBytes) {
        throw new ArgumentError(`${call.method}: a request of ${bytes.length} bytes does not fit in a frame`);
      }
      const requestId = this.#freeRequestId();
      const { signal } = call;
      const onAbort =
        signal && (() => this.#giveUp(requestId, new MeshCacheError('ERR_CLOSED', `${call.method}: aborted`)));
      if (onAbort !== undefined) signal?.addEventListener('abort', onAbort);
      this.#addCall(requestId, { call, sentMs, deadlineMs: sentMs + call.timeoutMs, resolve, reject, onAbort });
      writeFrameHeader(bytes, FrameType.call, requestId);
      this.#send(bytes);
      // Others are long polls.
      if (call.keepAlive) this.#env.clock.expectInput?.();
    });
  }

  /** Closes the connection. Calls in flight reject with `error`. */
  end(error: MeshCacheError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#cancelTimer();
    this.#cancelWatch();
    this.#reader.stop();
    this.#queued = [];
    this.#socket.destroy();
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    const failedAfterMs = this.#ready ? 0 : this.#env.clock.nowMs() - this.#startedMs;
    this.#owner.ended({ error, wasReady: this.#ready, wasSilent: this.#silent, failedAfterMs });
    for (const pending of calls) reject(pending, error);
  }

  get #name(): string {
    return formatEndpoint(this.#endpoint);
  }

  #connected(): void {
    this.#cancelTimer();
    this.#cancelTimer = this.#afterInput(RPC_HANDSHAKE_TIMEOUT_MS, () => this.#fail('no hello in time'));
    this.#opening.greet();
  }

  #opened(peerHello: Buffer, keys: SessionKeys | undefined): void {
    const tags = tagsUnder(keys);
    this.#cancelTimer();
    this.#reader.expectTags(tags?.received);
    this.#writer.addTags(tags?.sent);
    this.#requestMaxBytes = Math.min(decodeHello(peerHello).frameMaxBytes, RPC_FRAME_MAX_BYTES);
    this.#ready = true;
    this.#owner.ready();
    const queued = this.#queued;
    this.#queued = [];
    this.#queuedBytes = 0;
    for (const bytes of queued) this.#writer.write(bytes);
  }

  #refuse(reason: AuthFailureReason): void {
    if (this.#ended) return;
    this.#owner.unauthenticated(reason);
    this.end(authError(reason, this.#name));
  }

  #send(bytes: Buffer): void {
    if (this.#ready) {
      this.#writer.write(bytes);
    } else {
      this.#queued.push(bytes);
      this.#queuedBytes += bytes.length;
    }
  }

  #received(chunk: Buffer): void {
    this.#lastReceivedMs = this.#env.clock.nowMs();
    try {
      this.#reader.push(chunk);
    } catch (error) {
      this.#env.metrics.count('meshcache_rpc_errors_total', 1, { kind: 'bad_answer' });
      this.#fail((error as Error).message, error);
    }
  }

  #frame(frame: Frame): void {
    const pending = this.#calls.get(frame.requestId);
    if (pending === undefined) return; // The caller has given up.
    if (frame.type === FrameType.answer) {
      const value = this.#decode(frame.message);
      this.#removeCall(frame.requestId, pending);
      forget(pending);
      pending.resolve(value);
    } else if (frame.type === FrameType.error) {
      const answer = this.#decode(frame.message);
      const error = remoteError(answer);
      this.#removeCall(frame.requestId, pending);
      reject(pending, error);
      // The clocks have drifted apart, for example because a machine was suspended. A new connection compares them
      // again.
      if (isGivenUp(answer)) this.#fail('the peer takes calls for given up that are not');
    } else {
      throw new FrameError('bad_frame', `frame of type ${frame.type} from a server`);
    }
  }

  #decode(message: Uint8Array): unknown {
    try {
      return this.#codec.decode(message);
    } catch (cause) {
      throw new FrameError('bad_message', 'answer: malformed message', cause);
    }
  }

  /**
   * Runs `fn` after `delayMs`, unless input that has arrived by then cancels it. After this thread was busy, timers run
   * before sockets are read, and a healthy peer must not be given up because of that.
   */
  #afterInput(delayMs: number, fn: () => void): () => void {
    const { clock } = this.#env;
    let isCancelled = false;
    const cancelTimer = clock.after(delayMs, () => {
      void clock.yield().then(() => {
        if (!isCancelled) fn();
      });
    });
    return () => {
      isCancelled = true;
      cancelTimer();
    };
  }

  /** Schedules a search for overdue calls at `deadlineMs` or earlier. */
  #watch(deadlineMs: number): void {
    if (deadlineMs >= this.#watchedMs) return;
    this.#cancelWatch();
    this.#watchedMs = deadlineMs;
    this.#cancelWatch = this.#afterInput(deadlineMs - this.#env.clock.nowMs(), () => this.#endOverdue());
  }

  #endOverdue(): void {
    this.#watchedMs = Number.POSITIVE_INFINITY;
    const nowMs = this.#env.clock.nowMs();
    for (const [requestId, pending] of this.#calls) if (pending.deadlineMs <= nowMs) this.#overdue(requestId, pending);
    let nextMs = Number.POSITIVE_INFINITY;
    for (const { deadlineMs } of this.#calls.values()) nextMs = Math.min(nextMs, deadlineMs);
    this.#watch(nextMs);
  }

  #overdue(requestId: number, { call, sentMs }: PendingCall): void {
    const text = `${call.method}: no answer from ${this.#name} within ${call.timeoutMs} ms`;
    this.#giveUp(requestId, new MeshCacheError('ERR_TIMEOUT', text, { retryable: true }));
    if (this.#lastReceivedMs > sentMs) return;
    if (this.#env.clock.nowMs() - sentMs < RPC_SILENCE_MAX_MS) return;
    this.#silent = true;
    this.#fail('the peer is silent');
  }

  #giveUp(requestId: number, error: MeshCacheError): void {
    const pending = this.#calls.get(requestId);
    if (pending === undefined) return;
    this.#removeCall(requestId, pending);
    const bytes = this.#codec.encode(null, FRAME_HEADER_BYTES);
    writeFrameHeader(bytes, FrameType.cancel, requestId);
    this.#send(bytes);
    reject(pending, error);
  }

  #freeRequestId(): number {
    let id = this.#nextRequestId;
    while (this.#calls.has(id)) id = (id + 1) >>> 0;
    this.#nextRequestId = (id + 1) >>> 0;
    return id;
  }

  #addCall(requestId: number, pending: PendingCall): void {
    this.#calls.set(requestId, pending);
    if (pending.call.keepAlive && ++this.#keepAliveCount === 1) this.#socket.ref();
    this.#watch(pending.deadlineMs);
  }

  #removeCall(requestId: number, { call }: PendingCall): void {
    this.#calls.delete(requestId);
    if (call.keepAlive && --this.#keepAliveCount === 0) this.#socket.unref();
  }

  /**
   * Handles the loss of the connection. If a proof is awaited, the loss is a refusal: a server that rejects the proof
   * closes the connection without a message.
   */
  #lost(reason: string, cause?: unknown): void {
    if (this.#opening.awaitsProof) this.#refuse('refused');
    else this.#fail(reason, cause);
  }

  #fail(reason: string, cause?: unknown): void {
    if (this.#ended) return;
    const error = new MeshCacheError('ERR_UNREACHABLE', `${this.#name}: ${reason}`, { retryable: true, cause });
    this.end(error);
  }

  /** Throws `InvariantError` unless the tables of calls agree, and are empty once the connection has ended. */
  verify(): void {
    if (this.#ended) {
      assertEqual(`${this.#name}: calls of a connection that has ended`, this.#calls.size, 0);
      return;
    }
    let keepAlive = 0;
    for (const { call, deadlineMs } of this.#calls.values()) {
      keepAlive += Number(call.keepAlive);
      assertAtMost(`${this.#name}: time of the timer of a call`, this.#watchedMs, deadlineMs);
    }
    assertEqual(`${this.#name}: calls that keep the process alive`, this.#keepAliveCount, keepAlive);
    assertAtMost(`${this.#name}: calls under way`, this.#calls.size, RPC_IN_FLIGHT_MAX_COUNT);
    const queuedBytes = this.#queued.reduce((sum, { length }) => sum + length, 0);
    assertEqual(`${this.#name}: bytes that wait for its opening`, this.#queuedBytes, queuedBytes);
    assert(!this.#ready || queuedBytes === 0, () => `${this.#name}: open, and ${queuedBytes} bytes wait`);
  }
}

/** Removes the abort listener of a call that has ended. */
function forget({ call, onAbort }: PendingCall): void {
  if (onAbort !== undefined) call.signal?.removeEventListener('abort', onAbort);
}

function reject(pending: PendingCall, error: MeshCacheError): void {
  forget(pending);
  pending.reject(error);
}

/** Whether an error says that the peer did not begin the call, because it took the call for given up. */
function isGivenUp(value: unknown): boolean {
  return typeof value === 'object' && value !== null && (value as Record<string, unknown>).given_up === true;
}

function remoteError(value: unknown): MeshCacheError {
  const { code, message } = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
  const known = typeof code === 'string' && REMOTE_CODES.has(code) ? (code as ErrorCode) : 'ERR_REMOTE';
  return new MeshCacheError(known, typeof message === 'string' ? message : 'the peer failed', {
    retryable: known === 'ERR_OVERLOADED',
  });
}
