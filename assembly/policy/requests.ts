/** Callers whose numbers agree in the lowest six bits share a record. */
const CALLERS: u32 = 64;
/** Mask of request numbers, which wrap; 0 stands for no request. */
const REQUEST_MASK: u32 = 0x3fffffff;

/**
 * Which calls are of one request, as far as callers say so: a call that is said to go on, and a write after a read, go
 * on with the request of the caller's last call.
 *
 *     caller (8 bytes)
 *      0 request   u32   number of its last call's request
 *      4 wasRead   u32   whether its last call was a read
 */
@unmanaged
export class Requests {
  private records: usize;
  private latest: u32;
  /** Number of the running call's request, or of the last one. */
  current: u32;

  constructor() {
    this.records = heap.alloc(CALLERS << 3);
    memory.fill(this.records, 0, CALLERS << 3);
    this.latest = 0;
    this.current = 0;
  }

  /** Begins a call of a caller. */
  begin(caller: u32, isTold: bool, isWrite: bool): void {
    const at = this.records + (<usize>(caller & (CALLERS - 1)) << 3);
    const before = load<u32>(at);
    const goesOn = before != 0 && (isTold || (isWrite && load<u32>(at, 4) != 0));
    if (!goesOn) this.latest = this.latest == REQUEST_MASK ? 1 : this.latest + 1;
    this.current = goesOn ? before : this.latest;
    store<u32>(at, this.current);
    store<u32>(at, isWrite ? 0 : 1, 4);
  }

  dispose(): void {
    heap.free(this.records);
    heap.free(changetype<usize>(this));
  }
}
