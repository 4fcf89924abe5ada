import { ProtocolError } from '../../base/errors.js';
import { CLIENT_SMALL_BODY_BYTES, CLIENT_STEP_BYTES } from '../../base/limits.js';
import type { PlacedPage } from '../../store/found-pages.js';
import { BodyReader, BodyWriter } from './body.js';
import type { Received } from './messages.js';
import { readFlags, type ToldFlags, writeFlags } from './request-flags.js';

/** Stands in place of the length of a page that is a miss. */
export const LENGTH_MISS = 0xffffffff;
/** Stands in place of the length of a page that has no room in the answer. */
export const LENGTH_NO_ROOM = 0xfffffffe;

/** Fixed cost of one page in an answer, as the number of bytes that could be copied in the same time. */
const ANSWER_PAGE_BYTES = 256;

/** One element for each key of a GET_BYTES: the page, or the reason why there is none. */
export type BytesResult = Uint8Array | typeof LENGTH_MISS | typeof LENGTH_NO_ROOM;

/** The body of an answer, in one piece or several. */
export type AnswerBody = Buffer | readonly Uint8Array[];

/**
 * Encodes the answer to GET_BYTES step by step, as a list of pieces. A large page is a piece of its own and is not
 * copied; small pages are copied together.
 */
export function* encodeBytesAnswer(results: readonly BytesResult[]): Generator<void, readonly Uint8Array[]> {
  const head = new BodyWriter(4 * results.length);
  for (const result of results) head.u32(typeof result === 'number' ? result : result.length);
  const pieces: Uint8Array[] = [head.done()];
  let small: Uint8Array[] = [];
  let smallBytes = 0;
  const endSmall = (): void => {
    if (small.length > 0) pieces.push(Buffer.concat(small));
    small = [];
    smallBytes = 0;
  };
  for (const page of results) {
    if (typeof page === 'number') continue;
    if (page.length > CLIENT_SMALL_BODY_BYTES) {
      endSmall();
      pieces.push(page);
      continue;
    }
    small.push(page);
    smallBytes += page.length + ANSWER_PAGE_BYTES;
    if (smallBytes < CLIENT_STEP_BYTES) continue;
    endSmall();
    yield;
  }
  endSmall();
  return pieces;
}

/** Decodes the answer to GET_BYTES; the pages are views of the body. */
export function decodeBytesAnswer(body: Buffer, keyCount: number): BytesResult[] {
  const reader = new BodyReader(body);
  const lengths = Array.from({ length: keyCount }, () => reader.u32());
  const results = lengths.map(
    (length): BytesResult => (length === LENGTH_MISS || length === LENGTH_NO_ROOM ? length : reader.bytes(length)),
  );
  reader.end();
  return results;
}

/** Values of an offset in the answer to GET_STAGED that mean there is no page. */
const OFFSET_MISS = 0xffffffff;
const OFFSET_NO_ROOM = 0xfffffffe;

/** Body of GET_STAGED. */
export interface StagedRequest extends ToldFlags {
  readonly pool: string;
  /** Offset in the staging memory at which the pages may begin. */
  readonly offset: number;
  /** Bytes that the pages may take. */
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

/** Encodes the answer to GET_STAGED; null stands for a miss. */
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
