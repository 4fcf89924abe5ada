import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { createCluster } from '../_support/node/store-fixture.js';
import { content } from '../_support/support.js';

/**
 * How long the run is, of which the first fifth is warm-up; ten minutes with MESHCACHE_SOAK_SECONDS=600. None: so many
 * operations.
 */
const SECONDS = Number(process.env.MESHCACHE_SOAK_SECONDS ?? 0);
/** Counted, not timed: on a slow machine the tables that are bounded would still be growing to their bounds. */
const WARM_UP_OPERATIONS = 16_000;
const MIN_OPERATIONS = 3 * WARM_UP_OPERATIONS;
/**
 * In a short run the resident size still follows the garbage collector's ups and downs: what is alive is looked at
 * then.
 */
const IS_LONG = SECONDS >= 300;
const MAX_GROWTH = 0.05;
/** What is remembered of removed keys is as much as it may be after the warm-up. */
const LIMITS = { removalsMaxKeys: 500, droppedMaxKeys: 500 };
const KEYS = 1_000_000;
const PAGE_BYTES = 32 * 1024;

test('soak: memory stays bounded while far more keys are set and read than fit', async (t) => {
  t.timeout((SECONDS + 600) * 1000);
  const stores = await createCluster(2, { global_segment_size: '64mb' }, LIMITS);
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  const random = seededRandom(1);
  const page = content(1, PAGE_BYTES);
  const into = new Uint8Array(PAGE_BYTES);
  const startMs = performance.now();
  const elapsed = () => (performance.now() - startMs) / 1000;
  let warm = 0;
  let operations = 0;
  while (operations < MIN_OPERATIONS || elapsed() < SECONDS) {
    const store = stores[operations % 2] as (typeof stores)[number];
    const key = `soak ${random.u32() % KEYS}`;
    if (!(await store.get(key, into))) await store.set(key, page);
    operations++;
    if (warm === 0 && operations >= WARM_UP_OPERATIONS && elapsed() >= SECONDS / 5) warm = memoryBytes();
  }
  const growth = memoryBytes() / warm - 1;
  t.log(
    `${operations} operations, ${(warm / 2 ** 20).toFixed(0)} MiB after warm-up, growth ${(growth * 100).toFixed(1)} %`,
  );
  t.true(growth < MAX_GROWTH);
});

function memoryBytes(): number {
  if (IS_LONG) return process.memoryUsage.rss();
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  // The second collection takes what finalizers of the first one have let go.
  collect();
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}
