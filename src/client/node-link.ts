import type { Socket } from 'node:net';
import type { Environment } from '../base/environment.js';
import { CLIENT_BODY_MAX_BYTES, CLIENT_CONNECT_TIMEOUT_MS } from '../base/limits.js';
import { FrameReceiver } from '../clients/frame-receiver.js';
import {
  CLIENT_PROTOCOL_VERSION,
  decodeHelloAnswer,
  encodeHeader,
  encodeHello,
  type FrameHeader,
  type HelloAnswer,
  RequestType,
  Status,
} from '../clients/messages.js';
import type { KeyNamespace } from '../core/index.js';

export interface NodeLinkParts {
  readonly path: string;
  readonly name: string;
  readonly namespace: KeyNamespace | undefined;
  readonly env: Environment;
  /** Told once, when the connection has ended. */
  readonly onClosed: (link: NodeLink, reason: string) => void;
}

/** What a node has answered. */
export interface Answer {
  readonly status: number;
  readonly body: Buffer;
}

interface Waiting {
  readonly answered: (answer: Answer | null) => void;
}

const NOTHING = Buffer.alloc(0);
const REQUEST_ID_LIMIT = 2 ** 32;

/** One connection to the client socket of a node: requests go out, each gets one answer, or null when the connection ends first. */
export class NodeLink {
  readonly hello: HelloAnswer;
  readonly #parts: NodeLinkParts;
  readonly #socket: Socket;
  readonly #waiting: Map<number, Waiting>;
  #nextId = 2;
  #isClosed = false;
  #isEnding = false;

  /** Connects and says hello. Rejects with an `Error` that says why it cannot be had. */
  static async open(parts: NodeLinkParts): Promise<NodeLink> {
    const socket = parts.env.network.connect({ path: parts.path });
    const waiting = new Map<number, Waiting>();
    let link: NodeLink | undefined;
    let failure = '';
    const fail = (reason: string): void => {
      failure ||= reason;
      socket.destroy();
      const all = [...waiting.values()];
      waiting.clear();
      for (const { answered } of all) answered(null);
      link?.close(reason);
    };
    const receiver = new FrameReceiver({
      check: ({ bodyBytes }) => {
        if (bodyBytes > CLIENT_BODY_MAX_BYTES) throw new Error(`an answer of ${bodyBytes} bytes`);
      },
      onBegin() {},
      onFrame: ({ status, requestId }, body) => {
        const asked = waiting.get(requestId);
        waiting.delete(requestId);
        if (requestId === 0) failure ||= body.toString();
        asked?.answered({ status, body });
      },
    });
    socket.on('data', (chunk: Buffer) => {
      try {
        receiver.receive(chunk);
      } catch (error) {
        failure ||= (error as Error).message;
        // The node sees the end, and closes its side: only then a new link is proof that what was asked for here is over.
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
      const answer = await helloAnswer(socket, waiting, parts);
      if (answer === null) throw new Error(failure);
      if (answer.status !== Status.ok) throw new Error(answer.body.toString());
      link = new NodeLink(parts, socket, waiting, decodeHelloAnswer(answer.body));
      return link;
    } catch (error) {
      fail((error as Error).message);
      throw error;
    } finally {
      cancelTimer();
    }
  }

  private constructor(parts: NodeLinkParts, socket: Socket, waiting: Map<number, Waiting>, hello: HelloAnswer) {
    this.hello = hello;
    this.#parts = parts;
    this.#socket = socket;
    this.#waiting = waiting;
    // Only requests under way keep the process alive.
    socket.unref();
  }

  /**
   * The id is for {@link cancel}; the answer is null when the connection has ended before it came. Undefined: nothing was sent, the
   * connection has ended before.
   */
  request(
    type: RequestType,
    body: Buffer,
    deadlineMs: number,
  ): { readonly id: number; readonly answer: Promise<Answer | null> } | undefined {
    if (this.#isClosed || this.#isEnding) return undefined;
    const id = this.#newId();
    const answer = new Promise<Answer | null>((resolve) => {
      if (this.#waiting.size === 0) this.#socket.ref();
      this.#waiting.set(id, {
        answered: (given) => {
          if (this.#waiting.size === 0) this.#socket.unref();
          resolve(given);
          if (given !== null && this.#isEnding && this.#waiting.size === 0) this.close('closed');
        },
      });
    });
    this.#write({ type, requestId: id, deadlineMs: Math.max(1, Math.round(deadlineMs)) }, body);
    return { id, answer };
  }

  /** The request ends as soon as it can, and is answered then. */
  cancel(id: number): void {
    if (this.#isClosed || !this.#waiting.has(id)) return;
    const body = Buffer.alloc(4);
    body.writeUInt32LE(id);
    this.#write({ type: RequestType.cancel, requestId: this.#newId(), deadlineMs: 0 }, body);
  }

  /** Takes no more requests, cancels those under way, and closes when they have been answered. */
  end(): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    for (const id of this.#waiting.keys()) this.cancel(id);
    if (this.#waiting.size === 0) this.close('closed');
  }

  /** Idempotent. */
  close(reason: string): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#socket.destroy();
    const all = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { answered } of all) answered(null);
    this.#parts.onClosed(this, reason);
  }

  #newId(): number {
    do this.#nextId = (this.#nextId + 1) % REQUEST_ID_LIMIT || 1;
    while (this.#waiting.has(this.#nextId));
    return this.#nextId;
  }

  #write(header: Pick<FrameHeader, 'type' | 'requestId' | 'deadlineMs'>, body: Buffer): void {
    this.#socket.cork();
    this.#socket.write(encodeHeader({ ...header, bodyBytes: body.length, status: 0 }));
    if (body.length > 0) this.#socket.write(body);
    this.#socket.uncork();
  }
}

function helloAnswer(
  socket: Socket,
  waiting: Map<number, Waiting>,
  { name, namespace }: NodeLinkParts,
): Promise<Answer | null> {
  const version = CLIENT_PROTOCOL_VERSION;
  const body = encodeHello({ minVersion: version, maxVersion: version, name, pid: process.pid, namespace });
  const header = encodeHeader({
    bodyBytes: body.length,
    type: RequestType.hello,
    status: 0,
    requestId: 1,
    deadlineMs: 0,
  });
  return new Promise((resolve) => {
    waiting.set(1, { answered: resolve });
    socket.write(Buffer.concat([header, body.length === 0 ? NOTHING : body]));
  });
}
