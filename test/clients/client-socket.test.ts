import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, closeSync, existsSync, mkdirSync, openSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { join, resolve } from 'node:path';
import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { ConfigError } from '../../src/base/errors.js';
import { encodeExists, encodeKeyRequest, RequestType } from '../../src/clients/wire/messages.js';
import { systemRandom } from '../../src/system/system-random.js';
import { folder, setBytes, startNode, startServer } from '../_support/clients/client-fixture.js';
import { frame, helloBody, TestClient } from '../_support/clients/test-client.js';
import { noPython, PythonProcess } from '../_support/native/python-process.js';
import { createStore } from '../_support/node/store-fixture.js';
import { freePort, until } from '../_support/support.js';

const isRoot = process.geteuid?.() === 0;
const asRoot = isRoot && noPython === '' ? test : test.skip;
/** A user without rights. */
const NOBODY = 54_320;
/** Why a test cannot run as another user; empty: it can. */
const whyNotAsNobody = !isRoot
  ? ' (skipped: it needs root)'
  : canNobodyRead()
    ? ''
    : ' (skipped: other users cannot read this checkout)';
/** Alone while it runs: the user of the process is another one then. */
const serialAsNobody = whyNotAsNobody === '' ? test.serial : test.serial.skip;
const why = isRoot ? (noPython === '' ? '' : ` (skipped: ${noPython})`) : ' (skipped: it needs root)';

function canNobodyRead(): boolean {
  process.seteuid?.(NOBODY);
  try {
    // By its whole path, as the core is read: its folders must be open to others, too.
    closeSync(openSync(resolve('build/wasm/meshcache.wasm'), 'r'));
    return true;
  } catch {
    return false;
  } finally {
    process.seteuid?.(0);
  }
}

test('client socket: where it cannot be, the node does not start and says why', async (t) => {
  const path = folder(t);
  const file = join(path, 'file');
  writeFileSync(file, 'content');
  const living = await startServer(t);
  const port = await freePort();
  const expected: [string, RegExp][] = [
    [file, /"client_socket": .*file is there and is no socket; choose another path/],
    [path, /is there and is no socket/],
    [living.path, /"client_socket": another node serves clients at .*; choose another path, or end that node/],
    [join(file, 'node.sock'), /"client_socket": cannot listen at/],
    [`/proc/none/node.sock`, /"client_socket": cannot listen at/],
    [join(path, 'ü'.repeat(60)), /"client_socket": /],
    [join(path, 'x'.repeat(101)), /"client_socket"/],
  ];
  for (const [at, message] of expected) {
    const error = await t.throwsAsync(createStore(port, { client_socket: at }), { instanceOf: ConfigError }, at);
    t.regex(error?.message ?? '', message);
  }
  const client = await TestClient.attach(t, living.path);
  await client.ok(RequestType.ping);
  t.deepEqual(readdirSync(path), ['file'], 'nothing is left');
});

test('client socket: the file of a node that was killed is replaced, with that for descriptors', async (t) => {
  const path = join(folder(t), 'node.sock');
  const dead = `require('net').createServer().listen(process.argv[1], () => process.kill(process.pid, 'SIGKILL'))`;
  for (const at of [path, `${path}.fds`]) await once(spawn(process.execPath, ['-e', dead, at]), 'close');
  t.true(existsSync(path) && existsSync(`${path}.fds`));
  const store = await startNode(t, { client_socket: path });
  const client = await TestClient.attach(t, path);
  t.deepEqual(await setBytes(client, { a: new Uint8Array(10) }), [1]);
  await store.close();
  t.false(existsSync(path) || existsSync(`${path}.fds`));
});

test('client socket: the boot token is another one after each start, the attach token of each client', async (t) => {
  const path = join(folder(t), 'node.sock');
  const seen = new Set<string>();
  for (let i = 0; i < 2; i++) {
    const store = await startNode(t, { client_socket: path });
    const clients = [await TestClient.attach(t, path), await TestClient.attach(t, path)];
    for (const { hello } of clients) seen.add(hello.attachToken.toString('hex'));
    t.deepEqual(clients[0]?.hello.bootToken, clients[1]?.hello.bootToken);
    seen.add(String(clients[0]?.hello.bootToken.toString('hex')));
    await store.close();
  }
  t.is(seen.size, 6);
});

test('client socket: its permissions are those of the configuration', async (t) => {
  const path = join(folder(t), 'node.sock');
  for (const [mode, bits] of [
    [undefined, 0o600],
    ['0666', 0o666],
    ['0660', 0o660],
  ] as const) {
    const store = await startNode(t, {
      client_socket: path,
      ...(mode === undefined ? {} : { client_socket_mode: mode }),
    });
    const files = [path, `${path}.fds`].filter((at) => existsSync(at));
    for (const at of files) t.is(statSync(at).mode & 0o777, bits, at);
    await store.close();
  }
  await t.throwsAsync(startNode(t, { client_socket: path, client_socket_group: 'no-such-group' }), {
    instanceOf: ConfigError,
    message: /"client_socket_group": there is no group "no-such-group"/,
  });
});

asRoot(`client socket: other users get in as its mode and group say${why}`, async (t) => {
  const path = folder(t);
  chmodSync(path, 0o755);
  const at = join(path, 'node.sock');
  const tried = async (uid: number, gid: number): Promise<string> => {
    const script = `
os.setgroups([]); os.setgid(${gid}); os.setuid(${uid})
for path in (sys.argv[1], sys.argv[1] + '.fds'):
    if not os.path.exists(path): continue
    try:
        connect(path)
        say('in')
    except PermissionError:
        say('out')
say('end')
`;
    const python = PythonProcess.start(t, script, at);
    const said: string[] = [];
    for (let line = await python.line(); line !== 'end' && line !== ''; line = await python.line()) said.push(line);
    return [...new Set(said)].join();
  };
  const cases = [
    { extra: {}, in: 'out', group: 'out' },
    { extra: { client_socket_mode: '0666' }, in: 'in', group: 'in' },
    { extra: { client_socket_mode: '0660', client_socket_group: '54321' }, in: 'out', group: 'in' },
  ];
  for (const { extra, ...expected } of cases) {
    const store = await startNode(t, { client_socket: at, ...extra });
    t.is(await tried(NOBODY, NOBODY), expected.in, JSON.stringify(extra));
    t.is(await tried(NOBODY, 54_321), expected.group, JSON.stringify(extra));
    await store.close();
  }
});

serialAsNobody(
  `client socket: a folder that cannot be written in is a mistake of the configuration${whyNotAsNobody}`,
  async (t) => {
    const path = folder(t);
    const closed = join(path, 'closed');
    mkdirSync(closed, { mode: 0o555 });
    chmodSync(path, 0o755);
    const port = await freePort();
    process.seteuid?.(NOBODY);
    try {
      for (const at of [join(closed, 'node.sock'), join(closed, 'deeper', 'node.sock')]) {
        await t.throwsAsync(createStore(port, { client_socket: at }), {
          instanceOf: ConfigError,
          message: /"client_socket": cannot listen at .*EACCES/,
        });
      }
    } finally {
      process.seteuid?.(0);
    }
  },
);

test('client socket: what a header cannot say ends the connection, with a word', async (t) => {
  const { path, server } = await startServer(t);
  const bad: [string, Buffer][] = [
    ['a body above the limit', frame(RequestType.ping, 9).fill(0xff, 0, 4)],
    ['an unknown type', frame(99, 9)],
    ['type 0', frame(0, 9)],
    ['a status', frame(RequestType.ping, 9, undefined, { status: 1 })],
    ['the id 0', frame(RequestType.ping, 0)],
    ['a second HELLO', frame(RequestType.hello, 9, helloBody())],
    ['a CANCEL that cannot be decoded', frame(RequestType.cancel, 9, Buffer.alloc(3))],
  ];
  for (const [what, bytes] of bad) {
    const client = await TestClient.attach(t, path);
    client.socket.write(bytes);
    const last = await client.lastWords();
    t.is(last?.header.status, 1, what);
    t.is(last?.header.type, 0, what);
  }
  const unheard = await TestClient.connect(t, path);
  unheard.socket.write(frame(RequestType.ping, 1));
  t.regex(String((await unheard.lastWords())?.body), /first request is not HELLO/);
  const large = await TestClient.connect(t, path);
  large.socket.write(frame(RequestType.hello, 1, Buffer.alloc(70_000)));
  t.regex(String((await large.lastWords())?.body), /a HELLO of 70000 bytes/);
  await until(() => server.clients().length === 0);
});

test('client socket: the id of a request that is in flight ends the connection', async (t) => {
  const { path, store } = await startServer(t);
  const client = await TestClient.attach(t, path);
  const id = client.send(RequestType.clear, Buffer.alloc(2));
  await until(() => store.calls.length === 1);
  client.socket.write(frame(RequestType.ping, id));
  t.regex(String((await client.lastWords())?.body), /which is in use/);
});

test('client socket: a HELLO that cannot be is refused, and says why', async (t) => {
  const { path } = await startServer(t);
  const namespace = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
  const magic = helloBody();
  magic[0] = 0;
  const bad: [number, RegExp, Buffer][] = [
    [1, /begins with 0x4348434d/, magic],
    [6, /speaks version 1 of the protocol, the client 2 to 9/, helloBody({ minVersion: 2, maxVersion: 9 })],
    [6, /the client 0 to 0/, helloBody({ minVersion: 0, maxVersion: 0 })],
    [6, /the name of a client has 1 to 64/, helloBody({ name: '' })],
    [6, /the name of a client/, helloBody({ name: 'x'.repeat(65) })],
    [6, /the name of a client/, helloBody({ name: 'a b' })],
    [6, /the name of a client/, helloBody({ name: 'a\n' })],
    [1, /body ends/, helloBody({ namespace }).subarray(0, -1)],
    [1, /1 bytes after the end/, Buffer.concat([helloBody(), Buffer.alloc(1)])],
    [1, /body ends/, Buffer.alloc(0)],
  ];
  for (const [status, message, body] of bad) {
    const client = await TestClient.connect(t, path);
    client.send(RequestType.hello, body);
    await client.closed;
    t.is(client.answers[0]?.header.status, status, String(message));
    t.regex(String(client.answers[0]?.body), message);
  }
  const newer = await TestClient.attach(t, path, { minVersion: 0, maxVersion: 65_535 });
  t.is(newer.hello.version, 1);
});

test('client socket: random bytes end connections, or requests, and nothing else', async (t) => {
  const seed = Number(process.env.MESHCACHE_SEED ?? systemRandom.u32());
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const store = await startNode(t);
  const steady = await TestClient.attach(t, store.clientSocket);
  for (let i = 0; i < 300; i++) {
    const client = await TestClient.connect(t, store.clientSocket);
    if (i % 3 > 0) client.send(RequestType.hello, helloBody({ name: `client-${i}` }));
    if (i % 3 < 2) client.socket.write(random.bytes(1 + (random.u32() % 3000)));
    // Whole frames, with bodies of anything.
    else
      for (let id = 2; id < 40; id++)
        client.socket.write(frame(2 + (random.u32() % 14), id, random.bytes(random.u32() % 100)));
    client.socket.end();
    await client.closed;
    if (i % 20 === 0) await steady.ok(RequestType.ping);
  }
  t.deepEqual(await setBytes(steady, { k: new Uint8Array(5).fill(1) }), [1]);
  t.deepEqual(await store.get('k'), new Uint8Array(5).fill(1), `seed ${seed}`);
  await until(() => store.clients().length === 1);
});

test.serial('client socket: 10,000 connections leave a client served, and no descriptors', async (t) => {
  const store = await startNode(t);
  const steady = await TestClient.attach(t, store.clientSocket);
  const before = readdirSync('/proc/self/fd').length;
  for (let batch = 0; batch < 50; batch++) {
    const sockets = Array.from({ length: 200 }, (_, i) => {
      const socket = net.connect({ path: store.clientSocket }).on('error', () => {});
      socket.resume();
      if (i % 4 === 1) socket.write(frame(RequestType.hello, 1, helloBody({ pid: i })));
      if (i % 4 === 2) socket.write('garbage');
      if (i % 4 === 3) socket.end();
      return socket;
    });
    await steady.ok(RequestType.ping);
    await Promise.all(
      sockets.map(async (socket) => {
        if (socket.connecting) await once(socket, 'connect').catch(() => {});
        socket.destroy();
      }),
    );
  }
  t.deepEqual(await setBytes(steady, { k: new Uint8Array(5) }), [1]);
  await until(() => store.clients().length === 1);
  await until(() => readdirSync('/proc/self/fd').length <= before);
});

test('client socket: requests of one client do not keep another from its turn', async (t) => {
  const store = await startNode(t, { global_segment_size: '128mb' });
  const [greedy, modest] = await Promise.all([
    TestClient.attach(t, store.clientSocket, { name: 'greedy' }),
    TestClient.attach(t, store.clientSocket, { name: 'modest' }),
  ]);
  const keys = Array.from({ length: 16 }, (_, i) => `k${i}`);
  for (const key of keys) t.deepEqual(await setBytes(greedy, { [key]: new Uint8Array(2 ** 20) }), [1]);
  const body = encodeKeyRequest('', keys, { hasFlags: true });
  let served = 0;
  let isOver = false;
  const loops = Array.from({ length: 16 }, async () => {
    while (!isOver) {
      await greedy.ok(RequestType.getBytes, body);
      served++;
      greedy.answers.length = 0;
    }
  });
  await until(() => served > 0);
  const between: number[] = [];
  for (let i = 0; i < 30; i++) {
    const before = served;
    await modest.ok(RequestType.exists, encodeExists({ pool: '', wantsFlags: false, suffixes: [], keys: ['k0'] }));
    between.push(served - before);
  }
  isOver = true;
  await Promise.all(loops);
  t.log(`at most ${Math.max(...between)}`);
  t.true(
    between.every((count) => count <= 16),
    `requests of the other between: ${between.join()}`,
  );
});
