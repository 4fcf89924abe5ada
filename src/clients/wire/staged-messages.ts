import { ProtocolError } from '../../base/errors.js';
import type { PlacedPage } from '../../store/placed-reads.js';
import { BodyReader, BodyWriter } from './body.js';
import type { Received } from './messages.js';
import { readFlags, type ToldFlags, writeFlags } from './request-flags.js';

/** Values of an offset in the answer to GET_STAGED that mean there is no page at it. */
const OFFSET_MISS = 0xffffffff;
const OFFSET_NO_ROOM = 0xfffffffe;

/** Body of GET_STAGED. */
export interface StagedRequest extends ToldFlags {
  readonly pool: string;
  /** Where in the staging memory the pages go, and how many bytes they may take there. */
  readonly offset: number;
  readonly roomBytes: number;
  readonly keys: string[];
}

export function encodeGetStaged({ pool, offset, roomBytes, keys, ...told }: StagedRequest): Buffer {
  const writer = new BodyWriter(64 + 70 * keys.length).text16(pool);
  return writeFlags(writer, { ...told, isNamed: false })
    .u64(offset)
    .u32(roomBytes)
    .keys(keys)
    .done();
}

export function decodeGetStaged(body: Buffer, maxKeys: number): Received<StagedRequest> {
  const reader = new BodyReader(body);
  const pool = reader.text16();
  const { hint, continues, ...others } = readFlags(reader);
  if (others.isNamed || others.expiresInMs !== undefined || others.priority !== undefined) {
    throw new ProtocolError('bits 0, 4, 5 and 6 of the flags of a GET_STAGED are 0');
  }
  const [offset, roomBytes, keys] = [reader.u64(), reader.u32(), reader.keys(maxKeys)];
  reader.end();
  return { pool, hint, continues, offset, roomBytes, keys };
}

/** Encodes the answer to GET_STAGED; null: a miss. */
export function encodeStagedAnswer(pages: readonly (PlacedPage | null)[]): Buffer {
  const writer = new BodyWriter(8 * pages.length);
  for (const page of pages) {
    writer.u32(page === null ? OFFSET_MISS : (page.offset ?? OFFSET_NO_ROOM)).u32(page?.length ?? 0);
  }
  return writer.done();
}

/** Decodes the answer to GET_STAGED. */
export function decodeStagedAnswer(body: Buffer, keyCount: number): (PlacedPage | null)[] {
  const reader = new BodyReader(body);
  const pages = Array.from({ length: keyCount }, (): PlacedPage | null => {
    const [offset, length] = [reader.u32(), reader.u32()];
    if (offset === OFFSET_MISS) return null;
    return { offset: offset === OFFSET_NO_ROOM ? undefined : offset, length };
  });
  reader.end();
  return pages;
}
