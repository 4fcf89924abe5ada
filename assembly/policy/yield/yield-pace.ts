/*
 * How fast `Yield` counts, learns and forgets: see there.
 */

export const TICKS_PER_TURNOVER: u64 = 64;
/**
 * Number of the first tick, 2^15 before the clock wraps. A small pool gets there within years; starting close to it
 * makes a wrap ordinary, and tests cover it. All stages begin at a multiple of their length.
 */
export const FIRST_TICK: u32 = 0xffff8001;
/** Longest time, in ticks, for which the clock waits for the end of a request that is stated in several calls. */
export const REQUEST_TICKS_MAX: u64 = 16 * TICKS_PER_TURNOVER;
export const LEARN_PAGES: u64 = 1024;
export const LEARN_TICKS: u32 = 8;
export const HALVE_PAGES: u64 = 32_768;
export const HALVE_TICKS: u32 = 32 * <u32>TICKS_PER_TURNOVER;
/** Number of ghosts kept in excess of the number of pages. */
export const GHOSTS_MIN: u32 = 16_384;
