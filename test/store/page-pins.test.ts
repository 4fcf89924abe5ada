import test, { type ExecutionContext } from 'ava';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool } from '../../src/node/machine/machine-node.js';
import { nativeCopyThreads } from '../../src/pool/copy-threads.js';
import { PagePins } from '../../src/store/pins/page-pins.js';
import { leavesGap } from '../../src/store/pins/pinned-gaps.js';
import { ManualClock } from '../_support/clock.js';
import { assertFound, losing } from '../_support/planted.js';
import { removeAll } from '../_support/pool/remove-all.js';
import { content } from '../_support/support.js';

const PAGE = 4096;

/** Pins of a pool of that many pages, which has the pages `k0`, `k1`, … */
function newPins(
  t: ExecutionContext,
  {
    poolPages = 16,
    pages = poolPages,
    maxShare = 0.5,
    isVerified = true,
  }: { poolPages?: number; pages?: number; maxShare?: number; isVerified?: boolean } = {},
) {
  const clock = new ManualClock();
  const region = HostRegion.allocate(poolPages * PAGE);
  const stamps = seededRandom(1);
  const pool = new PublishedPool(region.addr, region.length, 7, { clock, stamps, copyThreads: nativeCopyThreads });
  const pins = new PagePins({ pool, segmentBytes: pool.capacity, maxShare, clock, metrics: noMetrics });
  const keys = Array.from({ length: pages }, (_, i) => `k${i}`);
  for (const [i, key] of keys.entries()) publish(pool, key, i);
  t.teardown(() => {
    if (isVerified) for (const each of [pins, pool]) each.verify();
    pins.close();
    pool.free();
    region.free();
  });
  return { pool, pins, keys, clock };
}

function publish(pool: PublishedPool, key: string, seed: number, length = PAGE): boolean {
  return pool.publishBatch([key], [{ views: [content(seed, length)], length }])[0] !== null;
}

test('page pins: a pinned page outlasts pages that would evict it, until its time is over', (t) => {
  const { pool, pins, clock } = newPins(t);
  const client = pins.holder();
  t.deepEqual(pins.pin(client, ['k0', 'none'], 10_000), ['pinned', 'absent']);
  for (let i = 0; i < 100; i++) t.true(publish(pool, `other-${i}`, i));
  t.true(pool.has('k0'));
  clock.advance(9_999);
  t.true(pins.has('k0'));
  clock.advance(251);
  t.deepEqual([pins.has('k0'), pins.count, pins.bytes], [false, 0, 0]);
  for (let i = 0; i < 100; i++) publish(pool, `later-${i}`, i);
  t.false(pool.has('k0'));
});

test('page pins: pinning again extends the time, and never shortens it', (t) => {
  const { pins, clock } = newPins(t);
  const client = pins.holder();
  pins.pin(client, ['k0'], 1_000);
  pins.pin(client, ['k0'], 5_000);
  pins.pin(client, ['k0'], 10);
  clock.advance(4_900);
  t.true(pins.has('k0'));
  clock.advance(400);
  t.false(pins.has('k0'));
});

test('page pins: a page that two clients have pinned counts once, and stays until both pins have ended', (t) => {
  const { pins } = newPins(t);
  const [a, b] = [pins.holder(), pins.holder()];
  pins.pin(a, ['k0'], 60_000);
  pins.pin(b, ['k0'], 60_000);
  t.deepEqual([pins.count, pins.bytes], [1, PAGE]);
  t.deepEqual(pins.unpin(a, ['k0', 'k1']), [true, false]);
  t.true(pins.has('k0'));
  pins.verify();
  pins.end(b);
  t.false(pins.has('k0'));
  t.deepEqual(pins.pin(b, ['k0'], 60_000), ['refused'], 'a client that has ended');
});

test('page pins: all clients together have a bound, and each one half of it', (t) => {
  const { pins, keys } = newPins(t, { poolPages: 32, maxShare: 0.25 });
  const [a, b, c] = [pins.holder(), pins.holder(), pins.holder()];
  const pinned = (outcomes: readonly string[]): number => outcomes.filter((outcome) => outcome === 'pinned').length;
  t.is(pinned(pins.pin(a, keys, 1_000)), 4);
  t.is(pinned(pins.pin(b, keys.slice(2), 1_000)), 4, 'two of them are shared');
  t.is(pins.count, 6);
  t.is(pinned(pins.pin(c, keys.slice(10), 1_000)), 2, 'the rest of what all may pin');
  pins.verify();
  t.deepEqual(pins.pin(a, ['k0'], 2_000), ['pinned'], 'its own are extended all the same');
});

test('page pins: in a pool of four pages one can be pinned, and pages can still be set', (t) => {
  const { pool, pins } = newPins(t, { poolPages: 4, maxShare: 0.25 });
  t.deepEqual(pins.pin(pins.holder(), ['k0', 'k1'], 1_000), ['pinned', 'refused']);
  t.deepEqual(pins.pin(pins.holder(), ['k2'], 1_000), ['refused']);
  for (let i = 0; i < 20; i++) t.true(publish(pool, `other-${i}`, i));
  t.true(pool.has('k0'));
});

test('page pins: none with a share of 0', (t) => {
  const { pins } = newPins(t, { maxShare: 0 });
  t.deepEqual(pins.pin(pins.holder(), ['k0'], 1_000), ['refused']);
});

test('page pins: removing, overwriting and clearing end a pin at once', (t) => {
  const { pool, pins } = newPins(t);
  const client = pins.holder();
  t.deepEqual(pins.pin(client, ['k0', 'k1', 'k2', 'k3'], 60_000), ['pinned', 'pinned', 'pinned', 'pinned']);
  t.true(pool.remove('k0'));
  const named = { version: 2, kind: 'named' as const, setBy: 0, expires: 0 };
  t.not(pool.publishBatch(['k1'], [{ views: [content(77, PAGE)], length: PAGE }], named)[0] ?? null, null);
  t.true(publish(pool, 'k2', 2), 'the same bytes again');
  t.deepEqual([pins.has('k0'), pins.has('k1'), pins.has('k2'), pins.bytes], [false, false, true, 2 * PAGE]);
  pins.verify();
  removeAll(pool);
  t.is(pins.count, 0);
});

test('page pins: pins that end together end over several turns', (t) => {
  const { pins, keys, clock } = newPins(t, { poolPages: 20_000, pages: 5_000 });
  pins.pin(pins.holder(), keys, 1_000);
  t.is(pins.count, 5_000);
  clock.stall(2_000);
  t.is(pins.count, 0);
  pins.verify();
});

test('page pins: they leave room for the longest page, however they lie', (t) => {
  const seed = Date.now() >>> 0;
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const below = (count: number): number => random.u32() % count;
  for (let round = 0; round < 30; round++) {
    const poolPages = 4 + below(40);
    const { pool, pins, clock } = newPins(t, { poolPages, pages: 0 });
    const clients = [pins.holder(), pins.holder(), pins.holder()];
    const longest = 1 + below(2 * PAGE);
    let longestSet = 0;
    for (let i = 0; i < 400; i++) {
      const length = 1 + below(longest);
      const dice = below(10);
      if (dice < 6) {
        if (publish(pool, `k${below(12)}`, i, length)) longestSet = Math.max(longestSet, length);
      } else if (dice < 9) {
        const some = Array.from({ length: 1 + below(5) }, () => `k${below(12)}`);
        pins.pin(clients[below(3)] as (typeof clients)[0], some, 1 + below(2_000));
        pins.verify();
        t.true(longestSet === 0 || publish(pool, `longest-${i}`, i, longestSet), `${seed}: round ${round}, step ${i}`);
      } else clock.advance(below(500));
    }
    pool.verify();
  }
});

test('verify: page pins', async (t) => {
  const newPinned = () => {
    const made = newPins(t, { isVerified: false });
    const client = made.pins.holder();
    made.pins.pin(client, ['k0'], 1_000);
    return { ...made, client };
  };
  const isKey = (_: unknown, [key]: readonly unknown[]): boolean => key === 'k0';
  const kept = newPinned();
  await assertFound(t, kept.pins, /page pins: "k0" is pinned without a lease/, () =>
    losing(Map.prototype, 'delete', () => kept.pins.unpin(kept.client, ['k0']), { when: isKey }),
  );
  const endless = newPins(t, { isVerified: false });
  await assertFound(t, endless.pins, /page pins: "k0" is pinned for ever/, () =>
    losing(Map.prototype, 'set', () => endless.pins.pin(endless.pins.holder(), ['k0'], 1_000), {
      when: (_, [key]) => typeof key === 'number',
    }),
  );
});

test('pinned gaps: no page crosses the end of a segment', (t) => {
  const shape = { capacity: 300, segmentBytes: 100 };
  const at = (offset: number, length = 16) => ({ offset, length });
  t.true(leavesGap([], 100, shape));
  t.false(leavesGap([], 101, shape));
  const middles = [at(42), at(142), at(242)];
  t.deepEqual(
    [42, 43].map((bytes) => leavesGap(middles, bytes, shape)),
    [true, false],
  );
  t.true(leavesGap([at(0), at(242)], 100, shape), 'the segment between them');
  t.false(leavesGap([at(60, 80), at(260, 40)], 61, shape));
  t.true(leavesGap([at(90), at(60, 30), at(210, 90)], 90, { capacity: 300, segmentBytes: 300 }));
});
