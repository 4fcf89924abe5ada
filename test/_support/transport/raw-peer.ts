import { createHash } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import type { ExecutionContext } from 'ava';
import { listenAlone } from '../support.js';

/** The frames of PROTOCOL.md, implemented a second time from the document. */
export const HELLO = Buffer.concat([Buffer.from('MCTP'), Buffer.from([1, 0, 0, 0]), Buffer.alloc(24)]);
export const RESPONSE_BYTES = 24 + 128;

export interface RawOp {
  readonly rkey: number;
  readonly addr: bigint;
  readonly length: number;
}

export function requestFrame(
  id: number,
  ops: readonly RawOp[],
  wrong: { opCount?: number; totalBytes?: bigint } = {},
): Buffer {
  const frame = Buffer.alloc(24 + 16 * ops.length);
  frame.write('MCRQ', 0);
  frame.writeUInt32LE(id, 4);
  frame.writeUInt32LE(wrong.opCount ?? ops.length, 8);
  const totalBytes = ops.reduce((sum, op) => sum + BigInt(op.length), 0n);
  frame.writeBigUInt64LE(wrong.totalBytes ?? totalBytes, 16);
  for (const [i, op] of ops.entries()) {
    frame.writeUInt32LE(op.rkey, 24 + 16 * i);
    frame.writeUInt32LE(op.length, 28 + 16 * i);
    frame.writeBigUInt64LE(op.addr, 32 + 16 * i);
  }
  return frame;
}

/** A response header that grants the first `grantedOps` operations. */
export function responseHeader(id: number, opCount: number, { grantedOps = opCount, payloadBytes = 0 } = {}): Buffer {
  const header = Buffer.alloc(RESPONSE_BYTES);
  header.write('MCRS', 0);
  header.writeUInt32LE(id, 4);
  header.writeUInt32LE(opCount, 8);
  header.writeBigUInt64LE(BigInt(payloadBytes), 16);
  for (let i = 0; i < grantedOps; i++) {
    const at = 24 + (i >>> 3);
    header[at] = (header[at] as number) | (1 << (i & 7));
  }
  return header;
}

/** A reader that sends the bytes of a test. */
export class RawReader {
  readonly socket: net.Socket;
  #chunks: Buffer[] = [];
  #isClosed = false;

  static async connect(t: ExecutionContext, endpoint: string): Promise<RawReader> {
    const at = endpoint.lastIndexOf(':');
    const socket = net.connect({ host: endpoint.slice(0, at), port: Number(endpoint.slice(at + 1)), noDelay: true });
    t.teardown(() => socket.destroy());
    const reader = new RawReader(socket);
    await once(socket, 'connect');
    return reader;
  }

  private constructor(socket: net.Socket) {
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => this.#chunks.push(chunk));
    socket.on('error', () => {});
    socket.on('close', () => {
      this.#isClosed = true;
    });
  }

  send(...frames: Buffer[]): void {
    this.socket.write(Buffer.concat(frames));
  }

  get received(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  async receive(count: number): Promise<Buffer> {
    while (this.received.length < count && !this.#isClosed) await Promise.race([this.#next('data'), this.closed()]);
    return this.received;
  }

  /** Resolves when the other side has closed the connection. */
  async closed(): Promise<void> {
    if (!this.#isClosed) await this.#next('close');
  }

  /** Waits for an event. Unlike `once` of node:events, a reset does not reject it, as that is one way to be closed. */
  #next(event: string): Promise<void> {
    return new Promise((resolve) => this.socket.once(event, () => resolve()));
  }
}

/** A serving node under the control of a test: `serve` gets each connection. */
export async function rawServer(t: ExecutionContext, serve: (socket: net.Socket) => void): Promise<string> {
  const server = net.createServer((socket) => {
    t.teardown(() => socket.destroy());
    socket.on('error', () => {});
    serve(socket);
  });
  t.teardown(() => server.close());
  return `127.0.0.1:${await listenAlone(server)}`;
}

/** Calls `answer` with every whole request that comes after the hello. */
export function onRequests(
  socket: net.Socket,
  answer: (id: number, opCount: number, totalBytes: number) => void,
): void {
  let input = Buffer.alloc(0);
  let isGreeted = false;
  socket.on('data', (chunk: Buffer) => {
    input = Buffer.concat([input, chunk]);
    if (!isGreeted && input.length >= HELLO.length) {
      isGreeted = true;
      input = input.subarray(HELLO.length);
    }
    while (isGreeted && input.length >= 24 && input.length >= 24 + 16 * input.readUInt32LE(8)) {
      const opCount = input.readUInt32LE(8);
      const [id, totalBytes] = [input.readUInt32LE(4), Number(input.readBigUInt64LE(16))];
      input = input.subarray(24 + 16 * opCount);
      answer(id, opCount, totalBytes);
    }
  });
}

/** Bytes that look random and follow from the seed. */
export function noise(seed: number, count: number): Buffer {
  const chunks: Buffer[] = [];
  for (let i = 0; chunks.length * 64 < count; i++) chunks.push(createHash('sha512').update(`${seed}:${i}`).digest());
  return Buffer.concat(chunks).subarray(0, count);
}
