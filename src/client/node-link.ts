import { assert, assertAtMost } from '../base/assert.js';
import type { Environment } from '../base/environment/environment.js';
import type { Connection } from '../base/environment/network.js';
import { AuthError, MeshCacheError } from '../base/errors.js';
import {
  CLIENT_BODY_MAX_BYTES,
  CLIENT_CONNECT_TIMEOUT_MS,
  CLIENT_SENT_MAX_COUNT,
  CLIENT_SMALL_BODY_BYTES,
} from '../base/limits.js';
import { distrustOf, ownRuntimeFolder } from '../clients/socket-path.js';
import { encodeRequestHead, isSameClock } from '../clients/wire/asked-instant.js';
import { decodeFingerprintNotice } from '../clients/wire/fingerprint-messages.js';
import { FrameReceiver } from '../clients/wire/frame-receiver.js';
import {
  Capability,
  CLIENT_PROTOCOL_VERSION,
  decodeHelloAnswer,
  encodeHeader,
  encodeHello,
  type FrameHeader,
  type HelloAnswer,
  RequestType,
  Status,
} from '../clients/wire/messages.js';
import type { KeyNamespace } from '../core/index.js';
import { credentialsOf } from '../native/unix-sockets.js';
import { type TokenSource, tokenFrom } from './client-token.js';

/** The socket a client attaches to, and the identity that it presents. */
export interface ClientIdentity {
  /** Path of the node's socket. */
  readonly path: string;
  /** Source of the token that identifies the user. */
  readonly tokens: TokenSource;
  readonly name: string;
  readonly namespace: KeyNamespace | undefined;
  readonly env: Environment;
}

interface LinkOptions extends ClientIdentity {
  /** Called when the node tells this client its fingerprint; an empty text means none. */
  readonly onFingerprint?: (fingerprint: string) => void;
  /** Called once, when the connection has ended. */
  readonly onClosed: (link: NodeLink, reason: string) => void;
}

/** A node's answer to a request. */
interface Answer {
  readonly status: number;
  readonly body: Buffer;
}

interface Waiting {
  readonly answered: (answer: Answer | null) => void;
}

/** A request that waits until earlier ones have been answered. */
interface Queued {
  readonly type: RequestType;
  readonly body: Buffer;
  readonly askedMs: number;
  readonly untilMs: number;
  readonly answered: (answer: Answer | null) => void;
}

/** A connection on which the node has answered HELLO. */
interface Greeted {
  readonly socket: Connection;
  readonly waiting: Map<number, Waiting>;
  readonly hello: HelloAnswer;
  readonly saysInstants: boolean;
}

const NOTHING = Buffer.alloc(0);
const REQUEST_ID_LIMIT = 2 ** 32;
/** The answer to a request that was not sent, or that the node never began. The node does no work for it. */
const NOT_SENT: Answer = { status: Status.closing, body: NOTHING };

/**
 * One connection to the client socket of a node. Requests are sent in the order in which they were made, at most
 * CLIENT_SENT_MAX_COUNT in flight. Each request gets one answer, or null if the connection ends first.
 */
export class NodeLink {
  readonly hello: HelloAnswer;
  /**
   * The node's process id as seen by this process; undefined if the node is in an invisible PID namespace or the addon
   * is missing.
   */
  readonly nodePid: number | undefined;
  readonly #parts: LinkOptions;
  readonly #socket: Connection;
  /** Whether requests carry the time at which they were made: the node supports it and reads the same clock. */
  readonly #saysInstants: boolean;
  /** Requests that were sent and not answered yet. */
  readonly #waiting: Map<number, Waiting>;
  /** Requests that are not sent yet, by id, oldest first. */
  readonly #queue = new Map<number, Queued>();
  readonly #onIdle: (() => void)[] = [];
  #nextId = 1;
  #isEnding = false;
  #isClosed = false;

  /** Connects and says hello. Rejects with an `Error` that gives the reason. */
  static async open(parts: LinkOptions): Promise<NodeLink> {
    const socket = connectTo(parts);
    const waiting = new Map<number, Waiting>();
    let link: NodeLink | undefined;
    let failure = '';
    const fail = (reason: string): void => {
      failure ||= reason;
      socket.destroy();
      if (link === undefined) waiting.get(1)?.answered(null);
      else link.close(failure);
    };
    const receiver: FrameReceiver = new FrameReceiver({
      check: ({ bodyBytes }) => {
        if (bodyBytes > CLIENT_BODY_MAX_BYTES) throw new Error(`an answer of ${bodyBytes} bytes`);
      },
      onFrame: ({ status, type, requestId }, body) => {
        if (requestId === 0 && type === RequestType.fingerprint) return told(parts, body);
        const asked = waiting.get(requestId);
        waiting.delete(requestId);
        asked?.answered({ status, body });
        if (requestId !== 0) return;
        failure ||= body.toString();
        if (status === Status.closing) link?.close(failure, NOT_SENT);
      },
    });
    socket.on('data', (chunk: Buffer) => {
      try {
        receiver.receive(chunk);
      } catch (error) {
        failure ||= (error as Error).message;
        // The node must see the end of this connection and close its side. Only then does a new link prove that this
        // link's requests are over.
        receiver.stop();
        if (link !== undefined) link.#isEnding = true;
        socket.end();
      }
    });
    socket.on('error', (error) => fail(error.message));
    socket.on('end', () => fail('ended by the node'));
    socket.on('close', () => fail('closed'));
    const cancelTimer = parts.env.clock.after(CLIENT_CONNECT_TIMEOUT_MS, () => fail('no answer in time'), {
      keepAlive: true,
    });
    try {
      const greeted = await greet(socket, waiting, parts);
      if (greeted === null) throw new Error(failure);
      link = new NodeLink(parts, greeted);
      return link;
    } catch (error) {
      fail((error as Error).message);
      throw error;
    } finally {
      cancelTimer();
    }
  }

  private constructor(parts: LinkOptions, { socket, waiting, hello, saysInstants }: Greeted) {
    this.hello = hello;
    this.#saysInstants = saysInstants;
    this.#parts = parts;
    this.#socket = socket;
    this.#waiting = waiting;
    this.nodePid = peerPidOf(socket);
    // An idle connection must not keep the process alive.
    socket.unref();
  }

  /**
   * Sends a request and returns its id (for {@link cancel}) and its answer. With `deadlineMs` 0 the node sets the
   * deadline. `askedMs` is when the caller began the call that the request belongs to. The answer is null if the
   * connection ends first; a request that was never sent gets the status `closing`.
   */
  request(
    type: RequestType,
    body: Buffer,
    deadlineMs: number,
    askedMs = this.#parts.env.clock.nowMs(),
  ): { readonly id: number; readonly answer: Promise<Answer | null> } {
    const id = this.#newId();
    if (this.#isClosed || this.#isEnding) return { id, answer: Promise.resolve(NOT_SENT) };
    const untilMs = deadlineMs === 0 ? Number.POSITIVE_INFINITY : this.#parts.env.clock.nowMs() + deadlineMs;
    const answer = new Promise<Answer | null>((resolve) => {
      this.#queue.set(id, { type, body, askedMs, untilMs, answered: resolve });
    });
    this.#sendQueued();
    this.#parts.env.clock.expectInput?.();
    return { id, answer };
  }

  /** Asks the node to end a request early. The request still gets an answer. */
  cancel(id: number): void {
    this.#dropQueued(id);
    if (this.#isClosed || !this.#waiting.has(id)) return;
    const body = Buffer.alloc(4);
    body.writeUInt32LE(id);
    this.#write({ type: RequestType.cancel, requestId: this.#newId(), deadlineMs: 0 }, body, undefined);
  }

  /** Sends a message that gets no answer. Returns false if the connection is ending, so that nothing was sent. */
  tell(type: RequestType, body: Buffer): boolean {
    if (this.#isClosed || this.#isEnding) return false;
    this.#write({ type, requestId: this.#newId(), deadlineMs: 0 }, body, undefined);
    return true;
  }

  /** Cancels all requests and sends no more. Resolves when each has been answered, or the connection has ended. */
  async end(): Promise<void> {
    this.#isEnding = true;
    for (const id of this.#queue.keys()) this.#dropQueued(id);
    if (this.#isClosed || this.#waiting.size === 0) return;
    for (const id of this.#waiting.keys()) this.cancel(id);
    await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  /** Closes the connection; `unanswered` is the result of requests without an answer. Idempotent. */
  close(reason: string, unanswered: Answer | null = null): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#socket.destroy();
    for (const id of this.#queue.keys()) this.#dropQueued(id);
    const all = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { answered } of all) answered(unanswered);
    for (const idle of this.#onIdle.splice(0)) idle();
    this.#parts.onClosed(this, reason);
  }

  #sendQueued(): void {
    const { clock } = this.#parts.env;
    for (const [id, { type, body, askedMs, untilMs, answered }] of this.#queue) {
      if (this.#waiting.size >= this.#sentMaxCount) return;
      const nowMs = clock.nowMs();
      if (untilMs <= nowMs) {
        this.#dropQueued(id);
        continue;
      }
      this.#queue.delete(id);
      if (this.#waiting.size === 0) this.#socket.ref();
      this.#waiting.set(id, { answered: (given) => this.#answered(given, answered) });
      // The node counts the deadline from the time stated in the request, or else from the arrival of the request.
      const saidMs = this.#saysInstants ? askedMs : undefined;
      const leftMs = untilMs - (saidMs ?? nowMs);
      const deadlineMs = Number.isFinite(leftMs) ? Math.max(1, Math.round(leftMs)) : 0;
      this.#write({ type, requestId: id, deadlineMs }, body, saidMs);
    }
  }

  #dropQueued(id: number): void {
    const dropped = this.#queue.get(id);
    this.#queue.delete(id);
    dropped?.answered(NOT_SENT);
  }

  #answered(answer: Answer | null, resolve: (answer: Answer | null) => void): void {
    resolve(answer);
    if (this.#isClosed) return;
    this.#sendQueued();
    if (this.#waiting.size > 0) return;
    this.#socket.unref();
    for (const idle of this.#onIdle.splice(0)) idle();
  }

  get #sentMaxCount(): number {
    return Math.min(CLIENT_SENT_MAX_COUNT, this.hello.inFlightMaxCount);
  }

  #newId(): number {
    do this.#nextId = (this.#nextId + 1) % REQUEST_ID_LIMIT || 1;
    while (this.#waiting.has(this.#nextId) || this.#queue.has(this.#nextId));
    return this.#nextId;
  }

  #write(
    header: Pick<FrameHeader, 'type' | 'requestId' | 'deadlineMs'>,
    body: Buffer,
    askedMs: number | undefined,
  ): void {
    const head = encodeRequestHead({ ...header, bodyBytes: body.length }, askedMs);
    if (body.length <= CLIENT_SMALL_BODY_BYTES) {
      this.#socket.write(body.length === 0 ? head : Buffer.concat([head, body]));
      return;
    }
    this.#socket.cork();
    this.#socket.write(head);
    this.#socket.write(body);
    this.#socket.uncork();
  }

  /**
   * Throws `InvariantError` unless the limit of sent requests holds, no request waits while another could be sent, and
   * none waits after closing.
   */
  verify(): void {
    const [sent, queued] = [this.#waiting.size, this.#queue.size];
    assertAtMost('node link: requests that are sent', sent, this.#sentMaxCount);
    assert(queued === 0 || sent === this.#sentMaxCount, () => `node link: ${queued} requests wait, ${sent} are sent`);
    assert(
      !this.#isClosed || sent + queued === 0,
      () => `node link: ${sent} requests are sent, ${queued} wait, closed`,
    );
  }
}

/** Connects to the node's socket. Throws an `Error` for a path at which another user may listen. */
function connectTo({ path, env }: LinkOptions): Connection {
  const distrust = distrustOf(path, ownRuntimeFolder());
  if (distrust !== '') throw new Error(`${distrust}; remove it, or name a socket in another folder`);
  return env.network.connect({ path });
}

/** Returns the node's process id according to the kernel. It differs from the node's own in another PID namespace. */
function peerPidOf(socket: Connection): number | undefined {
  const pid = credentialsOf(socket)?.pid ?? 0;
  return pid > 0 ? pid : undefined;
}

function told({ onFingerprint }: LinkOptions, notice: Buffer): void {
  onFingerprint?.(decodeFingerprintNotice(notice));
}

/**
 * Says HELLO. Resolves with null if the connection has ended. Throws `ERR_REMOTE` if the node refuses this client, or
 * `ERR_AUTH` if it refuses its token, user or tag.
 */
async function greet(socket: Connection, waiting: Map<number, Waiting>, parts: LinkOptions): Promise<Greeted | null> {
  const { clock } = parts.env;
  const beforeMs = clock.nowMs();
  const answer = await helloAnswer(socket, waiting, parts);
  if (answer === null) return null;
  if (answer.status === Status.denied) throw new AuthError(`the node refuses: ${answer.body}`, { retryable: true });
  if (answer.status !== Status.ok) {
    throw new MeshCacheError('ERR_REMOTE', `the node refuses: ${answer.body}`, { retryable: true });
  }
  const hello = decodeHelloAnswer(answer.body);
  const { capabilities, instantUs = Number.NaN } = hello;
  const isShared = isSameClock(instantUs / 1000, { beforeMs, afterMs: clock.nowMs() });
  return { socket, waiting, hello, saysInstants: isShared && (capabilities & Capability.instants) !== 0 };
}

function helloAnswer(
  socket: Connection,
  waiting: Map<number, Waiting>,
  { name, namespace, tokens, env, onFingerprint }: LinkOptions,
): Promise<Answer | null> {
  const version = CLIENT_PROTOCOL_VERSION;
  const isTold = namespace !== undefined && onFingerprint !== undefined;
  const said = { name, pid: process.pid, namespace, isTold, comparesClocks: true, token: tokenFrom(tokens, env.files) };
  const body = encodeHello({ minVersion: version, maxVersion: version, ...said });
  const header = encodeHeader({
    bodyBytes: body.length,
    type: RequestType.hello,
    status: 0,
    requestId: 1,
    deadlineMs: 0,
  });
  return new Promise((resolve) => {
    waiting.set(1, { answered: resolve });
    socket.write(Buffer.concat([header, body]));
  });
}
