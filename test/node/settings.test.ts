import test from 'ava';
import { PAGE_BYTES, PORT, startHolder, startStore, TTL_S } from '../_support/node/simulated-stores.js';
import { createStore } from '../_support/node/store-fixture.js';
import { simulated } from '../_support/simulated.js';
import { content, freePort, until } from '../_support/support.js';

const healthOf = async (endpoint: { host: string; port: number } | undefined): Promise<string> => {
  const response = await fetch(`http://${endpoint?.host}:${endpoint?.port}/healthz`);
  return ((await response.json()) as { reasons: string[] }).reasons.join('; ');
};

test.serial(
  'settings: create() of a node that differs rejects, and the cluster says whom it has refused',
  async (t) => {
    const port = await freePort();
    const start = async (host: string, config: Readonly<Record<string, unknown>> = {}) => {
      const store = await createStore(port, { local_hostname: host, ...config });
      t.teardown(() => store.close());
      return store;
    };
    const metrics = { metrics_enabled: true, metrics_port: 0 };
    const a = await start('127.0.0.1', { node_id: 'head', ...metrics });
    const b = await start('127.0.0.2');
    await until(() => a.stats().members === 2);
    const wrong: Readonly<Record<string, unknown>>[] = [
      { vnodes: 100 },
      { directory_replicas: 3 },
      { verify_reads: false },
    ];
    for (const [i, config] of wrong.entries()) {
      const [[key, value]] = Object.entries(config) as [[string, unknown]];
      const refused = start('127.0.0.3', { node_id: `wrong-${i}`, ...config });
      const error = await t.throwsAsync(refused, { code: 'ERR_CONFIG' });
      for (const part of [`"${key}"`, `got ${value}`, '"head"', `127.0.0.1:${port}`]) {
        t.true(error?.message.includes(part), `${part}: ${error?.message}`);
      }
      const trouble = new RegExp(`node wrong-${i} at 127.0.0.3:\\d+ is refused as a member: ${key} is .* there`);
      t.regex(a.runtime.troubles().join('; '), trouble);
      t.regex(await healthOf(metricsOf(await a.runtime.report())), trouble);
      const { events } = await a.runtime.report();
      t.true(events.some(({ level, fields }) => level === 'error' && fields.node_id === `wrong-${i}`));
    }
    t.deepEqual([...b.runtime.members().keys()].sort(), [a.runtime.nodeId, b.runtime.nodeId].sort());
    t.is(a.stats().members, 2);
    t.true(await b.set('key', content(1, PAGE_BYTES)));
    t.deepEqual(await a.get('key'), content(1, PAGE_BYTES));
    await start('127.0.0.3', { reuse_quarantine_ms: 5, promote_hot_reads: true });
    await until(() => a.stats().members === 3);
  },
);

function metricsOf({ metrics_endpoint }: { metrics_endpoint: string }) {
  const [host = '', port] = metrics_endpoint.split(':');
  return { host, port: Number(port) };
}

simulated(
  'settings: a head that comes back with others is refused and refuses; each side goes on and says so',
  async (t, world) => {
    const addr = `10.0.0.1:${PORT}`;
    const head = await startHolder(world, { host: '10.0.0.1', addr, keys: [] });
    const b = await startStore(world, { host: '10.0.0.2', addr });
    const c = await startStore(world, { host: '10.0.0.3', addr });
    await world.until(() => b.stats().members === 3 && c.stats().members === 3);
    head.process.kill();
    const back = await startStore(world, { host: '10.0.0.1', addr, config: { node_id: 'back', vnodes: 100 } });
    const refused = /refused by the discovery master at 10\.0\.0\.1:\d+, node back: vnodes is 160 here and 100 there/;
    await world.until(() => [b, c].every((store) => refused.test(store.runtime.troubles().join('; '))));
    await world.until(
      () => back.runtime.troubles().filter((text) => text.includes('is refused as a member')).length === 2,
    );
    const startedMs = world.nowMs;
    await world.until(() => b.stats().members === 2 && c.stats().members === 2);
    await world.until(() => world.nowMs - startedMs > 2 * TTL_S * 1000);
    t.is(back.stats().members, 1);
    for (const store of [b, c]) t.false(store.runtime.members().has('back'));
    t.true(await b.set('key', content(1, PAGE_BYTES)));
    t.deepEqual(await c.get('key'), content(1, PAGE_BYTES));
    t.is(await back.get('key'), null);
    await back.close();
    await world.until(() => [b, c].every((store) => store.runtime.troubles().length === 0));
  },
);

simulated(
  'settings: a node on a listed host is refused at its start although its own master takes it',
  async (t, world) => {
    // Cause: the own master's answer ended the start, before the other listed one could say anything.
    const addr = `10.0.0.1:${PORT},10.0.0.2:${PORT}`;
    const a = await startStore(world, { host: '10.0.0.1', addr });
    const wrong = { host: '10.0.0.2', addr, config: { vnodes: 100 } };
    await t.throwsAsync(startStore(world, wrong), { code: 'ERR_CONFIG', message: /"vnodes": got 100/ });
    t.is(a.stats().members, 1);
    const right = await startStore(world, { host: '10.0.0.2', addr });
    t.is(right.stats().members, 2, 'it knows the cluster when it has started');
  },
);
