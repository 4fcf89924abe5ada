/*
 * What a call says of itself, in one number: see `Yield.begin`.
 */

export const HINT_MASK: u32 = 3;
export const CONTINUES: u32 = 4;
export const BEGINS: u32 = 8;
export const ENDS_ELSEWHERE: u32 = 16;
export const CALLER_SHIFT: u32 = 5;
