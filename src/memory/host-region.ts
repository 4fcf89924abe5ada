import { ArgumentError } from '../base/errors.js';
import { SEGMENT_MAX_BYTES } from '../base/limits.js';
import { addRegion, removeRegion, reserveAddresses } from './address-space.js';

/** Touching one byte of each makes the operating system provide the memory. */
const OS_PAGE_BYTES = 4096;

export interface HostRegionOptions {
  /** Ask for huge pages. Has an effect only where the native addon provides the memory. */
  readonly hugePages?: boolean;
  /** Ask for memory that other processes can map. Has an effect only where the native addon provides the memory. */
  readonly shared?: boolean;
}

/**
 * A contiguous range of addresses that transports read from and write into, with the memory behind it.
 *
 * The memory is one or more segments: a view ends at a segment boundary, the addresses do not.
 *
 *     addr          addr + segmentBytes   addr + 2 * segmentBytes     addr + length
 *     |  segment 0  |      segment 1      |       segment 2           |  guard, belongs to nobody
 *
 * Like memory from malloc, a region lives until `free()`: dropping the object does not give it back.
 * The addresses of a freed region are never used again in the process.
 */
export class HostRegion implements Disposable {
  readonly addr: bigint;
  /** `addr` as a number, which holds it exactly. */
  readonly start: number;
  /** Bytes. */
  readonly length: number;
  /** Distance between boundaries that no view crosses; `length` when there is one segment. */
  readonly segmentBytes: number;
  /** Whether other threads of the process can see the memory: it is a SharedArrayBuffer. */
  readonly isShared: boolean;
  /** One element: 1 while the region is live, 0 once it is freed. Other threads may watch it. */
  readonly liveFlag: Int32Array<SharedArrayBuffer>;
  #segments: readonly Uint8Array[];

  private constructor(segments: readonly Uint8Array[], length: number) {
    const start = reserveAddresses(length);
    if (start === undefined) throw new ArgumentError(`HostRegion: no addresses left for ${length} bytes`);
    const first = segments[0] as Uint8Array;
    this.addr = BigInt(start);
    this.start = start;
    this.length = length;
    this.segmentBytes = first.length;
    this.isShared = first.buffer instanceof SharedArrayBuffer;
    this.liveFlag = new Int32Array(new SharedArrayBuffer(4)).fill(1);
    this.#segments = segments;
    addRegion(this);
  }

  /**
   * New zero-filled memory of `length` bytes, visible to all threads of the process. The operating
   * system provides it when it is touched: see {@link prefault}. Throws {@link ArgumentError} for a
   * length that is no whole number of at least 1, or that cannot be had.
   */
  static allocate(length: number, options: HostRegionOptions = {}): HostRegion {
    if (!Number.isSafeInteger(length) || length < 1) {
      throw new ArgumentError(
        `HostRegion.allocate: length must be a whole number of at least 1 byte, got ${String(length)}`,
      );
    }
    if (typeof options !== 'object' || options === null) {
      throw new ArgumentError(`HostRegion.allocate: options must be an object, got ${String(options)}`);
    }
    const segments: Uint8Array[] = [];
    try {
      for (let at = 0; at < length; at += SEGMENT_MAX_BYTES) {
        segments.push(new Uint8Array(new SharedArrayBuffer(Math.min(SEGMENT_MAX_BYTES, length - at))));
      }
    } catch (cause) {
      throw new ArgumentError(`HostRegion.allocate: there is no memory of ${length} bytes to be had`, { cause });
    }
    return new HostRegion(segments, length);
  }

  /**
   * Existing memory. It stays the caller's: it must not be resized or transferred before `free()`.
   * Memory that is not a SharedArrayBuffer can be written into by reads, but not be served to peers.
   */
  static wrap(memory: ArrayBuffer | SharedArrayBuffer | Uint8Array): HostRegion {
    const view = viewOf(memory);
    if (view.length === 0) throw new ArgumentError('HostRegion.wrap: memory must have at least 1 byte, got 0');
    if ((view.buffer as ArrayBuffer & { resizable?: boolean }).resizable) {
      throw new ArgumentError('HostRegion.wrap: memory must be of fixed length, got a resizable ArrayBuffer');
    }
    return new HostRegion([view], view.length);
  }

  get isLive(): boolean {
    return this.#segments.length > 0;
  }

  /** One view for each segment, in order; empty once the region is freed. Who keeps them keeps the memory. */
  get segments(): readonly Uint8Array[] {
    return this.#segments;
  }

  /**
   * One view of `length` bytes from `offset` on (all the rest by default). Throws
   * {@link ArgumentError} when they are not within the region or cross a segment boundary: then
   * {@link views} gives them.
   */
  bytes(offset = 0, length = this.length - offset): Uint8Array {
    this.#checkRange(offset, length);
    const segmentIndex = this.#segmentIndexOf(offset);
    const at = offset - segmentIndex * this.segmentBytes;
    const segment = this.#segments[segmentIndex] as Uint8Array;
    if (at + length > segment.length) {
      throw new ArgumentError(
        `HostRegion.bytes: ${length} bytes from offset ${offset} on cross the segment boundary at ${(segmentIndex + 1) * this.segmentBytes}; use views()`,
      );
    }
    return segment.subarray(at, at + length);
  }

  /** Views of `length` bytes from `offset` on, one for each segment that has some of them; none for 0 bytes. */
  views(offset = 0, length = this.length - offset): Uint8Array[] {
    this.#checkRange(offset, length);
    const views: Uint8Array[] = [];
    let segmentIndex = this.#segmentIndexOf(offset);
    let at = offset - segmentIndex * this.segmentBytes;
    for (let rest = length; rest > 0; segmentIndex++, at = 0) {
      const segment = this.#segments[segmentIndex] as Uint8Array;
      const take = Math.min(rest, segment.length - at);
      views.push(segment.subarray(at, at + take));
      rest -= take;
    }
    return views;
  }

  /**
   * Makes the operating system provide all of the memory now; the bytes stay as they are, whoever
   * writes meanwhile. Blocks: about a second for a GiB.
   */
  prefault(): void {
    this.#checkRange(0, this.length);
    for (const segment of this.#segments) {
      for (let at = 0; at < segment.length; at += OS_PAGE_BYTES) Atomics.or(segment, at, 0);
      Atomics.or(segment, segment.length - 1, 0);
    }
  }

  /**
   * Gives the memory back. Its addresses are dead from now on, for reads and for peers; views handed
   * out before stay valid (they hold the memory). Idempotent.
   */
  free(): void {
    if (!this.isLive) return;
    Atomics.store(this.liveFlag, 0, 0);
    removeRegion(this);
    this.#segments = [];
  }

  [Symbol.dispose](): void {
    this.free();
  }

  /** The end of the region belongs to the last segment, so that 0 bytes there are within it. */
  #segmentIndexOf(offset: number): number {
    return Math.min(Math.floor(offset / this.segmentBytes), this.#segments.length - 1);
  }

  #checkRange(offset: number, length: number): void {
    if (!this.isLive) throw new ArgumentError(`HostRegion: the region at ${this.addr} is freed`);
    const isRange = Number.isSafeInteger(offset) && offset >= 0 && Number.isSafeInteger(length) && length >= 0;
    if (isRange && offset + length <= this.length) return;
    throw new ArgumentError(
      `HostRegion: ${String(length)} bytes from offset ${String(offset)} on are not within its ${this.length} bytes`,
    );
  }
}

function viewOf(memory: unknown): Uint8Array {
  if (memory instanceof Uint8Array) return new Uint8Array(memory.buffer, memory.byteOffset, memory.byteLength);
  if (memory instanceof ArrayBuffer || memory instanceof SharedArrayBuffer) return new Uint8Array(memory);
  throw new ArgumentError(
    `HostRegion.wrap: memory must be an ArrayBuffer, a SharedArrayBuffer or a Uint8Array, got ${typeof memory}`,
  );
}
