import test, { type ExecutionContext } from 'ava';
import type { Clock } from '../../src/base/environment/clock.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { crc32 } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { canCopyOffThread, PageCopies } from '../../src/memory/page-copies.js';
import { PublishedPool, type PublishedPoolOptions } from '../../src/node/machine/machine-node.js';
import { copyThreadsOf } from '../../src/pool/copy-threads.js';
import { NO_ORIGIN } from '../../src/pool/published-pool.js';
import { systemRandom } from '../../src/system/system-random.js';
import { systemThreads } from '../../src/system/system-threads.js';
import { HeldCopies, settled } from '../_support/pool/held-copies.js';
import { pageBytes } from '../_support/pool/page-bytes.js';
import { removeAll } from '../_support/pool/remove-all.js';
import { content } from '../_support/support.js';

const PAGE = 4096;

function page(seed: number, length = PAGE) {
  return { views: [content(seed, length)], length };
}

function emptyPage(length = PAGE) {
  return { views: [new Uint8Array(length)], length };
}

function setUp(t: ExecutionContext, pages: number, options: PublishedPoolOptions = {}) {
  const region = HostRegion.allocate(pages * PAGE);
  const threads = new HeldCopies();
  const pool = new PublishedPool(region.addr, region.length, 7, { copyThreads: threads, ...options });
  t.teardown(async () => {
    await threads.finishAll();
    pool.free();
    region.free();
  });
  return { pool, threads, region };
}

const VERIFIED = { isVerified: true };

test('pool off thread: nobody finds a page before its bytes are there', async (t) => {
  const { pool, threads } = setUp(t, 8);
  const publishing = pool.publishPages(['a', 'b'], [page(1), page(2)]);
  t.is(threads.count, 1);
  t.false(pool.has('a'));
  t.is(pool.size, 0);
  t.is(pool.addressOf('a'), null);
  t.deepEqual(pool.peekBatch(['a', 'b']), [null, null]);
  t.deepEqual(pool.lookupBatch(['a', 'b']), [null, null]);
  t.deepEqual([...pool.hasBatch(['b', 'x', 'a'])], [0, 0, 0]);
  t.deepEqual(pool.keys(), []);
  t.deepEqual(pool.publishBatch(['a'], [page(9)]), [null], 'and another page of its key leaves it alone');
  t.deepEqual(await pool.readPages(['a'], [emptyPage()], VERIFIED), ['absent']);

  await threads.finish();
  const results = await publishing;
  t.deepEqual(pool.keys(), ['a', 'b']);
  t.is(pool.size, 2);
  for (const [i, key] of ['a', 'b'].entries()) {
    const [there] = pool.peekBatch([key]);
    t.is(there?.offset, results[i]?.offset);
    t.is(there?.checksum, crc32(content(i + 1, PAGE)));
    t.deepEqual(there && pageBytes(pool, there), content(i + 1, PAGE));
  }
});

test('pool off thread: a range that is being filled is not given to another page, whatever becomes of its page', async (t) => {
  for (const end of ['remove', 'clear'] as const) {
    const { pool, threads } = setUp(t, 2);
    const publishing = pool.publishPages(['a'], [page(1)]);
    if (end === 'remove') t.false(pool.remove('a'));
    else removeAll(pool);
    t.is(pool.publishBatch(['a'], [page(5)])[0], null, 'its key is taken until the copy has ended');
    const others = pool.publishBatch(['x', 'y'], [page(2), page(3)]);
    t.deepEqual(
      others.map((result) => result === null),
      [true, false],
    );
    await threads.finish();
    t.deepEqual(await publishing, [null]);
    t.false(pool.has('a'));
    const [y] = pool.peekBatch(['y']);
    t.deepEqual(y && pageBytes(pool, y), content(3, PAGE));
    t.not(pool.publishBatch(['a'], [page(5)])[0], null);
    t.is(pool.size, 2);
  }
});

test('pool off thread: a page that is being read keeps its bytes until it has been read', async (t) => {
  const { pool, threads } = setUp(t, 2);
  pool.publishBatch(['a', 'b'], [page(1), page(2)]);
  const target = emptyPage();
  const reading = pool.readPages(['a'], [target], VERIFIED);
  t.is(threads.count, 1);
  t.true(pool.remove('a'));
  // Evicts what it can, and never gets the range of the page that is being read.
  for (let i = 0; i < 4; i++) pool.publishBatch([`x${i}`], [page(10 + i)]);
  t.is(pool.size, 1);
  await threads.finish();
  t.deepEqual(await reading, ['read']);
  t.deepEqual(target.views[0], content(1, PAGE));
  pool.publishBatch(['y'], [page(20)]);
  t.is(pool.size, 2);
});

test('pool off thread: pages are set beside a read of others; a set of what is being read waits for it', async (t) => {
  const { pool, threads } = setUp(t, 64);
  pool.publishBatch(['a', 'b'], [page(1), page(2)]);
  const [targetA, targetB] = [emptyPage(), emptyPage()];
  const readings = [
    pool.readPages(['a'], [targetA], VERIFIED),
    pool.readPages(['b'], [targetB], { isVerified: false }),
  ];
  t.is(threads.count, 2, 'reads do not wait for each other either');
  const other = pool.publishPages(['c'], [page(3)]);
  await settled();
  t.is(threads.count, 3, 'the set of another page has begun');
  const same = pool.publishPages(['a'], [page(4)], { ...NO_ORIGIN, kind: 'named', version: 1 });
  await settled();
  t.is(threads.count, 3);
  const late = emptyPage();
  const reading = pool.readPages(['a'], [late], VERIFIED);
  await settled();
  pool.verify();
  await threads.finishAll();
  t.deepEqual(await Promise.all(readings), [['read'], ['read']]);
  t.deepEqual([targetA.views[0], targetB.views[0]], [content(1, PAGE), content(2, PAGE)]);
  t.truthy((await other)[0]);
  t.truthy((await same)[0]);
  t.deepEqual(await reading, ['read']);
  t.deepEqual(
    late.views[0],
    content(1, PAGE),
    'a read that begins while the key is being set takes its turn before it',
  );
  const after = emptyPage();
  const last = pool.readPages(['a'], [after], VERIFIED);
  await threads.finishAll();
  t.deepEqual([await last, after.views[0]], [['read'], content(4, PAGE)]);
  pool.verify();
});

test('pool off thread: a read of more than may be held beside sets takes a turn, and what it has held is free again', async (t) => {
  const { pool, threads } = setUp(t, 64);
  pool.publishBatch(['a', 'b', 'c'], [page(1), page(2), page(3)]);
  const targets = [emptyPage(), emptyPage(), emptyPage()];
  const reading = pool.readPages(['a', 'b', 'c'], targets, VERIFIED);
  const other = pool.publishPages(['d'], [page(4)]);
  await settled();
  t.is(threads.count, 1, 'two pages of 64 may be held');
  await threads.finishAll();
  t.deepEqual(await reading, ['read', 'read', 'read']);
  t.truthy((await other)[0]);
  const again = pool.readPages(['a', 'b'], targets.slice(1), VERIFIED);
  const beside = pool.publishPages(['e'], [page(5)]);
  await settled();
  t.is(threads.count, 2);
  await threads.finishAll();
  t.deepEqual(await again, ['read', 'read']);
  t.truthy((await beside)[0]);
  pool.verify();
});

test('pool off thread: a page that is read beside sets keeps its bytes when it is removed, and is absent when the pool ends', async (t) => {
  const { pool, threads } = setUp(t, 64, { stamps: systemRandom });
  pool.publishBatch(['a', 'b'], [page(1), page(2)]);
  const target = emptyPage();
  const reading = pool.readPages(['a'], [target], VERIFIED);
  pool.remove('a');
  t.deepEqual(pool.publishBatch(['a'], [page(7)]), [null], 'its key is taken until it has been read');
  for (let i = 0; i < 300; i++) pool.publishBatch([`x${i}`], [page(10 + i)]);
  await threads.finishAll();
  t.deepEqual(await reading, ['read']);
  t.deepEqual(target.views[0], content(1, PAGE));
  const last = pool.readPages(['x299'], [emptyPage()], VERIFIED);
  const ended = pool.end();
  t.deepEqual(await pool.readPages(['x299'], [emptyPage()], VERIFIED), ['absent']);
  await threads.finishAll();
  t.deepEqual(await last, ['read']);
  await ended;
});

test('pool off thread: calls have their turn one after the other, and none fails because of another', async (t) => {
  const { pool, threads } = setUp(t, 2);
  const target = emptyPage();
  const first = pool.publishPages(['a'], [page(1)]);
  const second = pool.publishPages(['a'], [page(2)]);
  const third = pool.publishPages(['b', 'c'], [page(3), page(4)]);
  t.is(threads.count, 1);
  await threads.finish();
  const reading = pool.readPages(['a'], [target], VERIFIED);
  await threads.finishAll();
  t.not((await first)[0], null);
  t.not((await second)[0], null);
  t.deepEqual(
    (await third).map((result) => result !== null),
    [true, true],
  );
  t.deepEqual(await reading, ['absent'], 'evicted while it waited');
  t.deepEqual(pool.keys(), ['b', 'c']);
});

test('pool off thread: the same bytes again are summed, and stay', async (t) => {
  const evicted: string[] = [];
  const { pool, threads } = setUp(t, 4, { onEvict: (keys) => evicted.push(...keys) });
  const [first] = pool.publishBatch(['a'], [page(1)]);
  const again = pool.publishPages(['a', 'b', 'a'], [page(9), page(2), page(1)]);
  await threads.finishAll();
  const results = await again;
  t.is(results[0]?.offset, first?.offset);
  t.true(results[2]?.alreadyPresent);
  t.false(results[1]?.alreadyPresent);
  const other = pool.publishPages(['a'], [page(3)]);
  await threads.finishAll();
  const [replaced] = await other;
  t.deepEqual(replaced && pageBytes(pool, replaced), content(3, PAGE));
  t.deepEqual(evicted, []);
});

test('pool off thread: a present page that is removed while its bytes are being compared is published anew', async (t) => {
  const { pool, threads } = setUp(t, 4);
  pool.publishBatch(['a'], [page(1)]);
  const again = pool.publishPages(['a'], [page(1)]);
  pool.remove('a');
  await threads.finishAll();
  const [result] = await again;
  t.false(result?.alreadyPresent);
  t.deepEqual(result && pageBytes(pool, result), content(1, PAGE));
});

test('pool off thread: pages that had to go are told at once, and a callback that throws hurts no page', async (t) => {
  const evicted: string[] = [];
  const { pool, threads } = setUp(t, 1, {
    onEvict: (keys) => {
      evicted.push(...keys);
      throw new Error('from the callback');
    },
  });
  pool.publishBatch(['a'], [page(1)]);
  const publishing = pool.publishPages(['b'], [page(2)]);
  t.deepEqual(evicted, ['a']);
  const failing = t.throwsAsync(publishing, { message: 'from the callback' });
  await threads.finish();
  await failing;
  const [b] = pool.peekBatch(['b']);
  t.deepEqual(b && pageBytes(pool, b), content(2, PAGE));
});

test('pool off thread: a copy that fails leaves no entry, and what it has replaced is told', async (t) => {
  const evicted: string[] = [];
  const { pool, threads } = setUp(t, 4, { onEvict: (keys) => evicted.push(...keys) });
  pool.publishBatch(['a'], [page(1)]);
  const publishing = pool.publishPages(['a', 'b'], [page(2, 100), page(3)]);
  const failing = t.throwsAsync(publishing, { message: 'no thread' });
  await threads.fail(new Error('no thread'));
  await failing;
  t.deepEqual(evicted, ['a']);
  t.is(pool.size, 0);
  const again = pool.publishPages(['a'], [page(2)]);
  await threads.finishAll();
  t.not((await again)[0], null);
});

test('pool off thread: damaged pages are found, wrong lengths and detached targets too', async (t) => {
  const { pool, threads } = setUp(t, 8);
  const [a] = pool.publishBatch(['a', 'b', 'c'], [page(1), page(2), page(3)]);
  if (a) pool.viewsOf(a)[0]?.fill(0, 100, 200);
  const detached = emptyPage();
  structuredClone(detached.views[0]?.buffer, { transfer: [detached.views[0]?.buffer as ArrayBuffer] });
  const reading = pool.readPages(
    ['a', 'b', 'c', 'd'],
    [emptyPage(), emptyPage(PAGE - 1), detached, emptyPage()],
    VERIFIED,
  );
  await threads.finish();
  t.deepEqual(await reading, ['damaged', 'wrong-length', 'wrong-length', 'absent']);
  t.false(pool.has('a'));
  t.true(pool.has('b'));
});

test('pool off thread: end and free let calls under way end as misses', async (t) => {
  for (const isEnded of [true, false]) {
    const { pool, threads } = setUp(t, 8);
    pool.publishBatch(['r'], [page(7)]);
    const publishing = pool.publishPages(['a'], [page(1)]);
    const waiting = pool.publishPages(['b'], [page(2)]);
    const reading = pool.readPages(['r'], [emptyPage()], VERIFIED);
    let isOver = false;
    const over = isEnded ? pool.end() : Promise.resolve();
    over.then(() => {
      isOver = true;
    });
    if (!isEnded) pool.free();
    await settled();
    t.is(isOver, !isEnded);
    await threads.finish();
    await over;
    t.is((await publishing)[0] === null, !isEnded);
    t.deepEqual(await waiting, [null]);
    t.deepEqual(await reading, ['absent']);
    t.is(threads.count, 0);
  }
});

for (const policy of ['lru', 's3fifo'] as const) {
  test(`pool off thread: whatever happens meanwhile, every page that is found has its own bytes (${policy})`, async (t) => {
    const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
    t.log(`seed ${seed}`);
    const random = seededRandom(seed);
    const upTo = (limit: number): number => random.u32() % limit;
    let nowMs = 0;
    // Nobody gives up waiting: every copy ends.
    const clock = { nowMs: () => nowMs, after: () => () => {} } as unknown as Clock;
    const { pool, threads } = setUp(t, 12, { policy, quarantineMs: upTo(2) * 20, clock });
    /** Bytes of a key follow from it and from which of four contents it has, so that no page passes for another. */
    const bytesOf = (key: number, version: number) =>
      content(key * 4 + version, 1 + ((key * 1237 + version * 800) % (2 * PAGE)));
    const isOwn = (key: number, bytes: Uint8Array): boolean =>
      [0, 1, 2, 3].some((version) => Buffer.compare(bytes, bytesOf(key, version)) === 0);
    const reads: Promise<void>[] = [];
    let readPages = 0;
    let published = 0;
    const someKeys = (): number[] => [...new Set(Array.from({ length: 1 + upTo(4) }, () => upTo(16)))];
    for (let step = 0; step < 3000; step++) {
      nowMs += upTo(10);
      const keys = someKeys();
      const names = keys.map((key) => `k${key}`);
      const versions = keys.map(() => upTo(4));
      const pages = keys.map((key, i) => {
        const bytes = bytesOf(key, versions[i] as number);
        return { views: [bytes], length: bytes.length };
      });
      const action = upTo(10);
      if (action < 3) {
        reads.push(
          pool.publishPages(names, pages).then((results) => {
            published += results.filter((result) => result !== null).length;
          }),
        );
      } else if (action === 3) {
        pool.publishBatch(names, pages);
      } else if (action < 6) {
        reads.push(
          pool
            .readPages(
              names,
              pages.map(({ length }) => emptyPage(length)),
              VERIFIED,
            )
            .then((outcomes) => {
              t.false(outcomes.includes('damaged'));
            }),
        );
        const targets = pages.map(({ length }) => emptyPage(length));
        reads.push(
          pool.readPages(names, targets, { isVerified: false }).then((outcomes) => {
            outcomes.forEach((outcome, i) => {
              if (outcome !== 'read') return;
              readPages++;
              const [bytes] = targets[i]?.views ?? [];
              if (!bytes || !isOwn(keys[i] as number, bytes)) t.fail(`step ${step}: k${keys[i]} was read wrong`);
            });
          }),
        );
      } else if (action === 6) {
        pool.remove(names[0] as string);
      } else if (upTo(60) === 0) {
        removeAll(pool);
      } else {
        await threads.finish();
      }
      if (reads.length > 20) await threads.finish();
      pool.verify();
      for (const name of pool.keys()) {
        const [there] = pool.peekBatch([name]);
        const bytes = there ? pageBytes(pool, there) : new Uint8Array();
        const isRight = there?.checksum === crc32(bytes) && isOwn(Number(name.slice(1)), bytes);
        if (!isRight) return t.fail(`step ${step}: ${name} has bytes that are not its own`);
      }
    }
    await threads.finishAll();
    await Promise.all(reads);
    t.log(`${published} published, ${readPages} read`);
    t.true(published > 300 && readPages > 100);
    const { usedBytes, pinned, capacityBytes } = pool.stats();
    t.is(pinned, 0);
    t.true(usedBytes <= capacityBytes);
  });
}

test('pool off thread: where no other thread may copy, the calling one does, however much it is', async (t) => {
  const copyThreads = copyThreadsOf({ canCopy: false, start: systemThreads.start });
  t.false(copyThreads.take(1, 2 ** 40));
  t.is(copyThreadsOf(systemThreads).take(1, 2 ** 40), canCopyOffThread());
  const copies = new PageCopies();
  const source = content(1, 2 ** 21);
  const target = new Uint8Array(new SharedArrayBuffer(2 ** 21));
  copies.add([source], [target]);
  const copying = copyThreads.copy(copies);
  t.is(Buffer.compare(target, source), 0, 'copied before anything else has its turn');
  t.deepEqual([...(await copying)], [crc32(source)]);
});
