import test from 'ava';
import { shuffled } from '../../../src/base/environment/random.js';
import { forkedRandom } from '../../../src/sim/world/kernel/seeds.js';

test('seeds: parts come in each order, the same one for the same seed', (t) => {
  const orders = new Set<string>();
  for (let seed = 0; seed < 200; seed++) {
    const order = shuffled(['a', 'b', 'c'], forkedRandom(seed, 'order'));
    t.deepEqual(shuffled(['a', 'b', 'c'], forkedRandom(seed, 'order')), order);
    orders.add(order.join(''));
  }
  t.deepEqual([...orders].sort(), ['abc', 'acb', 'bac', 'bca', 'cab', 'cba']);
});
