import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { ArgumentError, ClosedError, MeshCacheError } from '../../src/base/errors.js';
import { MeshCacheClient } from '../../src/client/meshcache-client.js';
import type { KeyNamespace } from '../../src/core/index.js';
import { collect } from '../_support/cli/run-cli.js';
import { attach, memoryOf, NodeProcess } from '../_support/client/attached-nodes.js';
import { folder, startNode, startNodes } from '../_support/clients/client-fixture.js';
import { serialWithAddon, suffix } from '../_support/native/addon.js';
import { content, until } from '../_support/support.js';

test.serial('client: says who has pages, whether the node answers, and what has been moved', async (t) => {
  const [a, b] = await startNodes(t, 2);
  const client = await attach(t, a?.clientSocket ?? '', { name: 'engine:0' });
  t.true(client.isConnected);
  t.true(await client.ping());
  t.true(await client.set('here', content(1, 100)));
  t.true(await b?.set('there', content(2, 200)));
  const found = await client.stat(['here', 'there', 'nowhere']);
  t.deepEqual(found[0], { length: 100, holders: [{ node_id: a?.runtime.nodeId ?? '', tier: 'memory' }] });
  t.deepEqual(found[1], { length: 200, holders: [{ node_id: b?.runtime.nodeId ?? '', tier: 'memory' }] });
  t.is(found[2], null);
  // More keys than one question has.
  const many = await client.stat(Array.from({ length: 600 }, (_, i) => (i === 599 ? 'here' : `no-${i}`)));
  t.is(many.length, 600);
  t.deepEqual(many[599], found[0]);
  t.is(many.filter((page) => page === null).length, 599);
  await t.throwsAsync(async () => client.stat('here' as never), { instanceOf: ArgumentError, message: /^stat: keys/ });
  const { node, ...stats } = await client.stats();
  const nodeId = a?.runtime.nodeId ?? '';
  t.deepEqual(stats, { isConnected: true, nodeId, directBytes: 0, socketBytes: 100, lookupPages: 0, foundPages: 0 });
  t.is((node?.client as { name: string } | undefined)?.name, 'engine:0');
});

test.serial('client: options that cannot be are refused', async (t) => {
  const socket = '/nowhere/node.sock';
  const wrong: readonly (readonly [Record<string, unknown>, RegExp])[] = [
    [{ name: '' }, /^connect: name must be 1 to 64/],
    [{ name: 'a b' }, /^connect: name/],
    [{ timeoutMs: 0 }, /^connect: timeoutMs must be above 0/],
    [{ timeoutMs: '5' }, /^connect: timeoutMs/],
    [{ timeoutMs: Number.NaN }, /^connect: timeoutMs/],
    [{ mode: 'direct' }, /^connect: mode must be auto or bytes/],
    [{ socket: 7 }, /^connect: socket must be the path/],
    [{ namespace: { model: 'x' } }, /unknown part "?model/],
    [{ namespace: null }, /^namespace: must be an object/],
    // Cause: what the node could not be told counted as a node that is not there.
    [{ namespace: { modelName: 7 } }, /^modelName must be well-formed text/],
    [{ namespace: { tpRank: -1 } }, /^tpRank must be an integer/],
  ];
  for (const [options, message] of wrong) {
    const connected = MeshCacheClient.connect({ socket, ...options }, { log: silentLogger });
    await t.throwsAsync(connected, { instanceOf: ArgumentError, message }, JSON.stringify(options));
  }
});

test.serial('client: without a node everything is a miss, until there is one', async (t) => {
  const path = join(folder(t), 'node.sock');
  const required = MeshCacheClient.connect({ socket: path, required: true }, { log: silentLogger });
  const error = await t.throwsAsync(required, { instanceOf: MeshCacheError, code: 'ERR_UNREACHABLE' });
  t.true(error?.message.includes(path));
  const client = await attach(t, path);
  t.false(client.isConnected);
  t.false(await client.ping());
  t.false(await client.set('key', content(1, 10)));
  t.is(await client.get('key'), null);
  t.is(await client.batchExists(['key']), 0);
  t.deepEqual(await client.delete(['key']), [false]);
  t.deepEqual(await client.stat(['key']), [null]);
  await t.throwsAsync(client.clear(), { instanceOf: MeshCacheError, code: 'ERR_UNREACHABLE' });
  await t.throwsAsync(client.batchExists([7 as never]), { instanceOf: ArgumentError });
  const { node, ...stats } = await client.stats();
  t.is(node, null);
  // A page was looked up that nobody could be asked for.
  t.deepEqual(stats, { isConnected: false, nodeId: '', directBytes: 0, socketBytes: 0, lookupPages: 1, foundPages: 0 });
  await startNode(t, { client_socket: path });
  await until(() => client.set('key', content(1, 10)));
  t.deepEqual(await client.get('key'), content(1, 10));
  const second = await MeshCacheClient.connect({ socket: path, required: true }, { log: silentLogger });
  t.true(second.isConnected);
  await second.close();
});

test.serial('client: namespaces share pages where all of their parts are the same, on any node', async (t) => {
  const [a, b] = await startNodes(t, 2);
  const parts: KeyNamespace = {
    modelName: 'llama',
    dtype: 'fp8',
    layout: 'page_first',
    tag: 'v1',
    tpRank: 1,
    tpSize: 2,
    ppRank: 0,
    ppSize: 1,
    isMlaModel: false,
  };
  const writer = await attach(t, a?.clientSocket ?? '', { namespace: parts });
  t.true(await writer.set('key', content(1, 100)));
  const same = await attach(t, b?.clientSocket ?? '', { namespace: { ...parts } });
  t.deepEqual(await same.get('key'), content(1, 100));
  t.deepEqual(await b?.namespace(parts).get('key'), content(1, 100));
  const others: Partial<KeyNamespace>[] = [
    { ...parts, modelName: 'other' },
    { ...parts, dtype: 'bf16' },
    { ...parts, layout: 'layer_first' },
    { ...parts, tag: 'v2' },
    { ...parts, tpRank: 0 },
    { ...parts, tpSize: 4 },
    { ...parts, ppSize: 2 },
    { ...parts, ppRank: 1, ppSize: 2 },
    { ...parts, isMlaModel: true },
    { modelName: 'llama' },
    {},
  ];
  for (const namespace of others) {
    for (const node of [a, b]) {
      const client = await attach(t, node?.clientSocket ?? '', { namespace });
      t.is(await client.get('key'), null, JSON.stringify(namespace));
      t.false(await client.exists('key'));
      await client.clear();
      await client.close();
    }
  }
  // Without one it is the node's own, which belongs to another model.
  const own = await attach(t, a?.clientSocket ?? '');
  t.is(await own.get('key'), null);
  t.true(await own.set('own', content(2, 10)));
  t.deepEqual(await b?.get('own'), content(2, 10));
  t.deepEqual(await same.get('key'), content(1, 100), 'clearing others has left it');
});

test.serial('client: a node that is killed and started again is used again, without action', async (t) => {
  const node = await NodeProcess.start(t);
  const client = await attach(t, node.socket);
  const memory = memoryOf(t, 4096, { shared: true });
  t.true(await client.set('key', memory.addr, 100));
  await node.kill();
  await until(() => !client.isConnected);
  t.false(await client.get('key', memory.addr, 100));
  t.false(await client.set('key', new Uint8Array(1)));
  t.is(await client.batchExists(['key']), 0);
  await node.start();
  await until(() => client.set('again', memory.addr, 100));
  t.true(await client.get('again', memory.addr + 1000n, 100));
  t.is(await client.get('key'), null, 'the pages went with the node');
});

test.serial('client: calls under way end as misses when the node is killed', async (t) => {
  const node = await NodeProcess.start(t);
  const client = await attach(t, node.socket);
  const memory = memoryOf(t, 4096, { shared: true });
  t.true(await client.set('key', memory.addr, 100));
  await node.freeze();
  const calls = [
    client.get('key', memory.addr, 100),
    client.get('key'),
    client.set('other', memory.addr, 100),
    client.set('other', new Uint8Array(10)),
    client.exists('key'),
    client.ping(),
  ];
  await node.kill();
  t.deepEqual(await Promise.all(calls), [false, null, false, false, false, false]);
});

test.serial('client: a node that closes ends calls as misses, and no new ones are begun', async (t) => {
  const node = await startNode(t);
  const client = await attach(t, node.clientSocket);
  const memory = memoryOf(t, 64 * 1024, { shared: true });
  t.true(await client.set('key', memory.addr, 1000));
  const keys = Array.from({ length: 64 }, (_, i) => `key-${i}`);
  const calls = keys.map((key, i) => client.get(key, memory.addr + BigInt(1000 * i), 1000));
  const sets = keys.map((key) => client.set(key, new Uint8Array(1000)));
  await Promise.all([node.close(), ...calls, ...sets]);
  t.false(await client.ping());
  t.is(await client.get('key'), null);
});

test.serial('client: a stopped node is a miss when the time of a call is over, and no longer', async (t) => {
  const node = await NodeProcess.start(t);
  const client = await attach(t, node.socket, { timeoutMs: 300 });
  const memory = memoryOf(t, 4096, { shared: true });
  await node.freeze();
  const startMs = performance.now();
  t.is(await client.get('key'), null);
  t.true(performance.now() - startMs >= 299, 'the node has the time that it was given');
  // Cause: a region that was not registered yet was waited for without end.
  t.false(await client.get('key', memory.addr, 100));
  t.false(await client.get('key', new Uint8Array(1)));
  t.false(await client.set('key', new Uint8Array(1)));
  t.false(await client.exists('key'));
  t.false(await client.ping());
  await t.throwsAsync(client.clear(), { code: 'ERR_UNREACHABLE' });
  // More than a client sends at once: those that wait with it end, too.
  const many = Array.from({ length: 500 }, (_, i) => client.exists(`key-${i}`));
  t.deepEqual(new Set(await Promise.all(many)), new Set([false]));
  node.signal('SIGCONT');
  await until(() => client.set('key', new Uint8Array(1)));
});

test.serial('client: closed with calls under way, these end; others throw', async (t) => {
  const node = await startNode(t);
  const client = await attach(t, node.clientSocket);
  const memory = memoryOf(t, 64 * 1024, { shared: true });
  t.true(await client.set('key', memory.addr, 1000));
  const gets = Array.from({ length: 300 }, (_, i) => client.get('key', memory.addr + BigInt(100 * i), 1000));
  const others = Array.from({ length: 300 }, (_, i) => client.set(`key-${i}`, new Uint8Array(1000)));
  // Cause: a read into shared memory waited for another link, which was not opened any more.
  await client.close();
  await Promise.all([...gets, ...others]);
  await client.close();
  t.false(client.isConnected);
  for (const call of [
    () => client.get('key'),
    () => client.set('key', new Uint8Array(1)),
    () => client.exists('key'),
    () => client.batchExists([]),
    () => client.delete(['key']),
    () => client.clear(),
    () => client.ping(),
    () => client.stat(['key']),
    () => client.stats(),
  ]) {
    await t.throwsAsync(async () => call(), { instanceOf: ClosedError });
  }
  await until(() => node.clients().length === 0);
});

serialWithAddon(
  `client: closed while the node is stopped, a read into shared memory ends when the node goes on${suffix}`,
  async (t) => {
    const node = await NodeProcess.start(t);
    const client = await attach(t, node.socket);
    const memory = memoryOf(t, 4096, { shared: true });
    t.true(await client.set('key', memory.addr, 1000));
    await node.freeze();
    let isEnded = false;
    const read = client.get('key', memory.addr, 1000).finally(() => {
      isEnded = true;
    });
    const onSocket = client.get('key');
    // What has not been sent when the client is closed never is.
    await new Promise((resolve) => setImmediate(resolve));
    await client.close();
    t.is(await onSocket, null);
    t.false(isEnded, 'the node may touch the memory yet');
    node.signal('SIGCONT');
    t.is(typeof (await read), 'boolean');
  },
);

for (const state of ['attached', 'without a node'] as const) {
  test.serial(`client: does not keep its process alive, ${state}`, async (t) => {
    const node = state === 'attached' ? await startNode(t) : undefined;
    const socket = node?.clientSocket ?? join(folder(t), 'node.sock');
    const program = fileURLToPath(new URL('./client-idle-program.js', import.meta.url));
    const child = spawn(process.execPath, [program, socket], { stdio: ['ignore', 'pipe', 'pipe'] });
    t.teardown(() => void child.kill('SIGKILL'));
    const { status, stdout, stderr } = await collect(child);
    t.is(status, 0, stderr);
    t.is(stdout, `${state === 'attached'}\n`);
  });
}
