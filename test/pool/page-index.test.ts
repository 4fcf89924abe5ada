import test from 'ava';
import { ArgumentError, type EvictionPolicy, type RequestOptions } from '../../src/core/index.js';
import { PageIndex, type PublishedPage, type RestoredPage } from '../../src/pool/page-index.js';
import { RequestParts } from '../../src/store/call/request-calls.js';
import { freshCore } from '../_support/core/binaries.js';

const PAGE_BYTES = 4096;

function indexOf(pages: number, policy: EvictionPolicy = 'lru'): PageIndex {
  return new PageIndex({
    capacityBytes: pages * PAGE_BYTES,
    policy,
    alignmentBytes: PAGE_BYTES,
    core: freshCore(),
    nowMs: () => 0,
  });
}

function pageAt(number: number, key = `k${number}`): RestoredPage {
  return {
    key,
    offset: number * PAGE_BYTES,
    length: PAGE_BYTES - (number % 7),
    checksum: (number * 2_654_435_761) >>> 0,
  };
}

function foundAt(number: number): Omit<PublishedPage, 'slot' | 'version' | 'kind' | 'setBy' | 'expires'> {
  const { offset, length, checksum } = pageAt(number);
  return { offset, length, checksum, state: 'live', alreadyPresent: true };
}

test('page index: restored pages are found with their checksums, and recency is told afterwards', (t) => {
  const index = indexOf(10);
  const pages = [pageAt(1), pageAt(4), pageAt(5, 'k1'), pageAt(6)];
  t.deepEqual(index.restore(pages.slice(0, 2)), [true, true]);
  t.deepEqual(index.restore(pages.slice(2)), [false, true]);
  t.like(index.peekBatch(['k1', 'k4', 'k6', 'absent']), [foundAt(1), foundAt(4), foundAt(6), null]);
  index.touchBatch(['k6', 'k1', 'k4']);
  t.deepEqual([index.evictNext(), index.evictNext(), index.size], ['k6', 'k1', 1]);
  t.is(index.evictNext(), 'k4');
  t.is(index.evictNext(), null);
  t.throws(() => index.restore([pageAt(9)]), { instanceOf: ArgumentError });
  t.is(index.usedBytes, 0);
});

test('page index: a page that is held is not evicted next', (t) => {
  const index = indexOf(2);
  index.restore([pageAt(0), pageAt(1)]);
  index.hold(['k0']);
  t.is(index.evictNext(), 'k1');
  t.is(index.evictNext(), null);
  index.release(['k0']);
  t.is(index.evictNext(), 'k0');
});

test('page index: it knows of which nodes there may be copies, and no more of one when the last has gone', (t) => {
  // Cause: each clear of any node looked through all pages wherever there had ever been a copy.
  const index = indexOf(4);
  index.restore([pageAt(0), { ...pageAt(1), setBy: 7 }, { ...pageAt(2), setBy: 8 }]);
  const known = () => [7, 8, 9, 0].map((origin) => index.hasCopiesOf(origin));
  t.deepEqual(known(), [true, true, false, true]);
  t.true(index.remove('k1'));
  t.deepEqual(known(), [false, true, false, true]);
  t.is(index.peekBatch(['k2'])[0]?.setBy, 8);
});

test('page index: a million pages are restored, however many a call of the core takes', (t) => {
  const count = 1_000_000;
  const index = indexOf(2 * count);
  const pages = Array.from({ length: count }, (_, i) => pageAt(2 * i));
  const startMs = performance.now();
  const taken = index.restore(pages);
  t.log(`restored in ${Math.round(performance.now() - startMs)} ms`);
  t.true(taken.length === count && taken.every(Boolean));
  t.is(index.size, count);
  const some = pages.filter((_, i) => i % 997 === 0);
  const found = index.peekBatch(some.map(({ key }) => key));
  t.true(found.every((page, i) => page?.offset === some[i]?.offset && page?.checksum === some[i]?.checksum));
  t.is(index.evictNext(), 'k0');
  index.free();
});

/** Keys in the order in which they go. */
function evictAll(index: PageIndex): string[] {
  const keys: string[] = [];
  for (let key = index.evictNext(); key !== null; key = index.evictNext()) keys.push(key);
  return keys;
}

for (const isHeld of [false, true]) {
  test(`page index: a request goes from its end, however it was cut into calls${isHeld ? ', held while it is filled' : ''}`, (t) => {
    const keys = Array.from({ length: 9 }, (_, i) => `k${i}`);
    for (const cuts of [[9], [4, 5], [1, 1, 7], [3, 3, 3]]) {
      const index = indexOf(2000, 'yield');
      const place = (some: readonly string[], request: RequestOptions) => {
        const { vacancies } = index.place(
          some.map((key) => ({ key, length: PAGE_BYTES, here: null, intent: 'new', request })),
        );
        if (isHeld) index.holdUnfilled(vacancies);
        for (const vacancy of vacancies) {
          if (isHeld) index.fillHeld(vacancy, PAGE_BYTES, 0);
          else index.fill(vacancy, PAGE_BYTES, 0);
        }
      };
      place(['before'], {});
      const parts = new RequestParts({ continues: false });
      let start = 0;
      for (const count of cuts) {
        place(keys.slice(start, start + count), parts.next());
        start += count;
      }
      const evicted = evictAll(index).filter((key) => key !== 'before');
      t.deepEqual(evicted, [...keys].reverse(), `${cuts}`);
    }
  });
}

test('page index: pages of two requests in one call are each placed with their own', (t) => {
  const index = indexOf(2000, 'yield');
  const [a, b] = [{ caller: 1 }, { caller: 2 }];
  const wish = (key: string, request: RequestOptions) => ({
    key,
    length: PAGE_BYTES,
    here: null,
    intent: 'new' as const,
    request,
  });
  const { vacancies } = index.place([wish('a0', a), wish('a1', a), wish('b0', b), wish('b1', b), wish('a2', a)]);
  for (const vacancy of vacancies) index.fill(vacancy, PAGE_BYTES, 0);
  const evicted = evictAll(index);
  t.deepEqual(
    evicted.filter((key) => key.startsWith('b')),
    ['b1', 'b0'],
  );
  t.true(evicted.indexOf('a1') < evicted.indexOf('a0'));
});

test('page index: what is restored and renewed has not been used', (t) => {
  const used = indexOf(2000, 'yield');
  used.restore([pageAt(0), pageAt(1), pageAt(2), pageAt(3)]);
  used.renewBatch(['k2', 'k0', 'k3', 'k1']);
  t.deepEqual(evictAll(used), ['k2', 'k0', 'k3', 'k1']);
});
