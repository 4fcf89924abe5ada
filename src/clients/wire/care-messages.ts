import { ProtocolError } from '../../base/errors.js';
import { PIN_NAME_MAX_BYTES, SESSION_NAME_MAX_BYTES, SESSION_WAITING_MAX_S } from '../../base/limits.js';
import type { SessionNews } from '../../store/sessions/session-book.js';
import { BodyReader, BodyWriter } from './body.js';
import type { Received } from './messages.js';

/*
 * Messages about pages that a client does not read yet: pins, prefetching, and news of sessions.
 */

/** Body of PIN. */
export interface PinRequest {
  readonly pool: string;
  /** Milliseconds, not 0; without an end if the pin has a name. */
  readonly forMs: number;
  readonly name?: string | undefined;
  readonly keys: string[];
}

/** A name takes the place of a time: it follows 0 ms. */
export function encodePin({ pool, forMs, name, keys }: PinRequest): Buffer {
  const writer = new BodyWriter(128 + 70 * keys.length).text16(pool).u32(name === undefined ? forMs : 0);
  return (name === undefined ? writer : writer.text16(name)).keys(keys).done();
}

/** Throws `ProtocolError`. */
export function decodePin(body: Buffer, maxKeys: number): Received<PinRequest> {
  const reader = new BodyReader(body);
  const [pool, forMs] = [reader.text16(), reader.u32()];
  const name = forMs === 0 ? pinName(reader.text16()) : undefined;
  const keys = reader.keys(maxKeys);
  reader.end();
  return name === undefined ? { pool, forMs, keys } : { pool, forMs: Number.POSITIVE_INFINITY, name, keys };
}

export function encodeEndPins(name: string): Buffer {
  return new BodyWriter(64).text16(name).done();
}

/** Throws `ProtocolError`. */
export function decodeEndPins(body: Buffer): string {
  const reader = new BodyReader(body);
  const name = pinName(reader.text16());
  reader.end();
  return name;
}

function pinName(name: string): string {
  const bytes = Buffer.byteLength(name);
  if (bytes >= 1 && bytes <= PIN_NAME_MAX_BYTES) return name;
  throw new ProtocolError(`the name of a pin has ${bytes} bytes; 1 to ${PIN_NAME_MAX_BYTES} are allowed`);
}

/** Body of TELL. */
export interface TellRequest extends SessionNews {
  readonly pool: string;
  readonly session: string;
  readonly keys: string[];
}

/** Body of PREFETCH. */
export interface PrefetchRequest {
  readonly pool: string;
  /** Milliseconds from now by which the pages should be in the pool. */
  readonly inMs: number;
  readonly keys: string[];
}

const FLAG_WAITING = 1;
const FLAG_BRANCHED = 2;
const FLAG_ENDED = 4;
const FLAGS_MAX = 7;
const WAITING_MAX_MS = 1000 * SESSION_WAITING_MAX_S;

export function encodeTell(told: TellRequest): Buffer {
  const { pool, session, waitingMs, branched = false, ended = false, shared = 0, keys } = told;
  const flags =
    (waitingMs === undefined ? 0 : FLAG_WAITING) | (branched ? FLAG_BRANCHED : 0) | (ended ? FLAG_ENDED : 0);
  return new BodyWriter(128 + 70 * keys.length)
    .text16(pool)
    .text16(session)
    .u8(flags)
    .u32(Math.round(waitingMs ?? 0))
    .u32(shared)
    .keys(keys)
    .done();
}

/** Throws `ProtocolError`. */
export function decodeTell(body: Buffer, maxKeys: number): Received<TellRequest> {
  const reader = new BodyReader(body);
  const [pool, session] = [reader.text16(), reader.text16()];
  const [flags, waitingMs, shared] = [reader.u8(), reader.u32(), reader.u32()];
  const keys = reader.keys(maxKeys);
  reader.end();
  if (flags > FLAGS_MAX) throw new ProtocolError(`flags of ${flags}; 0 to ${FLAGS_MAX} are known`);
  const nameBytes = Buffer.byteLength(session);
  if (nameBytes < 1 || nameBytes > SESSION_NAME_MAX_BYTES) {
    throw new ProtocolError(`the name of a session has ${nameBytes} bytes; 1 to ${SESSION_NAME_MAX_BYTES} are allowed`);
  }
  if (waitingMs > WAITING_MAX_MS) {
    throw new ProtocolError(`a session waits for ${waitingMs} ms; 0 to ${WAITING_MAX_MS} are allowed`);
  }
  return {
    ...{ pool, session, shared, keys },
    waitingMs: (flags & FLAG_WAITING) !== 0 ? waitingMs : undefined,
    branched: (flags & FLAG_BRANCHED) !== 0,
    ended: (flags & FLAG_ENDED) !== 0,
  };
}

export function encodePrefetch({ pool, inMs, keys }: PrefetchRequest): Buffer {
  return new BodyWriter(64 + 70 * keys.length).text16(pool).u32(Math.round(inMs)).keys(keys).done();
}

/** Throws `ProtocolError`. */
export function decodePrefetch(body: Buffer, maxKeys: number): Received<PrefetchRequest> {
  const reader = new BodyReader(body);
  const request = { pool: reader.text16(), inMs: reader.u32(), keys: reader.keys(maxKeys) };
  reader.end();
  if (request.inMs <= WAITING_MAX_MS) return request;
  throw new ProtocolError(`pages to be fetched in ${request.inMs} ms; 0 to ${WAITING_MAX_MS} are allowed`);
}
