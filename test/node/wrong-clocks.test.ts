import { keyFields, locationFields } from '../../src/directory/messages/wire.js';
import { RpcClient } from '../../src/rpc/client.js';
import type { NodeInfo } from '../../src/types.js';
import { columnsOf, locationOf } from '../_support/directory/locations.js';
import { setAll } from '../_support/node/away-nodes.js';
import { PAGE_BYTES, PORT, type SimStore, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const WEEK_MS = 7 * DAY_MS;
const OTHER = '10.0.0.9';
const KEYS = Array.from({ length: 20 }, (_, i) => `page ${i}`);
const DISK = { disk_enabled: true, disk_path: '/disk', disk_size: '16mb' };
const FAR: readonly (readonly [string, number])[] = [
  ['six minutes', 6 * MINUTE_MS],
  ['seven months', 210 * DAY_MS],
  ['four centuries', 146_097 * DAY_MS],
];

async function readable(stores: readonly SimStore[]): Promise<number> {
  let least = KEYS.length;
  for (const store of stores) {
    const found = await Promise.all(KEYS.map((key) => store.get(key)));
    least = Math.min(least, found.filter((page) => page !== null).length);
  }
  return least;
}

async function setWithExpiry(store: SimStore): Promise<void> {
  for (const [i, key] of KEYS.entries()) await store.set(key, content(i, PAGE_BYTES), { expiresInMs: WEEK_MS });
}

for (const [name, aheadMs] of FAR) {
  simulated(`wrong clocks: a node that is ${name} ahead is refused and named, and costs no page`, async (t, world) => {
    const stores = await startCluster(world, 3);
    await setWithExpiry(stores[0] as SimStore);
    world.process(OTHER).host.time.jump(aheadMs);
    const error = await t.throwsAsync(startStore(world, { host: OTHER, config: { node_id: 'ahead' } }));
    t.regex(String(error?.message), /the clock of this machine is .* ahead/);
    const troubles = (stores[0] as SimStore).runtime.troubles().join();
    t.regex(troubles, /node ahead at 10\.0\.0\.9:\d+ is refused as a member: its clock is .* ahead/);
    await world.sleep(5_000);
    t.is(await readable(stores), KEYS.length);
    t.deepEqual(
      stores.map((store) => store.stats().members),
      [3, 3, 3],
    );
    world.process(OTHER).host.time.jump(-aheadMs);
    const right = await startStore(world, { host: OTHER, config: { node_id: 'ahead' } });
    await world.until(() => [...stores, right].every((store) => store.stats().members === 4));
    t.is(await readable([...stores, right]), KEYS.length);
  });

  for (const wrong of [0, 1]) {
    simulated(
      `wrong clocks: a member whose clock jumps ahead by ${name} is refused, with the master ${wrong === 0}`,
      async (t, world) => {
        const stores = await startCluster(world, 3, { max_masters: 1 });
        const jumping = stores[wrong] as SimStore;
        const others = stores.filter((store) => store !== jumping) as [SimStore, SimStore];
        await setWithExpiry(others[0]);
        await jumping.set('its own', content(99, PAGE_BYTES));
        jumping.process.host.time.jump(aheadMs);
        await world.until(() => others.every((store) => store.stats().members === 2));
        t.is(await readable(others), KEYS.length);
        t.regex(jumping.runtime.troubles().join(), /refused by the discovery master .*: its clock is .* ahead/);
        t.true((await jumping.metric('meshcache_clock_offset_seconds')) > 300);
        await setWithExpiry(others[1]);
        await jumping.set('contested', content(1, PAGE_BYTES));
        await jumping.set('short', content(1, PAGE_BYTES), { expiresInMs: 2_000 });
        await jumping.delete(['deleted']);
        await world.sleep(3_000);
        for (const key of ['contested', 'deleted']) t.true(await others[0].set(key, content(2, PAGE_BYTES)));
        t.is(await readable(others), KEYS.length);
        t.is(others[0].stats().members, 2);
        jumping.process.host.time.jump(-aheadMs);
        await world.until(() => others.every((store) => store.stats().members === 3));
        t.is(await readable(stores), KEYS.length);
        await world.until(() => jumping.runtime.troubles().length === 0);
        t.is(await jumping.get('short'), null, 'what had seconds to live has not got months');
        for (const key of ['contested', 'deleted']) {
          for (const store of stores) t.is((await store.get(key))?.[0], content(2, PAGE_BYTES)[0], key);
          t.true(await jumping.set(key, content(3, PAGE_BYTES), { expiresInMs: 2_000 }));
          for (const store of stores) t.is((await store.get(key))?.[0], content(3, PAGE_BYTES)[0]);
        }
        await world.sleep(2_001);
        for (const store of stores) t.is(await store.get('contested'), null);
      },
    );
  }
}

for (const count of [1, 2]) {
  for (const wrong of count === 1 ? [0] : [0, 1]) {
    simulated(
      `wrong clocks: ${count} nodes, which cannot tell whose date is right, work together again when the date of node ${wrong} is`,
      async (t, world) => {
        const stores = await startCluster(world, count, { max_masters: 1 });
        const [host] = [(stores[wrong] as SimStore).process.host];
        await setAll(stores[0] as SimStore, KEYS);
        host.time.jump(210 * DAY_MS);
        await world.sleep(5_000);
        for (const store of stores) await store.set(`ahead of ${store.runtime.nodeId}`, content(1, PAGE_BYTES));
        host.time.jump(-210 * DAY_MS);
        await world.sleep(10_000);

        await world.until(() =>
          stores.every((store) => store.stats().members === count && store.runtime.troubles().length === 0),
        );
        const later = await startStore(world, { host: OTHER });
        const all = [...stores, later];
        await world.until(() => all.every((store) => store.stats().members === count + 1));
        for (const store of all) {
          t.true(await store.set('later', content(5, PAGE_BYTES), { expiresInMs: 2_000 }), store.runtime.nodeId);
          for (const reader of all) t.is((await reader.get('later'))?.[0], content(5, PAGE_BYTES)[0]);
        }
        await world.sleep(2_001);
        for (const reader of all) t.is(await reader.get('later'), null);
        await world.sleep(5_000);
        t.deepEqual(
          all.map((store) => [store.stats().members, store.runtime.troubles()]),
          all.map(() => [count + 1, []]),
        );
      },
    );
  }
}

simulated(
  'wrong clocks: a node that is centuries behind is a member, is named, and sets what all read',
  async (t, world) => {
    const stores = await startCluster(world, 3);
    await setWithExpiry(stores[0] as SimStore);
    world.process(OTHER).host.time.jump(-40 * 365 * DAY_MS);
    const behind = await startStore(world, { host: OTHER, config: DISK });
    const all = [...stores, behind];
    await world.until(() => all.every((store) => store.stats().members === 4));
    t.is(await readable(all), KEYS.length);
    t.true(await behind.set('its own', content(7, PAGE_BYTES), { expiresInMs: 2_000 }));
    for (const store of all) t.deepEqual(await store.get('its own'), content(7, PAGE_BYTES));
    await world.sleep(2_001);
    for (const store of all) t.is(await store.get('its own'), null);
    t.regex(behind.runtime.troubles().join(), /the clock of this machine is \d+ s behind/);
    t.true((await behind.metric('meshcache_clock_offset_seconds')) < -300);
    t.deepEqual(
      stores.map((store) => store.runtime.troubles()),
      [[], [], []],
    );
  },
);

simulated(
  'wrong clocks: the only master starts anew with a clock that is months behind, and the others stay together',
  async (t, world) => {
    const stores = await startCluster(world, 3, { max_masters: 1 });
    const [master, ...others] = stores as [SimStore, SimStore, SimStore];
    await setWithExpiry(others[0]);
    const { address } = master.process.host;
    master.process.kill();
    world.hosts.get(address)?.time.jump(-210 * DAY_MS);
    const again = await startStore(world, { host: address, config: { max_masters: 1 } });
    await world.until(() => [...others, again].every((store) => store.stats().members === 3));
    await world.sleep(5_000);
    t.deepEqual(
      others.map((store) => store.stats().members),
      [3, 3],
    );
    t.is(await readable(others), KEYS.length);
    t.regex(again.runtime.troubles().join(), /the clock of this machine is \d+ s behind/);
    t.true(await others[1].set('later', content(1, PAGE_BYTES), { expiresInMs: WEEK_MS }));
    t.deepEqual(await others[0].get('later'), content(1, PAGE_BYTES));
  },
);

for (const [tier, tierConfig] of Object.entries({ disk: DISK, pool: { pool_path: '/memory/pool' } })) {
  simulated(
    `wrong clocks: pages of a clock far ahead are dropped from the ${tier} at the next start, others stay`,
    async (t, world) => {
      const stores = await startCluster(world, 2);
      const config = { node_id: 'other', ...tierConfig };
      const alone = await startStore(world, { host: OTHER, addr: `${OTHER}:31990`, config });
      await setAll(alone, ['good 1', 'good 2']);
      await world.sleep(2_000);
      alone.process.host.time.jump(210 * DAY_MS);
      await setAll(alone, KEYS);
      await world.sleep(2_000);
      await alone.close();
      world.hosts.get(OTHER)?.time.jump(-210 * DAY_MS);
      const again = await startStore(world, { host: OTHER, config });
      const all = [...stores, again];
      await world.until(() => all.every((store) => store.stats().members === 3));
      await world.until(async () => (await again.get('good 1')) !== null && (await again.get('good 2')) !== null);
      await world.until(() => [...again.holdings()].every(([key]) => key.includes('good')));
      t.is(await readable(all), 0);
      t.true(await again.set('page 1', content(3, PAGE_BYTES)));
      for (const store of all) t.deepEqual(await store.get('page 1'), content(3, PAGE_BYTES));
    },
  );
}

simulated('wrong clocks: messages with the largest version change nothing', async (t, world) => {
  const stores = await startCluster(world, 2);
  await setWithExpiry(stores[0] as SimStore);
  const version = 2 ** 53 - 2 ** 45;
  const { address } = (stores[0] as SimStore).process.host;
  const members = (stores[0] as SimStore).runtime.members();
  const [info] = [...members.values()] as [NodeInfo];
  const discovery = new RpcClient({ service: 'discovery', env: world.operator.environment });
  const control = new RpcClient({ env: world.operator.environment });
  const node = { ...info.toDict(), node_id: 'crafted' };
  const register = { node, clock: version };
  const answer = (await discovery.call({ host: address, port: PORT }, 'discovery.register', register)) as {
    status: string;
  };
  t.is(answer.status, 'refused');
  const heartbeat = { node_id: info.nodeId, incarnation: 0, master_id: '', version: 0, wait_ms: 0, clock: version };
  await discovery.call({ host: address, port: PORT }, 'discovery.heartbeat', heartbeat);
  for (const { controlHost: host, controlPort: port } of members.values()) {
    const keys = keyFields(['crafted']);
    const location = locationOf({ nodeId: info.nodeId, incarnation: info.incarnation, version, kind: 'named' });
    await control.call({ host, port }, 'directory.put', { ...keys, ...locationFields(columnsOf(location)) });
    const order = { ...keys, void_below: Buffer.from(new Float64Array([version]).buffer), reason: 1 };
    await t.throwsAsync(control.call({ host, port }, 'pages.drop', order), { message: /too far ahead/ });
  }
  await Promise.all([discovery.close(), control.close()]);
  t.is(await readable(stores), KEYS.length);
  for (const store of stores) {
    t.true(await store.set('crafted', content(1, PAGE_BYTES), { expiresInMs: 60_000 }));
    t.deepEqual(await store.delete(['crafted']), [true]);
    t.true(await store.set('crafted', content(2, PAGE_BYTES)));
    for (const reader of stores) t.deepEqual(await reader.get('crafted'), content(2, PAGE_BYTES));
  }
});
