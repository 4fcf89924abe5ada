import { OP_COLUMNS } from '../addon/contract.js';

/** Marks an operation without a checksum. */
const NO_CHECKSUM = -1;
const NO_STAMP = 0;

/** Checks of the bytes that an operation has read. */
export interface OpChecks {
  /** CRC-32 that the bytes must have. */
  readonly checksum?: number | undefined;
  /** Stamp that the last bytes must be; see `memory/page-stamp.ts`. */
  readonly stamp?: number | undefined;
}

/** Reads for one `RdmaEngine.submit`, in its layout: rows of operations, then their pieces, in order. */
export class OpBatch {
  readonly #ops: number[] = [];
  readonly #pieces: number[] = [];
  #totalBytes = 0;

  get opCount(): number {
    return this.#ops.length / OP_COLUMNS;
  }

  /** Total length of all pieces. */
  get totalBytes(): number {
    return this.#totalBytes;
  }

  /**
   * Adds an operation; its pieces follow by {@link addPiece}. Without `checksum` and `stamp`, its bytes are not
   * checked.
   */
  addOp(peer: number, rkey: number, remoteAddr: number, checks: OpChecks = {}): void {
    const { checksum = NO_CHECKSUM, stamp = NO_STAMP } = checks;
    this.#ops.push(peer, rkey, remoteAddr, checksum, stamp, 0);
  }

  /** Adds local memory for the next bytes of the operation added last. */
  addPiece(addr: number, length: number): void {
    this.#pieces.push(addr, length);
    const pieceCountAt = this.#ops.length - 1;
    this.#ops[pieceCountAt] = (this.#ops[pieceCountAt] as number) + 1;
    this.#totalBytes += length;
  }

  encode(): Float64Array {
    const encoded = new Float64Array(this.#ops.length + this.#pieces.length);
    encoded.set(this.#ops);
    encoded.set(this.#pieces, this.#ops.length);
    return encoded;
  }
}
