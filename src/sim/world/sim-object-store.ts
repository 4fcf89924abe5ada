import { createHash } from 'node:crypto';
import type {
  HttpConnections,
  HttpHeaders,
  HttpListener,
  HttpRequest,
  HttpServerAddress,
} from '../../base/environment/http-client.js';
import { Lane } from './kernel/lane.js';
import type { SimProcess } from './sim-process.js';

/** Properties of an object store, and of the way to it. */
export interface ObjectStoreShape {
  /** Bytes per second between a host and the store, in each direction. */
  readonly bytesPerS: number;
  /** Milliseconds until an answer begins. */
  readonly latencyMs: number;
}

interface StoredBytes {
  readonly bytes: Buffer;
  readonly tag: string;
}

interface Answer {
  readonly status: number;
  readonly headers: HttpHeaders;
  readonly body: Buffer;
}

/** The ways from a host to the store and back. */
interface Ways {
  readonly there: Lane;
  readonly back: Lane;
}

/**
 * The object store of a world, which answers at every HTTP address: GET with ranges, and PUT with conditions, as nodes
 * use them over the S3 protocol. Without a shape there is none, and connections are refused.
 */
export class SimObjectStore {
  readonly #shape: ObjectStoreShape | undefined;
  readonly #objects = new Map<string, StoredBytes>();
  readonly #ways = new Map<string, Ways>();

  constructor(shape: ObjectStoreShape | undefined) {
    this.#shape = shape;
  }

  /** Number of its objects. */
  get count(): number {
    return this.#objects.size;
  }

  /** @internal Connections of a process. */
  connections(process: SimProcess, { connectionsMaxCount }: HttpServerAddress): HttpConnections {
    return this.#shape === undefined
      ? refused(process)
      : new SimConnections(process, connectionsMaxCount, (request, listener) =>
          this.#serve(process, request, listener),
        );
  }

  /** Answers a request; the returned function cancels it. */
  #serve(process: SimProcess, request: HttpRequest, listener: HttpListener): () => void {
    const { bytesPerS, latencyMs } = this.#shape as ObjectStoreShape;
    const { clock, host } = process;
    const ways = this.#ways.get(host.name) ?? { there: new Lane(bytesPerS), back: new Lane(bytesPerS) };
    this.#ways.set(host.name, ways);
    const nowMs = clock.nowMs();
    const sent = Buffer.concat(request.body ?? []);
    let cancel = clock.after(ways.there.send(nowMs, sent.length) - nowMs + latencyMs, () => {
      const { status, headers, body } = this.#answer(request, sent);
      const atMs = clock.nowMs();
      listener.onHead(status, headers);
      cancel = clock.after(ways.back.send(atMs, body.length) - atMs, () => {
        if (body.length > 0) listener.onData(body);
        listener.onEnd();
      });
    });
    return () => cancel();
  }

  #answer({ method, path, headers }: HttpRequest, sent: Buffer): Answer {
    const found = this.#objects.get(path);
    if (method === 'GET') return found === undefined ? failure(404, 'NoSuchKey') : whole(found, headers.Range);
    if (method !== 'PUT') return failure(501, 'NotImplemented');
    const isMet = headers['If-None-Match'] === undefined || found === undefined;
    const tag = headers['If-Match'];
    if (!isMet || (tag !== undefined && tag !== found?.tag)) return failure(412, 'PreconditionFailed');
    const stored = { bytes: sent, tag: `"${createHash('sha256').update(sent).digest('hex').slice(0, 32)}"` };
    this.#objects.set(path, stored);
    return { status: 200, headers: { etag: stored.tag }, body: Buffer.alloc(0) };
  }
}

/** Connections of one process; requests beyond the limit wait for one. */
class SimConnections implements HttpConnections {
  readonly #process: SimProcess;
  readonly #maxCount: number;
  readonly #serve: (request: HttpRequest, listener: HttpListener) => () => void;
  readonly #cancels = new Map<HttpListener, () => void>();
  readonly #waiting = new Map<HttpListener, HttpRequest>();

  constructor(
    process: SimProcess,
    maxCount: number,
    serve: (request: HttpRequest, listener: HttpListener) => () => void,
  ) {
    [this.#process, this.#maxCount, this.#serve] = [process, maxCount, serve];
  }

  send(request: HttpRequest, listener: HttpListener): () => void {
    this.#waiting.set(listener, request);
    this.#sendNext();
    return () => this.#ended(listener);
  }

  close(): void {
    const open = [...this.#cancels.keys(), ...this.#waiting.keys()];
    this.#waiting.clear();
    for (const listener of open) {
      this.#cancels.get(listener)?.();
      this.#cancels.delete(listener);
      this.#process.enter('http', () => listener.onEnd(new Error('ECONNRESET')));
    }
  }

  #sendNext(): void {
    for (const [listener, request] of this.#waiting) {
      if (this.#cancels.size >= this.#maxCount) return;
      this.#waiting.delete(listener);
      const cancel = this.#serve(request, {
        onHead: (status, headers) => listener.onHead(status, headers),
        onData: (bytes) => listener.onData(bytes),
        onEnd: () => {
          this.#cancels.delete(listener);
          listener.onEnd();
          this.#sendNext();
        },
      });
      this.#cancels.set(listener, cancel);
    }
  }

  /** Cancels a request, and lets the next one begin. */
  #ended(listener: HttpListener): void {
    this.#waiting.delete(listener);
    this.#cancels.get(listener)?.();
    if (this.#cancels.delete(listener)) this.#sendNext();
  }
}

/** The part of an object that the range names; the whole object without one. */
function whole({ bytes, tag }: StoredBytes, range: string | undefined): Answer {
  const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '') ?? [];
  if (first === undefined) {
    return { status: 200, headers: { etag: tag, 'content-length': String(bytes.length) }, body: bytes };
  }
  const body = bytes.subarray(Number(first), Number(last) + 1);
  const given = `bytes ${first}-${Number(first) + body.length - 1}/${bytes.length}`;
  return { status: 206, headers: { etag: tag, 'content-length': String(body.length), 'content-range': given }, body };
}

function failure(status: number, code: string): Answer {
  return { status, headers: {}, body: Buffer.from(`<?xml version="1.0"?><Error><Code>${code}</Code></Error>`) };
}

/** Connections to a server that does not exist. */
function refused(process: SimProcess): HttpConnections {
  return {
    send: (_request, { onEnd }) => process.clock.after(1, () => onEnd(new Error('ECONNREFUSED'))),
    close: () => {},
  };
}
