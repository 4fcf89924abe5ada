import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { endAtExit, TemporaryFolder } from '../../processes/at-exit.js';
import { findFreePort, LOOPBACK } from '../../processes/free-port.js';
import { systemRandom } from '../../system/system-random.js';
import type { Contender } from './report.js';

/** The part of an ioredis client that the benchmark uses. */
interface Client {
  pipeline(): Pipeline;
  flushall(): Promise<unknown>;
  getBuffer(key: string): Promise<Buffer | null>;
  ping(): Promise<unknown>;
  on(event: 'error', listener: () => void): void;
  disconnect(): void;
}

interface Pipeline {
  set(key: string, value: Buffer): void;
  getBuffer(key: string): void;
  exec(): Promise<[Error | null, unknown][] | null>;
}

const START_TIMEOUT_MS = 5_000;
const FILL_MAX_BYTES = 16 * 2 ** 20;

/** Pipeline lengths to try; the fastest one is used. */
const VALUES_AT_A_TIME = [4, 16, 32, 128] as const;

/** A dedicated redis-server on loopback, in memory only, and one ioredis connection to it. */
export class RedisPeer {
  readonly #server: ChildProcess;
  readonly #folder: TemporaryFolder;
  readonly #client: Client;
  /** Port of the server on loopback. */
  readonly port: number;

  /** Starts the server and connects. Resolves with the reason as text if that is impossible. */
  static async start(): Promise<RedisPeer | string> {
    let Redis: new (options: Record<string, unknown>) => Client;
    try {
      ({ Redis } = (await import('ioredis')) as unknown as { Redis: typeof Redis });
    } catch {
      return 'the package ioredis is not installed';
    }
    const folder = new TemporaryFolder('meshcache-bench-');
    const port = await findFreePort(systemRandom);
    const settings = [
      '--port',
      `${port}`,
      '--bind',
      LOOPBACK,
      '--dir',
      folder.path,
      '--save',
      '',
      '--appendonly',
      'no',
    ];
    const server = spawn('redis-server', settings, { stdio: 'ignore' });
    endAtExit(server);
    const hasFailed = new Promise<string>((resolve) => {
      server.once('error', () => resolve('redis-server is not installed'));
      server.once('exit', (status) => resolve(`redis-server ended with status ${status}`));
    });
    const client = new Redis({ host: LOOPBACK, port, connectTimeout: START_TIMEOUT_MS });
    client.on('error', () => {});
    const timeout = new Promise<string>((resolve) => {
      setTimeout(() => resolve('redis-server did not answer in time'), START_TIMEOUT_MS).unref();
    });
    const problem = await Promise.race([hasFailed, timeout, client.ping().then(() => undefined)]);
    if (problem === undefined) return new RedisPeer({ server, folder, client, port });
    client.disconnect();
    server.kill();
    folder.remove();
    return problem;
  }

  private constructor(parts: { server: ChildProcess; folder: TemporaryFolder; client: Client; port: number }) {
    this.#server = parts.server;
    this.#folder = parts.folder;
    this.#client = parts.client;
    this.port = parts.port;
  }

  /** Replaces all values with `pages` new ones; `pageOf` may return the same buffer every time. */
  async fill(pages: number, pageBytes: number, pageOf: (page: number) => Uint8Array): Promise<void> {
    await this.#client.flushall();
    const batch = Math.max(1, Math.floor(FILL_MAX_BYTES / pageBytes));
    for (let first = 0; first < pages; first += batch) {
      const pipeline = this.#client.pipeline();
      for (let page = first; page < Math.min(pages, first + batch); page++) {
        pipeline.set(String(page), Buffer.from(pageOf(page)));
      }
      await pipeline.exec();
    }
  }

  /** Reads one value in a request of its own. Throws if it is missing. */
  async one(page: number): Promise<Buffer> {
    const value = await this.#client.getBuffer(String(page));
    if (value === null) throw new Error('redis: a value is missing');
    return value;
  }

  /** Reads the values of one batch in pipelines of `atATime`. Throws if one is missing. */
  async read(pages: readonly number[], atATime: number): Promise<Buffer[]> {
    const values: Buffer[] = [];
    for (let first = 0; first < pages.length; first += atATime) {
      const pipeline = this.#client.pipeline();
      for (const page of pages.slice(first, first + atATime)) pipeline.getBuffer(String(page));
      for (const [error, value] of (await pipeline.exec()) ?? []) {
        if (error !== null || !Buffer.isBuffer(value)) throw error ?? new Error('redis: a value is missing');
        values.push(value);
      }
    }
    return values;
  }

  async close(): Promise<void> {
    this.#client.disconnect();
    const exited = new Promise((resolve) => this.#server.once('exit', resolve));
    this.#server.kill('SIGKILL');
    await exited;
    this.#folder.remove();
  }
}

/**
 * A contender that reads all pages through redis, with the pipeline length that is fastest on this machine. `isPage`
 * checks whether a value is the page with that number; only the last value of each batch is checked.
 */
export async function fastestPipeline(
  redis: RedisPeer,
  batches: readonly (readonly number[])[],
  isPage: (value: Buffer, page: number) => boolean,
): Promise<Contender> {
  let isRight = true;
  const readAll = async (atATime: number): Promise<void> => {
    isRight = true;
    for (const pages of batches) {
      const values = await redis.read(pages, atATime);
      isRight &&= isPage(values.at(-1) as Buffer, pages.at(-1) as number);
    }
  };
  let best = { atATime: 0, ms: Number.POSITIVE_INFINITY };
  for (const atATime of VALUES_AT_A_TIME) {
    const startMs = performance.now();
    await readAll(atATime);
    const ms = performance.now() - startMs;
    if (ms < best.ms) best = { atATime, ms };
  }
  const { atATime } = best;
  return { name: `ioredis, ${atATime} a pipeline`, isRight: () => isRight, read: () => readAll(atATime) };
}

/**
 * A minimal connection to a Redis server, so that the server is measured and not the client. It sends bytes, and
 * receives the expected number of bytes into its own memory.
 */
export class RedisConnection {
  readonly #socket: net.Socket;
  readonly #target: Uint8Array;
  #filledBytes = 0;
  #expectedBytes = 0;
  #answerBytes = 0;
  #settle: ((error?: Error) => void) | undefined;

  static async open(host: string, port: number, maxBytes: number): Promise<RedisConnection> {
    const connection = new RedisConnection(host, port, maxBytes);
    await once(connection.#socket, 'connect');
    return connection;
  }

  private constructor(host: string, port: number, maxBytes: number) {
    this.#target = new Uint8Array(maxBytes);
    this.#socket = net.connect({
      host,
      port,
      noDelay: true,
      onread: {
        buffer: () => this.#target.subarray(this.#filledBytes),
        callback: (count) => {
          this.#filledBytes += count;
          if (this.#filledBytes < this.#expectedBytes) return true;
          // The socket asks for its next buffer right after this; the next answers start at its beginning.
          this.#answerBytes = this.#filledBytes;
          this.#filledBytes = 0;
          this.#settle?.();
          return true;
        },
      },
    });
    this.#socket.on('error', (error) => this.#settle?.(error));
    this.#socket.on('close', () => this.#settle?.(new Error('the server has closed the connection')));
    this.#socket.resume();
  }

  /**
   * Sends commands. Resolves with their answers, which stay valid until the next exchange. `expectedBytes` is the total
   * length of the answers.
   */
  async exchange(commands: Uint8Array, expectedBytes: number): Promise<Uint8Array> {
    this.#expectedBytes = expectedBytes;
    await new Promise<void>((resolve, reject) => {
      this.#settle = (error) => (error === undefined ? resolve() : reject(error));
      this.#socket.write(commands);
    });
    return this.#target.subarray(0, this.#answerBytes);
  }

  close(): void {
    this.#socket.destroy();
  }
}

/** Encodes a command as a RESP array of bulk strings. */
export function redisCommand(...words: (string | Uint8Array)[]): Buffer {
  const parts: Uint8Array[] = [Buffer.from(`*${words.length}\r\n`)];
  for (const word of words) {
    const bytes = typeof word === 'string' ? Buffer.from(word) : word;
    parts.push(Buffer.from(`$${bytes.length}\r\n`), bytes, Buffer.from('\r\n'));
  }
  return Buffer.concat(parts);
}
