import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { HOLD_REQUEST_MAX_KEYS, PROMOTE_LEASE_MS, PROMOTE_TIMEOUT_MS } from '../../src/base/limits.js';
import type { HoldOutcome } from '../../src/store/ground/other-holders.js';
import {
  type PromotedEntry,
  PromotedReading,
  type PromotedReadingParts,
} from '../../src/store/remote/promoted-reading.js';
import { DataLocation } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { patientClock } from '../_support/patient-clock.js';
import { settled } from '../_support/pool/held-copies.js';
import { newOwner, type OwnerOptions, PAGE } from '../_support/store/owner.js';
import { content } from '../_support/support.js';

const LOCATION = new DataLocation({ nodeId: 'o', rdmaEndpoint: 'x:1', remoteAddr: 0n, rkey: 1, length: 1 });

type Owner = Awaited<ReturnType<typeof newOwner>>;

/** A reader of an owner in the same process; what it has read is in `pages`, whose reads take some time. */
function readerOf(owner: Owner, reader: string, readMs = 0) {
  const pages = new Map<number, Uint8Array>();
  const parts: PromotedReadingParts = {
    ask: (_, keys) => owner.promoter.promote(reader, keys),
    release: (_, keys) => owner.promoter.release(reader, keys),
    async read(entries) {
      if (readMs > 0) await new Promise((resolve) => setTimeout(resolve, readMs));
      return entries.map(({ index, location }) => {
        const bytes = owner.readAt(location);
        if (bytes !== null) pages.set(index, bytes);
        return bytes !== null;
      });
    },
    isEnded: () => false,
    clock: patientClock,
  };
  return { parts, pages };
}

for (const options of [
  { poolPages: 4, diskPages: 200 },
  { poolPages: 4, diskPages: 200, quarantineMs: 20 },
  { poolPages: 1, diskPages: 40 },
  { poolPages: 64, diskPages: 300, policy: 's3fifo' },
] satisfies OwnerOptions[]) {
  test(`promoted reading: all ${options.diskPages} pages through a pool of ${options.poolPages}: ${JSON.stringify(options)}`, async (t) => {
    const owner = await newOwner(t, options);
    for (const readers of [1, 3]) {
      const seed = Math.floor(performance.now());
      t.log(`seed ${seed}`);
      const random = seededRandom(seed);
      await Promise.all(
        Array.from({ length: readers }, async (_, r) => {
          // All in the same order, or each in its own.
          const order = owner.keys.map((_, i) => [r % 2 === 0 ? i : random.u32(), i] as const);
          const numbers = order.sort(([a], [b]) => a - b).map(([, i]) => i);
          const { parts, pages } = readerOf(owner, `r${r}`, r);
          const keys = numbers.map((i) => `k${i}`);
          const results = await new PromotedReading('owner', keys, parts).run();
          t.true(
            results.every((isRead) => isRead),
            `${results.filter((isRead) => !isRead).length} not read`,
          );
          for (const [index, bytes] of pages) t.deepEqual(bytes, content(numbers[index] as number, PAGE));
        }),
      );
      t.is(owner.pool.stats().pinned, 0, 'every lease was given back');
    }
  });
}

/** An owner that answers as the test says, and notes what it was asked. */
function scripted(
  answer: (keys: readonly string[], round: number) => HoldOutcome[],
  overrides: Partial<PromotedReadingParts> = {},
) {
  const asked: string[][] = [];
  const released: string[] = [];
  const parts: PromotedReadingParts = {
    async ask(_, keys) {
      asked.push([...keys]);
      return answer(keys, asked.length);
    },
    release: (_, keys) => released.push(...keys),
    read: async (entries: readonly PromotedEntry[]) => entries.map(() => true),
    isEnded: () => false,
    clock: new ManualClock(),
    ...overrides,
  };
  return { parts, asked, released };
}

function keysTo(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `k${i}`);
}

test('promoted reading: rounds grow to the limit while reading is quick, and what is absent is not asked for again', async (t) => {
  const { parts, asked, released } = scripted((keys) => keys.map((key) => (key === 'k7' ? 'absent' : LOCATION)));
  const results = await new PromotedReading('o', keysTo(2000), parts).run();
  t.is(results.filter((isRead) => isRead).length, 1999);
  t.false(results[7]);
  t.is(Math.max(...asked.map((keys) => keys.length)), HOLD_REQUEST_MAX_KEYS);
  t.deepEqual(asked.flat(), keysTo(2000));
  t.deepEqual(
    released,
    keysTo(2000).filter((key) => key !== 'k7'),
  );
});

test('promoted reading: rounds shrink when reading them takes much of the time for which pages are lent', async (t) => {
  const clock = new ManualClock();
  const { parts, asked } = scripted((keys) => keys.map(() => LOCATION), {
    clock,
    async read(entries) {
      clock.advance((entries.length * PROMOTE_LEASE_MS) / 16);
      return entries.map(() => true);
    },
  });
  t.true((await new PromotedReading('o', keysTo(64), parts).run()).every((isRead) => isRead));
  t.true(
    asked.slice(4).every((keys) => keys.length <= 4),
    asked.map((keys) => keys.length).join(),
  );
});

test('promoted reading: a page whose read fails is asked for once more, then it is a miss', async (t) => {
  const reads = new Map<number, number>();
  const { parts, asked, released } = scripted((keys) => keys.map(() => LOCATION), {
    read: async (entries) =>
      entries.map(({ index }) => {
        reads.set(index, (reads.get(index) ?? 0) + 1);
        return index === 1 ? false : index !== 2 || reads.get(index) === 2;
      }),
  });
  t.deepEqual(await new PromotedReading('o', keysTo(4), parts).run(), [true, false, true, true]);
  t.deepEqual(asked, [keysTo(4), ['k1', 'k2']]);
  t.deepEqual(released, [...keysTo(4), 'k1', 'k2']);
});

test('promoted reading: without progress it asks again after growing pauses, and gives up', async (t) => {
  const clock = new ManualClock();
  const { parts, asked } = scripted((keys) => keys.map(() => 'later'), { clock });
  let results: boolean[] | undefined;
  void new PromotedReading('o', keysTo(3), parts).run().then((done) => {
    results = done;
  });
  const startMs = clock.nowMs();
  const timesMs: number[] = [];
  while (results === undefined) {
    await settled();
    if (asked.length > timesMs.length) timesMs.push(clock.nowMs() - startMs);
    clock.advance(1);
  }
  t.deepEqual(timesMs.slice(0, 8), [0, 5, 15, 35, 75, 155, 255, 355]);
  t.true(clock.nowMs() - startMs >= PROMOTE_TIMEOUT_MS && clock.nowMs() - startMs < PROMOTE_TIMEOUT_MS + 200);
  t.deepEqual(results, [false, false, false]);
  t.is(clock.pendingCount, 0);
});

test('promoted reading: the end of the reader ends it, and what was promoted for it is given back', async (t) => {
  let ended = false;
  const { parts, asked, released } = scripted((keys) => keys.map(() => LOCATION), {
    isEnded: () => ended,
    async read(entries) {
      ended = true;
      return entries.map(() => false);
    },
  });
  const results = await new PromotedReading('o', keysTo(500), parts).run();
  t.true(results.every((isRead) => !isRead));
  t.is(asked.length, 2, 'the second round was on its way');
  t.deepEqual(released, asked.flat());
});

test('promoted reading: with nothing to read nobody is asked', async (t) => {
  const { parts, asked } = scripted(() => []);
  t.deepEqual(await new PromotedReading('o', [], parts).run(), []);
  t.deepEqual(asked, []);
});
