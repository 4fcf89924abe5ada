/**
 * The bytes of the TCP data plane; `../PROTOCOL.md` draws them. All numbers are little-endian.
 *
 * Decoders never throw: what is not of the protocol is undefined, and the connection ends.
 */
import { READ_REQUEST_MAX_OPS } from '../../base/limits.js';

/** "MCTP", "MCRQ", "MCRS" as they stand in the stream. */
const HELLO_MAGIC = 0x5054434d;
const REQUEST_MAGIC = 0x5152434d;
const RESPONSE_MAGIC = 0x5352434d;
const PROTOCOL_VERSION = 1;
const TWO_TO_32 = 2 ** 32;

export const HELLO_BYTES = 32;
export const REQUEST_HEADER_BYTES = 24;
export const OP_BYTES = 16;
export const RESPONSE_HEADER_BYTES = 24 + READ_REQUEST_MAX_OPS / 8;
const GRANTS_AT = 24;

/** The first bytes of either side. */
export function encodeHello(): Buffer {
  const bytes = Buffer.alloc(HELLO_BYTES);
  bytes.writeUInt32LE(HELLO_MAGIC, 0);
  bytes.writeUInt16LE(PROTOCOL_VERSION, 4);
  return bytes;
}

/** Whether a hello is one that this version can talk to: flags that it does not know are a refusal. */
export function isGoodHello(bytes: Buffer, at: number): boolean {
  return (
    bytes.readUInt32LE(at) === HELLO_MAGIC &&
    bytes.readUInt16LE(at + 4) === PROTOCOL_VERSION &&
    bytes.readUInt16LE(at + 6) === 0
  );
}

export interface RequestHeader {
  readonly requestId: number;
  readonly opCount: number;
  /** Sum of the lengths of all operations, in bytes. */
  readonly totalBytes: number;
}

/** Space for a request of `opCount` operations with its header written; {@link encodeOp} writes the rest. */
export function encodeRequestHeader({ requestId, opCount, totalBytes }: RequestHeader): Buffer {
  const bytes = Buffer.allocUnsafe(REQUEST_HEADER_BYTES + opCount * OP_BYTES);
  bytes.writeUInt32LE(REQUEST_MAGIC, 0);
  bytes.writeUInt32LE(requestId, 4);
  bytes.writeUInt32LE(opCount, 8);
  bytes.writeUInt32LE(0, 12);
  writeU64(bytes, 16, totalBytes);
  return bytes;
}

/** The header at `at`; undefined when it is none, or more than `maxOps` and `maxBytes` allow. */
export function decodeRequestHeader(
  bytes: Buffer,
  at: number,
  { maxOps, maxBytes }: { readonly maxOps: number; readonly maxBytes: number },
): RequestHeader | undefined {
  if (bytes.readUInt32LE(at) !== REQUEST_MAGIC || bytes.readUInt32LE(at + 12) !== 0) return undefined;
  const opCount = bytes.readUInt32LE(at + 8);
  const totalBytes = readU64(bytes, at + 16);
  if (opCount < 1 || opCount > maxOps || totalBytes > maxBytes) return undefined;
  return { requestId: bytes.readUInt32LE(at + 4), opCount, totalBytes };
}

/** Writes one operation of a request at `at`. `addr` must be below 2^53. */
export function encodeOp(bytes: Buffer, at: number, rkey: number, length: number, addr: number): void {
  bytes.writeUInt32LE(rkey, at);
  bytes.writeUInt32LE(length, at + 4);
  writeU64(bytes, at + 8, addr);
}

export function opRkey(bytes: Buffer, at: number): number {
  return bytes.readUInt32LE(at);
}

export function opLength(bytes: Buffer, at: number): number {
  return bytes.readUInt32LE(at + 4);
}

/** An address of 2^53 and more comes out inexact, and still as one that no region has. */
export function opAddr(bytes: Buffer, at: number): number {
  return readU64(bytes, at + 8);
}

export interface ResponseHeader {
  readonly requestId: number;
  readonly opCount: number;
  /** Sum of the lengths of the granted operations: what follows the header, in bytes. */
  readonly payloadBytes: number;
}

/** A response header that grants nothing yet; see {@link grantOp} and {@link setPayloadBytes}. */
export function encodeResponseHeader(requestId: number, opCount: number): Buffer {
  const bytes = Buffer.alloc(RESPONSE_HEADER_BYTES);
  bytes.writeUInt32LE(RESPONSE_MAGIC, 0);
  bytes.writeUInt32LE(requestId, 4);
  bytes.writeUInt32LE(opCount, 8);
  return bytes;
}

export function setPayloadBytes(header: Buffer, payloadBytes: number): void {
  writeU64(header, 16, payloadBytes);
}

export function decodeResponseHeader(bytes: Buffer): ResponseHeader | undefined {
  if (bytes.readUInt32LE(0) !== RESPONSE_MAGIC || bytes.readUInt32LE(12) !== 0) return undefined;
  return {
    requestId: bytes.readUInt32LE(4),
    opCount: bytes.readUInt32LE(8),
    payloadBytes: readU64(bytes, 16),
  };
}

export function grantOp(header: Buffer, opIndex: number): void {
  const at = GRANTS_AT + (opIndex >>> 3);
  header[at] = (header[at] as number) | (1 << (opIndex & 7));
}

export function isGranted(header: Buffer, opIndex: number): boolean {
  return ((header[GRANTS_AT + (opIndex >>> 3)] as number) & (1 << (opIndex & 7))) !== 0;
}

function writeU64(bytes: Buffer, at: number, value: number): void {
  bytes.writeUInt32LE(value % TWO_TO_32, at);
  bytes.writeUInt32LE(Math.floor(value / TWO_TO_32), at + 4);
}

function readU64(bytes: Buffer, at: number): number {
  return bytes.readUInt32LE(at + 4) * TWO_TO_32 + bytes.readUInt32LE(at);
}
