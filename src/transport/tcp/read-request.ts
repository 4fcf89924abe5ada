import { encodeRequest } from './protocol.js';

/** What stands for "no checksum asked for"; a CRC-32 is never negative. */
export const NO_CHECKSUM = -1;

/** The results of one call, filled in by as many connections as it needs. */
export class ReadBatch {
  readonly results: boolean[];
  readonly done: Promise<boolean[]>;
  readonly #opCount: number;
  #pendingOps: number;
  #resolve: (results: boolean[]) => void = () => {};

  constructor(opCount: number) {
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

  /** Ends one operation; the call ends with its last one. Each operation ends once. */
  finish(opIndex: number, isRead: boolean): void {
    this.results[opIndex] = isRead;
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
  readonly pieceEnds: number[] = [];
  readonly pieceSegments: Uint8Array[] = [];
  readonly pieceStarts: number[] = [];
  readonly pieceLengths: number[] = [];
  readonly #rkeys: number[] = [];
  readonly #remoteAddrs: number[] = [];
  readonly #isFinished: boolean[] = [];
  totalBytes = 0;

  constructor(batch: ReadBatch) {
    this.batch = batch;
  }

  get opCount(): number {
    return this.opIndices.length;
  }

  /** Adds an operation; its pieces follow by {@link addPiece}, then {@link endOp}. */
  beginOp({ index, rkey, remoteAddr, length, checksum }: RequestedOp): void {
    this.opIndices.push(index);
    this.lengths.push(length);
    this.checksums.push(checksum);
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

  /** Ends an operation in its batch. */
  finish(op: number, isRead: boolean): void {
    this.#isFinished[op] = true;
    this.batch.finish(this.opIndices[op] as number, isRead);
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

  /** The frame that asks for them. */
  encode(requestId: number): Buffer {
    const header = { requestId, opCount: this.opCount, totalBytes: this.totalBytes };
    return encodeRequest(header, { rkeys: this.#rkeys, lengths: this.lengths, addrs: this.#remoteAddrs });
  }
}
