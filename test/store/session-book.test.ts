import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { SESSION_MAX_PAGES, SESSIONS_MAX_COUNT, SESSIONS_MAX_PAGES } from '../../src/base/limits.js';
import { SessionBook } from '../../src/store/sessions/session-book.js';
import { systemRandom } from '../../src/system/system-random.js';

const NEVER = Number.POSITIVE_INFINITY;

test('session book: pages wait with their session, and are never needed again after its end', (t) => {
  const book = new SessionBook();
  t.deepEqual(book.note('s', { keys: ['a', 'b'] }), []);
  t.deepEqual(book.note('s', { keys: ['c'], waitingMs: 5 }), [{ keys: ['a', 'b', 'c'], inMs: 5 }]);
  t.deepEqual(book.keysOf('s'), ['a', 'b', 'c']);
  t.deepEqual(book.note('s', { ended: true }), [{ keys: ['a', 'b', 'c'], inMs: NEVER }]);
  t.deepEqual(book.keysOf('s'), []);
  t.is(book.size, 0);
  t.deepEqual(book.note('s', { ended: true, waitingMs: 5 }), []);
  book.verify();
});

test('session book: a branch leaves the pages behind that it does not go on from', (t) => {
  const book = new SessionBook();
  book.note('s', { keys: ['a', 'b', 'c'] });
  t.deepEqual(book.note('s', { keys: ['a', 'x'], branched: true, waitingMs: 9 }), [
    { keys: ['b', 'c'], inMs: NEVER },
    { keys: ['a', 'x'], inMs: 9 },
  ]);
  t.deepEqual(book.keysOf('s'), ['a', 'x']);
  book.verify();
});

test('session book: pages of several sessions, or said to be shared, are not expected by one of them', (t) => {
  const book = new SessionBook();
  book.note('s', { keys: ['p', 'a'] });
  book.note('r', { keys: ['p', 'b'] });
  t.deepEqual(book.note('s', { waitingMs: 1 }), [{ keys: ['a'], inMs: 1 }]);
  t.deepEqual(book.note('s', { ended: true }), [{ keys: ['a'], inMs: NEVER }]);
  t.deepEqual(book.note('r', { ended: true }), [{ keys: ['p', 'b'], inMs: NEVER }]);
  t.deepEqual(book.note('q', { keys: ['p', 'c'], shared: 1, ended: true }), [{ keys: ['c'], inMs: NEVER }]);
  book.note('u', { keys: ['p', 'd'] });
  t.deepEqual(book.note('u', { keys: ['p', 'd'], shared: 1, ended: true }), [{ keys: ['d'], inMs: NEVER }]);
  book.verify();
});

test('session book: the sessions told the longest time ago are forgotten', (t) => {
  const book = new SessionBook();
  for (let i = 0; i <= SESSIONS_MAX_COUNT; i++) book.note(`s${i}`, { keys: [`k${i}`] });
  book.verify();
  t.is(book.size, SESSIONS_MAX_COUNT);
  t.deepEqual(book.keysOf('s0'), []);
  t.deepEqual(book.keysOf('s1'), ['k1']);
  for (let i = 0; i <= SESSIONS_MAX_PAGES / SESSION_MAX_PAGES; i++) {
    book.note(`large${i}`, { keys: Array.from({ length: SESSION_MAX_PAGES + 1 }, (_, k) => `${i}/${k}`) });
  }
  book.verify();
  t.deepEqual(book.keysOf('large0'), []);
  t.is(book.keysOf('large1').length, SESSION_MAX_PAGES);
  const long = 'k'.repeat(2 ** 20);
  for (let i = 0; i < 40; i++) book.note(`long${i}`, { keys: [`${i}${long}`] });
  book.verify();
  t.deepEqual(book.keysOf('large1'), []);
});

test('session book: it does as a simple model does', (t) => {
  const seed = systemRandom.u32();
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const book = new SessionBook();
  const model = new Map<string, string[]>();
  const isElsewhere = (key: string, name: string): boolean =>
    [...model].some(([other, keys]) => other !== name && keys.includes(key));
  for (let step = 0; step < 5_000; step++) {
    const name = `s${random.u32() % 4}`;
    const keys = Array.from({ length: random.u32() % 4 }, () => `k${random.u32() % 12}`);
    const [branched, ended] = [random.u32() % 5 === 0, random.u32() % 9 === 0];
    const waitingMs = random.u32() % 2 === 0 ? undefined : random.u32() % 100;
    const before = model.get(name) ?? [];
    const left = branched ? before.filter((key) => !keys.includes(key)) : [];
    const stays = [...new Set([...before.filter((key) => !left.includes(key)), ...keys])];
    model.set(name, stays);
    const gone = (ended ? [...left, ...stays] : left).filter((key) => !isElsewhere(key, name));
    const expected = gone.length > 0 ? [{ keys: gone, inMs: NEVER }] : [];
    const own = stays.filter((key) => !isElsewhere(key, name));
    if (ended) model.delete(name);
    else if (waitingMs !== undefined && own.length > 0) expected.push({ keys: own, inMs: waitingMs });
    t.deepEqual(book.note(name, { keys, branched, ended, waitingMs }), expected);
    t.deepEqual(book.keysOf(name), model.get(name) ?? []);
    if (step % 100 === 0) book.verify();
  }
});
