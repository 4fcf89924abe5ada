import test, { type ExecutionContext } from 'ava';
import { type RandomSource, seededRandom } from '../../src/base/environment/random.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { imageBytes, readStamp, STAMP_BYTES } from '../../src/memory/page-stamp.js';
import { PublishedPool } from '../../src/node/machine/machine-node.js';
import type { PageLease } from '../../src/pool/published-pool.js';
import { HeldCopies } from '../_support/pool/held-copies.js';
import { pageBytes } from '../_support/pool/page-bytes.js';
import { removeAll } from '../_support/pool/remove-all.js';

interface Given {
  readonly key: string;
  readonly offset: number;
  readonly length: number;
  readonly stamp: number;
  readonly bytes: Uint8Array;
}

function stampedPool(t: ExecutionContext, capacity: number, random: RandomSource, policy: 'lru' | 's3fifo' = 'lru') {
  const region = HostRegion.allocate(capacity);
  const pool = new PublishedPool(region.addr, capacity, 1, { stamps: random, policy });
  t.teardown(() => {
    pool.free();
    region.free();
  });
  return { pool, region };
}

function page(bytes: Uint8Array) {
  return { views: [bytes], length: bytes.length };
}

for (const policy of ['lru', 's3fifo'] as const) {
  test(`page stamps: ${policy}: what is in the pool has its stamp, what has left it never again`, async (t) => {
    const seed = Number(process.env.MESHCACHE_TEST_SEED ?? Date.now() >>> 0);
    t.log(`seed ${seed}`);
    const random = seededRandom(seed);
    const { pool, region } = stampedPool(t, 4096, random, policy);
    const given: Given[] = [];
    const leases: PageLease[] = [];
    const keyOf = (): string => `k${random.u32() % 24}`;
    for (let step = 0; step < 3000; step++) {
      const kind = random.u32() % 16;
      if (kind < 9) {
        const keys = Array.from({ length: 1 + (random.u32() % 4) }, keyOf);
        const contents = keys.map(() => random.bytes(1 + (random.u32() % (random.u32() % 8 === 0 ? 1500 : 90))));
        const published = pool.publishBatch(keys, contents.map(page));
        for (const [i, found] of published.entries()) {
          if (found === null) continue;
          const key = keys[i] as string;
          const bytes = contents[keys.lastIndexOf(key)] as Uint8Array;
          given.push({ key, bytes, offset: found.offset, length: found.length, stamp: pool.stampOf(found).stamp });
        }
      } else if (kind < 12) {
        pool.remove(keyOf());
      } else if (kind === 12) {
        const [lease] = pool.lease([keyOf()]);
        if (lease) leases.push(lease);
      } else if (kind === 13) {
        pool.unlease(leases.splice(random.u32() % 4, 1));
      } else if (kind === 14) {
        const bytes = random.bytes(40);
        const [lease] = await pool.fillPages([keyOf()], [bytes.length], async ([target]) => {
          target?.views[0]?.set(bytes);
          return [target ? 7 : null];
        });
        if (lease) leases.push(lease);
      } else if (random.u32() % 8 === 0) {
        removeAll(pool);
      }
      for (const each of given) {
        const [here] = pool.peekBatch([each.key]);
        const isHere = here != null && pool.stampOf(here).stamp === each.stamp;
        const at = each.offset + imageBytes(each.length) - STAMP_BYTES;
        t.is(readStamp(region.bytes(), at) === each.stamp, isHere, `step ${step}: ${each.key}`);
        if (isHere) t.deepEqual(pageBytes(pool, here), each.bytes);
      }
      pool.verify();
      if (given.length > 60) given.splice(0, 20);
    }
  });
}

test('page stamps: a page that others still read is freed at once, and they get its bytes', (t) => {
  const { pool } = stampedPool(t, 4096, seededRandom(1));
  const bytes = seededRandom(2).bytes(100);
  pool.publishBatch(['a'], [page(bytes)]);
  const [lease] = pool.lease(['a']);
  const [here] = pool.peekBatch(['a']);
  t.truthy(lease && here);
  if (!here || !lease) return;
  const views = pool.viewsOf(here);
  pool.touchBatch(['a']);
  const { stamp } = pool.stampOf(here);
  t.not(stamp, 0);
  pool.remove('a');
  t.not(pool.stampOf(here).stamp, 0);
  t.not(pool.stampOf(here).stamp, stamp);
  t.deepEqual(new Uint8Array(Buffer.concat(views)), bytes);
});

test('page stamps: a pool takes as many pages as without, whatever their size', (t) => {
  for (const length of [6, 100, 1001, 4096]) {
    const { pool } = stampedPool(t, 4 * length, seededRandom(length));
    for (let i = 0; i < 4; i++) t.truthy(pool.publishBatch([`k${i}`], [page(new Uint8Array(length).fill(i))])[0]);
    t.is(pool.size, 4);
    t.is(pool.bytesUsed, 4 * length);
  }
});

test('page stamps: a page that goes before its publisher has heard of it has a stamp that is nowhere', async (t) => {
  // Cause: the next call in turn takes its place first. Its location then named no stamp, and was read as it lay there,
  // or the other page's.
  const bytes = 4096;
  for (const nextBytes of [bytes, 100]) {
    const region = HostRegion.allocate(bytes);
    const copyThreads = new HeldCopies();
    const pool = new PublishedPool(region.addr, bytes, 1, { stamps: seededRandom(1), copyThreads });
    t.teardown(() => {
      pool.free();
      region.free();
    });
    const publish = async (key: string, length: number) => {
      const [published] = await pool.publishPages([key], [page(seededRandom(length).bytes(length))]);
      if (!published) throw new Error(`${key} has found no room`);
      return { keys: pool.keys(), ...pool.stampOf(published) };
    };
    const both = Promise.all([publish('first', bytes), publish('next', nextBytes)]);
    await copyThreads.finishAll();
    const [first, next] = await both;
    t.false(first.keys.includes('first'));
    t.not(first.stamp, 0);
    t.not(first.stamp, next.stamp);
  }
});
