import test from 'ava';
import { systemRandom } from '../../src/system/system-random.js';
import { COMPUTED, ONE_OF_EACH } from '../_support/truth/budgets.js';
import { explore } from '../_support/truth/explore.js';
import { walk } from '../_support/truth/walk.js';

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
  // A search, and its place is `npm run stress`; what is found becomes a kept story.
  const first = process.env.MESHCACHE_STRESS_SECONDS === undefined ? 1 : systemRandom.u32() % 1_000_000_000;
  for (let number = first; number < first + 3_000; number++)
    t.is(walk(COMPUTED, 50, number), undefined, `seed ${number}`);
});
