import { Gone } from '../../../base/gone.js';
import { NO_STAMP, STAMP_BYTES } from '../../../memory/page-stamp.js';
import { encodeRequest } from '../protocol/protocol.js';

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

/**
 * Operations of one batch that go to one peer in one frame, as arrays of numbers with one element per operation or
 * piece of local memory: at 4 KiB per page, an object for each would cost too much time.
 *
 * Operation i lands in pieces pieceEnds[i - 1] to pieceEnds[i] - 1, and piece p is
 * pieceLengths[p] bytes of the segment pieceSegments[p] from pieceStarts[p] on.
 */
export class ReadRequest {
  readonly batch: ReadBatch;
  readonly opIndices: number[] = [];
  readonly lengths: number[] = [];
  readonly checksums: number[] = [];
  readonly stamps: number[] = [];
  readonly pieceEnds: number[] = [];
  readonly pieceSegments: Uint8Array[] = [];
  readonly pieceStarts: number[] = [];
  readonly pieceLengths: number[] = [];
  readonly #rkeys: number[] = [];
  readonly #remoteAddrs: number[] = [];
  readonly #isFinished: boolean[] = [];
  totalBytes = 0;
  /** Whether the request was moved from one connection to another, which happens at most once. */
  wasMoved = false;
  #isAborted = false;

  constructor(batch: ReadBatch) {
    this.batch = batch;
  }

  get opCount(): number {
    return this.opIndices.length;
  }

  /** Whether all its operations have ended and its payload is dropped on arrival. */
  get isAborted(): boolean {
    return this.#isAborted;
  }

  /** Adds an operation; its pieces follow by {@link addPiece}, then {@link endOp}. */
  beginOp({ index, rkey, remoteAddr, length, checksum, stamp }: RequestedOp): void {
    this.opIndices.push(index);
    this.lengths.push(length);
    this.checksums.push(checksum);
    this.stamps.push(stamp);
    this.#rkeys.push(rkey);
    this.#remoteAddrs.push(remoteAddr);
    this.#isFinished.push(false);
    this.totalBytes += length;
  }

  addPiece(segment: Uint8Array, start: number, length: number): void {
    this.pieceSegments.push(segment);
    this.pieceStarts.push(start);
    this.pieceLengths.push(length);
  }

  endOp(): void {
    this.pieceEnds.push(this.pieceSegments.length);
  }

  /** Whether the landed bytes of an operation end with the expected stamp. */
  hasStamp(op: number): boolean {
    const wanted = this.stamps[op] as number;
    if (wanted === NO_STAMP) return true;
    let stamp = 0;
    let left = STAMP_BYTES;
    const first = op === 0 ? 0 : (this.pieceEnds[op - 1] as number);
    for (let p = (this.pieceEnds[op] as number) - 1; p >= first && left > 0; p--) {
      const segment = this.pieceSegments[p] as Uint8Array;
      const start = this.pieceStarts[p] as number;
      for (let at = start + (this.pieceLengths[p] as number) - 1; at >= start && left > 0; at--, left--) {
        stamp = stamp * 256 + (segment[at] as number);
      }
    }
    return left === 0 && stamp === wanted;
  }

  /** Ends an operation in its batch. */
  finish(op: number, isRead: boolean, gone: number = Gone.no): void {
    this.#isFinished[op] = true;
    this.batch.finish(this.opIndices[op] as number, isRead, gone);
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
    this.pieceSegments.length = 0;
    return this.failRest();
  }

  /** Encodes the request frame and leaves room for `tagBytes` at its end. */
  encode(requestId: number, tagBytes: number): Buffer {
    const header = { requestId, opCount: this.opCount, totalBytes: this.totalBytes };
    return encodeRequest(header, { rkeys: this.#rkeys, lengths: this.lengths, addrs: this.#remoteAddrs }, tagBytes);
  }
}

/** Counters of the reading side of a transport. */
export class ReadCounters {
  readOps = 0;
  readBytes = 0;
  failedOps = 0;
  checksumFailures = 0;
  staleOps = 0;
  protocolErrors = 0;
  connections = 0;
  reconnects = 0;
  /** Times that a peer has become unreachable. */
  unreachablePeers = 0;
}
