import { ProtocolError } from '../../base/errors.js';
import { CLIENT_POOLS_MAX_COUNT } from '../../base/limits.js';
import type { KeyNamespace } from '../../core/index.js';
import { BodyReader, BodyWriter, u64At, viewOf } from './body.js';
import type { BodyPages } from './body-pages.js';
import type { BodyTexts } from './body-texts.js';
import { isOfSet, NO_FLAGS, type RequestFlags, readFlags, type ToldFlags, writeFlags } from './request-flags.js';

export { decodeExists, type ExistsRequest, encodeExists } from './lookup-messages.js';
export {
  type AnswerBody,
  type BytesResult,
  decodeBytesAnswer,
  encodeBytesAnswer,
  LENGTH_MISS,
  LENGTH_NO_ROOM,
} from './page-messages.js';
export type { RequestFlags, ToldFlags } from './request-flags.js';

/*
 * The messages of the client socket; PROTOCOL.md beside this file describes them byte by byte. This file has both
 * sides: the node decodes requests and encodes answers, and the TypeScript client does the opposite.
 */

export const CLIENT_PROTOCOL_VERSION = 1;
export const FRAME_HEADER_BYTES = 16;
export const HELLO_MAGIC = 0x4348434d; // "MCHC"
export const DESCRIPTOR_MAGIC = 0x4446434d; // "MCFD"
export const DESCRIPTOR_VERSION = 1;
export const DESCRIPTOR_RECORD_BYTES = 48;
export const DESCRIPTOR_ANSWER_BYTES = 16;
export const TOKEN_BYTES = 16;
/** Appended to the path of the client socket, gives the path of the descriptor socket. */
export const DESCRIPTOR_SOCKET_SUFFIX = '.fds';
/** The region id of staging memory. */
export const STAGING_REGION = 0;

export const RequestType = {
  hello: 1,
  file: 2,
  unregion: 3,
  exists: 4,
  get: 5,
  set: 6,
  getBytes: 7,
  setBytes: 8,
  fence: 9,
  cancel: 10,
  delete: 11,
  clear: 12,
  stats: 13,
  ping: 14,
  stat: 15,
  pin: 16,
  unpin: 17,
  events: 18,
  fingerprint: 19,
  lookups: 20,
  getStaged: 21,
  tell: 22,
  prefetch: 23,
  endPins: 24,
} as const;
export type RequestType = (typeof RequestType)[keyof typeof RequestType];

export const Status = {
  ok: 0,
  badRequest: 1,
  noRegion: 2,
  regionGone: 3,
  tooMuch: 4,
  closing: 5,
  refused: 6,
  unavailable: 7,
  failed: 8,
  absent: 9,
  tooLate: 10,
  denied: 11,
} as const;
export type Status = (typeof Status)[keyof typeof Status];

/** Capability bits: the features that a node offers to a client. */
export const Capability = {
  descriptors: 1,
  staging: 2,
  files: 4,
  hints: 8,
  expiry: 16,
  pins: 32,
  events: 64,
  priority: 128,
  fingerprints: 256,
  lookups: 512,
  stagedReads: 1024,
  instants: 2048,
  sessions: 4096,
} as const;

export interface FrameHeader {
  readonly bodyBytes: number;
  readonly type: number;
  readonly status: number;
  readonly requestId: number;
  /** Milliseconds; 0 selects the default. */
  readonly deadlineMs: number;
}

export function decodeHeader(bytes: Buffer): FrameHeader {
  return {
    bodyBytes: bytes.readUInt32LE(0),
    type: bytes.readUInt16LE(4),
    status: bytes.readUInt16LE(6),
    requestId: bytes.readUInt32LE(8),
    deadlineMs: bytes.readUInt32LE(12),
  };
}

export function encodeHeader({ bodyBytes, type, status, requestId, deadlineMs }: FrameHeader): Buffer {
  return writeHeader({ bodyBytes, type, status, requestId, deadlineMs }, Buffer.allocUnsafe(FRAME_HEADER_BYTES));
}

/** Writes a header to the start of `bytes`, and returns them. */
function writeHeader({ bodyBytes, type, status, requestId, deadlineMs }: FrameHeader, bytes: Buffer): Buffer {
  bytes.writeUInt32LE(bodyBytes, 0);
  bytes.writeUInt16LE(type, 4);
  bytes.writeUInt16LE(status, 6);
  bytes.writeUInt32LE(requestId, 8);
  bytes.writeUInt32LE(deadlineMs, 12);
  return bytes;
}

/** Encodes a frame with a small body, as one piece. */
export function encodeFrame(header: FrameHeader, pieces: readonly Uint8Array[]): Buffer {
  const bytes = writeHeader(header, Buffer.allocUnsafe(FRAME_HEADER_BYTES + header.bodyBytes));
  let at = FRAME_HEADER_BYTES;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

export interface HelloRequest {
  readonly minVersion: number;
  readonly maxVersion: number;
  readonly name: string;
  readonly pid: number;
  /** Namespace of the client; undefined selects the one of the node's own configuration. */
  readonly namespace?: KeyNamespace | undefined;
  /** Whether the client accepts fingerprint notices while it is attached. */
  readonly isTold?: boolean;
  /** Whether the client asks for the node's clock reading, to compare clocks. */
  readonly comparesClocks?: boolean;
  /** The token that identifies the client's user. */
  readonly token?: string | undefined;
}

const FLAG_NAMESPACE = 1;
const FLAG_FINGERPRINT = 2;
const FLAG_TOLD = 4;
const FLAG_CLOCKS = 8;
const FLAG_TOKEN = 16;

export function encodeHello(hello: HelloRequest): Buffer {
  const { minVersion, maxVersion, name, pid, namespace, isTold = false, comparesClocks = false, token } = hello;
  const writer = new BodyWriter().u32(HELLO_MAGIC).u16(minVersion).u16(maxVersion);
  writer
    .u32(
      (namespace === undefined ? 0 : FLAG_NAMESPACE | (namespace.fingerprint ? FLAG_FINGERPRINT : 0)) |
        (isTold ? FLAG_TOLD : 0) |
        (comparesClocks ? FLAG_CLOCKS : 0) |
        (token === undefined ? 0 : FLAG_TOKEN),
    )
    .text16(name)
    .u32(pid);
  if (namespace !== undefined) {
    const { modelName, dtype, layout, tag, fingerprint, tpRank, tpSize, ppRank, ppSize, isMlaModel } = namespace;
    writer.opt16(modelName).opt16(dtype).opt16(layout).opt16(tag);
    writer
      .u32(tpRank)
      .u32(tpSize)
      .u32(ppRank)
      .u32(ppSize)
      .u8(isMlaModel ? 1 : 0);
    if (fingerprint) writer.text16(fingerprint);
  }
  if (token !== undefined) writer.text16(token);
  return writer.done();
}

export function decodeHello(body: Buffer): HelloRequest {
  const reader = new BodyReader(body);
  const magic = reader.u32();
  if (magic !== HELLO_MAGIC) {
    throw new ProtocolError(`HELLO begins with 0x${HELLO_MAGIC.toString(16)}, got 0x${magic.toString(16)}`);
  }
  const [minVersion, maxVersion, flags] = [reader.u16(), reader.u16(), reader.u32()];
  const name = reader.text16();
  const pid = reader.u32();
  let namespace: KeyNamespace | undefined;
  if ((flags & FLAG_NAMESPACE) !== 0) {
    const texts = { modelName: reader.opt16(), dtype: reader.opt16(), layout: reader.opt16(), tag: reader.opt16() };
    const given = Object.fromEntries(Object.entries(texts).filter(([, text]) => text !== undefined));
    const [tpRank, tpSize, ppRank, ppSize] = [reader.u32(), reader.u32(), reader.u32(), reader.u32()];
    namespace = { ...given, tpRank, tpSize, ppRank, ppSize, isMlaModel: flag(reader.u8()) };
    if ((flags & FLAG_FINGERPRINT) !== 0) namespace = { ...namespace, fingerprint: reader.text16() };
  }
  const token = (flags & FLAG_TOKEN) === 0 ? {} : { token: reader.text16() };
  reader.end();
  const [isTold, comparesClocks] = [(flags & FLAG_TOLD) !== 0, (flags & FLAG_CLOCKS) !== 0];
  return { minVersion, maxVersion, name, pid, namespace, isTold, comparesClocks, ...token };
}

/** A node's identity and limits, in the answer to HELLO. */
export interface HelloAnswer {
  readonly version: number;
  readonly capabilities: number;
  readonly bootToken: Buffer;
  readonly attachToken: Buffer;
  readonly pid: number;
  readonly requestMaxKeys: number;
  readonly bodyMaxBytes: number;
  readonly inFlightMaxCount: number;
  readonly pageMaxBytes: number;
  readonly stagingMaxBytes: number;
  readonly nodeId: string;
  readonly packageVersion: string;
  /** Reading of the node's monotonic clock, in microseconds; present only for a client that compares clocks. */
  readonly instantUs?: number | undefined;
}

export function encodeHelloAnswer(answer: HelloAnswer): Buffer {
  const writer = new BodyWriter(128)
    .u16(answer.version)
    .u16(0)
    .u32(answer.capabilities)
    .bytes(answer.bootToken)
    .bytes(answer.attachToken)
    .u32(answer.pid)
    .u32(answer.requestMaxKeys)
    .u32(answer.bodyMaxBytes)
    .u32(answer.inFlightMaxCount)
    .u64(answer.pageMaxBytes)
    .u64(answer.stagingMaxBytes)
    .text16(answer.nodeId)
    .text16(answer.packageVersion);
  return (answer.instantUs === undefined ? writer : writer.u64(answer.instantUs)).done();
}

/** Decodes the answer to HELLO. Fields that a later version adds at the end are ignored. */
export function decodeHelloAnswer(body: Buffer): HelloAnswer {
  const reader = new BodyReader(body);
  const version = reader.u16();
  reader.u16();
  return {
    version,
    capabilities: reader.u32(),
    bootToken: Buffer.from(reader.bytes(TOKEN_BYTES)),
    attachToken: Buffer.from(reader.bytes(TOKEN_BYTES)),
    pid: reader.u32(),
    requestMaxKeys: reader.u32(),
    bodyMaxBytes: reader.u32(),
    inFlightMaxCount: reader.u32(),
    pageMaxBytes: reader.u64(),
    stagingMaxBytes: reader.u64(),
    nodeId: reader.text16(),
    packageVersion: reader.text16(),
    instantUs: reader.restBytes >= 8 ? reader.u64() : undefined,
  };
}

/** A request as it was received: its keys are still in the body. */
export type Received<T> = Omit<T, 'keys'> & { readonly keys: BodyTexts };

/** Pieces of pages in regions, as columns: piece p of page i is row i * pieceCount + p. */
export interface PieceColumns {
  readonly pieceCount: number;
  readonly offsets: ArrayLike<number>;
  readonly lengths: ArrayLike<number>;
  readonly regionIds: ArrayLike<number>;
}

/** Bytes of one piece of a page in a message. */
const PIECE_BYTES = 16;

/** Body of GET and SET. */
export interface RegionRequest extends RequestFlags {
  readonly pool: string;
  readonly keys: string[];
  readonly pieces: PieceColumns;
}

export function encodeRegionRequest({ pool, keys, pieces, ...flags }: RegionRequest): Buffer {
  const writer = new BodyWriter(64 + 90 * keys.length);
  writeFlags(writer.text16(pool), flags).u8(pieces.pieceCount).keys(keys);
  for (let row = 0; row < keys.length * pieces.pieceCount; row++) {
    writer
      .u64(pieces.offsets[row] as number)
      .u32(pieces.lengths[row] as number)
      .u32(pieces.regionIds[row] as number);
  }
  return writer.done();
}

export function decodeRegionRequest(
  body: Buffer,
  { maxKeys, maxPieces }: { readonly maxKeys: number; readonly maxPieces: number },
): Received<RegionRequest> {
  const reader = new BodyReader(body);
  const pool = reader.text16();
  const flags = readFlags(reader);
  const pieceCount = reader.u8();
  if (pieceCount === 0) throw new ProtocolError('pages of no pieces; 1 to 255 are allowed');
  const keys = reader.keys(maxKeys);
  const rows = keys.count * pieceCount;
  if (rows > maxPieces) throw new ProtocolError(`${rows} pieces, allowed are ${maxPieces} a request`);
  if (reader.restBytes < rows * PIECE_BYTES) throw new ProtocolError(`${rows} pieces in ${reader.restBytes} bytes`);
  const [offsets, lengths, regionIds] = [new Float64Array(rows), new Uint32Array(rows), new Uint32Array(rows)];
  const bytes = reader.bytes(rows * PIECE_BYTES);
  reader.end();
  const view = viewOf(bytes);
  for (let row = 0, at = 0; row < rows; row++, at += PIECE_BYTES) {
    offsets[row] = u64At(view, at);
    lengths[row] = view.getUint32(at + 8, true);
    regionIds[row] = view.getUint32(at + 12, true);
  }
  return { pool, ...flags, keys, pieces: { pieceCount, offsets, lengths, regionIds } };
}

/** Encodes GET_BYTES, DELETE, STAT and UNPIN: a pool and keys. GET_BYTES has a byte of flags between them. */
export function encodeKeyRequest(
  pool: string,
  keys: readonly string[],
  { hasFlags, hint = 0, continues = false }: { hasFlags: boolean } & ToldFlags,
): Buffer {
  const writer = new BodyWriter(64 + 70 * keys.length).text16(pool);
  if (hasFlags) writeFlags(writer, { isNamed: false, hint, continues });
  return writer.keys(keys).done();
}

export function decodeKeyRequest(
  body: Buffer,
  maxKeys: number,
  { hasFlags }: { hasFlags: boolean },
): { readonly pool: string; readonly keys: BodyTexts } & Required<ToldFlags> {
  const reader = new BodyReader(body);
  const pool = reader.text16();
  const flags = hasFlags ? readFlags(reader) : NO_FLAGS;
  if (isOfSet(flags)) throw new ProtocolError('bits 0, 4, 5 and 6 of the flags of a GET_BYTES are 0');
  const { hint, continues } = flags;
  const keys = reader.keys(maxKeys);
  reader.end();
  return { pool, keys, hint, continues };
}

/** Body of SET_BYTES. */
export interface SetBytesRequest extends RequestFlags {
  readonly pool: string;
  readonly keys: string[];
  readonly pages: readonly Uint8Array[];
}

export function encodeSetBytes({ pool, keys, pages, ...flags }: SetBytesRequest): Buffer {
  const pageBytes = pages.reduce((sum, page) => sum + page.length, 0);
  const writer = new BodyWriter(64 + 80 * keys.length + pageBytes);
  writeFlags(writer.text16(pool), flags).keys(keys);
  for (const page of pages) writer.u32(page.length);
  for (const page of pages) writer.bytes(page);
  return writer.done();
}

/** A SET_BYTES as it was received: its keys and pages are still in the body. */
export type ReceivedPages = Omit<Received<SetBytesRequest>, 'pages'> & { readonly pages: BodyPages };

export function decodeSetBytes(body: Buffer, maxKeys: number): ReceivedPages {
  const reader = new BodyReader(body);
  const pool = reader.text16();
  const flags = readFlags(reader);
  const keys = reader.keys(maxKeys);
  const pages = reader.pages(keys.count);
  reader.end();
  return { pool, ...flags, keys, pages };
}

/** Body of FILE. */
export interface FileRequest {
  readonly regionId: number;
  readonly isWritable: boolean;
  readonly length: number;
  readonly pid: number;
  readonly fd: number;
}

export function encodeFile({ regionId, isWritable, length, pid, fd }: FileRequest): Buffer {
  return new BodyWriter()
    .u32(regionId)
    .u32(isWritable ? 1 : 0)
    .u64(length)
    .u32(pid)
    .u32(fd)
    .done();
}

export function decodeFile(body: Buffer): FileRequest {
  const reader = new BodyReader(body);
  const request = {
    regionId: reader.u32(),
    isWritable: flag(reader.u32()),
    length: reader.u64(),
    pid: reader.u32(),
    fd: reader.u32(),
  };
  reader.end();
  return request;
}

/** Decodes UNREGION, FENCE and CANCEL: one number. */
export function decodeNumber(body: Buffer): number {
  const reader = new BodyReader(body);
  const value = reader.u32();
  reader.end();
  return value;
}

/** Decodes CLEAR. */
export function decodePools(body: Buffer): string[] {
  const reader = new BodyReader(body);
  const count = reader.u16();
  if (count > CLIENT_POOLS_MAX_COUNT) {
    throw new ProtocolError(`a CLEAR of ${count} pools, allowed are ${CLIENT_POOLS_MAX_COUNT}`);
  }
  const pools = reader.texts16(count).all();
  reader.end();
  return pools;
}

export function encodePools(pools: readonly string[]): Buffer {
  const writer = new BodyWriter().u16(pools.length);
  for (const pool of pools) writer.text16(pool);
  return writer.done();
}

/** Message of a client to the descriptor socket. */
export interface DescriptorRequest {
  readonly kind: 'region' | 'staging';
  readonly attachToken: Buffer;
  readonly regionId: number;
  readonly isWritable: boolean;
  readonly length: number;
}

export function encodeDescriptorRequest(request: DescriptorRequest): Buffer {
  return new BodyWriter(DESCRIPTOR_RECORD_BYTES)
    .u32(DESCRIPTOR_MAGIC)
    .u16(DESCRIPTOR_VERSION)
    .u16(request.kind === 'region' ? 1 : 2)
    .bytes(request.attachToken)
    .u32(request.regionId)
    .u32(request.isWritable ? 1 : 0)
    .u64(request.length)
    .u64(0)
    .done();
}

export function decodeDescriptorRequest(record: Uint8Array): DescriptorRequest {
  const reader = new BodyReader(Buffer.from(record));
  if (reader.u32() !== DESCRIPTOR_MAGIC) throw new ProtocolError('a record that is none of descriptors');
  const version = reader.u16();
  if (version !== DESCRIPTOR_VERSION) throw new ProtocolError(`version ${version} of the socket of descriptors`);
  const kind = reader.u16();
  if (kind !== 1 && kind !== 2) throw new ProtocolError(`a record of kind ${kind}; 1 and 2 are known`);
  const attachToken = Buffer.from(reader.bytes(TOKEN_BYTES));
  const regionId = reader.u32();
  const isWritable = flag(reader.u32());
  const length = reader.u64();
  reader.u64();
  reader.end();
  return { kind: kind === 1 ? 'region' : 'staging', attachToken, regionId, isWritable, length };
}

export function encodeDescriptorAnswer(status: Status, length: number): Buffer {
  return new BodyWriter(DESCRIPTOR_ANSWER_BYTES).u32(status).u32(0).u64(length).done();
}

function flag(value: number): boolean {
  if (value > 1) throw new ProtocolError(`flags of ${value}; 0 and 1 are known`);
  return value === 1;
}
