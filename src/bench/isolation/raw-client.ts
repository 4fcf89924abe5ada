import { once } from 'node:events';
import net from 'node:net';
import { FrameReceiver } from '../../clients/wire/frame-receiver.js';
import {
  CLIENT_PROTOCOL_VERSION,
  DESCRIPTOR_SOCKET_SUFFIX,
  decodeHelloAnswer,
  encodeDescriptorRequest,
  encodeFile,
  encodeHeader,
  encodeHello,
  type HelloAnswer,
  RequestType,
} from '../../clients/wire/messages.js';
import type { KeyNamespace } from '../../core/index.js';
import type { HostRegion } from '../../memory/host-region.js';

const NOTHING = Buffer.alloc(0);

/** The namespace of a client with this tag. */
export function namespaceOf(tag: string): KeyNamespace {
  return { modelName: 'isolation', tag, tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: true };
}

/** The header and body of a request. */
export function frameOf(type: number, requestId: number, body: Buffer = NOTHING): Buffer {
  return Buffer.concat([encodeHeader({ bodyBytes: body.length, type, status: 0, requestId, deadlineMs: 0 }), body]);
}

/** Body of UNREGION, FENCE and CANCEL, which is one number. */
export function numberBody(value: number): Buffer {
  const body = Buffer.alloc(4);
  body.writeUInt32LE(value);
  return body;
}

/** A client of the client socket that sends any request, valid or not. */
export class RawClient {
  readonly socket: net.Socket;
  hello: HelloAnswer | undefined;
  readonly #answered = new Map<number, (status: number) => void>();
  #lastId = 0;

  static async attach(path: string, tag = 'hostile'): Promise<RawClient> {
    const client = new RawClient(path);
    await once(client.socket, 'connect');
    const version = CLIENT_PROTOCOL_VERSION;
    const hello = { minVersion: version, maxVersion: version, name: 'hostile', pid: process.pid };
    const status = await client.request(RequestType.hello, encodeHello({ ...hello, namespace: namespaceOf(tag) }));
    if (status !== 0) throw new Error(`the node refuses the client with status ${status}`);
    return client;
  }

  private constructor(path: string) {
    this.socket = net.connect({ path });
    const receiver = new FrameReceiver({
      check: () => {},
      onFrame: ({ type, status, requestId }, body) => {
        if (type === RequestType.hello && status === 0) this.hello = decodeHelloAnswer(body);
        this.#answered.get(requestId)?.(status);
        this.#answered.delete(requestId);
      },
    });
    this.socket.on('data', (chunk: Buffer) => receiver.receive(chunk));
    this.socket.on('error', () => {});
    this.socket.on('close', () => {
      for (const answered of this.#answered.values()) answered(-1);
    });
  }

  /** Sends a request; returns its id. */
  send(type: number, body?: Buffer): number {
    const id = ++this.#lastId;
    this.socket.write(frameOf(type, id, body));
    return id;
  }

  /** Sends a request. Resolves with the status of the answer; rejects if the connection ends first. */
  async request(type: number, body?: Buffer): Promise<number> {
    const id = this.send(type, body);
    const status = await new Promise<number>((resolve) => this.#answered.set(id, resolve));
    if (status < 0) throw new Error('the node has ended the connection');
    return status;
  }

  /** Resolves when the socket can take more, or closes; rejects if it was closed before. */
  async taken(): Promise<void> {
    if (this.socket.destroyed) throw new Error('the node has ended the connection');
    if (this.socket.writableNeedDrain) await Promise.race([once(this.socket, 'drain'), once(this.socket, 'close')]);
  }

  /** Keeps `inFlight` requests in flight until one fails. `bodyOf` makes the body of each request. */
  async keepAsking(type: number, inFlight: number, bodyOf: (count: number) => Buffer): Promise<void> {
    let count = 0;
    const askOn = async (): Promise<void> => {
      for (;;) await this.request(type, bodyOf(count++));
    };
    await Promise.all(Array.from({ length: inFlight }, askOn));
  }

  /** Registers memory of this process; resolves with the status. */
  register(regionId: number, memory: HostRegion): Promise<number> {
    const file = { regionId, isWritable: true, length: memory.length, pid: process.pid, fd: memory.fd };
    return this.request(RequestType.file, encodeFile(file));
  }

  /** Requests staging memory, but never maps it. */
  async takeStaging(path: string, length: number): Promise<void> {
    const attachToken = this.hello?.attachToken ?? Buffer.alloc(16);
    await sendRecord(
      path,
      encodeDescriptorRequest({ kind: 'staging', attachToken, regionId: 0, isWritable: true, length }),
    );
  }
}

/** Sends a record without a descriptor to the descriptor socket; resolves when the connection ends. */
export async function sendRecord(path: string, record: Buffer): Promise<void> {
  const socket = net.connect({ path: path + DESCRIPTOR_SOCKET_SUFFIX });
  socket.on('error', () => {});
  socket.end(record);
  socket.resume();
  await once(socket, 'close');
}

/** Addresses of the benchmark's node. */
export interface Target {
  readonly clientSocket: string;
  readonly respPort: number;
  readonly respPassword: string;
  readonly metricsPort: number;
}

/** A kind of hostile client. `run` is started again whenever it ends or fails. */
export interface HostileKind {
  readonly what: string;
  readonly run: (target: Target) => Promise<unknown>;
}

/** Resolves after `ms` milliseconds. */
export function passed(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Never resolves, so that a hostile client keeps what it has taken. */
export function forEver(): Promise<never> {
  // The timer keeps the process alive until its parent kills it.
  setInterval(() => {}, 1000);
  return new Promise(() => {});
}
