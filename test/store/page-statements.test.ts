import test, { type ExecutionContext } from 'ava';
import { HybridClock } from '../../src/base/concurrency/hybrid-clock.js';
import { stringsOf } from '../../src/core/binding/key-batch.js';
import { Taken } from '../../src/directory/messages/taken.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool } from '../../src/node/machine/machine-node.js';
import { PageStatements } from '../../src/store/ground/page-statements.js';
import { systemClock } from '../../src/system/system-clock.js';
import { groundOf } from '../_support/store/ground.js';
import { content } from '../_support/support.js';

/** A pool and its statements, to which the directory says what `answer` is. */
function newStatements(t: ExecutionContext, answer: number, isSettled = false) {
  const region = HostRegion.allocate(1 << 16);
  const pool = new PublishedPool(region.addr, region.length, 1);
  t.teardown(() => {
    pool.free();
    region.free();
  });
  const stated: number[] = [];
  const deleted: string[] = [];
  const versions = new HybridClock(systemClock);
  const statements = new PageStatements(
    groundOf({
      pool,
      directory: {
        async state(_keys, columns) {
          stated.push(...columns.version);
          return new Uint8Array(columns.count).fill(answer);
        },
        async delete(keys) {
          deleted.push(...stringsOf(keys));
        },
      },
      ...{ versions, isSettled },
    }),
  );
  const set = async (key: string, bytes: Uint8Array) => {
    const origin = { version: versions.next(), kind: 'named' as const, setBy: 0, expires: 0 };
    const published = pool.publishBatch([key], [{ views: [bytes], length: bytes.length }], origin);
    return [...(await statements.stateSet([key], published, origin))];
  };
  return { pool, statements, stated, deleted, set };
}

test('page statements: what stays outdated however often it is set anew is refused, and not kept', async (t) => {
  // Cause: the page stayed in the pool, where its own node went on reading it, though the cluster has another content.
  const { pool, stated, set } = newStatements(t, Taken.outdated);
  t.deepEqual(await set('k', content(1, 100)), [['k', 'superseded']]);
  t.true(stated.length > 1);
  t.deepEqual(
    stated,
    [...new Set(stated)].toSorted((a, b) => a - b),
    'each time as a newer one',
  );
  t.deepEqual(pool.keys(), []);
});

for (const [name, answer, isGood] of [
  ['taken by an owner', Taken.taken, true],
  ['older than what an owner knows', Taken.outdated, false],
  ['of which no owner answers', Taken.refused, false],
] as const) {
  test(`page statements: a page of an earlier start, ${name}, is ${isGood ? 'good' : 'uncertain'}`, async (t) => {
    const { pool, statements, stated } = newStatements(t, answer);
    const page = { views: [content(1, 100)], length: 100 };
    pool.publishBatch(['before'], [page], { version: 7, kind: 'named', setBy: 0, expires: 0 });
    t.deepEqual(await statements.confirm(['before', 'absent']), [isGood, true]);
    t.deepEqual(stated, [7]);
    t.deepEqual(pool.keys(), answer === Taken.outdated ? [] : ['before']);
  });
}

test('page statements: when all others have said what they know, no page is uncertain', async (t) => {
  const { pool, statements, stated } = newStatements(t, Taken.refused, true);
  pool.publishBatch(['before'], [{ views: [content(1, 100)], length: 100 }], {
    version: 7,
    kind: 'named',
    setBy: 0,
    expires: 0,
  });
  t.deepEqual(await statements.confirm(['before']), [true]);
  t.deepEqual(stated, []);
});

test('page statements: what was set since the start is not asked for again', async (t) => {
  const { statements, stated, set } = newStatements(t, Taken.taken);
  await set('k', content(1, 100));
  t.deepEqual(await statements.confirm(['k']), [true]);
  t.is(stated.length, 1);
});

test('page statements: a key that comes twice in a call is announced once', async (t) => {
  const { pool, statements, stated } = newStatements(t, Taken.taken);
  const pages = [1, 2].map((i) => ({ views: [content(i, 100)], length: 100 }));
  const origin = { version: 5, kind: 'named' as const, setBy: 0, expires: 0 };
  const published = pool.publishBatch(['k', 'k'], pages, origin);
  t.deepEqual([...(await statements.stateSet(['k', 'k'], published, origin))], []);
  t.deepEqual(stated, [5]);
  await statements.restate(['k', 'absent', 'k']);
  t.deepEqual(stated, [5, 5]);
});

test('page statements: a page is announced where the pool has it, and one that it does not have is nowhere', (t) => {
  const { pool, statements } = newStatements(t, Taken.taken);
  const page = { views: [content(1, 100)], length: 100 };
  pool.publishBatch(['named'], [page], { version: 7, kind: 'named', setBy: 0, expires: 0 });
  pool.publishBatch(['copy'], [page], { version: 8, kind: 'computed', setBy: 7, expires: 0 });
  const [named, none, copy] = statements.locationsOf(['named', 'none', 'copy']);
  t.is(none, null);
  for (const [key, location, rest] of [
    ['named', named, { version: 7, kind: 'named', setBy: 0, expires: 0 }],
    ['copy', copy, { version: 8, kind: 'computed', setBy: 7, expires: 0 }],
  ] as const) {
    const [found] = pool.peekBatch([key]);
    if (!location || !found) return t.fail();
    const { remoteAddr, ...other } = location;
    t.like(other, { nodeId: 'self', incarnation: 1, rkey: 1, length: 100, tier: 'memory', generation: 0, ...rest });
    t.like(other, { checksum: found.checksum, ...pool.stampOf(found) });
    t.deepEqual([remoteAddr, 100], pool.addressOf(key));
  }
});

test('page statements: a page is stated when an owner has taken it, and anew when it is set with another origin', async (t) => {
  const states = (pool: PublishedPool) => pool.peekBatch(['k']).map((page) => page?.state);
  const refusing = newStatements(t, Taken.refused);
  t.deepEqual(await refusing.set('k', content(1, 100)), [['k', 'directory']]);
  t.deepEqual([states(refusing.pool), refusing.statements.tiersOf(['k'])], [['live'], [null]]);
  const { pool, statements, set } = newStatements(t, Taken.taken);
  t.deepEqual(await set('k', content(1, 100)), []);
  t.deepEqual([states(pool), statements.tiersOf(['k'])], [['stated'], ['memory']]);
  const [page] = pool.peekBatch(['k']);
  pool.renew(['k'], page?.version ?? 0, (page?.version ?? 0) + 1);
  t.deepEqual([states(pool), statements.tiersOf(['k'])], [['live'], [null]]);
  await statements.restate(['k']);
  t.deepEqual(states(pool), ['stated']);
  pool.verify();
});

test('page statements: once closed, no page has a location, though the pool and the disk are not asked any more', async (t) => {
  // Cause: a node that was closing logged that its disk store was closed, as an error.
  const { pool, statements, set } = newStatements(t, Taken.taken);
  await set('k', content(1, 100));
  t.true(statements.locationsOf(['k'])[0] !== null);
  statements.close();
  t.deepEqual(statements.locationsOf(['k']), [null]);
  t.deepEqual(await statements.confirm(['k']), [false]);
  t.deepEqual(pool.keys(), ['k']);
});
