import { createHash } from 'node:crypto';
import aws4 from 'aws4';
import { type CancelSignal, onAbort } from '../base/concurrency/cancellation.js';
import type { Environment } from '../base/environment/environment.js';
import type { HttpConnections, HttpHeaders, HttpRequest, HttpTls } from '../base/environment/http-client.js';
import type { Endpoint } from '../base/environment/network.js';
import { OBJECT_ANSWER_MAX_BYTES, OBJECT_CONNECTIONS_MAX_COUNT, OBJECT_STALL_MS } from '../base/limits.js';
import type { ObjectStorePlace } from '../base/settings/object-store-settings.js';
import { answerOf, type ObjectAnswer, type ObjectFault } from './object-answer.js';
import type { CredentialSource } from './object-credentials.js';

/** Number of bytes that are hashed before yielding to other work. */
const HASH_SLICE_BYTES = 2 ** 20;

interface ObjectClientOptions {
  readonly endpoint: Endpoint;
  /** Undefined: requests are not encrypted. */
  readonly tls: HttpTls | undefined;
  readonly place: ObjectStorePlace;
  readonly region: string;
  readonly credentials: CredentialSource;
  readonly env: Environment;
}

/** A request for one object. */
export interface ObjectRequest {
  readonly method: HttpRequest['method'];
  /** Name of the object; empty: the bucket itself. */
  readonly name: string;
  readonly headers?: HttpHeaders;
  readonly body?: readonly Uint8Array[];
  /** Longest body of a good answer; a longer one is a failure. Default: OBJECT_ANSWER_MAX_BYTES. */
  readonly maxBytes?: number;
  /** Called with the headers of a good answer, before its body; false: the body is not wanted. */
  readonly isWanted?: (headers: HttpHeaders) => boolean;
  /** Time limit of the whole request. A request without a body also fails if no byte arrives for OBJECT_STALL_MS. */
  readonly timeoutMs: number;
  /** Ends the request. */
  readonly signal?: CancelSignal | undefined;
}

/**
 * Sends requests of one node to its object store: signed (Signature Version 4), and bounded in time and length. Its
 * promises do not reject for failed requests.
 */
export class ObjectClient {
  readonly #options: ObjectClientOptions;
  readonly #connections: HttpConnections;
  readonly #cancels = new Set<(fault: ObjectFault) => void>();
  #isClosed = false;

  constructor(options: ObjectClientOptions) {
    const { endpoint, tls, env } = options;
    this.#options = options;
    this.#connections = env.http.connections({ endpoint, tls, connectionsMaxCount: OBJECT_CONNECTIONS_MAX_COUNT });
  }

  /** The address of the store. */
  get endpoint(): Endpoint {
    return this.#options.endpoint;
  }

  /** Sends a request and resolves with its answer. Failures are answers as well. */
  async send(request: ObjectRequest): Promise<ObjectAnswer> {
    if (this.#isClosed) return failed('closed', 'the node is closing');
    if (request.signal?.aborted) return failed('aborted', 'the call has ended');
    const credentials = await this.#options.credentials.current();
    if (credentials === undefined) return failed('no_credentials', 'there is no access key');
    const { clock } = this.#options.env;
    const { host, port } = this.#options.endpoint;
    const isUsual = port === (this.#options.tls === undefined ? 80 : 443);
    const name = host.includes(':') ? `[${host}]` : host;
    const digest = await this.#digestOf(request.body ?? []);
    const sums = { 'X-Amz-Content-Sha256': digest, 'X-Amz-Date': amzDate(clock.wallMs()) };
    const length = request.body === undefined ? {} : { 'Content-Length': String(bytesOf(request.body)) };
    const { path, headers } = aws4.sign(
      {
        service: 's3',
        region: this.#options.region,
        method: request.method,
        path: `/${this.#options.place.bucket}/${request.name}`,
        headers: { Host: isUsual ? name : `${name}:${port}`, ...sums, ...length, ...request.headers },
      },
      { ...credentials, sessionToken: credentials.sessionToken ?? undefined } as aws4.Credentials,
    );
    return this.#exchange(request, {
      method: request.method,
      path: path as string,
      headers: headers as Record<string, string>,
      body: request.body,
    });
  }

  /** Ends everything that is under way. Idempotent. */
  close(): void {
    this.#isClosed = true;
    for (const cancel of [...this.#cancels]) cancel('closed');
    this.#connections.close();
  }

  /** The digest that signs a body. TLS protects bodies itself, and the page's checksum is in the object's header. */
  async #digestOf(parts: readonly Uint8Array[]): Promise<string> {
    if (this.#options.tls !== undefined && parts.length > 0) return 'UNSIGNED-PAYLOAD';
    const hash = createHash('sha256');
    for (const part of parts) {
      for (let at = 0; at < part.length; at += HASH_SLICE_BYTES) {
        if (at > 0) await this.#options.env.clock.yield();
        hash.update(part.subarray(at, at + HASH_SLICE_BYTES));
      }
    }
    return hash.digest('hex');
  }

  #exchange(request: ObjectRequest, signed: HttpRequest): Promise<ObjectAnswer> {
    const { clock } = this.#options.env;
    const { signal, maxBytes = OBJECT_ANSWER_MAX_BYTES, timeoutMs, isWanted, body } = request;
    const isWrite = request.method === 'PUT' || request.method === 'DELETE';
    return new Promise((resolve) => {
      let status = 0;
      let head: HttpHeaders = {};
      const parts: Uint8Array[] = [];
      let bytes = 0;
      let lastMs = clock.nowMs();
      const finish = (answer: ObjectAnswer): void => {
        cancelTimeout();
        cancelStall();
        stopListening?.();
        this.#cancels.delete(cancel);
        resolve(answer);
      };
      const cancel = (fault: ObjectFault, detail: string = fault): void => {
        stop();
        finish(failed(fault, detail));
      };
      const stop = this.#connections.send(signed, {
        onHead: (given, headers = {}) => {
          [status, head, lastMs] = [given, headers, clock.nowMs()];
          if (given < 300 && isWanted?.(headers) === false) cancel('unwanted');
        },
        onData: (part) => {
          lastMs = clock.nowMs();
          bytes += part.length;
          parts.push(part);
          if (bytes > (status < 300 ? maxBytes : OBJECT_ANSWER_MAX_BYTES)) cancel('too_long', 'the answer is too long');
        },
        onEnd: (error) => {
          if (error !== undefined) finish(failed('unreachable', codeOf(error)));
          else finish(answerOf(status, head, { parts, isWrite, aheadMs: clock.wallMs() - dateOf(head) }));
        },
      });
      const cancelTimeout = clock.after(timeoutMs, () =>
        cancel('timed_out', `no answer within ${Math.ceil(timeoutMs / 1000)} s`),
      );
      let cancelStall = (): void => {};
      const watch = (ms: number): void => {
        cancelStall = clock.after(ms, () => {
          const leftMs = lastMs + OBJECT_STALL_MS - clock.nowMs();
          if (leftMs > 0) watch(leftMs);
          else cancel('timed_out', `no byte within ${OBJECT_STALL_MS / 1000} s`);
        });
      };
      if (body === undefined) watch(OBJECT_STALL_MS);
      this.#cancels.add(cancel);
      const stopListening = signal && onAbort(signal, () => cancel('aborted'));
    });
  }
}

function failed(fault: ObjectFault, detail: string): ObjectAnswer {
  return { kind: 'failed', fault, detail };
}

function codeOf(error: Error): string {
  return (error as NodeJS.ErrnoException).code ?? error.message;
}

function bytesOf(parts: readonly Uint8Array[]): number {
  return parts.reduce((sum, { length }) => sum + length, 0);
}

/** The date of an answer, in milliseconds since 1970; NaN: the answer has no date. */
function dateOf({ date = '' }: HttpHeaders): number {
  return Date.parse(date);
}

/** The time in the format of signatures, such as 20240131T235959Z. */
function amzDate(wallMs: number): string {
  return new Date(wallMs).toISOString().replace(/[:-]|\.\d{3}/g, '');
}
