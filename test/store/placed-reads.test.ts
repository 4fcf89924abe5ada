import test from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import { type CallerPage, RegionPage } from '../../src/store/call/caller-page.js';
import type { CallOptions } from '../../src/store/call/request-calls.js';
import type { CopiedReads, LocatedReads } from '../../src/store/copied-reads.js';
import { FoundPages, type FoundReads, type PageRoom, readPlaced } from '../../src/store/found-pages.js';
import type { DataLocation } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { content } from '../_support/support.js';

const PAGES: Readonly<Record<string, Uint8Array>> = { a: content(1, 100), b: content(2, 50), c: content(3, 60) };
const locationOf = (length: number): DataLocation =>
  ({ nodeId: 'n', length, version: 1, generation: 1 }) as DataLocation;

function fill(page: CallerPage, bytes: Uint8Array): void {
  page.views[0]?.set(bytes);
}

/** Reads of `PAGES`; pages of `changed` cannot be read where they were located, and have these bytes now. */
function placedReads(changed: Readonly<Record<string, Uint8Array | null>> = {}) {
  const asked: string[][] = [];
  const located: LocatedReads = {
    isClosed: false,
    locate: async (keys) => keys.map((key) => (PAGES[key] ? locationOf(PAGES[key].length) : null)),
    get: async (keys, pages, _options, at) => {
      asked.push([...keys]);
      return keys.map((key, i) => {
        if (key in changed) return false;
        if (at(i)?.length !== pages[i]?.length) return false;
        fill(pages[i] as CallerPage, PAGES[key] as Uint8Array);
        return true;
      });
    },
  };
  const copied = { get: async (key: string) => changed[key] ?? null } as unknown as CopiedReads;
  const clock = new ManualClock();
  const parts: FoundReads = { reads: located, copied, clock, freshMs: 1000 };
  const find = async (keys: readonly string[]) => new FoundPages(keys, await located.locate(keys, {}), parts);
  const reads = {
    get: async (keys: readonly string[], to: PageRoom, options: CallOptions) =>
      readPlaced(await find(keys), keys.length, { room: to, options }),
  };
  return { reads, find, clock, asked };
}

function room(length: number) {
  const region = HostRegion.wrap(new Uint8Array(length));
  const pageAt = (offset: number, bytes: number) => new RegionPage(region, region.start + offset, bytes);
  return { region, room: { length, pageAt } };
}

test('placed reads: pages lie one behind the other, misses take no room', async (t) => {
  const { reads, asked } = placedReads();
  const { region, room: to } = room(1000);
  t.deepEqual(await reads.get(['a', 'none', 'b', 'a'], to, {}), [
    { offset: 0, length: 100 },
    null,
    { offset: 100, length: 50 },
    { offset: 150, length: 100 },
  ]);
  t.deepEqual(region.bytes(100, 50), PAGES.b);
  t.deepEqual(region.bytes(150, 100), PAGES.a);
  t.deepEqual(asked, [['a', 'b', 'a']], 'in one call');
});

test('placed reads: a page without room is not read, and its length is said', async (t) => {
  const { reads, asked } = placedReads();
  const { region, room: to } = room(120);
  t.deepEqual(await reads.get(['b', 'a', 'c'], to, {}), [
    { offset: 0, length: 50 },
    { offset: undefined, length: 100 },
    { offset: 50, length: 60 },
  ]);
  t.deepEqual(region.bytes(50, 60), PAGES.c);
  t.deepEqual(asked, [['b', 'c']]);
  t.deepEqual(await reads.get([], to, {}), []);
});

test('placed reads: a page that was set anew meanwhile is read to its place, or said to be longer', async (t) => {
  const [shorter, longer] = [content(9, 30), content(10, 101)];
  const { reads } = placedReads({ a: longer, b: shorter, c: null });
  const { region, room: to } = room(1000);
  t.deepEqual(await reads.get(['a', 'b', 'c'], to, {}), [
    { offset: undefined, length: 101 },
    { offset: 100, length: 30 },
    null,
  ]);
  t.deepEqual(region.bytes(100, 30), shorter);
});

test('placed reads: a call that is ended reads nothing again', async (t) => {
  const { reads } = placedReads({ a: content(9, 30) });
  t.deepEqual(await reads.get(['a'], room(1000).room, { signal: AbortSignal.abort() }), [null]);
});

test('found pages: parts of one lookup, which are looked up again when the lookup is old', async (t) => {
  const { find, clock, asked } = placedReads({});
  const found = await find(['a', 'none', 'b', 'c']);
  t.deepEqual(
    [0, 1, 2, 3].map((i) => found.lengthOf(i)),
    [100, null, 50, 60],
  );
  const { region } = room(200);
  const page = (at: number, length: number) => new RegionPage(region, region.start + at, length);
  t.deepEqual(await found.read([0, 2], [page(0, 100), page(100, 50)], {}), [100, 50]);
  clock.advance(1001);
  // The stub reads only what has a location, and finds nothing anew.
  t.deepEqual(await found.read([3], [page(0, 60)], {}), [null]);
  t.deepEqual(asked, [['a', 'b'], ['c']]);
  t.deepEqual(region.bytes(100, 50), PAGES.b);
});
