import test from 'ava';
import { ArgumentError } from '../../src/core/index.js';
import { PageIndex, type PublishedPage, type RestoredPage } from '../../src/pool/page-index.js';
import { freshCore } from '../core/binaries.js';

const PAGE_BYTES = 4096;

function indexOf(pages: number): PageIndex {
  return new PageIndex({
    capacityBytes: pages * PAGE_BYTES,
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

function foundAt(number: number): Omit<PublishedPage, 'slot' | 'version' | 'kind' | 'isCopy'> {
  const { offset, length, checksum } = pageAt(number);
  return { offset, length, checksum, alreadyPresent: true };
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
