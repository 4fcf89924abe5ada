import { assert, assertEqual } from '../../../base/assert.js';
import { crc32 } from '../../../memory/checksum.js';
import type { FrameTags } from '../../../memory/frame-tags.js';
import { isGranted, opPart, opTag, type ResponseHeader } from '../protocol/protocol.js';
import { NO_CHECKSUM, type ReadRequest } from './read-request.js';

/**
 * Most bytes of one `recv`. With a checksum it is smaller, so that the bytes are still in the cache when they are
 * summed.
 */
const RECEIVE_MAX_BYTES = 256 * 1024;
const VERIFIED_RECEIVE_MAX_BYTES = 128 * 1024;
/** Shorter pieces are received together and copied, because a system call costs more than the copy. */
const DIRECT_MIN_BYTES = 16 * 1024;
/** Size of the staging buffer that {@link Landing} needs. */
export const STAGING_BYTES = 256 * 1024;

/** Result of one operation. `altered`: the bytes were changed on the way, so that they say nothing about the page. */
export type LandingOutcome = 'read' | 'refused' | 'stale' | 'wrong-checksum' | 'altered';

interface LandingEvents {
  /** Called when an operation has all its bytes; `outcome` is the result of the tag, stamp and checksum checks. */
  finished(request: ReadRequest, opInRequest: number, outcome: LandingOutcome): void;
}

/**
 * Receives the payload of one response into its destinations.
 *
 * Long pieces are received directly into their memory. Runs of short ones are received into the staging buffer and
 * copied from there. The checksum of an operation is updated while the received bytes are in the cache, and compared
 * after the last byte.
 *
 * The payload of an aborted request, or the rest of it, is received into the staging buffer and dropped.
 *
 * All connections of a thread may share the staging buffer: nothing else runs between the `recv` into it and the copy
 * out of it.
 */
export class Landing {
  readonly #staging: Uint8Array;
  readonly #events: LandingEvents;
  #request: ReadRequest | undefined;
  /** Payload bytes still to come. */
  #restBytes = 0;
  /** Whether the rest of the payload is received into the staging buffer and dropped. */
  #isDiscarding = false;
  /** The granted pieces, with adjacent ones joined; then the index of the piece being filled and its bytes so far. */
  #segments: Uint8Array[] = [];
  #starts: number[] = [];
  #lengths: number[] = [];
  #piece = 0;
  #filledBytes = 0;
  /** The granted operations; then the index of the one being filled, its missing bytes, and its checksum so far. */
  #ops: number[] = [];
  #op = 0;
  #opRestBytes = 0;
  #sum = 0;
  /** Checks the tags of the payload, which are in the header; undefined if the response has none. */
  #tags: FrameTags | undefined;
  #header: Buffer = Buffer.alloc(0);

  constructor(staging: Uint8Array, events: LandingEvents) {
    this.#staging = staging;
    this.#events = events;
  }

  /** Bytes still to come of the response that {@link begin} has announced. */
  get restBytes(): number {
    return this.#restBytes;
  }

  /**
   * Whether the memory for the next bytes is gone because its owner has transferred it. Then {@link discard} the rest.
   */
  get isDetached(): boolean {
    return this.#restBytes > 0 && this.#segments[this.#piece]?.length === 0;
  }

  /**
   * Starts a response, whose `header` must not change until the payload has been received. Returns false if the
   * response does not answer the request.
   */
  begin(request: ReadRequest, response: ResponseHeader, header: Buffer, tags?: FrameTags): boolean {
    if (response.opCount !== request.opCount) return false;
    this.#request = request;
    this.#header = header;
    this.#tags = tags;
    this.#isDiscarding = request.isAborted;
    this.#segments = [];
    this.#starts = [];
    this.#lengths = [];
    this.#ops = [];
    this.#piece = this.#filledBytes = this.#op = 0;
    let grantedBytes = 0;
    for (let i = 0; i < request.opCount; i++) {
      if (!isGranted(header, i)) continue;
      grantedBytes += request.lengthOf(i);
      if (this.#isDiscarding) continue;
      this.#ops.push(i);
      this.#addPieces(request, i);
    }
    if (grantedBytes !== response.payloadBytes) return false;
    this.#restBytes = grantedBytes;
    if (this.#isDiscarding) return true;
    this.#finishRefused(request, header);
    this.#enterOp();
    return true;
  }

  /** Returns the buffer for the next bytes: part of a piece, or the staging buffer. It is never empty. */
  target(): Uint8Array {
    if (this.#isDiscarding) return this.#staging.subarray(0, Math.min(this.#restBytes, this.#staging.length));
    const pieceRest = (this.#lengths[this.#piece] as number) - this.#filledBytes;
    if (pieceRest < DIRECT_MIN_BYTES) return this.#staging.subarray(0, this.#shortRunBytes(pieceRest));
    const segment = this.#segments[this.#piece] as Uint8Array;
    const from = (this.#starts[this.#piece] as number) + this.#filledBytes;
    const maxBytes = this.#isVerified() ? VERIFIED_RECEIVE_MAX_BYTES : RECEIVE_MAX_BYTES;
    return segment.subarray(from, from + Math.min(pieceRest, maxBytes));
  }

  /** Records that `count` bytes were received into the last {@link target}. */
  landed(target: Uint8Array, count: number): void {
    if (this.#isDiscarding || target.buffer === this.#staging.buffer) {
      this.accept(target, 0, count);
      return;
    }
    this.#filledBytes += count;
    if (this.#filledBytes === this.#lengths[this.#piece]) this.#nextPiece();
    this.#restBytes -= count;
    this.#account(target, 0, count);
  }

  /**
   * Copies or drops the bytes `bytes[from]` up to `bytes[to]`, at most as many as are due, and returns their number.
   * Stops early at memory that {@link isDetached}.
   */
  accept(bytes: Uint8Array, from: number, to: number): number {
    const due = Math.min(to, from + this.#restBytes);
    if (this.#isDiscarding) {
      this.#restBytes -= due - from;
      return due - from;
    }
    let end = from;
    for (let at = from; at < due && !this.isDetached; end = at) {
      const take = Math.min(due - at, (this.#lengths[this.#piece] as number) - this.#filledBytes);
      const start = (this.#starts[this.#piece] as number) + this.#filledBytes;
      (this.#segments[this.#piece] as Uint8Array).set(bytes.subarray(at, at + take), start);
      this.#filledBytes += take;
      at += take;
      if (this.#filledBytes === this.#lengths[this.#piece]) this.#nextPiece();
    }
    this.#restBytes -= end - from;
    this.#account(bytes, from, end);
    return end - from;
  }

  /**
   * Makes the rest of the response be dropped on arrival. The last {@link target} must not be memory of the request.
   */
  discard(): void {
    this.#isDiscarding = true;
    this.#segments = [];
  }

  /** Drops the response. No memory is handed out or written any more. */
  abandon(): void {
    this.#request = undefined;
    this.#restBytes = 0;
    this.#segments = [];
  }

  #addPieces(request: ReadRequest, op: number): void {
    const end = request.piecesEnd(op);
    for (let p = request.piecesStart(op); p < end; p++) {
      const segment = request.segmentOf(p) as Uint8Array;
      const start = request.startOf(p);
      const length = request.pieceLengthOf(p);
      const last = this.#segments.length - 1;
      const joins = last >= 0 && this.#segments[last] === segment && start === this.#pieceEnd(last);
      if (joins) {
        this.#lengths[last] = (this.#lengths[last] as number) + length;
      } else {
        this.#segments.push(segment);
        this.#starts.push(start);
        this.#lengths.push(length);
      }
    }
  }

  #pieceEnd(piece: number): number {
    return (this.#starts[piece] as number) + (this.#lengths[piece] as number);
  }

  #nextPiece(): void {
    this.#piece++;
    this.#filledBytes = 0;
  }

  /** Total length of the piece being filled and the short pieces after it, up to the size of the staging buffer. */
  #shortRunBytes(pieceRest: number): number {
    let bytes = pieceRest;
    for (let p = this.#piece + 1; p < this.#lengths.length && bytes < this.#staging.length; p++) {
      const length = this.#lengths[p] as number;
      if (length >= DIRECT_MIN_BYTES) break;
      bytes += length;
    }
    return Math.min(bytes, this.#staging.length);
  }

  #finishRefused(request: ReadRequest, header: Buffer): void {
    if (this.#ops.length === request.opCount) return;
    for (let i = 0; i < request.opCount; i++) {
      if (!isGranted(header, i)) this.#events.finished(request, i, 'refused');
    }
  }

  /** Counts landed bytes towards their operations. */
  #account(bytes: Uint8Array, from: number, to: number): void {
    for (let at = from; at < to; ) {
      const take = Math.min(to - at, this.#opRestBytes);
      const landed = bytes.subarray(at, at + take);
      if (this.#isVerified()) this.#sum = crc32(landed, this.#sum);
      this.#tags?.add(landed);
      this.#opRestBytes -= take;
      at += take;
      if (this.#opRestBytes === 0) this.#endOp();
    }
  }

  /** Whether the operation being filled has a checksum to verify. */
  #isVerified(): boolean {
    return this.#request?.checksumOf(this.#ops[this.#op] as number) !== NO_CHECKSUM;
  }

  #endOp(): void {
    const request = this.#request as ReadRequest;
    const op = this.#ops[this.#op] as number;
    this.#op++;
    this.#events.finished(request, op, this.#outcomeOf(request, op));
    this.#enterOp();
  }

  #outcomeOf(request: ReadRequest, op: number): LandingOutcome {
    if (this.#tags?.endPartAs(opTag(this.#header, op)) === false) return 'altered';
    if (!request.hasStamp(op)) return 'stale';
    const wanted = request.checksumOf(op);
    return wanted === NO_CHECKSUM || wanted === this.#sum ? 'read' : 'wrong-checksum';
  }

  /** Moves on to the next operation. Operations of length 0 end at once. */
  #enterOp(): void {
    this.#sum = 0;
    const op = this.#ops[this.#op];
    if (op === undefined) return;
    this.#tags?.beginPart(opPart(op));
    this.#opRestBytes = this.#request?.lengthOf(op) ?? 0;
    if (this.#opRestBytes === 0) this.#endOp();
  }

  /** Throws `InvariantError` unless the unfilled pieces and operations have as many bytes as are due. */
  verify(): void {
    assert(this.#restBytes >= 0, () => `landing: ${this.#restBytes} bytes are to come`);
    const request = this.#request;
    if (request === undefined || this.#isDiscarding) return;
    const pieces = this.#lengths.slice(this.#piece).reduce((sum, length) => sum + length, 0) - this.#filledBytes;
    assertEqual('landing: bytes to come, by pieces', this.#restBytes, pieces);
    const later = this.#ops.slice(this.#op + 1).reduce((sum, op) => sum + request.lengthOf(op), 0);
    assertEqual('landing: bytes to come, by operations', this.#restBytes, this.#opRestBytes + later);
    assertEqual('landing: pieces', this.#segments.length, this.#lengths.length);
    assertEqual('landing: places of pieces', this.#starts.length, this.#lengths.length);
  }
}
