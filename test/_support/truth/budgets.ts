import type { Budget } from './state.js';

/** Each thing happens once, but two pages are set. */
export const ONE_OF_EACH: Budget = {
  sets: 2,
  computed: 0,
  deletes: 1,
  clears: 1,
  evictions: 1,
  copies: 1,
  cuts: 1,
  restarts: 1,
  lapses: 1,
};
/** What happens in long stories. */
export const MIXED: Budget = {
  sets: 5,
  computed: 0,
  deletes: 2,
  clears: 2,
  evictions: 2,
  copies: 3,
  cuts: 4,
  restarts: 2,
  lapses: 4,
};
/** What happens in long stories of computed pages beside named ones. */
export const COMPUTED: Budget = { ...MIXED, sets: 3, computed: 4 };
