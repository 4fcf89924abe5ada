import { ProtocolError } from '../../base/errors.js';
import { encodeHeader, type FrameHeader } from './messages.js';

/**
 * Flag of a request: its body begins with the instant at which it was asked, in microseconds of the host's monotonic
 * clock.
 */
export const FLAG_ASKED = 1;
/** Bytes of that instant, which do not count as bytes of the body. */
export const ASKED_BYTES = 8;

/** A request without the instant in front of it. */
export interface AskedRequest {
  readonly body: Buffer;
  /** When it was asked, in milliseconds; undefined: the client does not say it. */
  readonly askedMs: number | undefined;
}

/** The header of a request, with the instant at which it was asked if there is one. */
export function encodeRequestHead(header: Omit<FrameHeader, 'status'>, askedMs: number | undefined): Buffer {
  if (askedMs === undefined) return encodeHeader({ ...header, status: 0 });
  const head = encodeHeader({ ...header, bodyBytes: header.bodyBytes + ASKED_BYTES, status: FLAG_ASKED });
  return Buffer.concat([head, encodeInstant(askedMs)]);
}

/** Takes the instant off the body of a request. Throws {@link ProtocolError}. */
export function askedRequest({ status }: FrameHeader, body: Buffer): AskedRequest {
  if ((status & FLAG_ASKED) === 0) return { body, askedMs: undefined };
  if (body.length < ASKED_BYTES) throw new ProtocolError(`a request of ${body.length} bytes without its instant`);
  return { body: body.subarray(ASKED_BYTES), askedMs: decodeInstant(body) };
}

/** An instant in milliseconds, as it is sent: microseconds, rounded down. */
export function encodeInstant(instantMs: number): Buffer {
  const bytes = Buffer.allocUnsafe(ASKED_BYTES);
  bytes.writeBigUInt64LE(BigInt(Math.floor(1000 * instantMs)));
  return bytes;
}

/** The instant at the start of the bytes, in milliseconds. */
export function decodeInstant(bytes: Buffer): number {
  return Number(bytes.readBigUInt64LE()) / 1000;
}

/**
 * Whether two processes read the same clock: what the other one has read lies between what this one has read before it
 * asked and afterwards. Clocks of different time namespaces that are less than that apart count as the same.
 */
export function isSameClock(otherMs: number, { beforeMs, afterMs }: { beforeMs: number; afterMs: number }): boolean {
  return otherMs >= beforeMs - INSTANT_STEP_MS && otherMs <= afterMs + INSTANT_STEP_MS;
}

/** Instants are rounded to this, by either side. */
const INSTANT_STEP_MS = 0.001;
