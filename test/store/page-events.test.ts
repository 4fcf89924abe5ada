import test from 'ava';
import { InvariantError } from '../../src/base/errors.js';
import { EVENT_MAX_CHARACTERS, EVENTS_KEPT_MAX_CHARACTERS, EVENTS_KEPT_MAX_COUNT } from '../../src/base/limits.js';
import { type PageEvent, PageEvents } from '../../src/store/events/page-events.js';
import type { Tier } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { losing } from '../_support/planted.js';

/** Events of pages that are in a map. */
function newEvents() {
  const clock = new ManualClock();
  const tiers = new Map<string, Tier>();
  const listed = {
    start: () => 7,
    tiersOf: (keys: readonly string[]) => keys.map((key) => tiers.get(key) ?? null),
    keysInSlices: () => [[...tiers.keys()]],
  };
  const events = new PageEvents(listed, { clock });
  return { clock, tiers, events };
}

async function take(stream: AsyncIterator<PageEvent, void>): Promise<PageEvent | undefined> {
  const { value } = await stream.next();
  return value ?? undefined;
}

test('page events: a reader that falls behind by more than is kept gets a new list', async (t) => {
  const { clock, tiers, events } = newEvents();
  const stream = events.follow();
  t.is((await take(stream))?.kind, 'reset');
  t.is((await take(stream))?.kind, 'complete');
  tiers.set('key 7', 'memory');
  for (let from = 0; from <= EVENTS_KEPT_MAX_COUNT; from += 4096) {
    events.note(Array.from({ length: 4096 }, (_, i) => `key ${from + i}`));
    clock.advance(100);
    events.verify();
  }
  t.is((await take(stream))?.kind, 'reset');
  t.deepEqual(await take(stream), { kind: 'listed', changes: [{ key: 'key 7', tier: 'memory' }] });
  t.is((await take(stream))?.kind, 'complete');
  await stream.return();
});

test('page events: a list that is longer than a batch comes in parts, and what changes meanwhile comes after it', async (t) => {
  const { clock, tiers, events } = newEvents();
  for (let i = 0; i < 3000; i++) tiers.set(`key ${i}`, 'disk');
  const stream = events.follow();
  t.is((await take(stream))?.kind, 'reset');
  const parts: number[] = [];
  for (let event = await take(stream); event?.kind === 'listed'; event = await take(stream)) {
    parts.push(event.changes.length);
    if (parts.length > 1) continue;
    tiers.delete('key 0');
    events.note(['key 0']);
    clock.advance(100);
  }
  t.deepEqual(parts, [1024, 1024, 952]);
  t.like(await take(stream), { kind: 'changed', changes: [{ key: 'key 0', tier: null }] });
  await stream.return();
});

test('page events: long keys come in more parts, and fewer changes of them are kept', async (t) => {
  const { clock, tiers, events } = newEvents();
  const keys = Array.from({ length: 30 }, (_, i) => `${i}-`.padEnd(60_000, 'x'));
  for (const key of keys) tiers.set(key, 'memory');
  const stream = events.follow();
  const sizes: number[] = [];
  for (let event = await take(stream); event?.kind !== 'complete'; event = await take(stream)) {
    if (event?.kind === 'listed') sizes.push(event.changes.reduce((sum, { key }) => sum + key.length, 0));
  }
  t.is(sizes.length, 8);
  t.true(sizes.every((size) => size <= EVENT_MAX_CHARACTERS));
  const rounds = Math.ceil(EVENTS_KEPT_MAX_CHARACTERS / (30 * 60_000)) + 1;
  for (let round = 0; round < rounds; round++) {
    events.note(keys);
    clock.advance(100);
    events.verify();
  }
  t.is((await take(stream))?.kind, 'reset', 'the reader has fallen behind by more than is kept');
  await stream.return();
});

test('page events: while nobody reads nothing is recorded, and no timer runs', (t) => {
  const { clock, events } = newEvents();
  events.note(['a']);
  t.is(clock.pendingCount, 0);
  events.close();
  events.verify();
});

test('page events: changes within one batch are one change of the key', async (t) => {
  const { clock, tiers, events } = newEvents();
  const stream = events.follow();
  await take(stream);
  await take(stream);
  for (const tier of ['memory', 'disk'] as const) {
    tiers.set('a', tier);
    events.note(['a']);
  }
  clock.advance(100);
  t.like(await take(stream), { kind: 'changed', changes: [{ key: 'a', tier: 'disk' }] });
  await stream.return();
});

test.serial('verify: page events', async (t) => {
  const { clock, events } = newEvents();
  const stream = events.follow();
  await take(stream);
  events.note(['a']);
  losing(Array.prototype, 'push', () => clock.advance(100));
  t.throws(() => events.verify(), { instanceOf: InvariantError, message: /page events: batches/ });
  await stream.return();
});
