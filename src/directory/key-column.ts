import { isAscii, isUtf8 } from 'node:buffer';
import { ArgumentError, ProtocolError } from '../base/errors.js';
import {
  DIRECTORY_KEY_MAX_BYTES,
  DIRECTORY_REQUEST_MAX_KEY_BYTES,
  DIRECTORY_REQUEST_MAX_KEYS,
} from '../base/limits.js';

/**
 * Keys as they travel: their UTF-8 lengths (u32 little endian each) and their text, one behind the other.
 *
 * Binary and not msgpack text for two reasons: a batch is one conversion instead of one a key, and msgpackr's decoder drops
 * a byte-order mark at the start of a text, which would make two keys one.
 */
export interface KeyColumn {
  readonly lengths: Uint8Array;
  readonly text: Uint8Array;
}

/** Throws `ArgumentError` for a key that is not well-formed text: it has no UTF-8 of its own. */
export function encodeKeys(keys: readonly string[]): KeyColumn {
  const lengths = new Uint32Array(keys.length);
  const joined = keys.join('');
  const text = Buffer.allocUnsafe(Buffer.byteLength(joined));
  if (text.length === joined.length) {
    text.write(joined, 0, 'latin1');
    for (let i = 0; i < keys.length; i++) lengths[i] = (keys[i] as string).length;
  } else {
    let at = 0;
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i] as string;
      if (!key.isWellFormed()) throw new ArgumentError(`a key must be well-formed text, got ${JSON.stringify(key)}`);
      const written = text.write(key, at, 'utf8');
      lengths[i] = written;
      at += written;
    }
  }
  return { lengths: new Uint8Array(lengths.buffer), text };
}

/**
 * The keys of a request. `owned`: strings that stand alone and may be kept; else they may share memory with the whole
 * request's text, which is cheaper but only good for looking something up. Throws {@link ProtocolError}.
 */
export function decodeKeys(column: KeyColumn, owned: boolean): string[] {
  const lengths = checkedLengths(column);
  const text = Buffer.from(column.text.buffer, column.text.byteOffset, column.text.byteLength);
  const keys = new Array<string>(lengths.length);
  let at = 0;
  if (isAscii(text)) {
    const all = owned ? '' : text.toString('latin1', 0, text.length);
    for (let i = 0; i < keys.length; i++) {
      const end = at + (lengths[i] as number);
      keys[i] = owned ? text.toString('latin1', at, end) : all.slice(at, end);
      at = end;
    }
    return keys;
  }
  if (!isUtf8(text)) throw new ProtocolError('keys: not UTF-8');
  for (let i = 0; i < keys.length; i++) {
    const end = at + (lengths[i] as number);
    if (isContinuation(text[at]) || isContinuation(text[end])) throw new ProtocolError('keys: cut within a character');
    keys[i] = text.toString('utf8', at, end);
    at = end;
  }
  return keys;
}

function checkedLengths({ lengths, text }: KeyColumn): Uint32Array {
  const count = lengths.length / 4;
  if (!Number.isInteger(count) || count > DIRECTORY_REQUEST_MAX_KEYS) throw new ProtocolError(`keys: ${count} of them`);
  if (text.length > DIRECTORY_REQUEST_MAX_KEY_BYTES) throw new ProtocolError(`keys: ${text.length} bytes`);
  // A copy for the alignment; `slice` of a Buffer would be a view.
  const aligned = new Uint32Array(new Uint8Array(lengths).buffer);
  let sum = 0;
  for (let i = 0; i < count; i++) {
    const length = aligned[i] as number;
    if (length > DIRECTORY_KEY_MAX_BYTES) throw new ProtocolError(`keys: one of ${length} bytes`);
    sum += length;
  }
  if (sum !== text.length) throw new ProtocolError(`keys: ${sum} bytes announced, ${text.length} there`);
  return aligned;
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
