import type { IncomingMessage } from 'node:http';
import { ArgumentError } from '../base/errors.js';
import {
  ADVICE_BODY_MAX_BYTES,
  ADVICE_MAX_KEYS,
  KEY_MAX_BYTES,
  SESSION_NAME_MAX_BYTES,
  SESSION_WAITING_MAX_S,
} from '../base/limits.js';
import { shown } from '../base/shown.js';
import { checkKey } from '../core/binding/key-encoder.js';

/** What a router says of a session; every part of it may be wrong. Keys are object keys. */
export interface AdvisedSession {
  readonly keys: readonly string[];
  readonly waitingMs: number | undefined;
  readonly branched: boolean;
  readonly ended: boolean;
  readonly shared: number;
}

/** A node that takes advice about pages which will be read soon. Both methods return at once. */
export interface PageAdvice {
  /** Brings pages into the pool, given by their object keys, in so many milliseconds at the latest. */
  prefetch(keys: readonly string[], inMs: number): void;
  /** Notes what a session does next. `name` begins with its namespace and a slash. */
  tell(name: string, session: AdvisedSession): void;
}

type Fields = Readonly<Record<string, unknown>>;

const UTF8 = new TextDecoder('utf-8', { fatal: true });
/** A namespace as `/api/events` names it: the digest that object keys begin with. */
const NAMESPACE = /^[0-9a-f]{32}$/;
const PREFETCH_FIELDS: ReadonlySet<string> = new Set(['namespace', 'keys', 'by']);
const TELL_FIELDS: ReadonlySet<string> = new Set([
  ...['namespace', 'session', 'keys', 'waiting', 'branched', 'ended', 'shared'],
]);

/** Follows `POST /api/prefetch`; returns the number of pages. Throws `ArgumentError`. */
export function prefetchAsAdvised(advice: PageAdvice, body: unknown): number {
  const fields = fieldsOf(body, PREFETCH_FIELDS);
  const keys = objectKeys(fields, namespaceOf(fields));
  if (keys.length === 0) throw new ArgumentError('"keys" must name a page at least');
  advice.prefetch(keys, 1000 * (numberOf(fields, 'by', SESSION_WAITING_MAX_S) ?? 0));
  return keys.length;
}

/** Follows `POST /api/sessions`; returns the number of pages. Throws `ArgumentError`. */
export function tellAsAdvised(advice: PageAdvice, body: unknown): number {
  const fields = fieldsOf(body, TELL_FIELDS);
  const namespace = namespaceOf(fields);
  const { session } = fields;
  const isName = typeof session === 'string' && session !== '' && session.isWellFormed();
  if (!isName || Buffer.byteLength(session) > SESSION_NAME_MAX_BYTES) {
    throw new ArgumentError(`"session" must be text of 1 to ${SESSION_NAME_MAX_BYTES} bytes, got ${shown(session)}`);
  }
  const keys = objectKeys(fields, namespace);
  const waiting = numberOf(fields, 'waiting', SESSION_WAITING_MAX_S);
  const shared = numberOf(fields, 'shared', ADVICE_MAX_KEYS) ?? 0;
  if (!Number.isInteger(shared)) throw new ArgumentError(`"shared" must be a number of pages, got ${shared}`);
  advice.tell(`${namespace}/${session}`, {
    keys,
    waitingMs: waiting && 1000 * waiting,
    branched: flagOf(fields, 'branched'),
    ended: flagOf(fields, 'ended'),
    shared,
  });
  return keys.length;
}

/**
 * Reads a body of JSON. Throws `ArgumentError` for one that is none, and for one above ADVICE_BODY_MAX_BYTES as soon as
 * that is known.
 */
export async function readJson(request: IncomingMessage): Promise<unknown> {
  const type = request.headers['content-type'] ?? '';
  if (!/^application\/json *(;|$)/i.test(type)) {
    throw new ArgumentError(`the body must be JSON, with Content-Type: application/json; got ${shown(type)}`);
  }
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    bytes += piece.length;
    if (bytes > ADVICE_BODY_MAX_BYTES) throw new ArgumentError(`the body is above ${ADVICE_BODY_MAX_BYTES} bytes`);
    pieces.push(piece);
  }
  try {
    return JSON.parse(UTF8.decode(Buffer.concat(pieces))) as unknown;
  } catch {
    throw new ArgumentError('the body is no JSON in UTF-8');
  }
}

function fieldsOf(body: unknown, known: ReadonlySet<string>): Fields {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new ArgumentError('the body must be a JSON object');
  }
  for (const name of Object.keys(body)) {
    if (known.has(name)) continue;
    throw new ArgumentError(`unknown field ${shown(name)}; allowed are ${[...known].join(', ')}`);
  }
  return body as Fields;
}

function namespaceOf({ namespace }: Fields): string {
  if (typeof namespace === 'string' && NAMESPACE.test(namespace)) return namespace;
  throw new ArgumentError(
    `"namespace" must be 32 hexadecimal digits, as /api/events names it, got ${shown(namespace)}`,
  );
}

function objectKeys({ keys = [] }: Fields, namespace: string): string[] {
  if (!Array.isArray(keys) || keys.length > ADVICE_MAX_KEYS || !keys.every((key) => typeof key === 'string')) {
    throw new ArgumentError(`"keys" must be a list of at most ${ADVICE_MAX_KEYS} strings`);
  }
  for (const [i, key] of keys.entries()) checkKey(key, KEY_MAX_BYTES, i);
  return keys.map((key) => `${namespace}/${key}`);
}

function numberOf(fields: Fields, name: string, max: number): number | undefined {
  const value = fields[name];
  if (value === undefined) return undefined;
  if (typeof value === 'number' && value >= 0 && value <= max) return value;
  throw new ArgumentError(`"${name}" must be a number from 0 to ${max}, got ${shown(value)}`);
}

function flagOf(fields: Fields, name: string): boolean {
  const value = fields[name] ?? false;
  if (typeof value === 'boolean') return value;
  throw new ArgumentError(`"${name}" must be true or false, got ${shown(value)}`);
}
