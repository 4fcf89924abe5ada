import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test, { type ExecutionContext } from 'ava';
import { createStore } from '../_support/node/store-fixture.js';
import { commandOf, placeOf, RawClient, startRespNode, startRespNodes } from '../_support/resp/resp-fixture.js';
import { content, freePort, until } from '../_support/support.js';

const MIB = 2 ** 20;
const SIZES = [
  0,
  1,
  8,
  16,
  17,
  4096,
  65_535,
  65_536,
  65_537,
  2 * 262_144 - 1,
  2 * 262_144,
  MIB - 1,
  MIB,
  MIB + 3,
  64 * MIB,
] as const;

/** Reads a bulk string. */
async function bulk(client: RawClient, length: number): Promise<Buffer> {
  const head = `$${length}\r\n`;
  const all = await client.read(head.length + length + 2);
  if (all.toString('latin1', 0, head.length) !== head) return all.subarray(0, 100);
  return all.subarray(head.length, head.length + length);
}

async function set(client: RawClient, key: string | Uint8Array, value: Uint8Array): Promise<string> {
  client.send(commandOf('SET', key, value));
  return (await client.read(5)).toString();
}

/** A node with a Unix socket, whose buffers are small, so that a client that does not read holds a value up. */
async function startLocalNode(t: ExecutionContext, pool: string) {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-resp-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'redis.sock');
  const store = await createStore(await freePort(), { resp_socket: path, global_segment_size: pool });
  t.teardown(() => store.close());
  return { store, path };
}

/** A client that has begun to read a value, and has stopped. */
async function stalledReader(t: ExecutionContext, path: string, key: string): Promise<RawClient> {
  const reader = await RawClient.connect(t, { path });
  reader.socket.once('data', () => reader.socket.pause());
  reader.send(commandOf('GET', key));
  await until(() => reader.bytes > 0);
  return reader;
}

test('resp values: every size is read as it was set, here and at another node', async (t) => {
  const stores = await startRespNodes(t, 2, { global_segment_size: '512mb' });
  const [here, there] = await Promise.all(stores.map((store) => RawClient.connect(t, placeOf(store))));
  for (const [i, size] of SIZES.entries()) {
    const value = content(i + 1, size);
    const key = `size-${size}`;
    t.is(await set(here as RawClient, key, value), '+OK\r\n', key);
    for (const client of [here, there, there] as RawClient[]) {
      client.send(commandOf('GET', key), commandOf('STRLEN', key));
      t.true((await bulk(client, size)).equals(value), key);
      t.is(await client.text(`:${size}\r\n`), `:${size}\r\n`);
    }
    const other = content(i + 100, size);
    t.is(await set(there as RawClient, key, other), '+OK\r\n');
    here?.send(commandOf('GET', key));
    t.true((await bulk(here as RawClient, size)).equals(other), `${key}, set anew at the other node`);
  }
});

test('resp values: of what waits when the client has ended the connection only reads are carried out', async (t) => {
  // Cause: a client that has given up ends its connection; what it had set was carried out later, as the newest.
  const { store, path } = await startLocalNode(t, '64mb');
  const other = await RawClient.connect(t, { path });
  const large = content(1, 16 * MIB);
  t.is(await set(other, 'large', large), '+OK\r\n');
  t.is(await set(other, 'kept', Buffer.from('kept')), '+OK\r\n');
  const client = await stalledReader(t, path, 'large');
  client.send(commandOf('SET', 'late', '1'), commandOf('DEL', 'kept'), commandOf('FLUSHALL'), commandOf('GET', 'kept'));
  client.socket.end();
  // Everything that has been sent, and the end, is read within a few turns of the event loop.
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
  client.socket.resume();
  t.true((await bulk(client, large.length)).equals(large));
  const error = '-TRYAGAIN the client has ended the connection; this was not carried out\r\n';
  t.is((await client.rest()).toString(), `${error.repeat(3)}$4\r\nkept\r\n`);
  other.send(commandOf('EXISTS', 'late', 'kept', 'large'));
  t.is(await other.text(':2\r\n'), ':2\r\n');
  t.is(store.stats().members, 1);
});

test('resp values: keys are any bytes, up to 64 KiB and more', async (t) => {
  const { host, port, store } = await startRespNode(t);
  const client = await RawClient.connect(t, { host, port });
  const keys = [
    ...['', '\r\n', '\0', '\u0001', 'ü'].map((text) => Buffer.from(text)),
    Buffer.of(0xff),
    Buffer.from(content(1, 65_536)),
    Buffer.alloc(65_536, 'k'),
    Buffer.from(content(2, 300_000)),
  ];
  for (const [i, key] of keys.entries()) t.is(await set(client, key, Buffer.from(`value ${i}`)), '+OK\r\n');
  for (const [i, key] of keys.entries()) {
    client.send(commandOf('GET', key));
    t.is((await bulk(client, 7)).toString(), `value ${i}`);
  }
  const read = await store.namespace({ tag: 'redis' }).get('ü');
  t.deepEqual(Buffer.from(read ?? []).toString(), 'value 4');
});

test('resp values: a value that is deleted and whose room is wanted while it is sent arrives whole', async (t) => {
  const { store, path } = await startLocalNode(t, '128mb');
  const writer = await RawClient.connect(t, { path });
  const value = content(1, 2 * MIB);
  t.is(await set(writer, 'k', value), '+OK\r\n');
  const reader = await stalledReader(t, path, 'k');
  writer.send(commandOf('DEL', 'k'), commandOf('GET', 'k'));
  t.is(await writer.text(':1\r\n$-1\r\n'), ':1\r\n$-1\r\n');
  const other = Buffer.alloc(3 * MIB, 'x');
  for (let i = 0; i < 50; i++) t.is(await set(writer, `other-${i}`, other), '+OK\r\n');
  store.verify();
  reader.socket.resume();
  t.true((await bulk(reader, value.length)).equals(value));
});

test('resp values: setting a value that is sent does not wait for a client that has stopped reading', async (t) => {
  const { store, path } = await startLocalNode(t, '128mb');
  const writer = await RawClient.connect(t, { path });
  const [value, newer] = [content(1, 2 * MIB), content(2, 2 * MIB)];
  t.is(await set(writer, 'k', value), '+OK\r\n');
  const readers = [await stalledReader(t, path, 'k'), await stalledReader(t, path, 'k')];
  t.is(await set(writer, 'k', newer), '+OK\r\n');
  writer.send(commandOf('GET', 'k'));
  t.true((await bulk(writer, newer.length)).equals(newer));
  for (const reader of readers) {
    reader.socket.resume();
    const got = await reader.rest();
    const old = Buffer.concat([Buffer.from(`$${value.length}\r\n`), value]);
    t.true(got.length < old.length && got.equals(old.subarray(0, got.length)), 'a part of the old value, and the end');
  }
  store.verify();
});

test('resp values: a value that waits behind another one that is being sent can be set anew', async (t) => {
  // Cause: values are held before those in front of them are sent, and a client may stop reading meanwhile.
  const { store, path } = await startLocalNode(t, '128mb');
  const writer = await RawClient.connect(t, { path });
  const [first, second, newer] = [content(1, 2 * MIB), content(2, MIB), content(3, MIB + 7)];
  t.is(await set(writer, 'first', first), '+OK\r\n');
  t.is(await set(writer, 'second', second), '+OK\r\n');
  const reader = await RawClient.connect(t, { path });
  reader.socket.once('data', () => reader.socket.pause());
  reader.send(Buffer.concat([commandOf('GET', 'first'), commandOf('GET', 'second')]));
  await until(() => reader.bytes > 0);
  t.is(await set(writer, 'second', newer), '+OK\r\n');
  reader.socket.resume();
  t.true((await bulk(reader, first.length)).equals(first));
  t.true((await bulk(reader, newer.length)).equals(newer));
  store.verify();
});

test('resp values: one pipeline reads values of all sizes, of this node and another, and missing ones', async (t) => {
  const stores = await startRespNodes(t, 2, { global_segment_size: '256mb' });
  const [here, there] = await Promise.all(stores.map((store) => RawClient.connect(t, placeOf(store))));
  const sizes = [0, 10, 65_536, MIB, 3 * MIB, 100, 70_000, 16, 300_000];
  const keys = [...sizes.keys()].flatMap((i) => [`here-${i}`, `there-${i}`, `absent-${i}`]);
  for (const [i, size] of sizes.entries()) {
    t.is(await set(here as RawClient, `here-${i}`, content(i, size)), '+OK\r\n');
    t.is(await set(there as RawClient, `there-${i}`, content(100 + i, size)), '+OK\r\n');
  }
  for (const client of [here, there] as RawClient[]) {
    client.send(commandOf('MGET', ...keys), ...keys.map((key) => commandOf('GET', key)), commandOf('PING'));
    t.is(await client.text(`*${keys.length}\r\n`), `*${keys.length}\r\n`);
    for (let round = 0; round < 2; round++) {
      for (const [i, size] of sizes.entries()) {
        t.true((await bulk(client, size)).equals(content(i, size)), `here-${i}`);
        t.true((await bulk(client, size)).equals(content(100 + i, size)), `there-${i}`);
        t.is(await client.text('$-1\r\n'), '$-1\r\n', `absent-${i}`);
      }
    }
    t.is(await client.text('+PONG\r\n'), '+PONG\r\n');
  }
  for (const store of stores) store.verify();
});

test('resp values: a client that reads while its value is set anew gets all of one value', async (t) => {
  const { path } = await startLocalNode(t, '128mb');
  const writer = await RawClient.connect(t, { path });
  const values = [content(1, 2 * MIB), content(2, 2 * MIB)];
  t.is(await set(writer, 'k', values[0] as Uint8Array), '+OK\r\n');
  const reader = await RawClient.connect(t, { path });
  for (let i = 1; i < 20; i++) {
    reader.send(commandOf('GET', 'k'));
    const [answer, got] = await Promise.all([set(writer, 'k', values[i % 2] as Uint8Array), bulk(reader, 2 * MIB)]);
    t.is(answer, '+OK\r\n');
    t.true(values.some((value) => got.equals(value)));
  }
});

test('resp values: clients that vanish in the middle of a value leave nothing behind', async (t) => {
  const { store, path } = await startLocalNode(t, '128mb');
  const writer = await RawClient.connect(t, { path });
  t.is(await set(writer, 'k', content(1, 2 * MIB)), '+OK\r\n');
  for (let i = 0; i < 5; i++) {
    const reader = await stalledReader(t, path, 'k');
    const halfWriter = await RawClient.connect(t, { path });
    halfWriter.send('*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50000000\r\n', Buffer.alloc(MIB));
    reader.socket.destroy();
    halfWriter.socket.destroy();
  }
  await until(async () => /meshcache_resp_connections\{[^}]*\} 1\n/.test(await store.metrics.renderPrometheus()));
  store.verify();
  const newer = content(2, 2 * MIB);
  t.is(await set(writer, 'k', newer), '+OK\r\n');
  writer.send(commandOf('GET', 'k'));
  t.true((await bulk(writer, newer.length)).equals(newer));
});

test('resp values: a node that is killed takes its values along, and no other answer is wrong', async (t) => {
  const [store] = await startRespNodes(t, 1, { global_segment_size: '64mb' });
  const discovery = store?.runtime.config.discoveryAddr as string;
  const cli = ['build/dist/cli.js', 'node', '--discovery-addr', discovery, '--pool', '64mb', '--json'];
  const settings = ['resp_port=0', 'metrics_port=0', 'protocol=tcp', 'member_ttl=3', 'heartbeat_interval=0.2'];
  const child = spawn(process.execPath, [...cli, ...settings.flatMap((each) => ['-o', each])], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { ...process.env, MESHCACHE_CLIENT_SOCKET: join(tmpdir(), `meshcache-resp-${process.pid}.sock`) },
  });
  t.teardown(() => child.kill('SIGKILL'));
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  const { resp_endpoint: resp } = JSON.parse(line) as { resp_endpoint: string };
  const there = await RawClient.connect(t, { host: '127.0.0.1', port: Number(resp.split(':').at(-1)) });
  const here = await RawClient.connect(t, placeOf(store as NonNullable<typeof store>));
  const value = content(1, 300_000);
  for (let i = 0; i < 50; i++) t.is(await set(there, `k${i}`, value), '+OK\r\n');
  here.send(...Array.from({ length: 50 }, (_, i) => commandOf('GET', `k${i}`)));
  await until(() => here.bytes > 0);
  child.kill('SIGKILL');
  const hit = Buffer.concat([Buffer.from('$300000\r\n'), value, Buffer.from('\r\n')]);
  for (let i = 0; i < 50; i++) {
    const head = await here.read(5);
    if (head.toString() === '$-1\r\n') continue;
    t.true(Buffer.concat([head, await here.read(hit.length - 5)]).equals(hit), `k${i}`);
  }
  here.send('PING\r\n');
  t.is(await here.text('+PONG\r\n'), '+PONG\r\n');
});

test('resp values: pipelines of values of 64 KiB and more, which are sent together, while they are set anew', async (t) => {
  const { host, port, store } = await startRespNode(t, { global_segment_size: '128mb' });
  const [reader, writer] = [await RawClient.connect(t, { host, port }), await RawClient.connect(t, { host, port })];
  const sizes = [65_536, 70_000, 100, 300_000, 65_536, 600_000, 65_537];
  const contentOf = (i: number, round: number) => content(7 * round + i, sizes[i] as number);
  for (const i of sizes.keys()) t.is(await set(writer, `k${i}`, contentOf(i, 0)), '+OK\r\n');
  for (let round = 1; round < 30; round++) {
    reader.send(Buffer.concat([...sizes.keys()].map((i) => commandOf('GET', `k${i}`))), commandOf('GET', 'absent'));
    writer.send(...[...sizes.keys()].map((i) => commandOf('SET', `k${i}`, contentOf(i, round))));
    t.is(await writer.text('+OK\r\n'.repeat(sizes.length)), '+OK\r\n'.repeat(sizes.length));
    for (const [i, size] of sizes.entries()) {
      const got = await bulk(reader, size);
      t.true(got.equals(contentOf(i, round)) || got.equals(contentOf(i, round - 1)), `k${i} in round ${round}`);
    }
    t.is(await reader.text('$-1\r\n'), '$-1\r\n');
  }
  store.verify();
});
