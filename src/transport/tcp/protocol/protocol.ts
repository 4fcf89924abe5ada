import { type Endpoint, formatEndpoint } from '../../../base/environment/network.js';
import { ProtocolError } from '../../../base/errors.js';
import { READ_REQUEST_MAX_OPS } from '../../../base/limits.js';
import { TAG_BYTES } from '../../../memory/frame-tags.js';
import { FLAG_AUTHENTICATION } from '../../../net/auth.js';
import type { HelloFormat } from '../../../net/opening.js';

/**
 * The wire format of the TCP data plane; `src/transport/PROTOCOL.md` draws it. All numbers are little-endian.
 *
 * Decoders of requests and responses never throw. They return undefined for malformed bytes, and the connection ends.
 */

/** Magic numbers: the bytes "MCTP", "MCRQ" and "MCRS" on the wire. */
const HELLO_MAGIC = 0x5054434d;
const REQUEST_MAGIC = 0x5152434d;
const RESPONSE_MAGIC = 0x5352434d;
const PROTOCOL_VERSION = 1;
const TWO_TO_32 = 2 ** 32;

export const HELLO_BYTES = 32;
/** Length of magic and version, which are the same in every hello. */
const HELLO_FIXED_BYTES = 6;
const HELLO_FLAGS_AT = 6;
export const REQUEST_HEADER_BYTES = 24;
export const OP_BYTES = 16;
export const RESPONSE_HEADER_BYTES = 24 + READ_REQUEST_MAX_OPS / 8;
const GRANTS_AT = 24;
/**
 * Number of the part of a frame that is its header or a whole request. The operations of a response are parts from
 * {@link opPart} on. Each part has its own tag.
 */
export const HEADER_PART = 0;

/** The target that a data connection names when it authenticates: the node at this advertised address. */
export function dataTarget(endpoint: Endpoint): string {
  return `data ${formatEndpoint(endpoint)}`;
}

/** Encodes the first bytes of either side. A challenge follows if they ask for `authentication`. */
export function encodeHello({ authentication = false } = {}): Buffer {
  const bytes = Buffer.alloc(HELLO_BYTES);
  bytes.writeUInt32LE(HELLO_MAGIC, 0);
  bytes.writeUInt16LE(PROTOCOL_VERSION, 4);
  bytes.writeUInt16LE(authentication ? FLAG_AUTHENTICATION : 0, HELLO_FLAGS_AT);
  return bytes;
}

/** The hello of a data connection. */
export const DATA_HELLO: HelloFormat = {
  plane: 'data',
  bytes: HELLO_BYTES,
  encode: encodeHello,
  wantsAuthentication(start) {
    if (!mayBecomeHello(start)) throw new ProtocolError('it does not speak this protocol, or another version of it');
    const flags = start[HELLO_FLAGS_AT];
    return flags === undefined ? undefined : (flags & FLAG_AUTHENTICATION) !== 0;
  },
};

/** Whether a hello of this version can begin with `bytes`. A hello with an unknown flag is refused. */
function mayBecomeHello(bytes: Buffer): boolean {
  const start = encodeHello().subarray(0, Math.min(HELLO_FIXED_BYTES, bytes.length));
  if (start.compare(bytes, 0, start.length) !== 0) return false;
  const [low = 0, high = 0] = bytes.subarray(HELLO_FLAGS_AT, HELLO_FLAGS_AT + 2);
  return (low & ~FLAG_AUTHENTICATION) === 0 && high === 0;
}

export interface RequestHeader {
  readonly requestId: number;
  readonly opCount: number;
  /** Sum of the lengths of all operations, in bytes. */
  readonly totalBytes: number;
}

/** The operations of a request, by number. */
export interface RequestOps {
  rkeyOf(op: number): number;
  /** Bytes. */
  lengthOf(op: number): number;
  /** Below 2^53. */
  addrOf(op: number): number;
}

/** Encodes a whole request and leaves room for `tagBytes` at its end. */
export function encodeRequest(
  { requestId, opCount, totalBytes }: RequestHeader,
  ops: RequestOps,
  tagBytes: number,
): Buffer {
  const bytes = Buffer.allocUnsafe(REQUEST_HEADER_BYTES + opCount * OP_BYTES + tagBytes);
  const view = viewOf(bytes);
  view.setUint32(0, REQUEST_MAGIC, true);
  view.setUint32(4, requestId, true);
  view.setUint32(8, opCount, true);
  view.setUint32(12, 0, true);
  writeU64(view, 16, totalBytes);
  for (let i = 0, at = REQUEST_HEADER_BYTES; i < opCount; i++, at += OP_BYTES) {
    view.setUint32(at, ops.rkeyOf(i), true);
    view.setUint32(at + 4, ops.lengthOf(i), true);
    writeU64(view, at + 8, ops.addrOf(i));
  }
  return bytes;
}

/** Decodes the header at `at`; undefined if it is malformed or exceeds `maxOps` or `maxBytes`. */
export function decodeRequestHeader(
  bytes: Buffer,
  at: number,
  { maxOps, maxBytes }: { readonly maxOps: number; readonly maxBytes: number },
): RequestHeader | undefined {
  if (bytes.readUInt32LE(at) !== REQUEST_MAGIC || bytes.readUInt32LE(at + 12) !== 0) return undefined;
  const opCount = bytes.readUInt32LE(at + 8);
  const totalBytes = bytes.readUInt32LE(at + 20) * TWO_TO_32 + bytes.readUInt32LE(at + 16);
  if (opCount < 1 || opCount > maxOps || totalBytes > maxBytes) return undefined;
  return { requestId: bytes.readUInt32LE(at + 4), opCount, totalBytes };
}

/** The rkey of an operation of a request; `view` begins at the first operation. */
export function opRkey(view: DataView, op: number): number {
  return view.getUint32(op * OP_BYTES, true);
}

/** The length of an operation in bytes; see {@link opRkey}. */
export function opLength(view: DataView, op: number): number {
  return view.getUint32(op * OP_BYTES + 4, true);
}

/**
 * The address of an operation; see {@link opRkey}. An address of 2^53 or more is inexact, which does no harm because no
 * region is there.
 */
export function opAddr(view: DataView, op: number): number {
  return readU64(view, op * OP_BYTES + 8);
}

export interface ResponseHeader {
  readonly requestId: number;
  readonly opCount: number;
  /** Payload after the header in bytes: the sum of the lengths of the granted operations. */
  readonly payloadBytes: number;
}

/**
 * Encodes a response header that grants nothing yet, with room for tags if the response has them; see {@link grantOp}
 * and {@link setPayloadBytes}.
 */
export function encodeResponseHeader(
  requestId: number,
  opCount: number,
  { isTagged }: { readonly isTagged: boolean },
): Buffer {
  const bytes = Buffer.alloc(isTagged ? taggedHeaderBytes(opCount) : RESPONSE_HEADER_BYTES);
  bytes.writeUInt32LE(RESPONSE_MAGIC, 0);
  bytes.writeUInt32LE(requestId, 4);
  bytes.writeUInt32LE(opCount, 8);
  return bytes;
}

/** Returns the part number of an operation's payload in a response. */
export function opPart(opIndex: number): number {
  return opIndex + 1;
}

/**
 * Bytes before the payload of a tagged response: the header, a tag for each operation, and the tag over all of that.
 */
export function taggedHeaderBytes(opCount: number): number {
  return RESPONSE_HEADER_BYTES + (opCount + 1) * TAG_BYTES;
}

/** Offset of the tag of an operation's payload in the tagged header of a response. */
export function opTagAt(opIndex: number): number {
  return RESPONSE_HEADER_BYTES + opIndex * TAG_BYTES;
}

/** The tag of an operation's payload in the tagged header of a response. */
export function opTag(header: Buffer, opIndex: number): Buffer {
  const at = opTagAt(opIndex);
  return header.subarray(at, at + TAG_BYTES);
}

export function setPayloadBytes(header: Buffer, payloadBytes: number): void {
  header.writeUInt32LE(payloadBytes % TWO_TO_32, 16);
  header.writeUInt32LE(Math.floor(payloadBytes / TWO_TO_32), 20);
}

export function decodeResponseHeader(bytes: Buffer): ResponseHeader | undefined {
  const view = viewOf(bytes);
  if (view.getUint32(0, true) !== RESPONSE_MAGIC || view.getUint32(12, true) !== 0) return undefined;
  return {
    requestId: view.getUint32(4, true),
    opCount: view.getUint32(8, true),
    payloadBytes: readU64(view, 16),
  };
}

export function grantOp(header: Buffer, opIndex: number): void {
  const at = GRANTS_AT + (opIndex >>> 3);
  header[at] = (header[at] as number) | (1 << (opIndex & 7));
}

export function isGranted(header: Buffer, opIndex: number): boolean {
  return ((header[GRANTS_AT + (opIndex >>> 3)] as number) & (1 << (opIndex & 7))) !== 0;
}

function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

function writeU64(view: DataView, at: number, value: number): void {
  view.setUint32(at, value % TWO_TO_32, true);
  view.setUint32(at + 4, Math.floor(value / TWO_TO_32), true);
}

function readU64(view: DataView, at: number): number {
  return view.getUint32(at + 4, true) * TWO_TO_32 + view.getUint32(at, true);
}
