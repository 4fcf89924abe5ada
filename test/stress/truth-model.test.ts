import test from 'ava';
import { systemRandom } from '../../src/system/system-random.js';
import { COMPUTED, ONE_OF_EACH } from '../_support/truth/budgets.js';
import { explore } from '../_support/truth/explore.js';
import { walk } from '../_support/truth/walk.js';

/** The search goes deep, and to new places, in `npm run stress`; with all tests it takes seconds. */
const isDeep = process.env.MESHCACHE_STRESS_SECONDS !== undefined;

for (const [what, budget, keys, steps] of [
  ['one key', ONE_OF_EACH, 1, 5],
  ['two keys', ONE_OF_EACH, 2, 4],
  ['one key, named and computed', { ...ONE_OF_EACH, computed: 2 }, 1, 4],
] as const) {
  const depth = isDeep ? steps : steps - 1;
  test.serial(`truth model: ${what}, everything in every order, ${depth} steps deep, keeps every promise`, (t) => {
    const began = performance.now();
    const { states, violation } = explore(budget, keys, depth);
    t.is(violation, undefined);
    t.log(`${states} states in ${Math.round((performance.now() - began) / 1000)} s`);
  });
}

test.serial('truth model: many long stories by chance keep every promise', (t) => {
  // What a search finds becomes a kept story.
  const first = isDeep ? systemRandom.u32() % 1_000_000_000 : 1;
  const end = first + (isDeep ? 3_000 : 300);
  for (let number = first; number < end; number++) t.is(walk(COMPUTED, 50, number), undefined, `seed ${number}`);
});
