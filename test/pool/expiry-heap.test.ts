import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { ExpiryHeap } from '../../src/pool/slots/expiry-heap.js';

test('expiry heap: agrees with a sorted list over random operations', (t) => {
  const seed = Number(process.env.MESHCACHE_SEED ?? Math.floor(Math.random() * 2 ** 32));
  t.log(`MESHCACHE_SEED=${seed}`);
  const random = seededRandom(seed);
  const heap = new ExpiryHeap();
  const model = new Map<number, number>();
  for (let i = 0; i < 20_000; i++) {
    const slot = random.u32() % 700;
    const expires = random.u32() % 3 === 0 ? 0 : 1 + (random.u32() % 50);
    heap.set(slot, expires);
    if (expires === 0) model.delete(slot);
    else model.set(slot, expires);
    t.is(heap.size, model.size);
    if (i % 100 > 0) continue;
    heap.verify();
    t.is(heap.first, model.size === 0 ? 0 : Math.min(...model.values()));
    for (const other of [slot, 0, 699]) t.is(heap.expiresOf(other), model.get(other) ?? 0);
  }
  let last = 0;
  while (heap.size > 0) {
    t.true(heap.first >= last);
    last = heap.first;
    t.is(model.get(heap.firstSlot), last);
    heap.set(heap.firstSlot, 0);
  }
});
