import test, { type ExecutionContext } from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { KEY_PREFIX_BYTES } from '../../src/base/limits.js';
import type { NamespaceQuotas } from '../../src/base/settings/namespace-quotas.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool } from '../../src/node/machine/machine-node.js';
import { nativeCopyThreads } from '../../src/pool/copy-threads.js';
import { NamespaceTenants } from '../../src/pool/tenants/namespace-tenants.js';
import { PagePins } from '../../src/store/pins/page-pins.js';
import { PinLimits } from '../../src/store/pins/pin-limits.js';
import { ManualClock } from '../_support/clock.js';
import { assertFound, losing } from '../_support/planted.js';
import { content } from '../_support/support.js';

const PAGE = 4096;

function quota(min: number, max: number) {
  return { min, max, minDisk: min, maxDisk: max };
}

/** Keys of a tag. */
function keysOf(tag: string, count: number, name = 'k'): string[] {
  return Array.from({ length: count }, (_, i) => `${tag.padEnd(KEY_PREFIX_BYTES, '.')}${name}${i}`);
}

/** Pins of a pool of so many pages with these quotas. */
function newPins(
  t: ExecutionContext,
  quotas: NamespaceQuotas,
  {
    poolPages = 16,
    maxShare = 0.5,
    isVerified = true,
  }: { poolPages?: number; maxShare?: number; isVerified?: boolean },
) {
  const clock = new ManualClock();
  const region = HostRegion.allocate(poolPages * PAGE);
  const tenants = new NamespaceTenants({ quotas, env: { clock, log: silentLogger, metrics: noMetrics } });
  for (const tag of Object.keys(quotas)) tenants.use(tag.padEnd(KEY_PREFIX_BYTES, '.'), tag);
  const stamps = seededRandom(1);
  const options = { clock, stamps, tenants, copyThreads: nativeCopyThreads };
  const pool = new PublishedPool(region.addr, region.length, 7, options);
  const limits = { maxShare, tenants: tenants.of('pool', pool.capacity) };
  const pins = new PagePins({ pool, segmentBytes: pool.capacity, ...limits, clock, metrics: noMetrics });
  t.teardown(() => {
    if (isVerified) for (const each of [pins, pool]) each.verify();
    pins.close();
    pool.free();
    region.free();
  });
  /** Sets the pages one by one; the number of those that found room. */
  const publish = (keys: readonly string[], length = PAGE): number => {
    return keys.filter((key, i) => pool.publishBatch([key], [{ views: [content(i, length)], length }])[0] !== null)
      .length;
  };
  /** Number of pages that clients of this number pin, each as many as it may. */
  const pin = (keys: readonly string[], clients = 8): number => {
    let count = 0;
    for (let i = 0; i < clients; i++) {
      const outcomes = pins.pin(
        pins.holder(),
        keys.filter((key) => !pins.has(key)),
        60_000,
      );
      count += outcomes.filter((outcome) => outcome === 'pinned').length;
    }
    pins.verify();
    return count;
  };
  return { pool, pins, publish, pin };
}

test('pin limits: a tenant pins the same share of its maximum, and can still set pages', (t) => {
  const { publish, pin } = newPins(t, { small: quota(0, 0.25) }, {});
  const keys = keysOf('small', 4);
  publish(keys);
  t.is(pin(keys), 2, 'half of four pages');
  t.is(publish(keysOf('small', 20, 'later')), 20);
  publish(keysOf('other', 12));
  t.is(pin(keysOf('other', 12)), 6, 'the rest of half of 16 pages');
});

test('pin limits: in a maximum of two pages one can be pinned, of one page none', (t) => {
  const { publish, pin } = newPins(t, { two: quota(0, 0.5), one: quota(0, 0.25) }, { poolPages: 4 });
  for (const [tag, count] of [
    ['two', 1],
    ['one', 0],
  ] as const) {
    publish(keysOf(tag, 2));
    t.is(pin(keysOf(tag, 2)), count);
    t.is(publish(keysOf(tag, 10, 'later')), 10);
  }
});

test('pin limits: the longest page of a tenant finds room in its maximum, whatever others set', (t) => {
  const { publish, pin } = newPins(t, { a: quota(0, 0.25) }, { poolPages: 32 });
  t.is(publish(keysOf('a', 1, 'long'), 6 * PAGE), 1);
  publish(keysOf('other', 1, 'long'), 10 * PAGE);
  publish(keysOf('a', 4));
  t.is(pin(keysOf('a', 4)), 2, 'eight pages, of which the longest one takes six');
  t.is(publish(keysOf('a', 10, 'longer'), 6 * PAGE), 10);
  t.is(publish(keysOf('a', 1, 'never'), 9 * PAGE), 0, 'larger than the maximum');
});

test('pin limits: short pages count with the space that they take', (t) => {
  const { publish, pin } = newPins(t, { a: quota(0, 0.25) }, {});
  publish(keysOf('a', 2000), 1);
  pin(keysOf('a', 2000), 40);
  t.is(publish(keysOf('a', 10, 'later'), PAGE), 10);
});

test('pin limits: pins leave other tenants their minimum', (t) => {
  const { pool, publish, pin } = newPins(t, { a: quota(0.75, 1) }, {});
  publish(keysOf('b', 16));
  t.is(pin(keysOf('b', 16)), 4);
  publish(keysOf('a', 12));
  t.is(keysOf('a', 12).filter((key) => pool.has(key)).length, 12);
  t.is(pin(keysOf('a', 12)), 4, 'half of the pool is pinned');
});

test('pin limits: nothing is left for a tenant without minimum when minima are the whole pool', (t) => {
  const { publish, pin } = newPins(t, { a: quota(0.5, 1), b: quota(0.5, 1) }, {});
  publish(keysOf('c', 16));
  t.is(pin(keysOf('c', 16)), 0);
  publish(keysOf('a', 8));
  t.is(pin(keysOf('a', 8)), 8);
});

test('verify: pin limits', async (t) => {
  const { pins, publish, pin } = newPins(t, { a: quota(0.75, 1), b: quota(0, 0.25) }, { isVerified: false });
  publish([...keysOf('b', 4), ...keysOf('c', 8)]);
  const client = pins.holder();
  const pinAll = (keys: readonly string[]) => () =>
    losing(PinLimits.prototype, 'allowsPage', () => pins.pin(client, keys, 1_000), { result: true });
  await assertFound(t, pins, /page pins: space of tenant 2/, pinAll(keysOf('b', 4)));
  pins.unpin(client, keysOf('b', 4));
  t.is(pin(keysOf('c', 8)), 4);
  await assertFound(t, pins, /page pins: space and minima/, pinAll(keysOf('c', 8).slice(4)));
});
