import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import { encodePin } from '../../src/clients/wire/care-messages.js';
import { Capability, encodeKeyRequest, RequestType, Status } from '../../src/clients/wire/messages.js';
import { firstLine, isAlive } from '../_support/cli/run-cli.js';
import { attach, NodeProcess } from '../_support/client/attached-nodes.js';
import { bareNode } from '../_support/client/bare-node.js';
import { startNode } from '../_support/clients/client-fixture.js';
import { TestClient } from '../_support/clients/test-client.js';
import { content, until } from '../_support/support.js';

const PAGE = 4096;

/** A program that has pinned these pages and stays, which ends with the test. */
async function pinningProgram(t: ExecutionContext, socket: string, keys: readonly string[]): Promise<ChildProcess> {
  const program = fileURLToPath(new URL('./client-pinning-program.js', import.meta.url));
  const child = spawn(process.execPath, [program, socket, ...keys], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  t.is(await firstLine(child), String(keys.length));
  return child;
}

test('pins: a client pins pages of its node, and unpins them', async (t) => {
  const store = await startNode(t, { global_segment_size: 16 * PAGE });
  const client = await attach(t, store.clientSocket);
  t.true(await client.set('prompt', content(1, PAGE)));
  t.deepEqual(await client.pin(['prompt', 'absent'], { forMs: 60_000 }), [true, false]);
  t.like(store.stats(), { pinnedEntries: 1, pinnedBytes: PAGE });
  t.like((await client.stats()).node, { node: { pool_pinned_entries: 1, pool_pinned_bytes: PAGE } });
  for (let i = 0; i < 40; i++) t.true(await client.set(`other-${i}`, content(i, PAGE)));
  t.deepEqual(await client.get('prompt'), content(1, PAGE));
  const other = await attach(t, store.clientSocket);
  t.deepEqual(await other.unpin(['prompt']), [false], 'the pin of another client');
  t.deepEqual(await client.unpin(['prompt', 'absent']), [true, false]);
  t.is(store.stats().pinnedEntries, 0);
});

test('pins: they end when their client detaches, or its process is killed', async (t) => {
  const store = await startNode(t, { pin_max_share: 0.5 });
  t.true(await store.set('shared', content(1, PAGE)));
  t.true(await store.set('own', content(2, PAGE)));
  const client = await attach(t, store.clientSocket);
  t.deepEqual(await client.pin(['shared'], { forMs: 60_000 }), [true]);
  const child = await pinningProgram(t, store.clientSocket, ['shared', 'own']);
  t.is(store.stats().pinnedEntries, 2);
  child.kill('SIGKILL');
  await once(child, 'exit');
  t.false(isAlive(child.pid as number));
  await until(() => store.stats().pinnedEntries === 1);
  t.deepEqual(await client.unpin(['shared']), [true], 'the other client has it still');
  t.deepEqual(await client.pin(['shared'], { forMs: 60_000 }), [true]);
  await client.close();
  await until(() => store.stats().pinnedEntries === 0);
});

test('pins: none outlasts a restart of the node', async (t) => {
  const node = await NodeProcess.start(t);
  const client = await attach(t, node.socket);
  t.true(await client.set('prompt', content(1, PAGE)));
  t.deepEqual(await client.pin(['prompt'], { forMs: 600_000 }), [true]);
  await node.kill();
  await until(() => !client.isConnected);
  t.deepEqual(await client.pin(['prompt'], { forMs: 1_000 }), [false], 'without a node');
  await node.start();
  await until(() => client.isConnected);
  t.deepEqual(await client.unpin(['prompt']), [false]);
  t.true(await client.set('prompt', content(1, PAGE)));
  t.deepEqual(await client.pin(['prompt'], { forMs: 1_000 }), [true]);
});

test('pins: a time that the node does not allow is an error of the caller', async (t) => {
  const store = await startNode(t, { pin_max_s: 5 });
  const client = await attach(t, store.clientSocket);
  const message = /at most 5000 \(pin_max_s of the node\), got 6000/;
  await t.throwsAsync(client.pin(['k'], { forMs: 6_000 }), { instanceOf: ArgumentError, message });
  const bare = await TestClient.attach(t, store.clientSocket);
  const { header } = await bare.request(RequestType.pin, encodePin({ pool: '', forMs: 0, keys: ['k'] }));
  t.is(header.status, Status.badRequest);
  const unpin = encodeKeyRequest('', ['k'], { hasFlags: false });
  t.deepEqual([...(await bare.ok(RequestType.unpin, unpin))], [0]);
});

test('pins: a node of an earlier version is asked for none', async (t) => {
  const { path, told } = await bareNode(t, Capability.hints);
  const client = await attach(t, path, { mode: 'bytes' });
  const code = 'ERR_REMOTE';
  const message = /node bare has version 0, which cannot pin pages; update the node/;
  await t.throwsAsync(client.pin(['k'], { forMs: 1 }), { code, message });
  await t.throwsAsync(client.unpin(['k']), { code, message });
  t.deepEqual(told, []);
});
