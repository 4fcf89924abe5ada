import { ProtocolError } from '../../base/errors.js';
import { EXPIRY_MAX_MS } from '../../base/limits.js';
import { type PagePriority, PRIORITY_NUMBERS } from '../../core/binding/page-priority.js';
import type { BodyReader, BodyWriter } from './body.js';

/** Flags of GET, SET, GET_BYTES and SET_BYTES about the program's request that they belong to. */
export interface ToldFlags {
  /** Number of a `RequestHint`; default: 0. */
  readonly hint?: 0 | 1 | 2 | 3;
  /** Whether the message continues the same request as the client's previous such message; default: false. */
  readonly continues?: boolean;
}

/** All flags of GET, SET, GET_BYTES and SET_BYTES. */
export interface RequestFlags extends ToldFlags {
  /** For SET: the newest content wins; otherwise all contents are considered equal. */
  readonly isNamed: boolean;
  /** For SET: milliseconds until the pages expire, 1 to EXPIRY_MAX_MS; undefined if they do not expire. */
  readonly expiresInMs?: number | undefined;
  /** For SET: how soon the pages are evicted from the node's pool; undefined means `normal`. */
  readonly priority?: PagePriority | undefined;
}

/** Flags that only messages that set pages may have. */
export type SetFlags = Pick<RequestFlags, 'isNamed' | 'expiresInMs' | 'priority'>;

const FLAG_NAMED = 1;
const HINT_SHIFT = 1;
const FLAG_CONTINUES = 8;
const FLAG_EXPIRES = 16;
const PRIORITY_SHIFT = 5;
/** Priorities by their numbers on the wire. */
const PRIORITIES: readonly (PagePriority | undefined)[] = ['normal', 'low', 'high'];
const FLAGS_MAX = 127;

/** The flags of a request without any. */
export const NO_FLAGS: ReturnType<typeof readFlags> = { isNamed: false, hint: 0, continues: false };

/** Whether the flags contain any that only messages that set pages may have. */
export function isOfSet({ isNamed, expiresInMs, priority }: RequestFlags): boolean {
  return isNamed || expiresInMs !== undefined || priority !== undefined;
}

/** Writes the flags, and after them the expiry if there is one. */
export function writeFlags(
  writer: BodyWriter,
  { isNamed, hint = 0, continues = false, expiresInMs, priority = 'normal' }: RequestFlags,
): BodyWriter {
  const expires = expiresInMs === undefined ? 0 : FLAG_EXPIRES;
  const request = (hint << HINT_SHIFT) | (continues ? FLAG_CONTINUES : 0);
  writer.u8((isNamed ? FLAG_NAMED : 0) | request | expires | (PRIORITY_NUMBERS[priority] << PRIORITY_SHIFT));
  return expiresInMs === undefined ? writer : writer.u64(expiresInMs);
}

/**
 * Reads flags, and the expiry after them if there is one. A normal priority is left undefined. Throws `ProtocolError`.
 */
export function readFlags(reader: BodyReader): RequestFlags & Required<ToldFlags> {
  const flags = reader.u8();
  if (flags > FLAGS_MAX) throw new ProtocolError(`flags of ${flags}; 0 to ${FLAGS_MAX} are known`);
  const hint = ((flags >> HINT_SHIFT) & 3) as 0 | 1 | 2 | 3;
  const given = PRIORITIES[flags >> PRIORITY_SHIFT];
  if (given === undefined) throw new ProtocolError('a priority of 3; 0 to 2 are known');
  const priority = given === 'normal' ? {} : { priority: given };
  const told = { isNamed: (flags & FLAG_NAMED) !== 0, hint, continues: (flags & FLAG_CONTINUES) !== 0, ...priority };
  if ((flags & FLAG_EXPIRES) === 0) return told;
  const expiresInMs = reader.u64();
  if (expiresInMs >= 1 && expiresInMs <= EXPIRY_MAX_MS) return { ...told, expiresInMs };
  throw new ProtocolError(`an expiry of ${expiresInMs} ms; 1 to ${EXPIRY_MAX_MS} are allowed`);
}
