import { NONE } from '../records';
import {
  Allocator,
  blockNext,
  blockReleaseMs,
  blockSize,
  setBlockNext,
  setBlockReleaseMs,
  setBlockState,
  WAITING,
} from './allocator';

/**
 * The ranges of pages that are gone, withheld from reuse for some time; first in, first out. Their blocks are WAITING,
 * as are those that pins hold, which are not here.
 */
@unmanaged
export class Quarantine {
  private allocator: Allocator;
  /** For how long a range is withheld; 0: it is free at once. */
  private timeMs: f64;
  private maxUnits: u64;
  /** Whether no wait is cut short. */
  neverReuseEarly: bool;
  /** Blocks, the oldest first. */
  head: u32;
  private tail: u32;
  /** Space of all blocks. */
  units: u64;
  earlyReuses: u64;

  constructor(allocator: Allocator) {
    this.allocator = allocator;
    this.timeMs = 0;
    this.maxUnits = 0;
    this.neverReuseEarly = false;
    this.head = NONE;
    this.tail = NONE;
    this.units = 0;
    this.earlyReuses = 0;
  }

  configure(timeMs: f64, maxUnits: u64, neverReuseEarly: bool): void {
    this.timeMs = timeMs;
    this.maxUnits = maxUnits;
    this.neverReuseEarly = neverReuseEarly;
  }

  /** Whether it is at its limit, and no wait may be cut short; then nothing is evicted. */
  get isClosed(): bool {
    return this.neverReuseEarly && this.timeMs > 0 && this.units >= this.maxUnits;
  }

  /** Frees all ranges that have waited long enough. */
  @inline
  release(nowMs: f64): void {
    while (this.head != NONE && blockReleaseMs(this.allocator.at(this.head)) <= nowMs) this.releaseOldest();
  }

  /** Takes the range of a page that is gone. Beyond the limit, the oldest waits are cut short if they may be. */
  add(block: u32, nowMs: f64): void {
    if (this.timeMs <= 0) {
      this.allocator.free(block);
      return;
    }
    this.append(block, nowMs + this.timeMs);
    while (!this.neverReuseEarly && this.units > this.maxUnits) this.reuseOldest();
  }

  /** Cuts the oldest wait short. False: there is none, or it may not be. */
  cutShort(): bool {
    if (this.neverReuseEarly || this.head == NONE) return false;
    this.reuseOldest();
    return true;
  }

  dispose(): void {
    heap.free(changetype<usize>(this));
  }

  private append(block: u32, releaseMs: f64): void {
    const at = this.allocator.at(block);
    setBlockState(at, WAITING);
    setBlockReleaseMs(at, releaseMs);
    setBlockNext(at, NONE);
    if (this.tail == NONE) this.head = block;
    else setBlockNext(this.allocator.at(this.tail), block);
    this.tail = block;
    this.units += blockSize(at);
  }

  private reuseOldest(): void {
    this.earlyReuses++;
    this.releaseOldest();
  }

  private releaseOldest(): void {
    const block = this.head;
    const at = this.allocator.at(block);
    this.head = blockNext(at);
    if (this.head == NONE) this.tail = NONE;
    this.units -= blockSize(at);
    this.allocator.free(block);
  }
}
