import { once } from 'node:events';
import net from 'node:net';
import type { ExecutionContext } from 'ava';
import { encodeRequestHead } from '../../../src/clients/wire/asked-instant.js';
import { FrameReceiver } from '../../../src/clients/wire/frame-receiver.js';
import {
  CLIENT_PROTOCOL_VERSION,
  decodeHelloAnswer,
  encodeHeader,
  encodeHello,
  type FrameHeader,
  type HelloAnswer,
  RequestType,
} from '../../../src/clients/wire/messages.js';
import type { KeyNamespace } from '../../../src/core/index.js';

export interface Answer {
  readonly header: FrameHeader;
  readonly body: Buffer;
}

export interface HelloFields {
  readonly name?: string;
  readonly pid?: number;
  readonly namespace?: KeyNamespace;
  readonly minVersion?: number;
  readonly maxVersion?: number;
  readonly token?: string;
}

/** The body of UNREGION, FENCE and CANCEL, which is one number. */
export function numberBody(value: number): Buffer {
  const body = Buffer.alloc(4);
  body.writeUInt32LE(value);
  return body;
}

/** What the header of a request says of its time. */
export interface RequestTime {
  readonly deadlineMs?: number;
  /** When it was asked, by this host's monotonic clock; left out: the request does not say it. */
  readonly askedMs?: number;
}

export function frame(
  type: number,
  requestId: number,
  body: Uint8Array = Buffer.alloc(0),
  { deadlineMs = 0, askedMs, status = 0 }: RequestTime & { readonly status?: number } = {},
): Buffer {
  if (askedMs !== undefined) {
    const head = encodeRequestHead({ bodyBytes: body.length, type, requestId, deadlineMs }, askedMs);
    return Buffer.concat([head, body]);
  }
  return Buffer.concat([encodeHeader({ bodyBytes: body.length, type, status, requestId, deadlineMs }), body]);
}

export function helloBody({ name = 'test', pid = 1, ...rest }: HelloFields = {}): Buffer {
  const { minVersion = CLIENT_PROTOCOL_VERSION, maxVersion = CLIENT_PROTOCOL_VERSION, namespace, token } = rest;
  return encodeHello({ minVersion, maxVersion, name, pid, namespace, token });
}

/** A bare client: sends the requests of the test, and keeps the answers. */
export class TestClient {
  readonly socket: net.Socket;
  /** Answers in the order in which they came. */
  readonly answers: Answer[] = [];
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  #nextId = 1;
  isClosed = false;
  /** Resolves when the node has ended the connection. */
  readonly closed: Promise<void>;
  hello!: HelloAnswer;

  private constructor(socket: net.Socket) {
    this.socket = socket;
    const receiver = new FrameReceiver({
      check: () => {},
      onFrame: (header, body) => {
        const answer = { header, body: Buffer.from(body) };
        this.answers.push(answer);
        this.#waiting.get(header.requestId)?.(answer);
        this.#waiting.delete(header.requestId);
      },
    });
    socket.on('data', (chunk: Buffer) => receiver.receive(chunk));
    socket.on('error', () => {});
    this.closed = new Promise((resolve) =>
      socket.on('close', () => {
        this.isClosed = true;
        resolve();
      }),
    );
  }

  /** Connects without HELLO. */
  static async connect(t: ExecutionContext, path: string): Promise<TestClient> {
    const client = new TestClient(net.connect({ path }));
    t.teardown(() => client.socket.destroy());
    await once(client.socket, 'connect');
    return client;
  }

  static async attach(t: ExecutionContext, path: string, fields: HelloFields = {}): Promise<TestClient> {
    const client = await TestClient.connect(t, path);
    const { header, body } = await client.request(RequestType.hello, helloBody(fields));
    t.is(header.status, 0, header.status === 0 ? '' : body.toString());
    client.hello = decodeHelloAnswer(body);
    return client;
  }

  get nextId(): number {
    return this.#nextId;
  }

  /** Sends one request; returns its id. */
  send(type: number, body: Uint8Array = Buffer.alloc(0), options: RequestTime = {}): number {
    const id = this.#nextId++;
    this.socket.write(frame(type, id, body, options));
    return id;
  }

  /** Resolves with the answer to a request; rejects if the connection ends before. */
  answerTo(id: number): Promise<Answer> {
    const there = this.answers.find(({ header }) => header.requestId === id);
    if (there !== undefined) return Promise.resolve(there);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, resolve);
      void this.closed.then(() => reject(new Error(`the connection has ended, request ${id} was not answered`)));
    });
  }

  request(type: number, body?: Uint8Array, options?: RequestTime): Promise<Answer> {
    return this.answerTo(this.send(type, body, options));
  }

  /** Resolves with the body of an answer with status 0; rejects for others. */
  async ok(type: number, body?: Uint8Array, options?: RequestTime): Promise<Buffer> {
    const answer = await this.request(type, body, options);
    if (answer.header.status !== 0) throw new Error(`status ${answer.header.status}: ${answer.body}`);
    return answer.body;
  }

  /** The last answer, which tells why the connection ended. */
  async lastWords(): Promise<Answer | undefined> {
    await this.closed;
    return this.answers.find(({ header }) => header.requestId === 0);
  }
}
