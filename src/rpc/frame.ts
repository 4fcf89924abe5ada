/**
 * Frames of the control plane; PROTOCOL.md beside this file has the layout byte by byte.
 *
 *       hello  [magic "MCRP"][version u8][0 u8][flags u16][frame max bytes u32]                     12 bytes, once each way
 *              with FLAG_AUTHENTICATION: followed by the authentication messages of net/auth.ts
 *       frame  [length of the message u32][request id u32][type u8][message: msgpack][tag 16]       integers little endian
 *              the tag (memory/frame-tags.ts) only after an authentication, and not over TLS
 */

import { ProtocolError } from '../base/errors.js';
import { RPC_FRAME_MAX_BYTES } from '../base/limits.js';
import { type FrameTags, TAG_BYTES } from '../memory/frame-tags.js';
import { FLAG_AUTHENTICATION } from '../net/auth.js';
import type { HelloFormat } from '../net/opening.js';

export const HELLO_BYTES = 12;
export const FRAME_HEADER_BYTES = 9;
const MAGIC = 0x5052434d; // "MCRP"
export const RPC_VERSION = 1;

/** Kind of a frame. */
export const FrameType = {
  /** Client to server: `[method, params]`, or `[method, params, madeMs, waitMs]` with the times of the call. */
  call: 1,
  /** Server to client: the result. */
  answer: 2,
  /** Server to client: `{ code, message }`, with `given_up: true` if the call was not begun. */
  error: 3,
  /** Client to server, message nil: the caller no longer waits for the answer. */
  cancel: 4,
} as const;
export type FrameType = (typeof FrameType)[keyof typeof FrameType];

export interface Frame {
  readonly type: FrameType;
  readonly requestId: number;
  /** The msgpack message, a view of received bytes. */
  readonly message: Uint8Array;
}

/** The kinds of `meshcache_rpc_errors_total` that bytes of a peer can cause. */
export type FrameFault =
  | 'bad_hello'
  | 'bad_version'
  | 'oversized'
  | 'bad_tag'
  | 'bad_frame'
  | 'bad_message'
  | 'truncated';

/** Error for bytes of a peer that violate the protocol. */
export class FrameError extends ProtocolError {
  readonly fault: FrameFault;

  constructor(fault: FrameFault, message: string, cause?: unknown) {
    super(message, cause === undefined ? {} : { cause });
    this.fault = fault;
  }
}

/** Encodes this node's hello. */
export function encodeHello({ authentication = false } = {}): Buffer {
  const bytes = Buffer.alloc(HELLO_BYTES);
  bytes.writeUInt32LE(MAGIC, 0);
  bytes[4] = RPC_VERSION;
  bytes.writeUInt16LE(authentication ? FLAG_AUTHENTICATION : 0, 6);
  bytes.writeUInt32LE(RPC_FRAME_MAX_BYTES, 8);
  return bytes;
}

export interface Hello {
  /** Length of the longest message that the sender of the hello accepts, in bytes. */
  readonly frameMaxBytes: number;
  /** Whether a nonce follows and proofs are required. */
  readonly authentication: boolean;
}

/** Decodes a peer's hello. Throws {@link FrameError} when the two sides cannot talk. */
export function decodeHello(bytes: Buffer): Hello {
  if (bytes.readUInt32LE(0) !== MAGIC) throw new FrameError('bad_hello', 'hello: not a meshcache control connection');
  const version = bytes[4];
  if (version !== RPC_VERSION) {
    throw new FrameError('bad_version', `hello: peer speaks version ${version}, this node version ${RPC_VERSION}`);
  }
  const flags = bytes.readUInt16LE(6);
  if ((flags & ~FLAG_AUTHENTICATION) !== 0)
    throw new FrameError('bad_version', `hello: peer requires features that this node does not have (flags ${flags})`);
  return { frameMaxBytes: bytes.readUInt32LE(8), authentication: flags !== 0 };
}

/** The hello with which both sides of a control connection begin. */
export const RPC_HELLO: HelloFormat = {
  plane: 'rpc',
  bytes: HELLO_BYTES,
  encode: encodeHello,
  wantsAuthentication: (start) => (start.length < HELLO_BYTES ? undefined : decodeHello(start).authentication),
};

/** Writes the header into the first bytes of `bytes`; the message must follow them. */
export function writeFrameHeader(bytes: Buffer, type: FrameType, requestId: number): void {
  bytes.writeUInt32LE(bytes.length - FRAME_HEADER_BYTES, 0);
  bytes.writeUInt32LE(requestId, 4);
  bytes[8] = type;
}

export interface FrameSink {
  /**
   * Called with the parts before the frames: first HELLO_BYTES of hello, then as many bytes as the previous call
   * returned. If it returns 0, frames follow.
   */
  opening(bytes: Buffer): number;
  frame(frame: Frame): void;
}

/**
 * Splits a stream of bytes into the opening and the frames after it. Its memory is at most twice the bytes that have
 * arrived, whatever lengths the headers announce.
 */
export class FrameReader {
  readonly #sink: FrameSink;
  /** Length of the next part of the opening; 0 when frames follow. */
  #openingBytes = HELLO_BYTES;
  /** The tags that frames carry; undefined if they have none. */
  #tags: FrameTags | undefined;
  #stopped = false;
  /** Bytes of an incomplete unit (a part of the opening, or a frame): `#held` bytes of `#hold` are filled. */
  #hold: Buffer = Buffer.alloc(0);
  #held = 0;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  /** Whether the peer has begun a unit (a part of the opening, or a frame) and not finished it. */
  get isWithinFrame(): boolean {
    return this.#held > 0;
  }

  /** Memory that an incomplete unit takes, in bytes. */
  get heldBytes(): number {
    return this.#hold.length;
  }

  /** Expects tags on all later frames. Must be called at the end of the opening. */
  expectTags(tags: FrameTags | undefined): void {
    this.#tags = tags;
  }

  /** Stops delivering frames, even from the chunk that is being read. */
  stop(): void {
    this.#stopped = true;
    this.#hold = Buffer.alloc(0);
    this.#held = 0;
  }

  /** Reads a chunk and delivers views of it. Throws {@link FrameError}; the connection cannot be used afterwards. */
  push(chunk: Buffer): void {
    let at = this.#held === 0 ? 0 : this.#complete(chunk);
    while (!this.#stopped && at < chunk.length) {
      const bytes = this.#unitBytes(chunk, at, chunk.length);
      if (bytes === undefined || bytes > chunk.length - at) {
        this.#keep(chunk.subarray(at), bytes ?? FRAME_HEADER_BYTES);
        return;
      }
      this.#deliver(chunk, at, at + bytes);
      at += bytes;
    }
  }

  /** Adds bytes to the incomplete unit and delivers it when it is complete; returns how many bytes it took. */
  #complete(chunk: Buffer): number {
    let at = 0;
    while (at < chunk.length) {
      const wanted = this.#unitBytes(this.#hold, 0, this.#held) ?? FRAME_HEADER_BYTES;
      const taken = Math.min(wanted - this.#held, chunk.length - at);
      this.#keep(chunk.subarray(at, at + taken), wanted);
      at += taken;
      const isHeader = this.#held === wanted && this.#unitBytes(this.#hold, 0, this.#held) !== wanted;
      if (this.#held < wanted || isHeader) continue;
      const unit = this.#hold;
      this.#hold = Buffer.alloc(0);
      this.#held = 0;
      this.#deliver(unit, 0, wanted);
      break;
    }
    return at;
  }

  /** Length of the unit that starts at `at` of the first `end` bytes; undefined while its header is incomplete. */
  #unitBytes(bytes: Buffer, at: number, end: number): number | undefined {
    if (this.#openingBytes > 0) return this.#openingBytes;
    if (end - at < FRAME_HEADER_BYTES) return undefined;
    const messageBytes = bytes.readUInt32LE(at);
    if (messageBytes > RPC_FRAME_MAX_BYTES) {
      throw new FrameError('oversized', `frame of ${messageBytes} bytes, at most ${RPC_FRAME_MAX_BYTES} are allowed`);
    }
    return FRAME_HEADER_BYTES + messageBytes + (this.#tags === undefined ? 0 : TAG_BYTES);
  }

  #keep(bytes: Buffer, wanted: number): void {
    const needed = this.#held + bytes.length;
    if (needed > this.#hold.length) {
      const grown = Buffer.allocUnsafeSlow(Math.min(Math.max(wanted, needed), Math.max(256, needed * 2)));
      this.#hold.copy(grown, 0, 0, this.#held);
      this.#hold = grown;
    }
    bytes.copy(this.#hold, this.#held);
    this.#held = needed;
  }

  #deliver(bytes: Buffer, start: number, end: number): void {
    if (this.#openingBytes > 0) {
      this.#openingBytes = this.#sink.opening(bytes.subarray(start, end));
      return;
    }
    const received = bytes.subarray(start, end);
    const frame = this.#tags === undefined ? received : this.#untagged(this.#tags, received);
    const type = frame[8] as number;
    if (type < FrameType.call || type > FrameType.cancel) throw new FrameError('bad_frame', `frame of type ${type}`);
    const message = frame.subarray(FRAME_HEADER_BYTES);
    this.#sink.frame({ type: type as FrameType, requestId: frame.readUInt32LE(4), message });
  }

  /** Returns the frame without its tag. Throws {@link FrameError} if the tag is wrong. */
  #untagged(tags: FrameTags, frame: Buffer): Buffer {
    tags.begin();
    if (tags.isTagged(0, frame)) return frame.subarray(0, frame.length - TAG_BYTES);
    throw new FrameError('bad_tag', 'a frame that the peer has not sent, or not like this');
  }
}
