/** Number of latest calls for which it is remembered what they continue; a power of two. */
const CHAINED_CALLS: u32 = 64;

/**
 * Records which calls continue the request of an earlier one, for the last CHAINED_CALLS calls. Calls are numbered
 * consecutively.
 */
@unmanaged
export class CallChain {
  /**
   * [call: u32][call that it continues, or itself: u32][its request: u32][unused], at the call's number modulo
   * CHAINED_CALLS.
   */
  private links: usize;

  constructor() {
    this.links = heap.alloc(CHAINED_CALLS << 4);
    memory.fill(this.links, 0xff, CHAINED_CALLS << 4);
  }

  /** Records a call. `before`: the call that it continues; the call itself if none. */
  @inline
  note(call: u32, before: u32): void {
    const at = this.at(call);
    store<u32>(at, call);
    store<u32>(at, before, 4);
  }

  /** Sets the request number of a recorded call, as far as callers state it. */
  @inline
  setRequest(call: u32, request: u32): void {
    store<u32>(this.at(call), request, 8);
  }

  /** The request number of a call; 0 if the call is not remembered. */
  requestOf(call: u32): u32 {
    const at = this.at(call);
    return load<u32>(at) == call ? load<u32>(at, 8) : 0;
  }

  /** Whether a call equals `other` or continues its request, as far as is remembered. */
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
