import { ProtocolError } from '../../base/errors.js';
import { encodeHeader, type FrameHeader } from './messages.js';

/**
 * Flag of a request whose body begins with the time at which the request was made, in microseconds of the host's
 * monotonic clock.
 */
export const FLAG_ASKED = 1;
/** Bytes of the time in front of a body, which do not count as bytes of the body. */
export const ASKED_BYTES = 8;

/** A request without the time in front of its body. */
export interface AskedRequest {
  readonly body: Buffer;
  /** When the request was made, in milliseconds; undefined if the client does not state it. */
  readonly askedMs: number | undefined;
}

/** Encodes the header of a request, and the time at which it was made if that is given. */
export function encodeRequestHead(header: Omit<FrameHeader, 'status'>, askedMs: number | undefined): Buffer {
  if (askedMs === undefined) return encodeHeader({ ...header, status: 0 });
  const head = encodeHeader({ ...header, bodyBytes: header.bodyBytes + ASKED_BYTES, status: FLAG_ASKED });
  return Buffer.concat([head, encodeInstant(askedMs)]);
}

/** Removes the time from the body of a request. Throws {@link ProtocolError}. */
export function askedRequest({ status }: FrameHeader, body: Buffer): AskedRequest {
  if ((status & FLAG_ASKED) === 0) return { body, askedMs: undefined };
  if (body.length < ASKED_BYTES) throw new ProtocolError(`a request of ${body.length} bytes without its instant`);
  return { body: body.subarray(ASKED_BYTES), askedMs: decodeInstant(body) };
}

/** Encodes a time in milliseconds as microseconds, rounded down. */
export function encodeInstant(instantMs: number): Buffer {
  const bytes = Buffer.allocUnsafe(ASKED_BYTES);
  bytes.writeBigUInt64LE(BigInt(Math.floor(1000 * instantMs)));
  return bytes;
}

/** Decodes the time at the start of the bytes, in milliseconds. */
export function decodeInstant(bytes: Buffer): number {
  // Without a bigint, which each request would allocate. Exact up to 2^53 microseconds.
  return (bytes.readUInt32LE(4) * 2 ** 32 + bytes.readUInt32LE()) / 1000;
}

/**
 * Whether two processes read the same clock: the other one's reading lies between the readings that this process took
 * before it asked and after the answer. Clocks of different time namespaces count as the same if they differ by less.
 */
export function isSameClock(otherMs: number, { beforeMs, afterMs }: { beforeMs: number; afterMs: number }): boolean {
  return otherMs >= beforeMs - INSTANT_STEP_MS && otherMs <= afterMs + INSTANT_STEP_MS;
}

/** Resolution to which both sides round times. */
const INSTANT_STEP_MS = 0.001;
