import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { findFreePort, LOOPBACK } from '../../processes/free-port.js';
import { systemRandom } from '../../system/system-random.js';
import { ENGINE_VARIABLES } from './engine-driver.js';

const READY = /cache server is running/;
const READY_LIMIT_MS = 300_000;
const STOP_LIMIT_MS = 30_000;
/** Tokens of a chunk: what is shared is a multiple of them. */
const CHUNK_TOKENS = 256;
const L1_GB = 1;

/** A real `lmcache server`, as an engine's operator starts it, with memory that nodes can map. */
export class LmcacheServer {
  readonly port: number;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.#child = child;
    this.port = port;
  }

  /**
   * Starts a server. Resolves when it serves.
   * @param adapter the configuration of its storage adapter (L2); undefined: it has its own memory alone
   */
  static async start(environment: string, adapter: object | undefined): Promise<LmcacheServer> {
    const port = await findFreePort(systemRandom);
    const httpPort = await findFreePort(systemRandom);
    const words = ['server', '--l1-size-gb', `${L1_GB}`, '--eviction-policy', 'LRU', '--chunk-size', `${CHUNK_TOKENS}`];
    words.push('--shm-name', `meshcache-${port}`, '--no-l1-use-lazy', '--port', `${port}`);
    words.push('--http-host', LOOPBACK, '--http-port', `${httpPort}`, '--disable-observability');
    // Without it, a server on a machine without a GPU takes no engine.
    words.push('--supported-transfer-mode', 'auto');
    if (adapter !== undefined) words.push('--l2-adapter', JSON.stringify(adapter));
    const child = spawn(join(environment, 'bin', 'lmcache'), words, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...ENGINE_VARIABLES, LMCACHE_DISABLE_BANNER: '1' },
    });
    const server = new LmcacheServer(child, port);
    try {
      await server.#untilReady();
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  async #untilReady(): Promise<void> {
    let last = '';
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`lmcache server is not ready: ${last}`)), READY_LIMIT_MS);
      // Both are read to the end: a full pipe would stop the server.
      for (const stream of [this.#child.stdout, this.#child.stderr]) {
        createInterface({ input: stream as NodeJS.ReadableStream }).on('line', (line) => {
          last = line;
          if (READY.test(line)) {
            clearTimeout(timer);
            resolve();
          }
        });
      }
      this.#child.once('error', reject);
      this.#child.once('close', (status) => {
        clearTimeout(timer);
        reject(new Error(`lmcache server ended with status ${status}: ${last}`));
      });
    });
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const closed = once(this.#child, 'close');
    this.#child.kill('SIGINT');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_LIMIT_MS);
    await closed;
    clearTimeout(timer);
  }
}
