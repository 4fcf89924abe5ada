import { FRAME_HEADER_BYTES, type FrameType, writeFrameHeader } from '../../src/rpc/frame.js';
import { MessageCodec } from '../../src/rpc/message.js';

const codec = new MessageCodec();

/** A whole frame. */
export function rpcFrame(type: FrameType, requestId: number, message: unknown): Buffer {
  const bytes = codec.encode(message, FRAME_HEADER_BYTES);
  writeFrameHeader(bytes, type, requestId);
  return Buffer.from(bytes);
}

export interface PlainFrame {
  readonly type: number;
  readonly requestId: number;
  readonly message: Buffer;
}

/** The whole frames of a stream behind its 12 bytes of hello, and how many bytes are left over. */
export function framesIn(stream: Buffer): { readonly frames: PlainFrame[]; readonly restBytes: number } {
  const frames: PlainFrame[] = [];
  let at = 12;
  while (stream.length - at >= 9) {
    const length = stream.readUInt32LE(at);
    if (stream.length - at < 9 + length) break;
    const message = stream.subarray(at + 9, at + 9 + length);
    frames.push({ type: stream[at + 8] as number, requestId: stream.readUInt32LE(at + 4), message });
    at += 9 + length;
  }
  return { frames, restBytes: Math.max(0, stream.length - at) };
}
