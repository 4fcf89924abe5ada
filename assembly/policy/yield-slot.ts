import { slotQueue } from '../slot';

/*
 * The two fields of a slot that `Yield` has: `frequency` is the tick of its last use, `queue` has [call: 27 bits][class: 5 bits].
 */

export const CLASS_BITS: u32 = 5;
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
