import test from 'ava';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool } from '../../src/node/machine/machine-node.js';
import { NO_ORIGIN, type PageBytes, type PageOrigin, type PublishedPage } from '../../src/pool/published-pool.js';
import { PageLimits } from '../../src/pool/tenants/page-limits.js';
import { RequestParts } from '../../src/store/call/request-calls.js';
import { PacedPublishing } from '../../src/store/disk/paced-publishing.js';
import { ManualClock } from '../_support/clock.js';
import { settled } from '../_support/pool/held-copies.js';

const PAGE = 4096;

interface CallOptions {
  readonly signal?: AbortSignal;
  /** The page behind is in the pool before the call. */
  readonly here?: Partial<PageOrigin>;
  readonly expires?: number;
}

/** A pool of three pages, two of which are in quarantine; a call sets a page of two pages, and one behind it. */
function newCall(t: { teardown(fn: () => void): void }, { signal, here, expires = 0 }: CallOptions = {}) {
  const region = HostRegion.allocate(3 * PAGE);
  const clock = new ManualClock();
  const quarantine = { quarantineMs: 1000, neverReuseEarly: true };
  const pool = new PublishedPool(region.addr, region.length, 1, { clock, ...quarantine });
  t.teardown(() => {
    pool.free();
    region.free();
  });
  const page = (length: number) => ({ views: [new Uint8Array(length).fill(length % 251)], length });
  pool.publishBatch(['before'], [page(2 * PAGE)]);
  pool.remove('before');
  if (here !== undefined) pool.publishBatch(['behind'], [page(PAGE)], { ...NO_ORIGIN, version: 1, ...here });
  const backlog = {
    maxBytes: 1 << 30,
    hasRoomFor: () => true,
    fits: () => true,
    isMoving: () => true,
    stallsInMs: () => 10_000,
    letGo() {},
  };
  const paced = new PacedPublishing({ pool, limits: new PageLimits(pool), backlog, clock, metrics: noMetrics });
  const told: (PublishedPage | null)[] = [];
  const takenBack: string[] = [];
  const left: string[] = [];
  const publish = (keys: readonly string[], pages: readonly PageBytes[], by: AbortSignal | undefined) =>
    paced.publish({
      keys,
      pages,
      signal: by,
      origin: { ...NO_ORIGIN, version: 2, expires },
      request: new RequestParts({}),
      mayGoOn: () => by?.aborted !== true,
      published: (_, published) => void told.push(...published),
      takenBack: (gone) => void takenBack.push(...gone),
      left: (keys) => void left.push(...keys),
    });
  const done = publish(['large', 'behind'], [page(2 * PAGE), page(PAGE)], signal);
  const publishLater = (by: AbortSignal) => publish(['later'], [page(PAGE)], by);
  return { pool, paced, clock, told, takenBack, left, done, publishLater };
}

/** Lets time pass until the call has ended. */
async function ended(done: Promise<unknown>, clock: ManualClock): Promise<void> {
  let isDone = false;
  void done.then(() => {
    isDone = true;
  });
  while (!isDone) {
    clock.advance(100);
    await settled();
  }
}

test('paced publishing: a page behind one that has found no room is new to those who are told of it', async (t) => {
  // Cause: it was in the pool already, and taken for one that had been announced.
  const { pool, clock, told, done } = newCall(t);
  await settled();
  t.deepEqual(told, []);
  t.true(pool.has('behind'));
  await ended(done, clock);
  t.deepEqual(
    told.map((page) => page?.alreadyPresent),
    [false, false],
  );
});

for (const [what, here, expires] of [
  ['a copy that becomes a page of this node', { setBy: 7, expires: 0 }, 0],
  ['a later expiry', { setBy: 0, expires: 2 ** 50 }, 2 ** 51],
] as const) {
  test(`paced publishing: ${what}, behind a page that has found no room, is to be announced`, async (t) => {
    // Cause: the second attempt found the page as the first had left it. The directory went on to list a copy, and a
    // clear of the node that had set the page took its location away; no other node found it any more.
    const { pool, clock, told, left, done } = newCall(t, { here, expires });
    await settled();
    t.deepEqual(told, []);
    await ended(done, clock);
    const [, behind] = told;
    t.deepEqual(
      [behind?.alreadyPresent, behind?.setBy, behind?.expires],
      [true, here.setBy, here.expires],
      'as it was',
    );
    const [now] = pool.peekBatch(['behind']);
    t.deepEqual([left, now?.setBy, now?.expires], [[], 0, expires]);
  });
}

test('paced publishing: pages that were here before stay, and are announced, when the call ends early', async (t) => {
  const { pool, paced, told, takenBack, left, done } = newCall(t, { here: { setBy: 7 } });
  await settled();
  paced.cleared({ voidBelow: 3, isCleared: (key) => key === 'large' });
  await done;
  t.deepEqual([told, takenBack, left], [[], [], ['behind']]);
  t.true(pool.has('behind'));
});

test('paced publishing: what nobody was told of does not stay in the pool', async (t) => {
  const { pool, paced, told, takenBack, done } = newCall(t);
  await settled();
  paced.cleared({ voidBelow: 2, isCleared: () => true });
  paced.cleared({ voidBelow: 3, isCleared: (key) => key === 'other' });
  await settled();
  t.true(pool.has('behind'), 'it is newer, and another one');
  paced.cleared({ voidBelow: 3, isCleared: (key) => key === 'behind' });
  await done;
  t.deepEqual(told, []);
  t.false(pool.has('behind'));
  // Cause: whose place it had taken was still said to be here, and counted.
  t.deepEqual(takenBack, ['behind']);
});

test('paced publishing: an abort ends the wait for room, and that for a turn, and nothing is published afterwards', async (t) => {
  const [first, second] = [new AbortController(), new AbortController()];
  const { pool, clock, told, takenBack, done, publishLater } = newCall(t, { signal: first.signal });
  const later = publishLater(second.signal);
  await settled();
  // The clock stands still: neither promise could resolve by itself.
  second.abort();
  await later;
  first.abort();
  await done;
  t.deepEqual(told, []);
  t.deepEqual(takenBack, ['behind']);
  clock.advance(10_000);
  await settled();
  t.deepEqual(pool.keys(), []);
});
