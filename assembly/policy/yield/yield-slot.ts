import { slotQueue } from '../../slot';

/*
 * The two fields of a slot that `Yield` has: `frequency` is the tick of its last use, `queue` has [call: 27 bits][class: 5 bits].
 */

export const CLASS_BITS: u32 = 5;
/** Bit of the class of pages that were the last ones of their request; hits are above it, the caller's hint is below. */
export const LAST: u32 = 4;
const CLASS_MASK: u32 = (1 << CLASS_BITS) - 1;

// @ts-ignore: decorator
@inline
export function slotClassOf(at: usize): u32 {
  return slotQueue(at) & CLASS_MASK;
}
// @ts-ignore: decorator
@inline
export function slotCall(at: usize): u32 {
  return slotQueue(at) >> CLASS_BITS;
}

/** Whether pages of a class are behind those of another in a request: its last page, then those with fewest hits. */
export function isBehind(a: u32, b: u32): bool {
  const isLast = (a & LAST) != 0;
  return isLast == ((b & LAST) != 0) ? a < b : isLast;
}
