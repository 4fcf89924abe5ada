import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import {
  CLIENT_PROTOCOL_VERSION,
  decodeHeader,
  encodeExists,
  encodeHeader,
  encodeHello,
  encodeKeyRequest,
  encodeRegionRequest,
  encodeSetBytes,
  FRAME_HEADER_BYTES,
  RequestType,
} from '../../src/clients/wire/messages.js';

/** A client of a node's socket that makes one request after the other, with bytes on the socket. */
export class AttachedClient {
  readonly #socket: Socket;
  #received = Buffer.alloc(0);
  #requestId = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk]);
    });
    socket.on('error', () => {});
  }

  /** Attaches under this name; resolves when the node has accepted the client. */
  static async attach(path: string, name: string, pid = process.pid): Promise<AttachedClient> {
    const socket = connect({ path });
    await once(socket, 'connect');
    const client = new AttachedClient(socket);
    const version = CLIENT_PROTOCOL_VERSION;
    const hello = encodeHello({ minVersion: version, maxVersion: version, name, pid });
    const { status, body } = await client.request(RequestType.hello, hello);
    if (status !== 0) throw new Error(`the node did not take the client: ${body}`);
    return client;
  }

  /** Sets pages; true for each page that is set. */
  async set(pages: Readonly<Record<string, Uint8Array>>): Promise<boolean[]> {
    const body = encodeSetBytes({ pool: '', isNamed: true, keys: Object.keys(pages), pages: Object.values(pages) });
    return [...(await this.#done(RequestType.setBytes, body))].map((flag) => flag === 1);
  }

  /** Reads pages; resolves with the node's answer as it is. */
  get(keys: readonly string[]): Promise<Buffer> {
    return this.#done(RequestType.getBytes, encodeKeyRequest('', keys, { hasFlags: true }));
  }

  /** Looks pages up; resolves with how many are there from the first on without a gap. */
  async exists(keys: readonly string[]): Promise<number> {
    const body = encodeExists({ pool: '', wantsFlags: false, suffixes: [], keys: [...keys] });
    return (await this.#done(RequestType.exists, body)).readUInt32LE();
  }

  /** Requests a page in memory that it has not registered; resolves with the status of the answer. */
  async getNowhere(key: string): Promise<number> {
    const pieces = { pieceCount: 1, offsets: [0], lengths: [1], regionIds: [9] };
    const body = encodeRegionRequest({ pool: '', isNamed: false, keys: [key], pieces });
    return (await this.request(RequestType.get, body)).status;
  }

  async request(type: RequestType, body: Buffer): Promise<{ readonly status: number; readonly body: Buffer }> {
    const requestId = ++this.#requestId;
    const header = encodeHeader({ bodyBytes: body.length, type, status: 0, requestId, deadlineMs: 0 });
    this.#socket.write(Buffer.concat([header, body]));
    const answer = decodeHeader(await this.#read(FRAME_HEADER_BYTES));
    return { status: answer.status, body: await this.#read(answer.bodyBytes) };
  }

  /** Resolves when the connection has ended on this side. */
  async close(): Promise<void> {
    if (this.#socket.destroyed) return;
    const closed = once(this.#socket, 'close');
    this.#socket.destroy();
    await closed;
  }

  async #done(type: RequestType, body: Buffer): Promise<Buffer> {
    const answer = await this.request(type, body);
    if (answer.status !== 0) throw new Error(`status ${answer.status}: ${answer.body}`);
    return answer.body;
  }

  async #read(bytes: number): Promise<Buffer> {
    while (this.#received.length < bytes) {
      if (this.#socket.destroyed || this.#socket.readableEnded) throw new Error('the node has ended the connection');
      const waiting = new AbortController();
      const { signal } = waiting;
      const events = ['data', 'end', 'close'].map((event) => once(this.#socket, event, { signal }));
      await Promise.race(events).finally(() => waiting.abort());
      await Promise.allSettled(events);
    }
    const read = this.#received.subarray(0, bytes);
    this.#received = this.#received.subarray(bytes);
    return read;
  }
}
