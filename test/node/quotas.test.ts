import test from 'ava';
import type { Logger } from '../../src/base/environment/log.js';
import { NAMESPACE_PREFIXES_MAX_COUNT } from '../../src/base/limits.js';
import { EVICTION_POLICIES, type EvictionPolicy } from '../../src/config.js';
import { KeyEncoder } from '../../src/core/index.js';
import { wholeNamespace } from '../../src/store/namespace/node-namespace.js';
import { type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE = 4096;
/** Space of a page in the pool and on disk. */
const POOL_PAGES = 64;
/** A disk tier for so many pages and what belongs to it. */
const DISK_PAGES = 256;
const DISK = {
  disk_enabled: true,
  disk_path: '/disk',
  disk_size: DISK_PAGES * PAGE + 2 ** 18 + 2 ** 16,
  disk_index_size: 2 ** 18,
};
const QUOTAS = { quiet: { min: 0.25, max: 0.25 }, noisy: { max: 0.5 } };

function settings(policy: EvictionPolicy, extra: Record<string, unknown> = {}): Record<string, unknown> {
  const pool = { global_segment_size: POOL_PAGES * PAGE, reuse_quarantine_ms: 0, eviction_policy: policy };
  return { ...pool, namespace_quotas: QUOTAS, ...extra };
}

function of(store: SimStore, tag: string) {
  return store.namespace({ tag });
}

/** Sets pages `${name}0`, ... under a tag, each when the one before is written. Those of different names differ. */
async function setAll(world: TestWorld, store: SimStore, tag: string, count: number, name = tag): Promise<void> {
  for (let i = 0; i < count; i++) {
    await of(store, tag).set(`${name}${i}`, content(i + name.length * 1000, PAGE));
    await world.until(() => (store.stats().disk?.queueBytes ?? 0) === 0);
  }
}

/** How many of the pages are read; wrong bytes throw. */
async function readAll(store: SimStore, tag: string, count: number): Promise<number> {
  let found = 0;
  for (let i = 0; i < count; i++) {
    const bytes = new Uint8Array(PAGE);
    if (!(await of(store, tag).get(`${tag}${i}`, bytes))) continue;
    if (Buffer.compare(bytes, content(i + tag.length * 1000, PAGE)) !== 0) throw new Error(`${tag}${i}: wrong bytes`);
    found++;
  }
  return found;
}

for (const policy of EVICTION_POLICIES) {
  simulated(`quotas: a tag that floods the pool costs another tag no page, ${policy}`, async (t, world) => {
    const store = await startStore(world, { config: settings(policy) });
    await setAll(world, store, 'quiet', 16);
    await setAll(world, store, 'noisy', 320);
    t.is(await readAll(store, 'quiet', 16), 16);
    const used = (namespace: string) => store.metric('meshcache_namespace_used_bytes', { namespace, tier: 'pool' });
    t.is(await used('quiet'), 16 * PAGE);
    t.is(await used('noisy'), 32 * PAGE);
    t.is(await store.metric('meshcache_namespace_max_bytes', { namespace: 'noisy', tier: 'pool' }), 32 * PAGE);
    t.is(await store.metric('meshcache_namespace_min_bytes', { namespace: 'quiet', tier: 'pool' }), 16 * PAGE);
    t.is(await store.metric('meshcache_namespace_evictions_total', { namespace: 'noisy', tier: 'pool' }), 288);
    t.is(await store.metric('meshcache_namespace_evictions_total', { namespace: 'quiet', tier: 'pool' }), 0);
    // All others share what is left, and may have more while nobody wants it.
    await setAll(world, store, 'unnamed', 200);
    t.is(await readAll(store, 'quiet', 16), 16);
    t.true((await used('other')) >= 16 * PAGE);
    // Above its maximum a tag pays with its own pages.
    await setAll(world, store, 'quiet', 4, 'more');
    t.is(await used('quiet'), 16 * PAGE);
    t.is((await used('other')) + (await used('noisy')), 48 * PAGE);
  });

  simulated(`quotas: a tag that floods the disk costs another tag no page, ${policy}`, async (t, world) => {
    const store = await startStore(world, { config: settings(policy, DISK) });
    await setAll(world, store, 'quiet', 64);
    await setAll(world, store, 'noisy', 1280);
    t.is(await readAll(store, 'quiet', 64), 64);
    t.is(await store.metric('meshcache_namespace_used_bytes', { namespace: 'quiet', tier: 'disk' }), 64 * PAGE);
    t.is(await store.metric('meshcache_namespace_used_bytes', { namespace: 'noisy', tier: 'disk' }), 128 * PAGE);
  });
}

simulated(
  'quotas: after a restart, pages on disk are those of their tags before anybody uses these',
  async (t, world) => {
    const config = settings('lru', DISK);
    const first = await startStore(world, { host: '10.0.0.1', config });
    await setAll(world, first, 'quiet', 64);
    await setAll(world, first, 'noisy', 128);
    await first.close();
    const second = await startStore(world, { host: '10.0.0.1', config });
    t.is(await second.metric('meshcache_namespace_used_bytes', { namespace: 'quiet', tier: 'disk' }), 64 * PAGE);
    await setAll(world, second, 'noisy', 600, 'new');
    t.is(await readAll(second, 'quiet', 64), 64);
  },
);

simulated('quotas: other quotas after a restart hold from the start', async (t, world) => {
  const first = await startStore(world, { host: '10.0.0.1', config: settings('lru', DISK) });
  await setAll(world, first, 'quiet', 64);
  await setAll(world, first, 'noisy', 128);
  await first.close();
  const namespace_quotas = { noisy: { max: 0.125 } };
  const second = await startStore(world, { host: '10.0.0.1', config: settings('lru', { ...DISK, namespace_quotas }) });
  t.is(await second.metric('meshcache_namespace_used_bytes', { namespace: 'noisy', tier: 'disk' }), 32 * PAGE);
  t.is(await second.metric('meshcache_namespace_used_bytes', { namespace: 'other', tier: 'disk' }), 64 * PAGE);
  t.is(await readAll(second, 'quiet', 64), 64);
  t.is(await readAll(second, 'noisy', 128), 32, 'the newest ones');
});

for (const [tiers, extra] of [
  ['a pool', {}],
  ['a pool before a disk', DISK],
] as const) {
  simulated(`quotas: a page above the maximum of its tag is too large at once, ${tiers}`, async (t, world) => {
    const lines: string[] = [];
    const log: Logger = {
      log: (_level, message, fields) => {
        if (message.startsWith('pages not')) lines.push(`${message} ${JSON.stringify(fields)}`);
      },
    };
    const config = settings('lru', { ...extra, reuse_quarantine_ms: 5_000 });
    const store = await startStore(world, { config, env: { log } });
    // Ranges in quarantine let a page wait for room that will come.
    for (let i = 0; i < 4; i++) await of(store, 'quiet').set('k', content(i, PAGE));
    const startMs = world.nowMs;
    const tooLarge = { isSet: false, reason: 'too_large' } as const;
    t.deepEqual(await of(store, 'quiet').setDetailed('k', content(1, 16 * PAGE + 1)), tooLarge);
    t.deepEqual(await of(store, 'noisy').setDetailed('k', content(1, 32 * PAGE + 1)), tooLarge);
    t.deepEqual(await of(store, 'noisy').setDetailed('k', content(1, 64 * PAGE + 1)), tooLarge);
    t.true(world.nowMs - startMs < 500, `${world.nowMs - startMs} ms`);
    t.is(await store.metric('meshcache_skipped_writes_total', { reason: 'too_large' }), 3);
    t.is(await store.metric('meshcache_skipped_writes_total', { reason: 'no_room' }), 0);
    t.deepEqual(lines, [
      `pages not set {"reason":"too_large","pages":1,"namespace":"quiet","max_bytes":${16 * PAGE}}`,
      `pages not set {"reason":"too_large","pages":1,"namespace":"noisy","max_bytes":${32 * PAGE}}`,
      'pages not set {"reason":"too_large","pages":1}',
    ]);
    t.deepEqual(await of(store, 'noisy').setDetailed('l', content(1, 32 * PAGE)), { isSet: true });
    t.deepEqual(await of(store, 'unnamed').setDetailed('k', content(1, 24 * PAGE)), { isSet: true });
  });
}

simulated('quotas: the report of a node has each tag with a quota, and all others together', async (t, world) => {
  const store = await startStore(world, { config: settings('lru', DISK) });
  await setAll(world, store, 'quiet', 8);
  await setAll(world, store, 'noisy', 40);
  const { quotas } = await store.runtime.report();
  const evictions = 0;
  const none = { entries: 0, used_bytes: 0, min_bytes: 0, evictions };
  t.deepEqual(quotas, [
    {
      namespace: 'other',
      pool: { ...none, max_bytes: 64 * PAGE },
      disk: { ...none, max_bytes: DISK_PAGES * PAGE },
    },
    {
      namespace: 'quiet',
      pool: { entries: 8, used_bytes: 8 * PAGE, min_bytes: 16 * PAGE, max_bytes: 16 * PAGE, evictions },
      disk: { entries: 8, used_bytes: 8 * PAGE, min_bytes: 64 * PAGE, max_bytes: 64 * PAGE, evictions },
      prefixes: { known: 1, refused: 0 },
    },
    {
      namespace: 'noisy',
      pool: { entries: 32, used_bytes: 32 * PAGE, min_bytes: 0, max_bytes: 32 * PAGE, evictions: 8 },
      disk: { entries: 40, used_bytes: 40 * PAGE, min_bytes: 0, max_bytes: 128 * PAGE, evictions },
      prefixes: { known: 1, refused: 0 },
    },
  ]);
  const plain = await startStore(world, { host: '10.0.0.2', config: settings('lru', { namespace_quotas: {} }) });
  t.false('quotas' in (await plain.runtime.report()));
});

simulated('quotas: without the file of namespaces, pages are those of their tag once it is used', async (t, world) => {
  const config = settings('lru', DISK);
  const first = await startStore(world, { host: '10.0.0.1', config: { ...config, namespace_quotas: {} } });
  await setAll(world, first, 'noisy', 200);
  await first.close();
  const second = await startStore(world, { host: '10.0.0.1', config });
  const used = (namespace: string) => second.metric('meshcache_namespace_used_bytes', { namespace, tier: 'disk' });
  t.deepEqual([await used('noisy'), await used('other')], [0, 200 * PAGE]);
  t.is(await of(second, 'noisy').get('absent'), null);
  t.deepEqual([await used('noisy'), await used('other')], [128 * PAGE, 0]);
  t.is(await readAll(second, 'noisy', 200), 128);
});

simulated('quotas: a damaged file of namespaces costs the protection and nothing else', async (t, world) => {
  const config = settings('lru', DISK);
  const first = await startStore(world, { host: '10.0.0.1', config });
  await setAll(world, first, 'quiet', 64);
  await first.close();
  const { files } = first.process.environment;
  const file = '/disk/namespaces.json';
  const prefix = new KeyEncoder(wholeNamespace({ tag: 'quiet' })).prefixesOf(['kv'])[0]?.slice(0, -1) as string;
  const text = (await first.process.run(() => files.readFile(file))).toString();
  t.deepEqual(JSON.parse(text), { format: 1, namespaces: { [prefix]: 'quiet' } });
  for (const damaged of [
    '',
    '{',
    '{"format":2}',
    '[]',
    'null',
    '{"format":1,"namespaces":{"x":"quiet","y":1}}',
    text.slice(0, 30),
  ]) {
    const process = world.process('10.0.0.1');
    await process.run(() => process.environment.files.writeFile(file, damaged));
    const store = await startStore(world, { host: '10.0.0.1', config });
    t.is(
      await store.metric('meshcache_namespace_used_bytes', { namespace: 'other', tier: 'disk' }),
      64 * PAGE,
      damaged,
    );
    t.is(await readAll(store, 'quiet', 64), 64);
    await store.close();
  }
});

simulated('quotas: copies of pages of other nodes count for their tag', async (t, world) => {
  const [one, other] = (await startCluster(world, 2, settings('lru', { promote_hot_reads: true }))) as [
    SimStore,
    SimStore,
  ];
  await setAll(world, one, 'quiet', 8);
  for (let i = 0; i < 4; i++) {
    t.is(await readAll(other, 'quiet', 8), 8);
    await world.sleep(100);
  }
  const used = () => other.metric('meshcache_namespace_used_bytes', { namespace: 'quiet', tier: 'pool' });
  await world.until(async () => (await used()) === 8 * PAGE);
  await setAll(world, other, 'noisy', 320);
  t.is(await used(), 8 * PAGE);
});

test('quotas: the encoder tells a prefix whenever it is used, and fails if it is not taken', (t) => {
  const told: string[] = [];
  const encoder = new KeyEncoder(wholeNamespace({ tag: 'x' }), { onPrefix: (prefix) => told.push(prefix) });
  t.deepEqual(told, []);
  for (const pool of ['kv', 'side', 'kv']) encoder.encodeKeys(['a'], pool);
  const [first, second] = encoder.prefixesOf();
  t.deepEqual(told, [first, second, first]);
  const refusing = new KeyEncoder(wholeNamespace({ tag: 'x' }), {
    onPrefix: () => {
      throw new Error('no more');
    },
  });
  for (let i = 0; i < 2; i++) t.throws(() => refusing.encodeKeys(['a']), { message: 'no more' });
});

simulated(
  'quotas: however many namespaces a tag has, its pages stay within its share, and those of others stay',
  async (t, world) => {
    const lines: string[] = [];
    const log: Logger = { log: (_level, message) => void lines.push(message) };
    const store = await startStore(world, { config: settings('lru'), env: { log } });
    const used = (namespace: string) => store.metric('meshcache_namespace_used_bytes', { namespace, tier: 'pool' });
    let refusedCount = 0;
    for (let i = 0; i < NAMESPACE_PREFIXES_MAX_COUNT + 200; i++) {
      try {
        await store.namespace({ tag: 'noisy', fingerprint: `f${i}` }).set('k', content(i, PAGE));
      } catch (error) {
        t.regex((error as Error).message, /tag "noisy", no more are allowed/);
        refusedCount++;
      }
    }
    t.is(refusedCount, 200);
    t.is(await used('noisy'), 32 * PAGE);
    t.is(await used('other'), 0);
    t.is(await store.metric('meshcache_namespace_prefixes', { namespace: 'noisy' }), NAMESPACE_PREFIXES_MAX_COUNT);
    t.is(await store.metric('meshcache_namespace_prefixes_refused_total', { namespace: 'noisy' }), 200);
    t.is(lines.filter((line) => line.startsWith('namespace refused')).length, 1);
    const { quotas } = await store.runtime.report();
    const known = { known: NAMESPACE_PREFIXES_MAX_COUNT, refused: 200 };
    t.deepEqual(quotas?.find(({ namespace }) => namespace === 'noisy')?.prefixes, known);
    // A tag that comes late has its share all the same.
    await setAll(world, store, 'quiet', 16);
    await setAll(world, store, 'unnamed', 200);
    t.is(await used('quiet'), 16 * PAGE);
    t.is(await readAll(store, 'quiet', 16), 16);
    // Namespaces without pages make room after a while.
    const setLater = async () => store.namespace({ tag: 'noisy', fingerprint: 'later' }).set('k', content(1, PAGE));
    await t.throwsAsync(setLater, { message: /no more are allowed/ });
    await world.sleep(61_000);
    await world.until(() => setLater().catch(() => false));
    t.true((await used('noisy')) <= 32 * PAGE);
    t.is(await readAll(store, 'quiet', 16), 16);
  },
);
