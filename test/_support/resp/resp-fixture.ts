import { once } from 'node:events';
import net from 'node:net';
import type { ExecutionContext } from 'ava';
import type { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { createStore } from '../node/store-fixture.js';
import { freePort, PATIENCE_MS, until } from '../support.js';

/** Starts `count` nodes of one cluster, each with a door for Redis clients. */
export async function startRespNodes(
  t: ExecutionContext,
  count: number,
  extra: Record<string, unknown> = {},
): Promise<MeshCacheStore[]> {
  const port = await freePort();
  const stores: MeshCacheStore[] = [];
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  for (let i = 0; i < count; i++) stores.push(await createStore(port, { resp_port: 0, ...extra }));
  await until(() => stores.every((store) => store.stats().members === count));
  return stores;
}

export async function startRespNode(
  t: ExecutionContext,
  extra: Record<string, unknown> = {},
): Promise<{ store: MeshCacheStore; host: string; port: number }> {
  const [store] = await startRespNodes(t, 1, extra);
  return { store: store as MeshCacheStore, ...placeOf(store as MeshCacheStore) };
}

/** Where Redis clients reach a node. */
export function placeOf({ respEndpoint }: MeshCacheStore): { readonly host: string; readonly port: number } {
  const at = respEndpoint.lastIndexOf(':');
  return { host: respEndpoint.slice(0, at), port: Number(respEndpoint.slice(at + 1)) };
}

/** A command as an array of bulk strings. */
export function commandOf(...words: (string | Uint8Array)[]): Buffer {
  const parts: Uint8Array[] = [Buffer.from(`*${words.length}\r\n`)];
  for (const word of words) {
    const bytes = Buffer.from(word);
    parts.push(Buffer.from(`$${bytes.length}\r\n`), bytes, Buffer.from('\r\n'));
  }
  return Buffer.concat(parts);
}

/** A connection whose bytes the test sends and reads itself. */
export class RawClient {
  readonly socket: net.Socket;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #isEnded = false;
  #onMore: () => void = () => {};

  static async connect(t: ExecutionContext, place: net.NetConnectOpts): Promise<RawClient> {
    const client = new RawClient(net.connect(place));
    t.teardown(() => client.socket.destroy());
    await once(client.socket, 'connect');
    return client;
  }

  private constructor(socket: net.Socket) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (chunk) => {
      this.#chunks.push(chunk);
      this.#bytes += chunk.length;
      this.#onMore();
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      this.#isEnded = true;
      this.#onMore();
    });
  }

  /** Bytes that have come and were not read. */
  get bytes(): number {
    return this.#bytes;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  send(...bytes: (string | Uint8Array)[]): void {
    for (const each of bytes) this.socket.write(each);
  }

  /** Reads this many bytes; fewer if the connection ends before. */
  async read(bytes: number): Promise<Buffer> {
    await this.#until(() => this.#bytes >= bytes || this.#isEnded);
    const all = Buffer.concat(this.#chunks);
    const taken = all.subarray(0, bytes);
    this.#chunks = [all.subarray(taken.length)];
    this.#bytes = all.length - taken.length;
    return taken;
  }

  /** Reads as many bytes as expected, as text of one character a byte. */
  async text(expected: string): Promise<string> {
    return (await this.read(expected.length)).toString('latin1');
  }

  /** Reads until the node ends the connection. */
  async rest(): Promise<Buffer> {
    await this.#until(() => this.#isEnded);
    return this.read(this.#bytes);
  }

  async #until(isThere: () => boolean): Promise<void> {
    const giveUpAt = performance.now() + PATIENCE_MS;
    while (!isThere()) {
      if (performance.now() > giveUpAt) throw new Error(`nothing more has come; ${this.#bytes} bytes are there`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 1000);
        this.#onMore = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }
}
