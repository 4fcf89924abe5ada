import test from 'ava';
import { COMPUTED, MIXED, ONE_OF_EACH } from '../_support/truth/budgets.js';
import { type Exploration, explore } from '../_support/truth/explore.js';
import { MISTAKES, type Mistake } from '../_support/truth/mistakes.js';
import type { Budget } from '../_support/truth/state.js';
import { follow, walk } from '../_support/truth/walk.js';

const PARTITIONS: Budget = { ...MIXED, clears: 0, copies: 1 };
const CALM: Budget = { ...COMPUTED, clears: 0, evictions: 0, cuts: 0, restarts: 0, lapses: 1 };
const STEPS = 50;

/** Finds a broken promise with a mistake. */
type Story = (mistake: Mistake) => Exploration['violation'];

/** What happens by chance with this seed. */
function seed(budget: Budget, number: number): Story {
  return (mistake) => (walk(budget, STEPS, number) === undefined ? walk(budget, STEPS, number, mistake) : undefined);
}

/** A drop is on its way when the holder hears up to when it knows all, and is lost; then the owner forgets why. */
const LOST_DROP = `set 0 1, change 0 1, change 0 2, restart 2, notice 0 2, notice 1 2, notes 1 0, list 1 0, set 1 1, hear 0 1,
  cut 0 1, break 0 1, break 1 0, notice 1 0, evict 1 1, forget 1 1`;

/** While a copy is on its way the page is deleted, and the owners forget that. */
const LATE_COPY =
  'set 1 0, change 1 0, copy 2 0 1, delete 0 0, change 0 1, drop 1 0, forget 0 0, forget 1 0, change 2 0';

/**
 * An owner that is cut off gets a further key, whose pages nobody lists; a holder hears from it, as if it had compared
 * them.
 */
const SMALLER_RING = `set 1 0, change 1 0, cut 0 2, notice 2 0, set 2 0, cut 1 2, break 2 1, heal 1 2, evict 2 0, forget 2 0, hear 1 2`;

/** What happens in these steps. */
function steps(names: string): Story {
  return (mistake) => follow(COMPUTED, names.split(/,\s+/), mistake);
}

/** For each mistake a story in which it breaks a promise. */
const STORIES: Record<Mistake, Story> = {
  'acknowledged when sent': seed(MIXED, 1),
  'list leaves a page out': seed(MIXED, 1),
  'list leaves notes out': seed(COMPUTED, 3),
  'heard before drops': steps(LOST_DROP),
  'heard before changes': seed(PARTITIONS, 177),
  'forgotten not carried over': seed(COMPUTED, 3),
  'forgotten not noted': seed(COMPUTED, 3),
  'forgotten without a new list': seed(PARTITIONS, 49),
  'complete without a member': seed(COMPUTED, 1314),
  'kept pages are read at once': seed(PARTITIONS, 37),
  'kept pages ask one owner': seed(COMPUTED, 82),
  'compared by no owner': seed(COMPUTED, 240_841_818),
  'copies count without an original': steps(LATE_COPY),
  'cleared not carried over': seed(MIXED, 93),
  'cleared not remembered': seed(MIXED, 93),
  'drops told to nobody': seed(COMPUTED, 1),
  'delete without holders': seed(PARTITIONS, 2653),
  'new owner keeps its sessions': steps(SMALLER_RING),
  'what is lost is not told again': seed(MIXED, 1293),
  'computed pages leave named ones': seed(COMPUTED, 1),
  'computed pages replace each other': steps('compute 2 0, change 2 0, change 2 1, compute 0 0, change 0 1'),
};

for (const [what, budget, keys, depth] of [
  ['one key', ONE_OF_EACH, 1, 4],
  ['two keys', ONE_OF_EACH, 2, 3],
  ['one key, named and computed', { ...ONE_OF_EACH, computed: 2 }, 1, 3],
] as const) {
  test(`truth model: ${what}, everything in every order, ${depth} steps deep, keeps every promise`, (t) => {
    const { states, violation } = explore(budget, keys, depth);
    t.is(violation, undefined);
    t.true(states > 3_000, `${states} states`);
  });
}

test('truth model: long stories by chance keep every promise', (t) => {
  for (let number = 1; number <= 150; number++) {
    for (const budget of [MIXED, PARTITIONS, COMPUTED, CALM])
      t.is(walk(budget, STEPS, number), undefined, `seed ${number}`);
  }
});

for (const mistake of MISTAKES) {
  test(`truth model: a promise is broken with the mistake: ${mistake}`, (t) => {
    t.truthy(STORIES[mistake](mistake));
  });
}
