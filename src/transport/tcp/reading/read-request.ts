import { Gone } from '../../../base/gone.js';
import { NO_STAMP, STAMP_BYTES } from '../../../memory/page-stamp.js';
import { encodeRequest, type RequestOps } from '../protocol/protocol.js';
import { SharedCounters } from '../threads/shared-counters.js';

/** Marks an operation without a checksum; a CRC-32 is never negative. */
export const NO_CHECKSUM = -1;

/** The results of one call, filled in by as many connections as it needs. */
export class ReadBatch {
  readonly results: boolean[];
  readonly done: Promise<boolean[]>;
  readonly #gone: Uint8Array | undefined;
  readonly #opCount: number;
  #pendingOps: number;
  #resolve: (results: boolean[]) => void = () => {};

  /** `gone` is that of `Transport.batchRead`. */
  constructor(opCount: number, gone?: Uint8Array) {
    this.#gone = gone;
    this.results = new Array<boolean>(opCount).fill(false);
    this.#opCount = opCount;
    this.#pendingOps = opCount;
    this.done = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    if (opCount === 0) this.#resolve(this.results);
  }

  get finishedOps(): number {
    return this.#opCount - this.#pendingOps;
  }

  /**
   * Ends one operation, once. The call ends with its last operation. `gone` says whether the peer answered that it does
   * not have the page.
   */
  finish(opIndex: number, isRead: boolean, gone: number = Gone.no): void {
    this.results[opIndex] = isRead;
    if (gone !== Gone.no && this.#gone !== undefined) this.#gone[opIndex] = gone;
    if (--this.#pendingOps === 0) this.#resolve(this.results);
  }
}

/** One operation as a connection sees it. */
interface RequestedOp {
  /** Index of the operation in its batch. */
  readonly index: number;
  readonly rkey: number;
  readonly remoteAddr: number;
  readonly length: number;
  /** Expected CRC-32, or {@link NO_CHECKSUM}. */
  readonly checksum: number;
  /** Expected stamp, or NO_STAMP. */
  readonly stamp: number;
}

/** Where the numbers of an operation stand in {@link ReadRequest}. */
const [INDEX, RKEY, ADDR, LENGTH, CHECKSUM, STAMP] = [0, 1, 2, 3, 4, 5] as const;
/** Number of pieces of an operation and of all before it. */
const PIECES = 6;
const OP_NUMBERS = 7;

/** A request as values that can be posted to another thread. */
export interface PackedRequest {
  readonly ops: Float64Array;
  readonly pieces: Float64Array;
  readonly segments: readonly Uint8Array[];
  readonly totalBytes: number;
}

/**
 * Operations of one batch that go to one peer in one frame. Their numbers are in one list, and so are those of the
 * pieces of local memory: at 4 KiB per page, an object or a list for each would cost too much time.
 */
export class ReadRequest implements RequestOps {
  readonly batch: ReadBatch;
  readonly #ops: number[] = [];
  readonly #segments: Uint8Array[] = [];
  /** Start in its segment and length of each piece. */
  readonly #pieces: number[] = [];
  readonly #isFinished: boolean[] = [];
  totalBytes = 0;
  /** Whether other threads can write into all its memory. */
  isShared = true;
  /** Whether the request was moved from one connection to another, which happens at most once. */
  wasMoved = false;
  #isAborted = false;

  constructor(batch: ReadBatch) {
    this.batch = batch;
  }

  static opCountOf({ ops }: PackedRequest): number {
    return ops.length / OP_NUMBERS;
  }

  /**
   * Returns the request that {@link pack} has packed, as one of another batch, in which its operations have the indexes
   * from `firstIndex` on.
   */
  static unpack(
    batch: ReadBatch,
    firstIndex: number,
    { ops, pieces, segments, totalBytes }: PackedRequest,
  ): ReadRequest {
    const request = new ReadRequest(batch);
    for (const number of ops) request.#ops.push(number);
    for (let op = 0; op < ops.length / OP_NUMBERS; op++) {
      request.#ops[op * OP_NUMBERS + INDEX] = firstIndex + op;
      request.#isFinished.push(false);
    }
    for (const number of pieces) request.#pieces.push(number);
    for (const segment of segments) request.#segments.push(segment);
    request.totalBytes = totalBytes;
    return request;
  }

  /** Returns the request as values that can be posted to another thread. */
  pack(): PackedRequest {
    return {
      ops: Float64Array.from(this.#ops),
      pieces: Float64Array.from(this.#pieces),
      segments: this.#segments,
      totalBytes: this.totalBytes,
    };
  }

  get opCount(): number {
    return this.#isFinished.length;
  }

  /** Whether all its operations have ended and its payload is dropped on arrival. */
  get isAborted(): boolean {
    return this.#isAborted;
  }

  /** Adds an operation; its pieces follow by {@link addPiece}, then {@link endOp}. */
  beginOp({ index, rkey, remoteAddr, length, checksum, stamp }: RequestedOp): void {
    this.#ops.push(index, rkey, remoteAddr, length, checksum, stamp, 0);
    this.#isFinished.push(false);
    this.totalBytes += length;
  }

  addPiece(segment: Uint8Array, start: number, length: number): void {
    this.#segments.push(segment);
    this.#pieces.push(start, length);
    if (!(segment.buffer instanceof SharedArrayBuffer)) this.isShared = false;
  }

  endOp(): void {
    this.#ops[this.#ops.length - OP_NUMBERS + PIECES] = this.#segments.length;
  }

  rkeyOf(op: number): number {
    return this.#ops[op * OP_NUMBERS + RKEY] as number;
  }

  addrOf(op: number): number {
    return this.#ops[op * OP_NUMBERS + ADDR] as number;
  }

  lengthOf(op: number): number {
    return this.#ops[op * OP_NUMBERS + LENGTH] as number;
  }

  /** The expected CRC-32, or {@link NO_CHECKSUM}. */
  checksumOf(op: number): number {
    return this.#ops[op * OP_NUMBERS + CHECKSUM] as number;
  }

  /** The number of an operation's first piece. */
  piecesStart(op: number): number {
    return op === 0 ? 0 : this.piecesEnd(op - 1);
  }

  /** The number after that of an operation's last piece. */
  piecesEnd(op: number): number {
    return this.#ops[op * OP_NUMBERS + PIECES] as number;
  }

  /** The segment in which a piece lies; undefined: the request has been aborted. */
  segmentOf(piece: number): Uint8Array | undefined {
    return this.#segments[piece];
  }

  startOf(piece: number): number {
    return this.#pieces[piece * 2] as number;
  }

  pieceLengthOf(piece: number): number {
    return this.#pieces[piece * 2 + 1] as number;
  }

  /** Whether the landed bytes of an operation end with the expected stamp. */
  hasStamp(op: number): boolean {
    const wanted = this.#ops[op * OP_NUMBERS + STAMP] as number;
    if (wanted === NO_STAMP) return true;
    let stamp = 0;
    let left = STAMP_BYTES;
    const first = this.piecesStart(op);
    for (let p = this.piecesEnd(op) - 1; p >= first && left > 0; p--) {
      const segment = this.#segments[p] as Uint8Array;
      const start = this.startOf(p);
      for (let at = start + this.pieceLengthOf(p) - 1; at >= start && left > 0; at--, left--) {
        stamp = stamp * 256 + (segment[at] as number);
      }
    }
    return left === 0 && stamp === wanted;
  }

  /** Ends an operation in its batch. */
  finish(op: number, isRead: boolean, gone: number = Gone.no): void {
    this.#isFinished[op] = true;
    this.batch.finish(this.#ops[op * OP_NUMBERS + INDEX] as number, isRead, gone);
  }

  /** Ends all pending operations as failed; returns their number. */
  failRest(): number {
    let failedOps = 0;
    for (let op = 0; op < this.opCount; op++) {
      if (this.#isFinished[op]) continue;
      this.finish(op, false);
      failedOps++;
    }
    return failedOps;
  }

  /** Ends pending operations as {@link failRest} does and releases the local memory, which the socket must not hold. */
  abort(): number {
    this.#isAborted = true;
    this.#segments.length = 0;
    return this.failRest();
  }

  /** Encodes the request frame and leaves room for `tagBytes` at its end. */
  encode(requestId: number, tagBytes: number): Buffer {
    return encodeRequest({ requestId, opCount: this.opCount, totalBytes: this.totalBytes }, this, tagBytes);
  }
}

/** Counters of the reading side of a transport, in the order of the numbers in shared memory. */
const COUNTERS = [
  'readOps',
  'readBytes',
  'failedOps',
  'checksumFailures',
  'staleOps',
  'protocolErrors',
  'connections',
  'reconnects',
  // Times that a peer has become unreachable.
  'unreachablePeers',
] as const;

export type ReadCounterName = (typeof COUNTERS)[number];

/** Counters of one thread that reads. */
export class ReadCounters extends SharedCounters<ReadCounterName> {
  /** Uses existing `memory`, or new counters that are all zero. */
  constructor(memory?: SharedArrayBuffer) {
    super(COUNTERS, memory);
  }
}
