import test from 'ava';
import { SlotKeys } from '../../src/core/pool/slot-keys.js';

test('slot keys: a slot that is evicted and taken again within a batch has the last key', (t) => {
  const keys = new SlotKeys();
  keys.set(0, 'a');
  keys.set(1, 'b');
  // c takes slot 0 from a, d takes it from c, and e, which finds no place, evicts b.
  const words = Uint32Array.of(9, 0, 0, 0xffffffff, 1, 2, 3);
  const evictedSlots = Uint32Array.of(0, 0, 1);
  t.deepEqual(keys.follow(['c', 'd', 'e'], { words, slotsAt: 1, endsAt: 4, evictedSlots }), ['a', 'c', 'b']);
  t.deepEqual(keys.of(Uint32Array.of(0, 1, 7)), ['d', undefined, undefined]);
});

test('slot keys: a key is taken once, and slot -1 has none', (t) => {
  const keys = new SlotKeys();
  keys.set(3, 'a');
  t.is(keys.take(-1), null);
  t.is(keys.take(3), 'a');
  t.is(keys.of(Uint32Array.of(3))[0], undefined);
  keys.set(3, 'b');
  keys.clear();
  t.is(keys.of(Uint32Array.of(3))[0], undefined);
});
