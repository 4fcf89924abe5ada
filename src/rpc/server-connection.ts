import { assertAtMost, assertEqual } from '../base/assert.js';
import { Cancellation, type CancelSignal } from '../base/concurrency/cancellation.js';
import type { Connection } from '../base/environment/network.js';
import { type ErrorCode, MeshCacheError } from '../base/errors.js';
import {
  RPC_GRANTED_BYTES,
  RPC_IN_FLIGHT_MAX_BYTES,
  RPC_IN_FLIGHT_MAX_COUNT,
  RPC_METHOD_MAX_BYTES,
  RPC_PAUSE_AT_BYTES,
} from '../base/limits.js';
import { tagsUnder } from '../memory/frame-tags.js';
import type { SessionKeys } from '../net/auth.js';
import type { AuthFailureReason } from '../net/auth-failures.js';
import { ServerOpening } from '../net/opening.js';
import type { ServedEvent, ServedState } from '../net/served/connection-states.js';
import { ServedConnection, type ServedProtocol } from '../net/served/served-connection.js';
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
import type { RpcServer } from './server.js';

/** Facts about a call: its caller, and whether the caller still waits. */
export interface RpcContext {
  /** `host:port` of the caller. */
  readonly remote: string;
  /** Address of the caller. */
  readonly address: string;
  /** The user of this node who makes the call, if not every member may make it. */
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
  /** Parameters of the call, which must be a map. */
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

/** A call as it was received and decoded. */
interface ReceivedCall {
  readonly method: string;
  readonly params: unknown;
  /**
   * When the call was made, in milliseconds of the caller's monotonic clock, and how long the caller waits; undefined
   * if the caller did not state it.
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
/** Errors of handlers that the caller has caused. */
const FAULTS: Readonly<Partial<Record<ErrorCode, RpcFault>>> = {
  ERR_ARGUMENT: 'bad_params',
  ERR_PROTOCOL: 'bad_params',
  ERR_AUTH: 'denied',
};

/** Faults for which the connection itself ends, by event. */
const FAULTS_OF_EVENTS: Readonly<Partial<Record<ServedEvent, RpcFault>>> = {
  late: 'handshake_timeout',
  stuck: 'slow_peer',
  flooded: 'slow_peer',
};

/** The server's side of one connection. It closes the connection at the first byte that violates the protocol. */
export class ServerConnection implements ServedProtocol {
  readonly served: ServedConnection;
  readonly #server: RpcServer;
  readonly #reader: FrameReader;
  readonly #writer: FrameWriter;
  readonly #remote: string;
  readonly #address: string;
  readonly #calls = new Map<number, CallContext>();
  #answerMaxBytes = 0;
  readonly #opening: ServerOpening;
  readonly #ages = new CallAges();

  constructor(socket: Connection, server: RpcServer) {
    this.#server = server;
    this.#address = socket.remoteAddress ?? '';
    this.#remote = `${this.#address}:${socket.remotePort ?? 0}`;
    const { env, target } = server;
    this.#writer = new FrameWriter(socket, env.clock);
    const subject = { env, target, isEncrypted: () => socket.encrypted === true };
    this.#opening = new ServerOpening(RPC_HELLO, subject, {
      send: (bytes) => this.#writer.write(bytes),
      opened: (peerHello, keys) => this.#opened(peerHello, keys),
      refused: (reason, farewell) => {
        if (farewell !== undefined) socket.write(farewell);
        this.#unauthenticated(reason);
      },
      foreign: (error) => {
        throw error;
      },
    });
    this.#reader = new FrameReader({
      opening: (bytes) => this.#opening.take(bytes),
      frame: (frame) => this.#frame(frame),
    });
    this.served = new ServedConnection(socket, server.connections, this, { origin: '' });
  }

  /** Memory of an incomplete request, in bytes. */
  get heldBytes(): number {
    return this.#reader.heldBytes;
  }

  /** Whether reading must pause: a peer that does not read its answers is not read until it has read all of them. */
  get mustWait(): boolean {
    const { waitingBytes, isPaused } = this.served;
    return waitingBytes > RPC_PAUSE_AT_BYTES || (isPaused && waitingBytes > 0);
  }

  received(chunk: Buffer): void {
    try {
      this.#reader.push(chunk);
    } catch (error) {
      this.#drop(error instanceof FrameError ? error.fault : 'bad_message', error);
    }
    if (this.heldBytes > RPC_GRANTED_BYTES) this.#server.shedHeld();
  }

  drained(): void {}

  peerEnded(): void {}

  slow(): void {}

  entered(state: ServedState, event: ServedEvent): void {
    if (state !== 'closed') return;
    const fault = FAULTS_OF_EVENTS[event];
    if (fault !== undefined) this.#dropped(fault);
    if (event === 'replaced') this.#server.fault('too_many_connections');
    if (this.#reader.isWithinFrame && (event === 'gone' || event === 'failed')) this.#server.fault('truncated');
    this.#reader.stop();
    // Handlers may still run; their requests count until they end.
    for (const context of this.#calls.values()) context.abort();
  }

  finish(reason: string): void {
    this.served.close(reason);
  }

  /** Closes the connection to free its memory. */
  shed(): void {
    this.#drop('too_many_calls');
  }

  #opened(peerHello: Buffer, keys: SessionKeys | undefined): void {
    const tags = tagsUnder(keys);
    this.#reader.expectTags(tags?.received);
    this.#writer.addTags(tags?.sent);
    this.#answerMaxBytes = decodeHello(peerHello).frameMaxBytes;
    this.served.opened();
    this.#server.proved(this.#address);
  }

  #unauthenticated(reason: AuthFailureReason): void {
    this.#reader.stop();
    this.#server.fault('unauthenticated');
    this.#server.unauthenticated(reason, this.#address);
    this.served.end('unauthenticated');
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
    this.#server.called();
    const { length: bytes } = frame.message;
    const refusal = this.#lateness(call) ?? this.#refusal(method, params, bytes);
    if (refusal !== undefined) {
      this.#server.fault(refusal.fault);
      this.#answerError(frame.requestId, refusal);
      return;
    }
    this.#run({ requestId: frame.requestId, method, bytes, params }, this.#server.handlerOf(method) as RpcHandler);
  }

  #decodeCall(message: Uint8Array): ReceivedCall {
    let call: unknown;
    try {
      call = this.#server.codec.decode(message);
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

  /** Refuses a call that its caller has already given up, because the caller may have done something else since. */
  #lateness({ method, times }: ReceivedCall): Refusal | undefined {
    if (times === undefined) return undefined;
    if (this.#ages.ageMs(times.madeMs, this.#server.env.clock.nowMs()) < times.waitMs) return undefined;
    return { fault: 'given_up', code: 'ERR_OVERLOADED', text: `${method}: read after its caller has given it up` };
  }

  #refusal(method: string, params: unknown, bytes: number): Refusal | undefined {
    const tooMuch = this.served.tooMuch(bytes);
    if (tooMuch !== undefined) {
      const where = tooMuch === 'all' ? 'this node' : 'one connection';
      return { fault: 'too_many_calls', code: 'ERR_OVERLOADED', text: `too many calls at once on ${where}` };
    }
    if (this.#server.handlerOf(method) === undefined) {
      const text = `no method ${JSON.stringify(method.slice(0, RPC_METHOD_MAX_BYTES))}`;
      return { fault: 'unknown_method', code: 'ERR_REMOTE', text };
    }
    if (typeof params !== 'object' || params === null || Array.isArray(params) || params instanceof Uint8Array) {
      return { fault: 'bad_params', code: 'ERR_ARGUMENT', text: `${method}: params must be a map` };
    }
    return undefined;
  }

  #run(call: Call, handler: RpcHandler): void {
    // A handler may still start something that closes the connection. The connection must not end before that.
    this.served.hold();
    try {
      this.#call(call, handler);
    } finally {
      this.served.letGo();
    }
  }

  #call({ requestId, method, bytes, params }: Call, handler: RpcHandler): void {
    const address = this.#address;
    const context = new CallContext({ remote: this.#remote, address, bytes });
    let result: unknown;
    try {
      context.user = this.#server.userOf({ method, params: params as object, address });
      result = handler(params, context);
    } catch (error) {
      this.#failed(requestId, error);
      return;
    }
    if (!(result instanceof Promise)) {
      this.#succeeded(requestId, result);
      return;
    }
    // Only calls that take time are recorded: only they can be aborted, or still run when the next call arrives.
    this.#calls.set(requestId, context);
    this.served.begin(bytes);
    if (this.served.isClosed) context.abort();
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
    this.served.settle(context.bytes);
  }

  #failed(requestId: number, error: unknown): void {
    this.#finish(requestId);
    const isOurs = error instanceof MeshCacheError;
    this.#server.fault(isOurs ? (FAULTS[error.code] ?? 'handler') : 'handler');
    const text = error instanceof Error ? error.message : String(error);
    if (!isOurs) this.#server.lines.log('warn', 'RPC handler failed', { error: text });
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
    if (this.served.isClosed) return;
    const bytes = this.#server.codec.encode(value, FRAME_HEADER_BYTES);
    if (bytes.length - FRAME_HEADER_BYTES > this.#answerMaxBytes) {
      if (type === FrameType.error) {
        this.#drop('oversized');
      } else {
        this.#server.fault('oversized');
        const text = 'the answer is longer than a frame may be';
        this.#answerError(requestId, { code: 'ERR_OVERLOADED', text });
      }
      return;
    }
    writeFrameHeader(bytes, type, requestId);
    this.#writer.write(bytes);
    this.served.wrote();
  }

  #drop(fault: RpcFault, error?: unknown): void {
    if (this.served.isClosed) return;
    this.#dropped(fault, error);
    this.#reader.stop();
    this.served.close(fault);
  }

  #dropped(fault: RpcFault, error?: unknown): void {
    this.#server.fault(fault);
    // Drops of unauthenticated peers, which may be many, are counted and only logged at debug level.
    const reason = error instanceof Error ? error.message : undefined;
    const level = this.#opening.isOpen ? 'info' : 'debug';
    this.#server.lines.log(level, 'control connection dropped', { remote: this.#remote, kind: fault, reason }, fault);
  }

  /** Throws `InvariantError` unless the bytes of its calls are counted and within their limits. */
  verify(): void {
    let bytes = 0;
    for (const context of this.#calls.values()) bytes += context.bytes;
    const { inFlightCount, inFlightBytes } = this.served;
    assertEqual(`${this.#remote}: bytes of calls`, inFlightBytes, bytes);
    assertEqual(`${this.#remote}: calls`, inFlightCount, this.#calls.size);
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
