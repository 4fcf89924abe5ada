import { once } from 'node:events';
import net from 'node:net';

/**
 * A connection to a Redis server that does as little as possible: it sends bytes, and receives as many as are expected
 * into memory of its own. So the servers are measured, not their client.
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
          // The next buffer is asked for right after this, and is for the next answers.
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
   * Sends commands, and returns their answers, which are valid until the next exchange. `expectedBytes`: of all answers
   * together.
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

/** A command as an array of bulk strings. */
export function redisCommand(...words: (string | Uint8Array)[]): Buffer {
  const parts: Uint8Array[] = [Buffer.from(`*${words.length}\r\n`)];
  for (const word of words) {
    const bytes = typeof word === 'string' ? Buffer.from(word) : word;
    parts.push(Buffer.from(`$${bytes.length}\r\n`), bytes, Buffer.from('\r\n'));
  }
  return Buffer.concat(parts);
}
