import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { KEY_MAX_BYTES } from '../../base/limits.js';
import type { StepKeys } from '../../store/call/key-steps.js';

/** First character of store keys that encode a different Redis key. */
const ESCAPE = '\u0001';
const ESCAPE_BYTE = 0x01;
/** Longest binary key: base64url takes four bytes for three, and the escape takes two. */
const BINARY_MAX_BYTES = Math.floor(((KEY_MAX_BYTES - 2) / 4) * 3);

/**
 * Returns the store key for a Redis key, which may be any bytes. Different keys have different store keys:
 *
 *       UTF-8 text of at most KEY_MAX_BYTES that does not begin with 01      itself
 *       other bytes, if there is room for their base64url                    01 `b` base64url
 *       the rest                                                             01 `h` SHA-256 in hexadecimal digits
 *
 * Two keys of the last kind differ unless two texts with the same SHA-256 are found.
 */
export function storeKeyOf(key: Buffer): string {
  if (key.length <= KEY_MAX_BYTES && key[0] !== ESCAPE_BYTE && isUtf8(key)) return key.toString();
  if (key.length <= BINARY_MAX_BYTES) return `${ESCAPE}b${key.toString('base64url')}`;
  return `${ESCAPE}h${createHash('sha256').update(key).digest('hex')}`;
}

/** The keys of a command; their store keys are computed step by step. */
export class ArgumentKeys implements StepKeys {
  readonly #args: readonly Buffer[];
  /** Where each argument would begin if they were concatenated, and where the last one would end. */
  readonly #starts: Float64Array;

  constructor(args: readonly Buffer[]) {
    this.#args = args;
    this.#starts = new Float64Array(args.length + 1);
    let at = 0;
    for (let i = 0; i < args.length; i++) {
      at += (args[i] as Buffer).length;
      this.#starts[i + 1] = at;
    }
  }

  get count(): number {
    return this.#args.length;
  }

  bytesBetween(start: number, end: number): number {
    return (this.#starts[end] as number) - (this.#starts[start] as number);
  }

  /** Accepts everything, because any bytes are a valid key. */
  check(): void {}

  slice(start: number, end: number): string[] {
    return this.#args.slice(start, end).map(storeKeyOf);
  }
}

/**
 * The page that stands for the empty value, because a page has at least one byte. A value with exactly these bytes is
 * not stored, so that it cannot be mistaken for the empty one.
 */
export const EMPTY_VALUE: Buffer = Buffer.of(
  ...[0xa3, 0xf1, 0xc0, 0x7e, 0x5b, 0xd9, 0x4d, 0x0e, 0x88, 0x66, 0xf2, 0xd1, 0x1b, 0x5e, 0x9a, 0x47],
);

/** Whether these bytes stand for the empty value. */
export function isEmptyValue(page: Uint8Array): boolean {
  return page.length === EMPTY_VALUE.length && EMPTY_VALUE.equals(page);
}
