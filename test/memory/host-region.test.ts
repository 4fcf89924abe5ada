import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { regionOf, resolve } from '../../src/memory/address-space.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { loadNative } from '../../src/native/addon/loader.js';
import { content } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const SEGMENT_BYTES = 2 ** 31;
/** The same promises hold with the addon and without it; what is only of one of them skips in the other. */
const { addon, reason } = loadNative();
const withAddon = unless(addon === null ? reason : '');
const withoutAddon = unless(addon === null ? '' : 'it is about a node without the addon');
const ALIGNMENT_BYTES = addon === null ? 2n ** 21n : 4096n;

function allocate(length: number, t: { teardown(fn: () => void): void }): HostRegion {
  const region = HostRegion.allocate(length);
  t.teardown(() => region.free());
  return region;
}

test('host region: a new one is zero-filled, aligned, and its addresses are exact numbers', (t) => {
  for (const length of [1, 4095, 4096, 2 ** 21, 2 ** 21 + 1, 50_000_000]) {
    const region = allocate(length, t);
    t.is(region.length, length);
    t.is(region.segmentBytes, length);
    t.is(region.addr % ALIGNMENT_BYTES, 0n);
    t.is(region.isNative, addon !== null);
    t.false(region.isWrapped);
    t.true(Number.isSafeInteger(region.start + length));
    t.is(BigInt(region.start), region.addr);
    t.true(region.isShared);
    t.is(region.bytes().length, length);
    t.true(region.bytes(0, 1)[0] === 0 && region.bytes(length - 1, 1)[0] === 0);
  }
});

withoutAddon('host region: regions have gaps between them and addresses are never used again', (t) => {
  let end = 0n;
  for (let i = 0; i < 100; i++) {
    const region = HostRegion.allocate(4096 + i);
    t.true(region.addr >= end + 2n ** 21n || i === 0);
    end = region.addr + BigInt(region.length);
    region.free();
  }
});

test('host region: large ones are several segments behind one range of addresses', (t) => {
  const region = allocate(2 * SEGMENT_BYTES + 5000, t);
  t.is(region.segmentBytes, SEGMENT_BYTES);
  t.is(region.segments.length, 3);
  const bytes = content(1, 8000);
  const views = region.views(2 * SEGMENT_BYTES - 4000, 8000);
  t.deepEqual(
    views.map((view) => view.length),
    [4000, 4000],
  );
  views[0]?.set(bytes.subarray(0, 4000));
  views[1]?.set(bytes.subarray(4000));
  t.deepEqual(region.bytes(2 * SEGMENT_BYTES - 4000, 4000), bytes.subarray(0, 4000));
  t.deepEqual(region.bytes(2 * SEGMENT_BYTES, 4000), bytes.subarray(4000));
  t.is(region.views(SEGMENT_BYTES - 1, SEGMENT_BYTES + 2).length, 3);
  t.is(resolve(region.start + SEGMENT_BYTES - 1, 2)?.length, 2);
  t.throws(() => region.bytes(SEGMENT_BYTES - 1, 2), { code: 'ERR_ARGUMENT', message: new RegExp(`${SEGMENT_BYTES}`) });
  t.is(region.bytes(SEGMENT_BYTES, 1).length, 1);
});

test('host region: views show the memory itself', (t) => {
  const memory = new Uint8Array(100);
  const region = HostRegion.wrap(memory.subarray(10, 90));
  t.is(region.length, 80);
  t.false(region.isShared);
  region.bytes(5, 3).set([1, 2, 3]);
  t.deepEqual([...memory.subarray(14, 19)], [0, 1, 2, 3, 0]);
  region.free();
  t.is(HostRegion.wrap(new SharedArrayBuffer(8)).isShared, true);
});

test('host region: ranges outside of it throw and name what was given', (t) => {
  const region = allocate(1000, t);
  for (const [offset, length] of [
    [-1, 1],
    [0, 1001],
    [1000, 1],
    [1001, 0],
    [0, -1],
    [0.5, 1],
    [0, Number.NaN],
    [Number.MAX_SAFE_INTEGER, 1],
  ] as const) {
    t.throws(() => region.bytes(offset, length), { code: 'ERR_ARGUMENT', message: /1000/ }, `${offset} ${length}`);
    t.throws(() => region.views(offset, length), { code: 'ERR_ARGUMENT' });
  }
  t.is(region.bytes(1000).length, 0);
  t.deepEqual(region.views(1000), []);
});

test('host region: wrong lengths and memory are refused', (t) => {
  for (const length of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '4096', undefined, 10n]) {
    t.throws(() => HostRegion.allocate(length as number), { code: 'ERR_ARGUMENT', message: /at least 1/ });
  }
  t.throws(() => HostRegion.allocate(10, null as never), { code: 'ERR_ARGUMENT' });
  for (const memory of [null, undefined, 5, 'text', [1], new Uint16Array(0)]) {
    t.throws(() => HostRegion.wrap(memory as never), { code: 'ERR_ARGUMENT' });
  }
  t.throws(() => HostRegion.wrap(new ArrayBuffer(0)), { code: 'ERR_ARGUMENT' });
  const resizable = Reflect.construct(ArrayBuffer, [8, { maxByteLength: 16 }]) as ArrayBuffer;
  t.throws(() => HostRegion.wrap(resizable), { code: 'ERR_ARGUMENT', message: /resizable/ });
});

test('host region: free makes the addresses dead, once and for all', async (t) => {
  const region = HostRegion.allocate(1000);
  const view = region.bytes();
  t.is(regionOf(region.start, 1000), region);
  region.free();
  region.free();
  t.false(region.isLive);
  t.is(Atomics.load(region.liveFlag, 0), 0);
  t.is(regionOf(region.start, 1000), null);
  t.is(resolve(region.start, 1), null);
  t.throws(() => region.bytes(), { code: 'ERR_ARGUMENT', message: /freed/ });
  await t.throwsAsync(region.prefault(), { code: 'ERR_ARGUMENT' });
  t.throws(() => region.onFree(() => {}), { code: 'ERR_ARGUMENT' });
  t.is(view.length, 1000);

  const another = HostRegion.allocate(10);
  another[Symbol.dispose]();
  t.false(another.isLive);
});

test('host region: prefault leaves the bytes as they are, also those written meanwhile', async (t) => {
  const region = allocate(20_001, t);
  const wrapped = HostRegion.wrap(new Uint8Array(5000));
  t.teardown(() => wrapped.free());
  region.bytes().set(content(3, 20_001));
  const done = region.prefault();
  region.bytes(0, 10).set(content(4, 10));
  await done;
  await wrapped.prefault();
  t.deepEqual(region.bytes(10), content(3, 20_001).subarray(10));
  t.deepEqual(region.bytes(0, 10), content(4, 10));
});

test('host region: one that is freed while it is prefaulted harms nobody', async (t) => {
  const region = HostRegion.allocate(64 << 20);
  const done = region.prefault();
  region.free();
  await t.notThrowsAsync(done);
});

test('host region: who asked is told before the memory goes, once, and whatever another one throws', (t) => {
  const region = HostRegion.allocate(10);
  const told: string[] = [];
  region.onFree(() => {
    told.push(`first ${region.isLive}`);
    throw new Error('from a callback');
  });
  const unwatch = region.onFree(() => told.push('never'));
  region.onFree(() => {
    told.push('last');
    region.free();
  });
  unwatch();
  unwatch();
  t.throws(() => region.free(), { message: 'from a callback' });
  t.false(region.isLive);
  region.free();
  t.deepEqual(told, ['first true', 'last']);
});

test('host region: wrapping a part of a region changes nothing for the region', (t) => {
  const region = allocate(10_000, t);
  const part = HostRegion.wrap(region.bytes(1000, 100));
  part.bytes().set(content(1, 100));
  t.deepEqual(region.bytes(1000, 100), content(1, 100));
  t.is(regionOf(region.start + 1010, 10), region);
  part.free();
  t.is(regionOf(region.start + 1010, 10), region);
});

withAddon('host region: addresses are where the bytes are', (t) => {
  const region = allocate(SEGMENT_BYTES + 5000, t);
  const last = region.bytes(SEGMENT_BYTES, 5000);
  t.is(addon?.addressOf(last), region.start + SEGMENT_BYTES);
  const memory = new Uint8Array(1000);
  const [whole, part, again] = [memory, memory.subarray(10, 20), memory].map((view) => HostRegion.wrap(view));
  t.is(addon?.addressOf(memory), whole?.start);
  t.is(part?.start, (whole?.start ?? 0) + 10);
  t.is(again?.start, whole?.start);
  whole?.free();
  t.is(regionOf(again?.start ?? 0, 1000), again ?? null);
  t.is(regionOf(part?.start ?? 0, 11), again ?? null);
  again?.free();
  t.is(regionOf(part?.start ?? 0, 10), part ?? null);
  t.is(regionOf(part?.start ?? 0, 11), null);
  part?.free();
});

withAddon('host region: its memory cannot be transferred away, and outlives it in views', (t) => {
  const region = HostRegion.allocate(100_000);
  const view = region.bytes();
  try {
    structuredClone(null, { transfer: [view.buffer as ArrayBuffer] });
  } catch {
    // Later versions of Node say that it cannot be done, earlier ones do nothing.
  }
  t.is(view.length, 100_000);
  view.set(content(1, 100_000));
  region.free();
  const others = Array.from({ length: 20 }, () => HostRegion.allocate(100_000));
  for (const other of others) other.bytes().fill(0xee);
  t.deepEqual(view, content(1, 100_000));
  for (const other of others) other.free();
});

withAddon('host region: huge pages and memory for other processes are had, or done without', (t) => {
  for (const options of [{ hugePages: true }, { shared: true }, { hugePages: true, shared: true }]) {
    const region = HostRegion.allocate(5_000_000, options);
    region.bytes().set(content(1, 5_000_000));
    t.deepEqual(region.bytes(4_999_000), content(1, 5_000_000).subarray(4_999_000));
    region.free();
  }
});

test('host region: memory that cannot be had is refused', (t) => {
  t.throws(() => HostRegion.allocate(2 ** 50), { code: 'ERR_ARGUMENT', message: /1125899906842624/ });
});

test('host region: memory that a host gives is where it says, and goes back to it', (t) => {
  const start = 2 ** 52;
  let released = 0;
  const segments = [1024, 1024, 500].map((bytes) => new Uint8Array(new SharedArrayBuffer(bytes)));
  const region = HostRegion.allocateFrom({ allocate: () => ({ segments, start, release: () => released++ }) }, 2548);
  t.is(region.addr, 2n ** 52n);
  t.deepEqual([region.length, region.segmentBytes], [2548, 1024]);
  t.true(region.isShared && region.isWritable && !region.isNative && !region.isWrapped);
  for (const view of region.views(1000, 1200)) view.fill(7);
  t.is(segments[1]?.[1023], 7);
  t.is(regionOf(start + 2000, 548), region);
  region.free();
  region.free();
  t.is(released, 1);
  t.is(regionOf(start, 1), null);
});

test('host region: a host that leaves it to the system, and one that has no memory', (t) => {
  const region = HostRegion.allocateFrom({ allocate: () => undefined }, 100);
  t.is(region.bytes().length, 100);
  region.free();
  const empty = {
    allocate() {
      throw new Error('ENOMEM');
    },
  };
  const error = t.throws<Error>(() => HostRegion.allocateFrom(empty, 100), {
    code: 'ERR_ARGUMENT',
    message: /cannot allocate 100 bytes/,
  });
  t.deepEqual(error?.cause, new Error('ENOMEM'));
});

test('address space: lookups agree with a search through all regions', (t) => {
  const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const upTo = (limit: number): number => random.u32() % limit;
  const live: HostRegion[] = [];
  const all: HostRegion[] = [];
  t.teardown(() => {
    for (const region of live) region.free();
  });
  for (let step = 0; step < 20_000; step++) {
    if (step % 20 === 0) {
      const region = HostRegion.wrap(new Uint8Array(1 + upTo(2000)));
      live.push(region);
      all.push(region);
    }
    if (live.length > 50) live.splice(upTo(live.length), 1)[0]?.free();
    const near = all[upTo(all.length)] as HostRegion;
    const addr = near.start + upTo(near.length + 40) - 20;
    const length = upTo(near.length + 20);
    const inside = (region: HostRegion): boolean =>
      addr >= region.start && addr + length <= region.start + region.length;
    const isThere = live.some(inside);
    const found = regionOf(addr, length);
    const isRight = found === null ? !isThere : live.includes(found) && inside(found);
    if (!isRight) return t.fail(`step ${step}: ${addr} ${length}`);
    const views = resolve(addr, length);
    if ((views === null) === isThere) return t.fail(`step ${step}: views`);
    if (views?.[0] !== undefined && views[0].length !== length) return t.fail(`step ${step}: length`);
  }
  t.pass();
});

test('address space: what is no address has no region', (t) => {
  const region = allocate(10, t);
  for (const addr of [0, -1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 60]) t.is(regionOf(addr, 1), null);
  for (const length of [-1, Number.NaN, Number.POSITIVE_INFINITY]) t.is(regionOf(region.start, length), null);
});
