import { ProtocolError } from '../../base/errors.js';
import { EXPIRY_MAX_MS } from '../../base/limits.js';
import type { BodyReader, BodyWriter } from './body.js';

/** Flags of GET, SET, GET_BYTES and SET_BYTES about the request that they are a part of. */
export interface ToldFlags {
  /** Number of a `RequestHint`; default: 0. */
  readonly hint?: 0 | 1 | 2 | 3;
  /** Whether it continues the request of the client's last such message; default: not. */
  readonly continues?: boolean;
}

/** All flags of these messages. */
export interface RequestFlags extends ToldFlags {
  /** SET: the newest content wins; otherwise any content is as good. */
  readonly isNamed: boolean;
  /** SET: milliseconds after which the pages are expired, 1 to EXPIRY_MAX_MS; undefined: they do not expire. */
  readonly expiresInMs?: number | undefined;
}

const FLAG_NAMED = 1;
const HINT_SHIFT = 1;
const FLAG_CONTINUES = 8;
const FLAG_EXPIRES = 16;
const FLAGS_MAX = 31;

/** The flags of a request that has none. */
export const NO_FLAGS: ReturnType<typeof readFlags> = { isNamed: false, hint: 0, continues: false };

/** Writes the flags, and the expiry that follows them if there is one. */
export function writeFlags(
  writer: BodyWriter,
  { isNamed, hint = 0, continues = false, expiresInMs }: RequestFlags,
): BodyWriter {
  const expires = expiresInMs === undefined ? 0 : FLAG_EXPIRES;
  writer.u8((isNamed ? FLAG_NAMED : 0) | (hint << HINT_SHIFT) | (continues ? FLAG_CONTINUES : 0) | expires);
  return expiresInMs === undefined ? writer : writer.u64(expiresInMs);
}

/** Reads flags, and the expiry that follows them if there is one. Throws `ProtocolError`. */
export function readFlags(reader: BodyReader): RequestFlags & Required<ToldFlags> {
  const flags = reader.u8();
  if (flags > FLAGS_MAX) throw new ProtocolError(`flags of ${flags}; 0 to ${FLAGS_MAX} are known`);
  const hint = ((flags >> HINT_SHIFT) & 3) as 0 | 1 | 2 | 3;
  const told = { isNamed: (flags & FLAG_NAMED) !== 0, hint, continues: (flags & FLAG_CONTINUES) !== 0 };
  if ((flags & FLAG_EXPIRES) === 0) return told;
  const expiresInMs = reader.u64();
  if (expiresInMs >= 1 && expiresInMs <= EXPIRY_MAX_MS) return { ...told, expiresInMs };
  throw new ProtocolError(`an expiry of ${expiresInMs} ms; 1 to ${EXPIRY_MAX_MS} are allowed`);
}
