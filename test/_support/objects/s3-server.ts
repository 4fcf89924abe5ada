import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import S3rver from '@20minutes/s3rver';
import type { ExecutionContext } from 'ava';
import { listenAlone } from '../support.js';

export const BUCKET = 'pages';
/** The access key that the server knows. */
const KEY = 'S3RVER';

/** Settings of a node that uses the server at this port. */
export function settingsOf(port: number): Record<string, unknown> {
  return {
    object_store: `s3://${BUCKET}/test`,
    object_store_endpoint: `http://127.0.0.1:${port}`,
    object_store_access_key_id: KEY,
    object_store_secret_access_key: KEY,
  };
}

/** A request as it came. */
export interface SeenRequest {
  readonly method: string;
  /** Name of the object; empty: the bucket. */
  readonly name: string;
  readonly headers: http.IncomingHttpHeaders;
}

/** What is done to a request instead of answering it properly. */
export type Fault =
  /** An error of S3. */
  | { readonly kind: 'error'; readonly status: number; readonly code: string }
  /** No answer, ever. */
  | { readonly kind: 'silence' }
  /** The connection ends after so many bytes of the body. */
  | { readonly kind: 'cut'; readonly bytes: number }
  /** The answer has only so many bytes, and says so. */
  | { readonly kind: 'short'; readonly bytes: number }
  /** One byte of the body is another one. */
  | { readonly kind: 'flipped'; readonly at: number }
  /** Another body. */
  | { readonly kind: 'body'; readonly body: Buffer }
  /** A byte each 100 ms. */
  | { readonly kind: 'drip' }
  /** A good answer of before, when the promise resolves. */
  | { readonly kind: 'held'; readonly until: Promise<unknown>; readonly body: Buffer }
  /** The request is carried out only when the promise resolves. */
  | { readonly kind: 'late'; readonly until: Promise<unknown> };

interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: Buffer;
}

/**
 * A real S3 server of a test, behind a server that passes requests on unchanged, keeps the conditions of writes, which
 * the real one ignores, and injects faults.
 */
export class S3Server {
  /** Whether requests are refused whose date differs from that of the store by more than 15 minutes. */
  comparesDates = true;
  /** Decides what is done to a request; undefined: it is answered properly. */
  fault: (request: SeenRequest) => Fault | undefined = () => undefined;
  readonly requests: SeenRequest[] = [];
  readonly port: number;
  readonly #upstream: number;
  /** Headers of conditions that are kept. */
  readonly #conditions: readonly string[];
  readonly #turns = new Map<string, Promise<unknown>>();

  private constructor(port: number, upstream: number, conditions: readonly string[]) {
    this.port = port;
    this.#upstream = upstream;
    this.#conditions = conditions;
  }

  /** Starts one, which ends with the test. */
  static async start(
    t: Pick<ExecutionContext, 'teardown'>,
    { conditions = ['if-none-match', 'if-match'] }: { readonly conditions?: readonly string[] } = {},
  ): Promise<S3Server> {
    const directory = mkdtempSync(join(tmpdir(), 'meshcache-s3-'));
    const real = new S3rver({
      ...{ address: '127.0.0.1', port: 0, directory, silent: true },
      configureBuckets: [{ name: BUCKET, configs: [] }],
    });
    const { port: upstream } = await real.run();
    const server = http.createServer();
    const port = await listenAlone(server);
    const made = new S3Server(port, upstream, conditions);
    server.on('request', (request, response) => void made.#serve(request, response).catch(() => response.destroy()));
    t.teardown(async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await real.close();
      rmSync(directory, { recursive: true, force: true });
    });
    return made;
  }

  /** Settings of a node that uses it. */
  settings(more: Record<string, unknown> = {}): Record<string, unknown> {
    return { ...settingsOf(this.port), ...more };
  }

  /** Requests so far whose method and name are these. */
  count(method: string, name: RegExp = /./): number {
    return this.requests.filter((seen) => seen.method === method && name.test(seen.name)).length;
  }

  /** Names of all objects that begin with a text. */
  async names(prefix = ''): Promise<string[]> {
    const { body } = await this.#pass('GET', `/${BUCKET}?prefix=${encodeURIComponent(prefix)}&max-keys=100000`, {});
    return [...body.toString().matchAll(/<Key>([^<]+)<\/Key>/g)].map(([, name]) => name as string);
  }

  /** The bytes of an object. */
  async read(name: string): Promise<Buffer> {
    return (await this.#pass('GET', `/${BUCKET}/${name}`, {})).body;
  }

  /** Replaces the bytes of an object. */
  async write(name: string, body: Buffer): Promise<void> {
    await this.#pass('PUT', `/${BUCKET}/${name}`, { 'content-length': String(body.length) }, body);
  }

  async remove(name: string): Promise<void> {
    await this.#pass('DELETE', `/${BUCKET}/${name}`, {});
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const body = await bodyOf(request);
    const { method = '', url = '', headers } = request;
    const seen = { method, name: decodeURIComponent(url.split('?')[0] as string).replace(/^\/[^/]*\/?/, ''), headers };
    this.requests.push(seen);
    const fault = this.fault(seen);
    if (fault?.kind === 'silence') return;
    if (fault?.kind === 'error') {
      const text = `<?xml version="1.0"?><Error><Code>${fault.code}</Code><Message>no</Message></Error>`;
      return void response.writeHead(fault.status, { 'content-type': 'application/xml' }).end(text);
    }
    if (fault?.kind === 'late' || fault?.kind === 'held') await fault.until;
    if (fault?.kind === 'held')
      return void response.writeHead(200, { 'content-length': fault.body.length }).end(fault.body);
    // The real server serves requests without a signature, too.
    const { authorization: _, 'x-amz-date': __, ...unsigned } = headers;
    const passed = this.comparesDates ? headers : unsigned;
    const answer =
      method === 'PUT'
        ? await this.#put({ ...seen, headers: passed }, url, body)
        : await this.#pass(method, url, passed, body);
    send(response, answer, fault);
  }

  /** One write of an object after the other, each under its condition. */
  #put(seen: SeenRequest, url: string, body: Buffer): Promise<Answer> {
    const before = this.#turns.get(seen.name) ?? Promise.resolve();
    const turn = before.then(async () => {
      const [none, match] = ['if-none-match', 'if-match'].map((each) =>
        this.#conditions.includes(each) ? seen.headers[each] : undefined,
      );
      if (none !== undefined || match !== undefined) {
        const { status, headers: found } = await this.#pass('HEAD', url, {});
        const isThere = status === 200;
        if ((none === '*' && isThere) || (match !== undefined && match !== found.etag)) return refused();
      }
      return this.#pass('PUT', url, seen.headers, body);
    });
    this.#turns.set(seen.name, turn);
    return turn;
  }

  #pass(method: string, path: string, headers: http.OutgoingHttpHeaders, body?: Buffer): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const options = { host: '127.0.0.1', port: this.#upstream, method, path, headers, agent: false };
      const request = http.request(options, async (response) => {
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: await bodyOf(response) });
      });
      request.on('error', reject);
      request.end(body);
    });
  }
}

function refused(): Answer {
  const body = Buffer.from('<?xml version="1.0"?><Error><Code>PreconditionFailed</Code></Error>');
  return { status: 412, headers: { 'content-type': 'application/xml' }, body };
}

function send(response: http.ServerResponse, { status, headers, body }: Answer, fault: Fault | undefined): void {
  const { connection: _, 'keep-alive': __, 'transfer-encoding': ___, ...kept } = headers;
  let bytes = body;
  if (fault?.kind === 'flipped' && body.length > fault.at) {
    bytes = Buffer.from(body);
    bytes[fault.at] = (bytes[fault.at] as number) ^ 1;
  }
  if (fault?.kind === 'short') bytes = body.subarray(0, fault.bytes);
  if (fault?.kind === 'body') bytes = fault.body;
  response.writeHead(status, { ...kept, 'content-length': bytes.length });
  if (fault?.kind === 'cut') {
    response.write(bytes.subarray(0, fault.bytes), () => response.destroy());
  } else if (fault?.kind === 'drip') {
    let at = 0;
    const timer = setInterval(() => response.write(bytes.subarray(at, ++at)), 100);
    response.on('close', () => clearInterval(timer));
  } else {
    response.end(bytes);
  }
}

async function bodyOf(message: http.IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of message) parts.push(part as Buffer);
  return Buffer.concat(parts);
}
