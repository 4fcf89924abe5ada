import { PAGE_BYTES, type SimStore, startCluster, startHolder, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const KEYS = Array.from({ length: 40 }, (_, i) => `held ${i}`);
/** Members stay for long, so that nothing but reads finds out that one is silent. */
const PATIENT = { member_ttl: 60, location_reuse_ms: 0, directory_replicas: 3 };

/** Milliseconds of virtual time that a call takes, and its result. */
async function timed<T>(world: TestWorld, call: Promise<T>): Promise<readonly [result: T, ms: number]> {
  const startMs = world.nowMs;
  const result = await call;
  return [result, world.nowMs - startMs];
}

const into = () => new Uint8Array(PAGE_BYTES);

async function clusterWithHolder(world: TestWorld) {
  const [a] = (await startCluster(world, 3, PATIENT)) as [SimStore];
  const holder = await startHolder(world, { config: PATIENT, keys: KEYS });
  await world.until(() => a.stats().members === 4);
  for (const key of KEYS.slice(0, 5)) await a.get(key, into());
  return { a, holder };
}

simulated(
  'silent peers: the first read of a holder that stands still costs little more than it usually takes',
  async (t, world) => {
    const { a, holder } = await clusterWithHolder(world);
    holder.process.stop();
    const [isRead, ms] = await timed(world, a.get('held 7', into()));
    t.false(isRead);
    t.true(ms < 1_500, `${ms} ms`);
    const [isReadNext, nextMs] = await timed(world, a.get('held 8', into()));
    t.false(isReadNext);
    t.true(nextMs < 50, `${nextMs} ms`);
    holder.process.continue();
  },
);

simulated('silent peers: a page of a holder that stands still is read from another one', async (t, world) => {
  const { a, holder } = await clusterWithHolder(world);
  const other = await startStore(world, { config: { ...PATIENT, keep_duplicates: true } });
  await world.until(() => a.stats().members === 5);
  holder.process.stop();
  t.deepEqual(await a.get('held 7'), null);
  t.true(await other.set('held 7', content(7, PAGE_BYTES)));
  t.deepEqual(await a.get('held 7'), content(7, PAGE_BYTES));
  holder.process.continue();
});

for (const end of ['kill', 'stop'] as const) {
  simulated(`silent peers: once a read has failed, exists says no (${end})`, async (t, world) => {
    const { a, holder } = await clusterWithHolder(world);
    t.true(await a.exists('held 7'));
    holder.process[end]();
    // Each page alone: what one read has learnt counts for all pages of the node.
    t.false(await a.get('held 7', into()));
    for (const key of KEYS) t.false(await a.exists(key), key);
    t.is(await a.batchExists(KEYS), 0);
    t.is((await a.runtime.report()).unreachable?.[0], holder.nodeId);
    if (end === 'stop') holder.process.continue();
  });
}

for (const frozenMs of [2_000, 25_000]) {
  simulated(
    `silent peers: after ${frozenMs} ms of standing still, what exists is read at the first try`,
    async (t, world) => {
      const { a, holder } = await clusterWithHolder(world);
      holder.process.stop();
      t.false(await a.get('held 7', into()));
      await world.sleep(frozenMs);
      holder.process.continue();
      await world.until(() => a.exists('held 7'));
      for (const key of KEYS) t.true(await a.get(key, into()), key);
      t.is((await a.runtime.report()).unreachable, undefined);
    },
  );
}

simulated(
  'silent peers: the log names a peer when it begins and when it ends to be held for unreachable',
  async (t, world) => {
    const { a, holder } = await clusterWithHolder(world);
    holder.process.stop();
    await a.get('held 7', into());
    const named = async () =>
      (await a.runtime.report()).events.filter(({ message }) => /^peer /.test(message)).map(({ level }) => level);
    t.deepEqual(await named(), ['warn']);
    t.is(await a.metric('meshcache_transport_unreachable_peers'), 1);
    holder.process.continue();
    await world.until(() => a.exists('held 7'));
    t.deepEqual(await named(), ['warn', 'warn']);
    t.is(await a.metric('meshcache_transport_unreachable_total'), 1);
    t.is(await a.metric('meshcache_transport_unreachable_peers'), 0);
  },
);

simulated(
  'silent peers: soon after an owner that was cut off is back, what was cleared meanwhile does not exist',
  async (t, world) => {
    const config = { ...PATIENT, directory_replicas: 1 };
    const [a, b] = (await startCluster(world, 3, config)) as [SimStore, SimStore];
    const { process: owner } = await startHolder(world, { config, keys: [] });
    await world.until(() => [a, b].every((store) => store.stats().members === 4));
    // The statements are repeated at intervals: the owner comes back at different times in them.
    for (const cutOffMs of [20_000, 20_700, 21_400, 22_100, 22_800, 23_500]) {
      const keys = KEYS.map((key) => `${key} ${cutOffMs}`);
      for (const key of keys) t.true(await a.set(key, content(1, PAGE_BYTES)));
      world.isolate(owner.host.address);
      await a.clear();
      await world.sleep(cutOffMs);
      world.heal();
      await world.sleep(3_000);
      for (const key of keys) t.false(await b.exists(key), key);
    }
  },
);
