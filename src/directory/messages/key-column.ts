import { isAscii, isUtf8 } from 'node:buffer';
import { ArgumentError, ProtocolError } from '../../base/errors.js';
import {
  DIRECTORY_KEY_MAX_BYTES,
  DIRECTORY_REQUEST_MAX_KEY_BYTES,
  DIRECTORY_REQUEST_MAX_KEYS,
} from '../../base/limits.js';
import { KeyBatch, type Keys } from '../../core/index.js';

const LENGTH_BYTES = 4;

/**
 * Keys as they travel: their UTF-8 lengths (u32 little endian each) and their text, one key behind the other.
 *
 * Keys are binary and not msgpack text for two reasons: a batch takes one conversion instead of one for each key, and
 * msgpackr's decoder drops a byte-order mark at the start of a text, which would merge two different keys.
 */
export interface KeyColumn {
  readonly lengths: Uint8Array;
  readonly text: Uint8Array;
}

/**
 * Encodes keys. Throws `ArgumentError` for a key that is not well-formed text, because such text has no UTF-8 encoding.
 */
export function encodeKeys(keys: readonly string[]): KeyColumn {
  const lengths = Buffer.allocUnsafe(LENGTH_BYTES * keys.length);
  const joined = keys.length === 1 ? (keys[0] as string) : keys.join('');
  const text = Buffer.allocUnsafe(Buffer.byteLength(joined));
  if (text.length === joined.length) {
    text.write(joined, 0, 'latin1');
    for (let i = 0; i < keys.length; i++) lengths.writeUInt32LE((keys[i] as string).length, LENGTH_BYTES * i);
  } else {
    let at = 0;
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i] as string;
      if (!key.isWellFormed()) throw new ArgumentError(`a key must be well-formed text, got ${JSON.stringify(key)}`);
      const written = text.write(key, at, 'utf8');
      lengths.writeUInt32LE(written, LENGTH_BYTES * i);
      at += written;
    }
  }
  return { lengths, text };
}

/**
 * Returns the column of a list or a batch of keys. A batch is encoded once, and its column shares its memory and must
 * not be written to. Throws `ArgumentError` as {@link encodeKeys} and the batch do.
 */
export function columnOf(keys: Keys): KeyColumn {
  if (!(keys instanceof KeyBatch)) return encodeKeys(keys);
  const { text, lengths } = keys;
  return { lengths: new Uint8Array(lengths.buffer, lengths.byteOffset, lengths.byteLength), text };
}

/**
 * The keys of a request. With `owned`, each string stands alone and may be kept. Otherwise strings may share memory
 * with the whole request's text, which is cheaper but only good for a lookup. Throws {@link ProtocolError}.
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
    if (isContinuation(text[at]) || isContinuation(text[end]))
      throw new ProtocolError('keys: a key ends within a character');
    keys[i] = text.toString('utf8', at, end);
    at = end;
  }
  return keys;
}

function checkedLengths({ lengths: bytes, text }: KeyColumn): readonly number[] {
  const count = bytes.length / LENGTH_BYTES;
  if (!Number.isInteger(count) || count > DIRECTORY_REQUEST_MAX_KEYS)
    throw new ProtocolError(`keys: got ${count}, at most ${DIRECTORY_REQUEST_MAX_KEYS} are allowed`);
  if (text.length > DIRECTORY_REQUEST_MAX_KEY_BYTES)
    throw new ProtocolError(`keys: got ${text.length} bytes, at most ${DIRECTORY_REQUEST_MAX_KEY_BYTES} are allowed`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const lengths = new Array<number>(count);
  let sum = 0;
  for (let i = 0; i < count; i++) {
    const length = view.getUint32(LENGTH_BYTES * i, true);
    if (length > DIRECTORY_KEY_MAX_BYTES)
      throw new ProtocolError(`keys: got a key of ${length} bytes, at most ${DIRECTORY_KEY_MAX_BYTES} are allowed`);
    lengths[i] = length;
    sum += length;
  }
  if (sum !== text.length)
    throw new ProtocolError(`keys: the lengths add up to ${sum} bytes, the text has ${text.length}`);
  return lengths;
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
