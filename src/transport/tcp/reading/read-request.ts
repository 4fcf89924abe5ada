import { NO_STAMP, STAMP_BYTES } from '../../../memory/page-stamp.js';
import { encodeRequest } from '../protocol/protocol.js';

/** What stands for "no checksum asked for"; a CRC-32 is never negative. */
export const NO_CHECKSUM = -1;

/** The results of one call, filled in by as many connections as it needs. */
export class ReadBatch {
  readonly results: boolean[];
  readonly done: Promise<boolean[]>;
  readonly #gone: Uint8Array | undefined;
  readonly #opCount: number;
  #pendingOps: number;
  #resolve: (results: boolean[]) => void = () => {};

  /** `gone`: see `Transport.batchRead`. */
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

  /** Ends one operation; the call ends with its last one. Each operation ends once. `isGone`: the peer has answered, and it is not there. */
  finish(opIndex: number, isRead: boolean, isGone = false): void {
    this.results[opIndex] = isRead;
    if (isGone && this.#gone !== undefined) this.#gone[opIndex] = 1;
    if (--this.#pendingOps === 0) this.#resolve(this.results);
  }
}

/** One operation as a connection sees it. */
export interface RequestedOp {
  /** In its batch. */
  readonly index: number;
  readonly rkey: number;
  readonly remoteAddr: number;
  readonly length: number;
  /** Or {@link NO_CHECKSUM}. */
  readonly checksum: number;
  /** Or NO_STAMP. */
  readonly stamp: number;
}

/**
 * Operations of one batch that go to one peer in one frame. Arrays of numbers, one element an
 * operation or a piece of local memory: at 4 KiB a page there is no time for an object each.
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
  /** It has been taken from one connection to another, which happens once. */
  wasMoved = false;
  #isAborted = false;

  constructor(batch: ReadBatch) {
    this.batch = batch;
  }

  get opCount(): number {
    return this.opIndices.length;
  }

  /** All its operations have ended, and its payload is dropped as it comes. */
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

  /** Whether the bytes of an operation, which have all landed, end with the stamp that was asked for. */
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
  finish(op: number, isRead: boolean, isGone = false): void {
    this.#isFinished[op] = true;
    this.batch.finish(this.opIndices[op] as number, isRead, isGone);
  }

  /** Ends as failed all operations that have not ended; returns how many. */
  failRest(): number {
    let failedOps = 0;
    for (let op = 0; op < this.opCount; op++) {
      if (this.#isFinished[op]) continue;
      this.finish(op, false);
      failedOps++;
    }
    return failedOps;
  }

  /** Ends what has not ended, as {@link failRest} does, and lets go of the local memory: none of it may be about to be received into. */
  abort(): number {
    this.#isAborted = true;
    this.pieceSegments.length = 0;
    return this.failRest();
  }

  /** The frame that asks for them. */
  encode(requestId: number): Buffer {
    const header = { requestId, opCount: this.opCount, totalBytes: this.totalBytes };
    return encodeRequest(header, { rkeys: this.#rkeys, lengths: this.lengths, addrs: this.#remoteAddrs });
  }
}
