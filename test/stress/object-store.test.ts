import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { OBJECT_HEADER_BYTES } from '../../src/base/limits.js';
import { systemRandom } from '../../src/system/system-random.js';
import { all, getPages, keysOf, objectNode, PAGE, setPages, settled } from '../_support/objects/object-nodes.js';
import { type Fault, S3Server } from '../_support/objects/s3-server.js';
import { until } from '../_support/support.js';

const CALL_PAGES = 32;
const PAGES = Math.ceil(Number(process.env.MESHCACHE_OBJECT_PAGES ?? 160) / CALL_PAGES) * CALL_PAGES;
/** Part of the answers that are damaged, and of those that make the node skip the store for a while. */
const DAMAGED_SHARE = 0.3;
const FAILING_SHARE = 0.002;

/** Damage and failures of all kinds, by chance. */
function anyFault(random: () => number): Fault | undefined {
  const size = OBJECT_HEADER_BYTES + PAGE;
  const one = (faults: readonly (() => Fault)[]) => faults[Math.floor(random() * faults.length)]?.();
  const damage: readonly (() => Fault)[] = [
    () => ({ kind: 'flipped', at: Math.floor(random() * size) }),
    () => ({ kind: 'flipped', at: Math.floor(random() * 80) }),
    () => ({ kind: 'short', bytes: Math.floor(random() * size) }),
    () => ({ kind: 'body', body: Buffer.alloc(Math.floor(random() * 2 * size), 7) }),
    () => ({ kind: 'error', status: 404, code: 'NoSuchKey' }),
  ];
  const failures: readonly (() => Fault)[] = [
    () => ({ kind: 'cut', bytes: Math.floor(random() * size) }),
    () => ({ kind: 'error', status: 403, code: 'AccessDenied' }),
    () => ({ kind: 'error', status: 500, code: 'InternalError' }),
  ];
  const chance = random();
  if (chance < FAILING_SHARE) return one(failures);
  return chance < DAMAGED_SHARE ? one(damage) : undefined;
}

test.serial(
  'object store: pages go through it, with damage of every kind and a silent server: none is read wrong',
  async (t) => {
    t.timeout(60_000 + PAGES * 200);
    const seed = Number(process.env.MESHCACHE_STRESS_SEED ?? systemRandom.u32());
    t.log(`MESHCACHE_STRESS_SEED=${seed}`);
    const source = seededRandom(seed);
    const random = () => source.u32() / 2 ** 32;
    const s3 = await S3Server.start(t);
    const writer = await objectNode(t, s3, { global_segment_size: '2mb' });
    for (let from = 0; from < PAGES; from += CALL_PAGES) {
      await setPages(writer, from, from + CALL_PAGES);
      await until(async () => {
        await getPages(writer, from, from + CALL_PAGES);
        await settled(writer);
        return (await s3.count('PUT', /pages/)) >= from + CALL_PAGES;
      });
    }
    // With faults: what is read is right, what is not is a miss; `getPages` throws if a byte is wrong.
    const reader = await objectNode(t, s3, { global_segment_size: '2mb' });
    s3.fault = ({ method }) => (method === 'GET' ? anyFault(random) : undefined);
    let read = 0;
    const silentAt = Math.floor((PAGES / CALL_PAGES) * 0.5) * CALL_PAGES;
    for (let from = 0; from < PAGES; from += CALL_PAGES) {
      if (from === silentAt) {
        s3.fault = () => ({ kind: 'silence' });
        t.deepEqual(await getPages(reader, from, from + CALL_PAGES), all(CALL_PAGES, false));
        s3.fault = ({ method }) => (method === 'GET' ? anyFault(random) : undefined);
      }
      // One by one: a call ends at the first page that is missing.
      for (let i = from; i < from + CALL_PAGES; i++) read += Number((await getPages(reader, i, i + 1))[0]);
    }
    s3.fault = () => undefined;
    // Without faults, a third cluster reads all of them.
    const third = await objectNode(t, s3, { global_segment_size: '2mb' });
    let whole = 0;
    for (let from = 0; from < PAGES; from += CALL_PAGES) {
      whole += (await getPages(third, from, from + CALL_PAGES)).filter(Boolean).length;
    }
    t.log(`${PAGES} pages: ${read} read with faults, ${whole} without, 0 wrong`);
    t.is(whole, PAGES);
    t.is(await third.store.batchExists(keysOf(0, CALL_PAGES)), CALL_PAGES);
  },
);
