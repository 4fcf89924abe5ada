import { NONE } from '../../records';

/** Callers whose numbers agree in the lowest six bits share a record. */
const CALLERS: u32 = 64;
const CALLER_SHIFT: u32 = 5;

/**
 * The request that each caller is at. Engines say one request in several calls: reads of the pages that are there, then
 * writes of the rest, in slices of a size of their own.
 *
 *     caller (32 bytes)
 *      0 first        u32   number of the call that the request began with
 *      4 slotCall     u32   number of the call that had the page in that slot
 *      8 slot         u32   last page of the request so far, or NONE
 *     12 keys         u32   of the last call
 *     16 isWrite      u32   kind of the last call
 *     20 longest      2 x u32   most keys of a read so far, and of a write
 *     28 unused       u32
 */
@unmanaged
export class Callers {
  private records: usize;

  constructor() {
    const bytes: usize = (<usize>CALLERS) << CALLER_SHIFT;
    this.records = heap.alloc(bytes);
    memory.fill(this.records, 0, bytes);
    for (let i: u32 = 0; i < CALLERS; i++) setCallerSlot(this.at(i), NONE, 0);
  }

  @inline
  at(caller: u32): usize {
    return this.records + (<usize>(caller & (CALLERS - 1)) << CALLER_SHIFT);
  }

  dispose(): void {
    heap.free(this.records);
    heap.free(changetype<usize>(this));
  }
}

/**
 * Whether a call continues the request of the caller's last one. It does if it is a write after a read, or if it
 * follows a call of the same kind that was as long as this caller's longest, and therefore a slice.
 */
export function continues(caller: usize, isWrite: bool): bool {
  if (load<u32>(caller, 8) == NONE) return false;
  return wasWrite(caller) == isWrite ? load<u32>(caller, 12) >= load<u32>(longestAt(caller, isWrite)) : isWrite;
}

/** Records the kind and length of the caller's current call. */
export function noteCall(caller: usize, keys: u32, isWrite: bool): void {
  store<u32>(caller, keys, 12);
  store<u32>(caller, isWrite ? 1 : 0, 16);
  const longest = longestAt(caller, isWrite);
  store<u32>(longest, max(keys, load<u32>(longest)));
}

/** Whether the caller's last call was a write. */
// @ts-ignore: decorator
@inline
export function wasWrite(caller: usize): bool {
  return load<u32>(caller, 16) != 0;
}
// @ts-ignore: decorator
@inline
function longestAt(caller: usize, isWrite: bool): usize {
  return caller + (isWrite ? 24 : 20);
}
// @ts-ignore: decorator
@inline
export function callerFirst(caller: usize): u32 {
  return load<u32>(caller);
}
// @ts-ignore: decorator
@inline
export function setCallerFirst(caller: usize, call: u32): void {
  store<u32>(caller, call);
}
// @ts-ignore: decorator
@inline
export function callerSlotCall(caller: usize): u32 {
  return load<u32>(caller, 4);
}
// @ts-ignore: decorator
@inline
export function callerSlot(caller: usize): u32 {
  return load<u32>(caller, 8);
}
// @ts-ignore: decorator
@inline
export function setCallerSlot(caller: usize, slot: u32, call: u32): void {
  store<u32>(caller, slot, 8);
  store<u32>(caller, call, 4);
}
