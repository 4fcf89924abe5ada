import test from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import { isWhole } from '../../src/pool/page-batch.js';
import { RegionPage, restoreTail, ScatteredPage } from '../../src/store/call/caller-page.js';

test('caller page: a page in one range has the bytes of the region, and takes its tail', (t) => {
  const region = HostRegion.wrap(new Uint8Array(64));
  const page = new RegionPage(region, region.start + 10, 20);
  t.is(page.views.length, 1);
  t.true(isWhole(page));
  restoreTail(page, 0x060504030201);
  t.deepEqual([...region.bytes(22, 10)], [0, 0, 1, 2, 3, 4, 5, 6, 0, 0]);
  const short = new RegionPage(region, region.start, 3);
  restoreTail(short, 0x090807);
  t.deepEqual([...region.bytes(0, 4)], [7, 8, 9, 0]);
  region.free();
  t.true(isWhole(new ScatteredPage([page, short], 23)), 'it holds the memory of the region');
});

test('caller page: the tail of a page in several ranges ends in the ranges before', (t) => {
  const region = HostRegion.wrap(new Uint8Array(64));
  t.teardown(() => region.free());
  const ranges = [new RegionPage(region, region.start + 40, 8), new RegionPage(region, region.start, 2)];
  restoreTail(new ScatteredPage(ranges, 10), 0x060504030201);
  t.deepEqual([...region.bytes(44, 4)], [1, 2, 3, 4]);
  t.deepEqual([...region.bytes(0, 2)], [5, 6]);
});

// Cause: views are made late, and making one of detached memory throws: a whole call failed instead of this page.
test('caller page: of memory that has been detached meanwhile nothing is there, and nothing throws', (t) => {
  const memory = new ArrayBuffer(64);
  const region = HostRegion.wrap(memory);
  const page = new RegionPage(region, region.start, 64);
  region.free();
  structuredClone(memory, { transfer: [memory] });
  t.false(isWhole(page));
  t.notThrows(() => restoreTail(page, 1));
});
