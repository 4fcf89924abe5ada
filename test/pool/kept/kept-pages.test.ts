import test from 'ava';
import { seededRandom } from '../../../src/base/environment/random.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import { readStamp, STAMP_BYTES } from '../../../src/memory/page-stamp.js';
import { nativeCopyThreads } from '../../../src/pool/copy-threads.js';
import { Cells } from '../../../src/pool/kept/cells.js';
import { PageRecords } from '../../../src/pool/kept/page-records.js';
import { stampOffset } from '../../../src/pool/page-stamps.js';
import { PublishedPool } from '../../../src/pool/published-pool.js';
import { systemClock } from '../../../src/system/system-clock.js';
import { content } from '../../_support/support.js';

const POOL_BYTES = 256 * 1024;

/** A pool over memory that a pool of before has left, whose pages are hidden. */
function openHidden(
  region: HostRegion,
  index: Uint8Array,
  { seed, onEvict = () => {} }: { seed: number; onEvict?: (keys: string[]) => void },
): { pool: PublishedPool; keys: string[] } {
  const cells = new Cells([index]);
  const state = cells.state();
  if (state !== 'ours') cells.begin(seed | 1, state);
  const records = new PageRecords(cells);
  const { records: found } = records.find(({ offset, length, stamp }) => {
    return readStamp(region.bytes(stampOffset(offset, length), STAMP_BYTES), 0) === stamp;
  });
  const pool = new PublishedPool(region.addr, region.length, 1, {
    clock: systemClock,
    copyThreads: nativeCopyThreads,
    stamps: seededRandom(seed),
    records,
    onEvict,
  });
  pool.kept?.restore(found);
  pool.verify();
  return { pool, keys: found.map(({ key }) => key) };
}

/** The same with pages that are confirmed. */
function open(region: HostRegion, index: Uint8Array, seed: number): PublishedPool {
  const { pool, keys } = openHidden(region, index, { seed });
  pool.states.confirmEarlier(keys);
  return pool;
}

test('kept pages: pools one after the other over the same memory have the pages of the one before', async (t) => {
  const random = seededRandom(5);
  const region = HostRegion.allocate(POOL_BYTES);
  t.teardown(() => region.free());
  const index = new Uint8Array(128 * 64);
  const expected = new Map<string, Uint8Array>();
  for (let life = 0; life < 200; life++) {
    const pool = open(region, index, life + 1);
    for (const [key, bytes] of expected) {
      const target = new Uint8Array(bytes.length);
      const [outcome] = await pool.readPages([key], [{ views: [target], length: target.length }], { isVerified: true });
      if (outcome !== 'read' || Buffer.compare(target, bytes) !== 0) return t.fail(`life ${life}, ${key}: ${outcome}`);
    }
    t.is(pool.size, expected.size);
    for (let step = 0; step < 40; step++) {
      const number = random.u32() % 24;
      const key = `key ${number}${number % 5 === 0 ? 'x'.repeat(number * 20) : ''}`;
      if (random.u32() % 4 === 0) {
        pool.remove(key);
        expected.delete(key);
        continue;
      }
      const length = number < 8 ? 1 + number : 8 + (random.u32() % 4096);
      const before = expected.get(key);
      const bytes = before && random.u32() % 4 === 0 ? before : content(random.u32(), length);
      const page = { views: [bytes], length: bytes.length };
      const origin = { version: life * 100 + step + 1, kind: 'named', setBy: 0, expires: 0 } as const;
      const [published] = pool.publishBatch([key], [page], origin);
      if (published === null) return t.fail(`life ${life}: no room`);
      expected.set(key, bytes);
      if (step % 8 === 0) pool.verify();
    }
    pool.free();
  }
});

test('kept pages: a hidden page that made way for one that has no room is reported as gone', (t) => {
  const region = HostRegion.allocate(POOL_BYTES);
  t.teardown(() => region.free());
  const index = new Uint8Array(128 * 64);
  const publish = (pool: PublishedPool, bytes: Uint8Array) =>
    pool.publishBatch(['key'], [{ views: [bytes], length: bytes.length }])[0];
  const before = open(region, index, 1);
  t.not(publish(before, content(1, 4096)), null);
  before.free();
  const gone: string[] = [];
  const { pool } = openHidden(region, index, { seed: 2, onEvict: (keys) => gone.push(...keys) });
  t.is(publish(pool, content(2, 2 * POOL_BYTES)), null);
  t.deepEqual(gone, ['key']);
  t.is(pool.size, 0);
  pool.free();
});
