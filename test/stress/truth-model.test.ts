import test from 'ava';
import { explore } from '../_support/truth/explore.js';
import type { Budget } from '../_support/truth/state.js';
import { walk } from '../_support/truth/walk.js';

const ONE_OF_EACH: Budget = {
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
const MANY: Budget = {
  sets: 3,
  computed: 4,
  deletes: 2,
  clears: 2,
  evictions: 2,
  copies: 3,
  cuts: 4,
  restarts: 2,
  lapses: 4,
};

for (const [what, budget, keys, depth] of [
  ['one key', ONE_OF_EACH, 1, 5],
  ['two keys', ONE_OF_EACH, 2, 4],
  ['one key, named and computed', { ...ONE_OF_EACH, computed: 2 }, 1, 4],
] as const) {
  test.serial(`truth model: ${what}, everything in every order, ${depth} steps deep, keeps every promise`, (t) => {
    const began = performance.now();
    const { states, violation } = explore(budget, keys, depth);
    t.is(violation, undefined);
    t.log(`${states} states in ${Math.round((performance.now() - began) / 1000)} s`);
  });
}

test.serial('truth model: thousands of long stories by chance keep every promise', (t) => {
  const first = Math.floor(Math.random() * 1e9);
  for (let number = first; number < first + 3_000; number++) t.is(walk(MANY, 50, number), undefined, `seed ${number}`);
});
