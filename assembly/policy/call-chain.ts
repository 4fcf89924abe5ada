/** The latest calls, of which is remembered what they go on with: a power of two. */
const CHAINED_CALLS: u32 = 64;

/**
 * Which calls go on with the request of an earlier one. Of the last CHAINED_CALLS calls it is known; calls have numbers
 * that follow each other.
 */
@unmanaged
export class CallChain {
  /**
   * [call: u32][call that it goes on with, or itself: u32][its request: u32][unused], at the call's number modulo
   * CHAINED_CALLS.
   */
  private links: usize;

  constructor() {
    this.links = heap.alloc(CHAINED_CALLS << 4);
    memory.fill(this.links, 0xff, CHAINED_CALLS << 4);
  }

  /** `before`: the call that this one goes on with; itself: none. */
  @inline
  note(call: u32, before: u32): void {
    const at = this.at(call);
    store<u32>(at, call);
    store<u32>(at, before, 4);
  }

  /** The number of the request that a call which was noted is of, as far as callers say so. */
  @inline
  setRequest(call: u32, request: u32): void {
    store<u32>(this.at(call), request, 8);
  }

  /** The number of a call's request, or 0 when the call is not remembered. */
  requestOf(call: u32): u32 {
    const at = this.at(call);
    return load<u32>(at) == call ? load<u32>(at, 8) : 0;
  }

  /** Whether a call is another one, or goes on with its request, as far as is remembered. */
  continues(call: u32, other: u32): bool {
    for (let i: u32 = 0; i < CHAINED_CALLS; i++) {
      if (call == other) return true;
      const at = this.at(call);
      const before = load<u32>(at, 4);
      if (load<u32>(at) != call || before == call) return false;
      call = before;
    }
    return false;
  }

  dispose(): void {
    heap.free(this.links);
    heap.free(changetype<usize>(this));
  }

  @inline
  private at(call: u32): usize {
    return this.links + (<usize>(call & (CHAINED_CALLS - 1)) << 4);
  }
}
