import { pauseAfter } from '../base/concurrency/backoff.js';
import type { CancelSignal } from '../base/concurrency/cancellation.js';
import type { Clock } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import type { HttpTls } from '../base/environment/http-client.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { ConfigError } from '../base/errors.js';
import {
  OBJECT_HEADER_BYTES,
  OBJECT_PAGE_MAX_BYTES,
  OBJECT_RETRY_MAX_MS,
  OBJECT_RETRY_MIN_MS,
  OBJECT_STALL_MS,
  OBJECT_WRITE_MIN_BYTES_PER_S,
  OBJECT_WRITE_TIMEOUT_MS,
} from '../base/limits.js';
import {
  type ObjectStorePlace,
  type ObjectStoreSettings,
  parseObjectStorePlace,
  parseObjectStoreServer,
} from '../base/settings/object-store-settings.js';
import { readAuthorityFile } from '../net/credentials/tls-files.js';
import { OBJECT_FAULTS, type ObjectAnswer, type ObjectFault } from './object-answer.js';
import { ObjectClient, type ObjectRequest } from './object-client.js';
import { CredentialSource, regionOf } from './object-credentials.js';
import { decodeHeader, encodeHeader, type ObjectHeader, ObjectNames, writerIdOf } from './object-format.js';

const BACKOFF = { minMs: OBJECT_RETRY_MIN_MS, maxMs: OBJECT_RETRY_MAX_MS };

/**
 * Keeps requests from a failing store: after a failure none is sent for a while, then a single one, and all again when
 * that one has succeeded. The pause doubles with each failure, from OBJECT_RETRY_MIN_MS to OBJECT_RETRY_MAX_MS.
 */
export class CircuitBreaker {
  readonly #clock: Clock;
  #failures = 0;
  #closedAgainMs = Number.NEGATIVE_INFINITY;
  #isProbing = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether requests are held back now: during a pause, and while a single request probes the store. */
  get isOpen(): boolean {
    return this.#failures > 0 && (this.#isProbing || this.#clock.nowMs() < this.#closedAgainMs);
  }

  /** Whether no request has succeeded since the last failure. */
  get isFailing(): boolean {
    return this.#failures > 0;
  }

  /** Whether a request may be sent. The caller must report its outcome with {@link ended}. */
  take(): boolean {
    if (this.isOpen) return false;
    if (this.#failures > 0) this.#isProbing = true;
    return true;
  }

  /** Reports the outcome of a request; undefined: it says nothing about the store. */
  ended(isGood: boolean | undefined): void {
    if (isGood === undefined) {
      this.#isProbing = false;
      return;
    }
    if (isGood) {
      this.#failures = 0;
      this.#isProbing = false;
      return;
    }
    // Failures of requests that were sent before the first failure do not count as further ones.
    if (this.#failures > 0 && !this.#isProbing) return;
    this.#isProbing = false;
    this.#closedAgainMs = this.#clock.nowMs() + pauseAfter(++this.#failures, BACKOFF);
  }
}

/** An object, or its header alone. */
export interface StoredObject {
  readonly header: ObjectHeader;
  /** Bytes behind the header, part by part; empty if they were not asked for. */
  readonly body: readonly Uint8Array[];
}

/**
 * What was found under a name. `absent`: nothing; `unusable`: an object that is damaged, or that another program wrote;
 * `failed`: unknown, because the request failed or was not sent.
 */
export type Found =
  | { readonly kind: 'object'; readonly object: StoredObject; readonly tag: string | undefined }
  | { readonly kind: 'unusable'; readonly tag: string | undefined }
  | { readonly kind: 'absent' }
  | { readonly kind: 'failed'; readonly fault: ObjectFault | 'skipped' };

/**
 * Outcome of a write. `conflict`: the object was not as required; `failed`: the write may have been carried out, or may
 * still be; `skipped`: it was not sent.
 */
export type Written = 'done' | 'conflict' | 'failed' | 'skipped';

/** Counts of a store since the node's start. */
export interface ObjectStoreStats {
  readonly readBytes: number;
  readonly sentBytes: number;
  /** Requests that have failed. */
  readonly errors: number;
  /** Why the last request has failed, until one succeeds; null: none has failed since. */
  readonly failure: string | null;
}

interface ObjectStoreParts {
  readonly client: ObjectClient;
  readonly names: ObjectNames;
  /** Id of this node as objects name it. */
  readonly writer: string;
  readonly env: Environment;
}

/** A tag that no object has. */
export const OTHER_TAG = `"${'0'.repeat(32)}"`;

/** Shortest time between two log records about a failing store. */
const LOG_INTERVAL_MS = 60_000;

/**
 * Reads and writes the objects of pages and of writers in an object store. Requests are counted, and are not sent while
 * the store fails. Reads and writes count as failing separately, because an access key may be allowed only one of them.
 */
export class ObjectStore {
  readonly names: ObjectNames;
  readonly #parts: ObjectStoreParts;
  readonly #reading: CircuitBreaker;
  readonly #writing: CircuitBreaker;
  #loggedMs = Number.NEGATIVE_INFINITY;
  readonly #counts = { readBytes: 0, sentBytes: 0, errors: 0 };
  /** Reason and detail of the last failure. */
  #failure: string | null = null;
  #isConditional: boolean | undefined;
  #testing: Promise<boolean | undefined> | undefined;
  #isClosed = false;

  constructor(parts: ObjectStoreParts) {
    const { clock } = parts.env;
    this.names = parts.names;
    this.#parts = parts;
    this.#reading = new CircuitBreaker(clock);
    this.#writing = new CircuitBreaker(clock);
  }

  /** What has been done since the node's start, and whether the store fails now. */
  stats(): ObjectStoreStats {
    const isFailing = this.#reading.isFailing || this.#writing.isFailing;
    return { ...this.#counts, failure: isFailing ? this.#failure : null };
  }

  /** Whether nothing is read now, because the store fails. */
  get isReadingPaused(): boolean {
    return this.#reading.isOpen;
  }

  /** Whether nothing is written now, because the store fails. */
  get isWritingPaused(): boolean {
    return this.#writing.isOpen;
  }

  /** Reads the header of an object. */
  async readHeader(name: string, signal?: CancelSignal): Promise<Found> {
    const range = `bytes=0-${OBJECT_HEADER_BYTES - 1}`;
    const answer = await this.#read({
      ...{ method: 'GET', name, headers: { Range: range }, timeoutMs: OBJECT_STALL_MS, signal },
      // A store that does not know ranges sends the whole object.
      maxBytes: OBJECT_HEADER_BYTES + OBJECT_PAGE_MAX_BYTES,
      isWanted: (headers) => Number(headers['content-length'] ?? 0) <= OBJECT_HEADER_BYTES,
    });
    const found = foundOf(answer);
    if (found.kind !== 'object') return found;
    // The answer tells the length of the whole object, so that a truncated one is found without reading it.
    const { header } = found.object;
    const total = answer.kind === 'done' ? totalOf(answer.headers['content-range']) : undefined;
    const isWhole = total === undefined ? header.length === 0 : total === OBJECT_HEADER_BYTES + header.length;
    return isWhole ? { ...found, object: { header, body: [] } } : { kind: 'unusable', tag: found.tag };
  }

  /** Reads an object whose body has `length` bytes; undefined: any length. Its checksum is not compared. */
  async readObject(
    name: string,
    {
      length,
      timeoutMs,
      signal,
    }: { readonly length?: number | undefined; readonly timeoutMs: number; readonly signal?: CancelSignal | undefined },
  ): Promise<Found> {
    const bytes = length === undefined ? undefined : OBJECT_HEADER_BYTES + length;
    let isOther = false;
    const answer = await this.#read({
      ...{ method: 'GET', name, timeoutMs, signal, maxBytes: bytes ?? OBJECT_HEADER_BYTES + OBJECT_PAGE_MAX_BYTES },
      isWanted: (headers) => {
        isOther = bytes !== undefined && Number(headers['content-length'] ?? bytes) !== bytes;
        return !isOther;
      },
    });
    if (isOther) return { kind: 'unusable', tag: undefined };
    const found = foundOf(answer);
    if (found.kind !== 'object') return found;
    const { header, body } = found.object;
    return lengthOf(body) === header.length ? found : { kind: 'unusable', tag: found.tag };
  }

  /**
   * Writes an object. `replaces` is the tag of the object that it must replace; null: there must be none; undefined:
   * whatever is there is replaced.
   */
  async write(
    name: string,
    header: ObjectHeader,
    {
      body = [],
      replaces,
      timeoutMs,
    }: {
      readonly body?: readonly Uint8Array[];
      readonly replaces?: string | null | undefined;
      readonly timeoutMs?: number;
    } = {},
  ): Promise<Written> {
    if (this.#isClosed || !this.#writing.take()) return 'skipped';
    const { clock, metrics } = this.#parts.env;
    const bytes = OBJECT_HEADER_BYTES + lengthOf(body);
    const condition: Record<string, string> = replaces === null ? { 'If-None-Match': '*' } : {};
    if (typeof replaces === 'string') condition['If-Match'] = replaces;
    const startMs = clock.nowMs();
    const answer = await this.#parts.client.send({
      ...{ method: 'PUT', name, body: [encodeHeader(header), ...body] },
      headers: { 'Content-Type': 'application/octet-stream', ...condition },
      timeoutMs: timeoutMs ?? OBJECT_WRITE_TIMEOUT_MS + (bytes / OBJECT_WRITE_MIN_BYTES_PER_S) * 1000,
    });
    this.#note(this.#writing, answer, 'write');
    metrics.count('meshcache_object_seconds_total', (clock.nowMs() - startMs) / 1000, { operation: 'write' });
    metrics.count('meshcache_object_requests_total', 1, { operation: 'write' });
    if (answer.kind === 'done') {
      this.#counts.sentBytes += bytes;
      metrics.count('meshcache_object_bytes_total', bytes, { direction: 'written' });
      return 'done';
    }
    return answer.kind === 'precondition' ? 'conflict' : 'failed';
  }

  /**
   * Whether the store respects the conditions of writes; undefined: that cannot be known now. Without them, a write
   * that arrives late would bring back what has been deleted or cleared meanwhile, so nothing may be written.
   */
  async isConditional(): Promise<boolean | undefined> {
    if (this.#isConditional !== undefined) return this.#isConditional;
    this.#testing ??= this.#testConditions().finally(() => {
      this.#testing = undefined;
    });
    return this.#testing;
  }

  /** Ends all requests. Idempotent. */
  close(): void {
    this.#isClosed = true;
    this.#parts.client.close();
  }

  /**
   * Writes an object on condition that there is none, again if that succeeds, then on condition of a tag that none has.
   */
  async #testConditions(): Promise<boolean | undefined> {
    const { env } = this.#parts;
    let conflicts = 0;
    for (const replaces of [null, null, OTHER_TAG]) {
      if (replaces === null && conflicts > 0) continue;
      const written = await this.#writeTest(replaces);
      if (written === 'conflict') conflicts++;
      else if (written !== 'done') return undefined;
    }
    this.#isConditional = conflicts === 2;
    if (this.#isConditional) return true;
    env.log.log('warn', 'object store ignores the conditions of writes; this node only reads from it');
    return false;
  }

  #writeTest(replaces: string | null): Promise<Written> {
    const { writer } = this.#parts;
    const header: ObjectHeader = {
      ...{ kind: 'test', key: writer, writer, length: 0, checksum: 0 },
      ...{ generation: 0, version: 0, expires: 0 },
    };
    return this.write(this.names.ofTest(writer), header, { replaces, timeoutMs: OBJECT_STALL_MS });
  }

  async #read(request: ObjectRequest): Promise<ObjectAnswer | { readonly kind: 'skipped' }> {
    if (this.#isClosed || !this.#reading.take()) return { kind: 'skipped' };
    const { clock, metrics } = this.#parts.env;
    const startMs = clock.nowMs();
    const answer = await this.#parts.client.send(request);
    this.#note(this.#reading, answer, 'read');
    metrics.count('meshcache_object_seconds_total', (clock.nowMs() - startMs) / 1000, { operation: 'read' });
    metrics.count('meshcache_object_requests_total', 1, { operation: 'read' });
    if (answer.kind === 'done') {
      this.#counts.readBytes += lengthOf(answer.parts);
      metrics.count('meshcache_object_bytes_total', lengthOf(answer.parts), { direction: 'read' });
    }
    return answer;
  }

  #note(breaker: CircuitBreaker, answer: ObjectAnswer, operation: 'read' | 'write'): void {
    const fault = answer.kind === 'failed' ? answer.fault : undefined;
    // Some faults say nothing about the store: the end of a call, or an object that is too long, refused, or unwanted.
    const saysNothing = fault !== undefined && ['aborted', 'closed', 'unwanted', 'too_long', 'refused'].includes(fault);
    breaker.ended(saysNothing ? undefined : fault === undefined);
    if (answer.kind !== 'failed' || fault === 'aborted' || fault === 'closed' || fault === 'unwanted') return;
    const { clock, log, metrics } = this.#parts.env;
    this.#counts.errors++;
    if (!saysNothing) this.#failure = `${answer.fault}: ${answer.detail}`;
    metrics.count('meshcache_object_errors_total', 1, { reason: answer.fault });
    if (fault === 'refused' || clock.nowMs() - this.#loggedMs < LOG_INTERVAL_MS) return;
    this.#loggedMs = clock.nowMs();
    log.log('warn', 'object store failing', { operation, reason: answer.fault, error: answer.detail });
  }
}

function foundOf(answer: ObjectAnswer | { readonly kind: 'skipped' }): Found {
  if (answer.kind === 'skipped') return { kind: 'failed', fault: 'skipped' };
  if (answer.kind === 'absent') return { kind: 'absent' };
  if (answer.kind === 'precondition') return { kind: 'unusable', tag: undefined };
  if (answer.kind === 'failed') {
    const isUnusable = ['too_long', 'refused', 'unwanted'].includes(answer.fault);
    return isUnusable ? { kind: 'unusable', tag: undefined } : { kind: 'failed', fault: answer.fault };
  }
  const tag = answer.headers.etag;
  const [head, body] = splitAt(answer.parts, OBJECT_HEADER_BYTES);
  const header = decodeHeader(head);
  return header === undefined ? { kind: 'unusable', tag } : { kind: 'object', object: { header, body }, tag };
}

/** The first `count` bytes in one piece, and the others as they are. */
function splitAt(parts: readonly Uint8Array[], count: number): [head: Uint8Array, rest: Uint8Array[]] {
  const head: Uint8Array[] = [];
  const rest: Uint8Array[] = [];
  let left = count;
  for (const part of parts) {
    if (left > 0) head.push(part.subarray(0, left));
    if (part.length > left) rest.push(part.subarray(left));
    left = Math.max(0, left - part.length);
  }
  return [head.length === 1 ? (head[0] as Uint8Array) : Buffer.concat(head), rest];
}

/** The length of the whole object in a header such as `bytes 0-1023/5000`. */
function totalOf(range: string | undefined): number | undefined {
  const [, total] = /\/(\d{1,15})$/.exec(range ?? '') ?? [];
  return total === undefined ? undefined : Number(total);
}

function lengthOf(parts: readonly Uint8Array[]): number {
  return parts.reduce((sum, { length }) => sum + length, 0);
}

/** Series of the counters of a node with an object store, by name and label. */
const SERIES: Readonly<Record<string, readonly [label: string, values: readonly string[]]>> = {
  meshcache_object_reads_total: ['result', ['hit', 'absent', 'void', 'cleared', 'damaged', 'outdated', 'failed']],
  meshcache_object_writes_total: [
    'result',
    ['done', 'present', 'gone', 'conflict', 'failed', 'skipped', 'unsupported'],
  ],
  meshcache_object_bytes_total: ['direction', ['read', 'written']],
  meshcache_object_requests_total: ['operation', ['read', 'write']],
  meshcache_object_seconds_total: ['operation', ['read', 'write']],
  meshcache_object_skipped_pages_total: ['reason', ['queue_full', 'store_failing']],
  meshcache_object_errors_total: ['reason', OBJECT_FAULTS],
};

/** Begins the counters of a node's object store at 0, so that monitoring sees their first increase. */
export function reportObjectStore(metrics: MetricsSink): void {
  for (const [name, [label, values]] of Object.entries(SERIES)) {
    for (const value of values) metrics.count(name, 0, { [label]: value });
  }
}

/** What a node needs to talk to its object store. */
export interface OpenedObjectStore {
  readonly place: ObjectStorePlace;
  readonly region: string;
  readonly credentials: CredentialSource;
  readonly client: ObjectClient;
  readonly store: ObjectStore;
}

type ObjectEnvironment = Environment;

/**
 * Opens the object store of a configuration without a request; null: there is none. Reads files; throws `ConfigError`.
 */
export function openObjectStore(
  settings: ObjectStoreSettings,
  nodeId: string,
  env: ObjectEnvironment,
): OpenedObjectStore | null {
  const place = parseObjectStorePlace(settings.objectStore ?? '');
  if (place === undefined) return null;
  const region = regionOf(settings, env);
  const address = settings.objectStoreEndpoint ?? `https://s3.${region}.amazonaws.com`;
  const server = parseObjectStoreServer(address);
  if (server === undefined) {
    throw new ConfigError(
      `configuration key "object_store_region": ${JSON.stringify(region)} makes no address; give the name of a region, for example "eu-central-1"`,
    );
  }
  const credentials = new CredentialSource(settings, env);
  const tls = server.isTls ? tlsOf(settings, env) : undefined;
  const client = new ObjectClient({ endpoint: server.endpoint, tls, place, region, credentials, env });
  const store = new ObjectStore({ client, names: new ObjectNames(place.prefix), writer: writerIdOf(nodeId), env });
  return { place, region, credentials, client, store };
}

function tlsOf({ objectStoreCaFile: path }: ObjectStoreSettings, { files }: Environment): HttpTls {
  return path === undefined ? {} : { ca: readAuthorityFile('object_store_ca_file', path, files) };
}
