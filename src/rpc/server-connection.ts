import { assertAtMost, assertEqual } from '../base/assert.js';
import { Cancellation, type CancelSignal } from '../base/concurrency/cancellation.js';
import type { Environment } from '../base/environment/environment.js';
import type { Connection } from '../base/environment/network.js';
import type { SparseLog } from '../base/environment/sparse-log.js';
import { type ErrorCode, MeshCacheError } from '../base/errors.js';
import {
  RPC_BUFFERED_MAX_BYTES,
  RPC_GRANTED_BYTES,
  RPC_GRANTED_COUNT,
  RPC_HANDSHAKE_TIMEOUT_MS,
  RPC_IN_FLIGHT_MAX_BYTES,
  RPC_IN_FLIGHT_MAX_COUNT,
  RPC_METHOD_MAX_BYTES,
  RPC_PAUSE_AT_BYTES,
  RPC_STALL_TIMEOUT_MS,
} from '../base/limits.js';
import { tagsUnder } from '../memory/frame-tags.js';
import type { SessionKeys } from '../net/auth.js';
import type { AuthFailureReason } from '../net/auth-failures.js';
import { ServerOpening } from '../net/opening.js';
import { CallAges } from './call-ages.js';
import {
  decodeHello,
  FRAME_HEADER_BYTES,
  type Frame,
  FrameError,
  type FrameFault,
  FrameReader,
  FrameType,
  RPC_HELLO,
  writeFrameHeader,
} from './frame.js';
import { FrameWriter } from './frame-writer.js';
import type { MessageCodec } from './message.js';

/** Facts about a call: its caller, and whether the caller still waits. */
export interface RpcContext {
  /** `host:port` of the caller. */
  readonly remote: string;
  /** Address of the caller. */
  readonly address: string;
  /** The user of this node who makes the call, where not every member may make it. */
  readonly user: string | undefined;
  /** Aborted when the caller gives up or its connection ends. */
  readonly signal: CancelSignal;
}

/**
 * Handles calls. `params` is a plain object. The returned (or resolved) value must be encodable in a message: see
 * PROTOCOL.md.
 */
export type RpcHandler = (params: unknown, context: RpcContext) => unknown;

/** A call before it is handled. */
export interface RpcCall {
  readonly method: string;
  /** A map. */
  readonly params: object;
  /** Address of the caller. */
  readonly address: string;
}

/** Why a call or a connection failed; label of `meshcache_rpc_errors_total`. */
export type RpcFault =
  | FrameFault
  | 'unauthenticated'
  | 'handshake_timeout'
  | 'too_many_connections'
  | 'too_many_calls'
  | 'given_up'
  | 'slow_peer'
  | 'unknown_method'
  | 'bad_params'
  | 'denied'
  | 'handler';

export interface ServerConnectionOwner {
  readonly env: Environment;
  readonly codec: MessageCodec;
  /** For what peers cause. */
  readonly lines: SparseLog;
  /** What the server is, in the terms of a client that means to reach it. */
  readonly target: string;
  handlerOf(method: string): RpcHandler | undefined;
  /** Name of the user who makes a call, if that matters. Throws `AuthError` if the caller may not. */
  userOf(call: RpcCall): string | undefined;
  called(): void;
  /** Whether all connections together may hold another call of this many bytes. */
  hasRoomFor(bytes: number): boolean;
  /** Counts a call of this many bytes: 1 when its handling begins, -1 when it ends. */
  inFlight(count: 1 | -1, bytes: number): void;
  /** Whether too many bytes, over all connections, wait for peers to read them. */
  isOverfull(): boolean;
  /** Called when a large part of a request has arrived. */
  held(): void;
  fault(kind: RpcFault): void;
  /** Called when the peer and this node do not agree on a secret; the connection ends. */
  unauthenticated(reason: AuthFailureReason): void;
  /** Called when the peer has said hello and, if required, has authenticated itself. */
  opened(connection: ServerConnection): void;
  ended(connection: ServerConnection): void;
}

/** A call as it was received. */
interface ReceivedCall {
  readonly method: string;
  readonly params: unknown;
  /**
   * When it was made, in milliseconds of the caller's monotonic clock, and how long the caller waits; undefined: it has
   * not said.
   */
  readonly times: { readonly madeMs: number; readonly waitMs: number } | undefined;
}

interface Refusal {
  readonly fault: RpcFault;
  readonly code: ErrorCode;
  readonly text: string;
}

interface Call {
  readonly requestId: number;
  readonly method: string;
  /** Length of the request in bytes. */
  readonly bytes: number;
  readonly params: unknown;
}

const ERROR_TEXT_MAX_CHARACTERS = 512;
/** Errors of handlers that are the fault of the caller. */
const FAULTS: Readonly<Partial<Record<ErrorCode, RpcFault>>> = {
  ERR_ARGUMENT: 'bad_params',
  ERR_PROTOCOL: 'bad_params',
  ERR_AUTH: 'denied',
};

/**
 * The server's side of one connection. It owns the socket, and closes it at the first byte that violates the protocol.
 */
export class ServerConnection {
  readonly #socket: Connection;
  readonly #owner: ServerConnectionOwner;
  readonly #reader: FrameReader;
  readonly #writer: FrameWriter;
  readonly #remote: string;
  readonly #address: string;
  readonly #calls = new Map<number, CallContext>();
  /** Bytes of the requests whose calls are being handled. */
  #inFlightBytes = 0;
  #answerMaxBytes = 0;
  readonly #opening: ServerOpening;
  readonly #ages = new CallAges();
  #cancelTimer: () => void;

  constructor(socket: Connection, owner: ServerConnectionOwner) {
    this.#socket = socket;
    this.#owner = owner;
    this.#address = socket.remoteAddress ?? '';
    this.#remote = `${this.#address}:${socket.remotePort ?? 0}`;
    this.#writer = new FrameWriter(socket, owner.env.clock);
    const { env, target } = owner;
    const subject = { env, target, isEncrypted: () => socket.encrypted === true };
    this.#opening = new ServerOpening(RPC_HELLO, subject, {
      send: (bytes) => this.#writer.write(bytes),
      opened: (peerHello, tags) => this.#opened(peerHello, tags),
      refused: (reason, farewell) => this.#unauthenticated(reason, farewell),
      foreign: (error) => {
        throw error;
      },
    });
    this.#reader = new FrameReader({
      opening: (bytes) => this.#opening.take(bytes),
      frame: (frame) => this.#frame(frame),
    });
    this.#cancelTimer = owner.env.clock.after(RPC_HANDSHAKE_TIMEOUT_MS, () => this.#drop('handshake_timeout'));
    socket.on('data', (chunk: Buffer) => this.#received(chunk));
    socket.on('drain', () => this.#drained());
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#closed());
  }

  /** Bytes of answers that the peer has not accepted yet. */
  get bufferedBytes(): number {
    return this.#writer.bufferedBytes;
  }

  /** Memory of an incomplete request, in bytes. */
  get heldBytes(): number {
    return this.#reader.heldBytes;
  }

  /** Closes the connection to free its memory. */
  shed(): void {
    this.#drop('too_many_calls');
  }

  close(): void {
    this.#reader.stop();
    this.#socket.destroy();
  }

  #received(chunk: Buffer): void {
    try {
      this.#reader.push(chunk);
    } catch (error) {
      this.#drop(error instanceof FrameError ? error.fault : 'bad_message', error);
    }
    if (this.heldBytes > RPC_GRANTED_BYTES) this.#owner.held();
  }

  #opened(peerHello: Buffer, keys: SessionKeys | undefined): void {
    const tags = tagsUnder(keys);
    this.#reader.expectTags(tags?.received);
    this.#writer.addTags(tags?.sent);
    this.#answerMaxBytes = decodeHello(peerHello).frameMaxBytes;
    this.#cancelTimer();
    this.#owner.opened(this);
  }

  #unauthenticated(reason: AuthFailureReason, farewell: Buffer | undefined): void {
    if (farewell !== undefined) this.#socket.end(farewell);
    this.#reader.stop();
    this.#owner.fault('unauthenticated');
    this.#owner.unauthenticated(reason);
    this.#socket.destroySoon();
  }

  #frame(frame: Frame): void {
    if (frame.type === FrameType.cancel) {
      this.#calls.get(frame.requestId)?.abort();
      return;
    }
    if (frame.type !== FrameType.call) throw new FrameError('bad_frame', `frame of type ${frame.type} from a client`);
    if (this.#calls.has(frame.requestId)) throw new FrameError('bad_frame', 'request id is in use');
    const call = this.#decodeCall(frame.message);
    const { method, params } = call;
    this.#owner.called();
    const { length: bytes } = frame.message;
    const refusal = this.#lateness(call) ?? this.#refusal(method, params, bytes);
    if (refusal !== undefined) {
      this.#owner.fault(refusal.fault);
      this.#answerError(frame.requestId, refusal);
      return;
    }
    this.#run({ requestId: frame.requestId, method, bytes, params }, this.#owner.handlerOf(method) as RpcHandler);
  }

  #decodeCall(message: Uint8Array): ReceivedCall {
    let call: unknown;
    try {
      call = this.#owner.codec.decode(message);
    } catch (cause) {
      throw new FrameError('bad_message', 'call: malformed message', cause);
    }
    const parts: readonly unknown[] = Array.isArray(call) ? call : [];
    const [method, params, madeMs, waitMs] = parts;
    const times = isTime(madeMs) && isTime(waitMs) ? { madeMs, waitMs } : undefined;
    if (typeof method !== 'string' || parts.length !== (times === undefined ? 2 : 4)) {
      throw new FrameError('bad_message', 'call: not method and params, and perhaps two times');
    }
    return { method, params, times };
  }

  /** Why a call is not begun that its caller has given up: the caller may have done something else since. */
  #lateness({ method, times }: ReceivedCall): Refusal | undefined {
    if (times === undefined) return undefined;
    if (this.#ages.ageMs(times.madeMs, this.#owner.env.clock.nowMs()) < times.waitMs) return undefined;
    return { fault: 'given_up', code: 'ERR_OVERLOADED', text: `${method}: read after its caller has given it up` };
  }

  #refusal(method: string, params: unknown, bytes: number): Refusal | undefined {
    if (this.#calls.size >= RPC_IN_FLIGHT_MAX_COUNT || this.#inFlightBytes + bytes > RPC_IN_FLIGHT_MAX_BYTES) {
      return { fault: 'too_many_calls', code: 'ERR_OVERLOADED', text: 'too many calls at once on one connection' };
    }
    // A peer with few calls is always served, however many calls other peers make.
    const isLittle = this.#calls.size < RPC_GRANTED_COUNT && this.#inFlightBytes + bytes <= RPC_GRANTED_BYTES;
    if (!isLittle && !this.#owner.hasRoomFor(bytes)) {
      return { fault: 'too_many_calls', code: 'ERR_OVERLOADED', text: 'too many calls at once on this node' };
    }
    if (this.#owner.handlerOf(method) === undefined) {
      const text = `no method ${JSON.stringify(method.slice(0, RPC_METHOD_MAX_BYTES))}`;
      return { fault: 'unknown_method', code: 'ERR_REMOTE', text };
    }
    if (typeof params !== 'object' || params === null || Array.isArray(params) || params instanceof Uint8Array) {
      return { fault: 'bad_params', code: 'ERR_ARGUMENT', text: `${method}: params must be a map` };
    }
    return undefined;
  }

  #run({ requestId, method, bytes, params }: Call, handler: RpcHandler): void {
    const address = this.#address;
    const context = new CallContext({ remote: this.#remote, address, bytes });
    let result: unknown;
    try {
      context.user = this.#owner.userOf({ method, params: params as object, address });
      result = handler(params, context);
    } catch (error) {
      this.#failed(requestId, error);
      return;
    }
    if (!(result instanceof Promise)) {
      this.#succeeded(requestId, result);
      return;
    }
    // Calls are recorded only if they take time: only those can be aborted, or still run when the next call arrives.
    this.#calls.set(requestId, context);
    this.#inFlightBytes += bytes;
    this.#owner.inFlight(1, bytes);
    result.then(
      (value) => this.#succeeded(requestId, value),
      (error) => this.#failed(requestId, error),
    );
  }

  #succeeded(requestId: number, value: unknown): void {
    try {
      this.#answer(FrameType.answer, requestId, value);
      this.#finish(requestId);
    } catch (error) {
      this.#failed(requestId, error);
    }
  }

  #finish(requestId: number): void {
    const context = this.#calls.get(requestId);
    if (context === undefined) return;
    this.#calls.delete(requestId);
    this.#inFlightBytes -= context.bytes;
    this.#owner.inFlight(-1, context.bytes);
  }

  #failed(requestId: number, error: unknown): void {
    this.#finish(requestId);
    const isOurs = error instanceof MeshCacheError;
    this.#owner.fault(isOurs ? (FAULTS[error.code] ?? 'handler') : 'handler');
    const text = error instanceof Error ? error.message : String(error);
    if (!isOurs) this.#owner.lines.log('warn', 'RPC handler failed', { error: text });
    this.#answerError(requestId, { code: isOurs ? error.code : 'ERR_REMOTE', text });
  }

  #answerError(requestId: number, { code, text, fault }: Pick<Refusal, 'code' | 'text'> & Partial<Refusal>): void {
    const message = text.slice(0, ERROR_TEXT_MAX_CHARACTERS);
    this.#answer(
      FrameType.error,
      requestId,
      fault === 'given_up' ? { code, message, given_up: true } : { code, message },
    );
  }

  #answer(type: FrameType, requestId: number, value: unknown): void {
    if (this.#socket.destroyed) return;
    const bytes = this.#owner.codec.encode(value, FRAME_HEADER_BYTES);
    if (bytes.length - FRAME_HEADER_BYTES > this.#answerMaxBytes) {
      if (type === FrameType.error) {
        this.#drop('oversized');
      } else {
        this.#owner.fault('oversized');
        const text = 'the answer is longer than a frame may be';
        this.#answerError(requestId, { code: 'ERR_OVERLOADED', text });
      }
      return;
    }
    writeFrameHeader(bytes, type, requestId);
    this.#writer.write(bytes);
    const { bufferedBytes } = this;
    if (bufferedBytes <= RPC_PAUSE_AT_BYTES) return;
    if (bufferedBytes > RPC_BUFFERED_MAX_BYTES || this.#owner.isOverfull()) this.#drop('slow_peer');
    else this.#pause();
  }

  /** Stops reading from a peer that does not read its answers, and closes the connection if that lasts too long. */
  #pause(): void {
    if (this.#socket.isPaused()) return;
    this.#socket.pause();
    this.#watchProgress(this.#socket.bytesWritten - this.bufferedBytes);
  }

  #watchProgress(takenBytes: number): void {
    this.#cancelTimer = this.#owner.env.clock.after(RPC_STALL_TIMEOUT_MS, () => {
      const nowTakenBytes = this.#socket.bytesWritten - this.bufferedBytes;
      if (nowTakenBytes === takenBytes) this.#drop('slow_peer');
      else this.#watchProgress(nowTakenBytes);
    });
  }

  #drained(): void {
    if (!this.#socket.isPaused()) return;
    this.#cancelTimer();
    this.#socket.resume();
  }

  #drop(fault: RpcFault, error?: unknown): void {
    if (this.#socket.destroyed) return;
    this.#owner.fault(fault);
    // Drops of unauthenticated peers, which may be many, are counted and only logged at debug level.
    const reason = error instanceof Error ? error.message : undefined;
    const level = this.#opening.isOpen ? 'info' : 'debug';
    this.#owner.lines.log(level, 'control connection dropped', { remote: this.#remote, kind: fault, reason }, fault);
    this.close();
  }

  #closed(): void {
    this.#cancelTimer();
    if (this.#reader.isWithinFrame) this.#owner.fault('truncated');
    this.#reader.stop();
    // Handlers may still run; their requests count until they end.
    for (const context of this.#calls.values()) context.abort();
    this.#owner.ended(this);
  }

  /** Number of calls that are being handled, and the bytes of their requests. */
  get inFlight(): { readonly count: number; readonly bytes: number } {
    return { count: this.#calls.size, bytes: this.#inFlightBytes };
  }

  /** Throws `InvariantError` unless the bytes of its calls are counted, within their limits. */
  verify(): void {
    let bytes = 0;
    for (const context of this.#calls.values()) bytes += context.bytes;
    assertEqual(`${this.#remote}: bytes of calls`, this.#inFlightBytes, bytes);
    assertAtMost(`${this.#remote}: bytes of calls`, bytes, RPC_IN_FLIGHT_MAX_BYTES);
    assertAtMost(`${this.#remote}: calls`, this.#calls.size, RPC_IN_FLIGHT_MAX_COUNT);
  }
}

/** Context of a call. Its signal is created on demand, because most handlers answer at once and never use it. */
class CallContext implements RpcContext {
  readonly remote: string;
  readonly address: string;
  user: string | undefined;
  /** Length of the request in bytes. */
  readonly bytes: number;
  #cancellation: Cancellation | undefined;
  #aborted = false;

  constructor({ remote, address, bytes }: Pick<CallContext, 'remote' | 'address' | 'bytes'>) {
    this.remote = remote;
    this.address = address;
    this.bytes = bytes;
  }

  get signal(): CancelSignal {
    if (this.#cancellation === undefined) {
      this.#cancellation = new Cancellation();
      if (this.#aborted) this.#cancellation.abort();
    }
    return this.#cancellation;
  }

  abort(): void {
    this.#aborted = true;
    this.#cancellation?.abort();
  }
}

function isTime(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
