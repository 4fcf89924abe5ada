import { CALL_MAX_KEY_BYTES, CALL_MAX_KEYS, KEY_MAX_BYTES, KEY_PREFIX_BYTES } from '../../base/core-limits.js';
import { ArgumentError } from '../../base/errors.js';

const CALL_KEY_MAX_BYTES = KEY_MAX_BYTES + KEY_PREFIX_BYTES;
const encoder = new TextEncoder();
/** Longest UTF-8 form of one UTF-16 code unit. */
export const UTF8_BYTES_PER_UNIT = 3;
/** Memory for the UTF-8 of short texts, from which it is copied: `encode` costs twice as much for a single key. */
const scratch = new Uint8Array(2 ** 16);

/** UTF-8 of several keys, one after the other, and the length of each in bytes. */
export interface KeyText {
  readonly text: Uint8Array;
  readonly lengths: Uint32Array;
}

/**
 * Joins all keys into one text. Throws `ArgumentError` if there are too many for one call into the core, or if one is
 * not text or has too many characters. Keys that are not well-formed, or too long as UTF-8, are found only by {@link
 * writeLengths}.
 */
export function joinKeys(keys: readonly string[]): string {
  if (!Array.isArray(keys)) throw new ArgumentError(`the keys must be an array of strings, got ${typeof keys}`);
  const count = keys.length;
  if (count > CALL_MAX_KEYS)
    throw new ArgumentError(`got ${count} keys in one call, at most ${CALL_MAX_KEYS} are allowed`);
  let text = '';
  let units = 0;
  for (let i = 0; i < count; i++) {
    const key = keys[i] as string;
    if (typeof key !== 'string') throw new ArgumentError(`key ${i} must be a string, got ${typeof key}`);
    units += checkLength(key.length);
    if (units > CALL_MAX_KEY_BYTES)
      throw new ArgumentError(`got keys of more than ${CALL_MAX_KEY_BYTES} bytes in one call`);
    text += key;
  }
  return text;
}

/**
 * Writes the UTF-8 length of each key, in bytes, from `start` on. Throws `ArgumentError` for a key that is not
 * well-formed or too long.
 */
export function writeLengths(keys: readonly string[], isAscii: boolean, out: Uint32Array, start: number): void {
  if (isAscii) {
    for (let i = 0; i < keys.length; i++) out[start + i] = (keys[i] as string).length;
    return;
  }
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] as string;
    checkWellFormed(key);
    out[start + i] = checkLength(utf8Bytes(key));
  }
}

/**
 * Encodes keys. Throws `ArgumentError` for keys that are not well-formed, too long, or too many for one call into the
 * core.
 */
export function encodeKeys(keys: readonly string[]): KeyText {
  const joined = joinKeys(keys);
  const text = encode(joined);
  const lengths = new Uint32Array(keys.length);
  writeLengths(keys, text.length === joined.length, lengths, 0);
  return { text, lengths };
}

/** The UTF-8 of a text, in memory of its own. */
function encode(text: string): Uint8Array {
  if (text.length * UTF8_BYTES_PER_UNIT > scratch.length) return encoder.encode(text);
  return scratch.slice(0, encoder.encodeInto(text, scratch).written);
}

/** Returns `bytes` if it is an allowed length of a key, else throws `ArgumentError`. */
export function checkLength(bytes: number): number {
  if (bytes <= CALL_KEY_MAX_BYTES) return bytes;
  throw new ArgumentError(
    `a key of ${bytes} bytes, ${KEY_MAX_BYTES} and a namespace of ${KEY_PREFIX_BYTES} are allowed`,
  );
}

/**
 * Throws `ArgumentError` for text with lone surrogates, which have no UTF-8 form: encoders replace them, so that
 * different keys would become the same.
 */
export function checkWellFormed(key: string): void {
  if (!key.isWellFormed()) throw new ArgumentError(`key is not well-formed Unicode: ${JSON.stringify(key)}`);
}

/** UTF-8 length of well-formed text in bytes. Each half of a surrogate pair counts for two of its four bytes. */
function utf8Bytes(text: string): number {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit >= 0x80) bytes += unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 1 : 2;
  }
  return bytes;
}
