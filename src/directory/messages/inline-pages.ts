import { ProtocolError } from '../../base/errors.js';
import { INLINE_ANSWER_MAX_BYTES } from '../../base/limits.js';
import type { LocationColumns } from './location-columns.js';
import { type Fields, readBytes, readFlags } from './wire.js';

/**
 * Bytes of small pages that came with their locations, because the node that was asked has them itself. They are copies
 * that belong to this object, and have not been checked.
 */
export class InlinePages {
  /** For each row the place of its bytes; -1: none came. */
  readonly #starts: Int32Array;
  readonly #lengths: LocationColumns['length'];
  readonly #bytes: Uint8Array;

  private constructor(starts: Int32Array, { length }: LocationColumns, bytes: Uint8Array) {
    [this.#starts, this.#lengths, this.#bytes] = [starts, length, bytes];
  }

  /** Reads the pages that came with these locations; undefined: none. Throws `ProtocolError`. */
  static read(fields: Fields, columns: LocationColumns): InlinePages | undefined {
    if (fields.inline === undefined) return undefined;
    const isInline = readFlags(fields, 'inline', columns.count);
    const bytes = readBytes(fields, 'inline_bytes');
    if (bytes.length > INLINE_ANSWER_MAX_BYTES) throw new ProtocolError(`inline_bytes: ${bytes.length} bytes`);
    const starts = new Int32Array(columns.count).fill(-1);
    let at = 0;
    for (let row = 0; row < columns.count; row++) {
      if (isInline[row] !== 1) continue;
      if (!columns.has(row)) throw new ProtocolError('inline: a page without a location');
      starts[row] = at;
      at += columns.length[row] as number;
    }
    if (at !== bytes.length) throw new ProtocolError(`inline_bytes: ${bytes.length} bytes for pages of ${at}`);
    return new InlinePages(starts, columns, Uint8Array.from(bytes));
  }

  /** The bytes of the page of a row; undefined: they did not come. */
  bytesOf(row: number): Uint8Array | undefined {
    const start = this.#starts[row] as number;
    return start < 0 ? undefined : this.#bytes.subarray(start, start + (this.#lengths[row] as number));
  }
}

/** The bytes of a page that this node has at a location; undefined: it is not there any more, or longer than `maxBytes`. */
export type PageBytesAt = (
  key: string,
  columns: LocationColumns,
  row: number,
  maxBytes: number,
) => readonly Uint8Array[] | undefined;

/** The fields of an answer that carry pages of the answering node, as many as fit into `room` bytes. */
export function inlineFields(
  keys: readonly string[],
  columns: LocationColumns,
  { room, bytesAt }: { readonly room: number; readonly bytesAt: PageBytesAt },
): Fields {
  const flags = new Uint8Array(columns.count);
  const parts: Uint8Array[] = [];
  let left = Math.min(room, INLINE_ANSWER_MAX_BYTES);
  for (let row = 0; row < columns.count && left > 0; row++) {
    if (!columns.has(row)) continue;
    const views = bytesAt(keys[row] as string, columns, row, left);
    if (views === undefined) continue;
    flags[row] = 1;
    parts.push(...views);
    left -= columns.length[row] as number;
  }
  if (parts.length === 0) return {};
  // A copy: the pages may go before the answer is sent.
  return { inline: flags, inline_bytes: Buffer.concat(parts) };
}
