import test from 'ava';
import { PROMOTE_ANSWER_MAX_MS, PROMOTE_LEASE_MS } from '../../src/base/limits.js';
import { ManualClock } from '../_support/clock.js';
import { HeldCopies, settled } from '../_support/pool/held-copies.js';
import { pageBytes } from '../_support/pool/page-bytes.js';
import { removeAll } from '../_support/pool/remove-all.js';
import { closedGate } from '../_support/store/disk-pages.js';
import { located, newOwner, PAGE, summary } from '../_support/store/owner.js';
import { content, until } from '../_support/support.js';

test('promoter: pages come from disk into the pool, byte for byte, and are announced', async (t) => {
  const { promoter, pool, keys, announced, readAt, disk } = await newOwner(t, { poolPages: 16, diskPages: 4 });
  const outcomes = await promoter.promote('r', [...keys, 'unknown', 'k0']);
  t.is(summary(outcomes), 'pppp-p');
  for (const i of keys.keys()) t.deepEqual(readAt(located(outcomes[i])), content(i, PAGE));
  t.deepEqual(announced, keys);
  t.is(pool.size, 4);
  await promoter.promote('r', keys);
  t.deepEqual([...disk.reads.values()], [1, 1, 1, 1], 'what is in the pool is not read again');
});

test('promoter: what may be out of date is absent, and is not brought', async (t) => {
  const { promoter, pool, keys } = await newOwner(t, { poolPages: 8, diskPages: 4, isGood: (key) => key !== 'k2' });
  t.is(summary(await promoter.promote('reader', keys)), 'pp-p');
  t.deepEqual(pool.keys().toSorted(), ['k0', 'k1', 'k3']);
});

test('promoter: eight readers at once make the disk read each page once', async (t) => {
  const { promoter, keys, disk, readAt } = await newOwner(t, { poolPages: 64, diskPages: 16 });
  const { gate, open } = closedGate();
  disk.gate = gate;
  const asking = Array.from({ length: 8 }, (_, i) => promoter.promote(`r${i}`, i % 2 === 0 ? keys : keys.toReversed()));
  await settled();
  open();
  for (const [r, outcomes] of (await Promise.all(asking)).entries()) {
    t.is(summary(outcomes), 'p'.repeat(16));
    outcomes.forEach((outcome, i) => {
      t.deepEqual(readAt(located(outcome)), content(r % 2 === 0 ? i : 15 - i, PAGE));
    });
  }
  t.deepEqual(
    [...disk.reads.values()],
    keys.map(() => 1),
  );
});

test('promoter: at most half of the pool, the first ones first; more when they are released', async (t) => {
  const { promoter, pool, keys, readAt } = await newOwner(t, { poolPages: 8, diskPages: 12 });
  const first = await promoter.promote('a', keys);
  t.is(summary(first), 'ppppllllllll');
  const sharing = await promoter.promote('b', keys.slice(2, 6));
  t.is(summary(sharing), 'ppll', 'what is there is for everybody');
  const asking = promoter.promote('a', keys.slice(4));
  promoter.release('a', keys.slice(0, 4));
  t.is(summary(await asking), 'ppllllll', 'of the four that the first has released the second one has two');
  t.deepEqual(readAt(located(sharing[0])), content(2, PAGE));
  for (let i = 0; i < 20; i++) pool.publishBatch([`x${i}`], [{ views: [content(100 + i, PAGE)], length: PAGE }]);
  t.deepEqual([...pool.hasBatch(keys.slice(0, 7))], [0, 0, 1, 1, 1, 1, 0]);
});

test('promoter: pinned pages take their room from promoted ones', async (t) => {
  const { promoter, keys } = await newOwner(t, { poolPages: 8, diskPages: 4, pinnedBytes: 2 * PAGE });
  const outcomes = await promoter.promote('reader', keys);
  t.deepEqual(
    outcomes.map((outcome) => typeof outcome),
    ['object', 'object', 'string', 'string'],
  );
});

test('promoter: one page may be larger than half of the pool, and none larger than all of it', async (t) => {
  const { promoter, disk, readAt } = await newOwner(t, { poolPages: 4, diskPages: 1 });
  await disk.write('large', content(50, 4 * PAGE));
  await disk.write('too large', content(51, 4 * PAGE + 1));
  const [large, tooLarge, small] = await promoter.promote('r', ['large', 'too large', 'k0']);
  t.deepEqual(readAt(located(large)), content(50, 4 * PAGE));
  t.deepEqual([tooLarge, small], ['absent', 'later']);
});

test('promoter: a reader that does not release loses its pages after a time, one that asks again keeps them', async (t) => {
  const clock = new ManualClock();
  const { promoter, pool, keys } = await newOwner(t, { poolPages: 4, diskPages: 8, clock });
  t.is(summary(await promoter.promote('dead', keys.slice(0, 1))), 'p');
  clock.advance(PROMOTE_LEASE_MS / 2);
  t.is(summary(await promoter.promote('alive', keys.slice(1, 2))), 'p');
  t.is(pool.stats().pinned, 2);
  clock.advance(PROMOTE_LEASE_MS / 2);
  t.is(pool.stats().pinned, 1);
  t.is(summary(await promoter.promote('alive', keys.slice(1, 2))), 'p');
  clock.advance(PROMOTE_LEASE_MS - 1);
  t.is(pool.stats().pinned, 1);
  clock.advance(1);
  t.is(pool.stats().pinned, 0);
  t.is(clock.pendingCount, 0);
});

test('promoter: a page given to a reader twice is released twice', async (t) => {
  const { promoter, pool, keys } = await newOwner(t, { poolPages: 4, diskPages: 1 });
  await Promise.all([promoter.promote('r', keys), promoter.promote('r', keys)]);
  promoter.release('r', keys);
  t.is(pool.stats().pinned, 1);
  promoter.release('other', keys);
  t.is(pool.stats().pinned, 1);
  promoter.release('r', keys);
  t.is(pool.stats().pinned, 0);
});

test('promoter: who waits for room gets it in order, and as soon as there is some', async (t) => {
  const clock = new ManualClock();
  const { promoter, keys } = await newOwner(t, { poolPages: 2, diskPages: 4, clock });
  t.is(summary(await promoter.promote('a', ['k0'])), 'p');
  const order: string[] = [];
  const ask = async (reader: string, key: string) => {
    const outcome = summary(await promoter.promote(reader, [key]));
    order.push(`${reader}${outcome}`);
  };
  const asking = [ask('b', 'k1'), ask('c', 'k2')];
  await settled();
  promoter.release('a', ['k0']);
  asking.push(ask('a', 'k3'));
  await until(() => order.length === 1);
  t.deepEqual(order, ['bp'], 'the one that has just released does not get in between');
  promoter.release('b', ['k1']);
  await until(() => order.length === 2);
  clock.advance(PROMOTE_ANSWER_MAX_MS);
  await Promise.all(asking);
  t.deepEqual(order, ['bp', 'cp', 'al']);
  t.is(keys.length, 4);
});

test('promoter: a slow disk is answered with later, and the page is there when it has come', async (t) => {
  const clock = new ManualClock();
  const { promoter, pool, keys, disk } = await newOwner(t, { poolPages: 8, diskPages: 2, clock });
  const { gate, open } = closedGate();
  disk.gate = gate;
  const asking = promoter.promote('r', keys);
  await settled();
  clock.advance(PROMOTE_ANSWER_MAX_MS);
  t.is(summary(await asking), 'll');
  clock.advance(PROMOTE_LEASE_MS * 3);
  open();
  await until(() => pool.size === 2);
  t.is(pool.stats().pinned, 2, 'the time of its lease begins when it has come');
  t.is(summary(await promoter.promote('r', keys)), 'pp');
  t.deepEqual([...disk.reads.values()], [1, 1]);
  promoter.release('r', keys);
  t.is(pool.stats().pinned, 0);
});

test('promoter: a slow disk holds up neither the pool’s other copies nor its readers', async (t) => {
  const copyThreads = new HeldCopies();
  const { promoter, pool, disk } = await newOwner(t, { poolPages: 8, diskPages: 2, copyThreads });
  const { gate, open } = closedGate();
  disk.gate = gate;
  const asking = promoter.promote('r', ['k0', 'k1']);
  await settled();
  const publishing = pool.publishPages(['x'], [{ views: [content(9, PAGE)], length: PAGE }]);
  await copyThreads.finishAll();
  t.not((await publishing)[0], null);
  t.deepEqual([...pool.hasBatch(['k0', 'x'])], [0, 1]);
  open();
  t.is(summary(await asking), 'pp');
});

test('promoter: a failing disk and damaged pages are misses, and leave nothing behind', async (t) => {
  const { promoter, pool, keys, disk, readAt } = await newOwner(t, { poolPages: 16, diskPages: 4 });
  await disk.damage('k1');
  const outcomes = await promoter.promote('r', keys);
  t.is(summary(outcomes), 'p-pp');
  t.deepEqual(readAt(located(outcomes[2])), content(2, PAGE));
  await disk.write('k9', content(9, PAGE));
  disk.failWith = new Error('EIO');
  t.is(summary(await promoter.promote('r', ['k9', 'k0'])), '-p');
  disk.failWith = undefined;
  t.is(summary(await promoter.promote('r', ['k9'])), 'p');
  promoter.release('r', ['k9', ...keys, 'k0']);
  t.is(pool.stats().pinned, 0);
  t.is(pool.size, 4);
});

test('promoter: a page that takes another’s place on disk while that is read is not taken for it', async (t) => {
  const { promoter, pool, disk, readAt } = await newOwner(t, { poolPages: 16, diskPages: 1 });
  const { gate, open } = closedGate();
  disk.gate = gate;
  const asking = promoter.promote('r', ['k0']);
  await settled();
  await disk.write('k0', content(77, PAGE));
  open();
  t.is(summary(await asking), '-');
  t.is(pool.size, 0);
  const [again] = await promoter.promote('r', ['k0']);
  t.deepEqual(readAt(located(again)), content(77, PAGE));
});

test('promoter: a page that is set meanwhile wins, and nothing is written over it', async (t) => {
  const { promoter, pool, disk, readAt } = await newOwner(t, { poolPages: 16, diskPages: 1 });
  const { gate, open } = closedGate();
  disk.gate = gate;
  const asking = promoter.promote('r', ['k0']);
  await settled();
  const setting = pool.publishPages(['k0'], [{ views: [content(70, PAGE)], length: PAGE }]);
  open();
  const [old] = await asking;
  const [page] = await setting;
  t.deepEqual(page && pageBytes(pool, page), content(70, PAGE));
  t.is(pool.stats().pinned, 0, 'the lease of what was there has ended');
  const [now] = await promoter.promote('r', ['k0']);
  t.deepEqual(readAt(located(now)), content(70, PAGE));
  t.deepEqual(
    readAt(located(old)) ?? content(70, PAGE),
    content(70, PAGE),
    'at the old place nothing is taken for the page',
  );
  promoter.release('r', ['k0', 'k0']);
  t.is(pool.stats().pinned, 0);
});

test('promoter: what is cleared or removed meanwhile is gone, and may be promoted and set again', async (t) => {
  const { promoter, pool, disk, keys } = await newOwner(t, { poolPages: 16, diskPages: 3 });
  const { gate, open } = closedGate();
  disk.gate = gate;
  const asking = promoter.promote('r', keys);
  await settled();
  removeAll(pool);
  open();
  t.is(summary(await asking), '---');
  t.is(pool.size, 0);
  t.is(summary(await promoter.promote('r', keys)), 'ppp');
  t.true(pool.remove('k1'));
  removeAll(pool);
  t.is(pool.stats().quarantinedBytes, 0);
  t.not(pool.publishBatch(['k1'], [{ views: [content(70, PAGE)], length: PAGE }])[0], null);
  t.is(summary(await promoter.promote('r', keys)), 'ppp');
});

test('promoter: closing in the middle ends every lease, timer and call', async (t) => {
  const clock = new ManualClock();
  const { promoter, pool, keys, disk } = await newOwner(t, { poolPages: 8, diskPages: 8, clock });
  t.is(summary(await promoter.promote('a', keys.slice(0, 2))), 'pp');
  const { gate, open } = closedGate();
  disk.gate = gate;
  const reading = promoter.promote('a', keys.slice(2, 4));
  const waiting = promoter.promote('b', keys.slice(4));
  await settled();
  let isClosed = false;
  const closing = promoter.close().then(() => {
    isClosed = true;
  });
  t.is(summary(await waiting), '----');
  await settled();
  t.false(isClosed, 'the disk is still writing into the pool');
  open();
  await closing;
  t.is(summary(await reading), '--');
  t.is(pool.stats().pinned, 0);
  t.is(clock.pendingCount, 0);
  t.is(summary(await promoter.promote('a', keys)), '--------');
  await promoter.close();
});

test('promoter: the pool’s end waits for the disk, and pages are never written to afterwards', async (t) => {
  const { promoter, pool, keys, disk } = await newOwner(t, { poolPages: 8, diskPages: 2 });
  const { gate, open } = closedGate();
  disk.gate = gate;
  const asking = promoter.promote('a', keys);
  await settled();
  let isEnded = false;
  const ending = pool.end().then(() => {
    isEnded = true;
  });
  await settled();
  t.false(isEnded);
  open();
  await ending;
  await asking;
  t.is(summary(await promoter.promote('a', ['k0', 'k1'])).length, 2);
});
