import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { ConfigError } from '../../src/base/errors.js';
import { MeshCacheConfig } from '../../src/config.js';
import { createStore } from '../_support/node/store-fixture.js';
import { commandOf, RawClient, startRespNode } from '../_support/resp/resp-fixture.js';
import { content, freePort, until } from '../_support/support.js';

const BINARY = 'a\r\nb\0\xff';

/** Commands in words that the test splits at spaces, and the bytes of their answers. */
const ANSWERS: readonly (readonly [words: string, answer: string])[] = [
  ['PING', '+PONG\r\n'],
  ['ping hello', '$5\r\nhello\r\n'],
  ['PING a b', "-ERR wrong number of arguments for 'ping' command\r\n"],
  ['ECHO hi', '$2\r\nhi\r\n'],
  ['GET absent', '$-1\r\n'],
  ['SET k v', '+OK\r\n'],
  ['GeT k', '$1\r\nv\r\n'],
  ['STRLEN k', ':1\r\n'],
  ['STRLEN absent', ':0\r\n'],
  ['TYPE k', '+string\r\n'],
  ['TYPE absent', '+none\r\n'],
  ['TTL k', ':-1\r\n'],
  ['PTTL absent', ':-2\r\n'],
  ['EXISTS k k absent', ':2\r\n'],
  ['MSET a 1 b 2 a 3', '+OK\r\n'],
  ['MGET a absent b', '*3\r\n$1\r\n3\r\n$-1\r\n$1\r\n2\r\n'],
  ['DBSIZE', ':3\r\n'],
  ['DEL a absent a', ':1\r\n'],
  ['UNLINK b', ':1\r\n'],
  ['SELECT 0', '+OK\r\n'],
  ['SELECT 1', '-ERR DB index is out of range\r\n'],
  ['SELECT x', '-ERR value is not an integer or out of range\r\n'],
  ['CLIENT GETNAME', '$-1\r\n'],
  ['CLIENT SETNAME me', '+OK\r\n'],
  ['CLIENT GETNAME', '$2\r\nme\r\n'],
  ['CLIENT SETINFO LIB-NAME x', '+OK\r\n'],
  ['CLIENT NO-EVICT on', '+OK\r\n'],
  ['CLIENT NOTHING', "-ERR unknown subcommand 'NOTHING'. Try CLIENT HELP.\r\n"],
  ['CLIENT GETNAME x', "-ERR wrong number of arguments for 'client|getname' command\r\n"],
  ['CONFIG GET save', '*2\r\n$4\r\nsave\r\n$0\r\n\r\n'],
  ['CONFIG GET append*', '*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n'],
  ['CONFIG SET save x', "-ERR unknown subcommand 'SET'. Try CONFIG HELP.\r\n"],
  ['GET', "-ERR wrong number of arguments for 'get' command\r\n"],
  ['SET k', "-ERR wrong number of arguments for 'set' command\r\n"],
  ['MSET a 1 b', "-ERR wrong number of arguments for 'mset' command\r\n"],
  ['NOTHING a b', "-ERR unknown command 'NOTHING', with args beginning with: 'a' 'b' \r\n"],
  ['SET k v EX 0', "-ERR invalid expire time in 'set' command\r\n"],
  ['SET k v PX -5', "-ERR invalid expire time in 'set' command\r\n"],
  ['SET k v EX x', '-ERR value is not an integer or out of range\r\n'],
  ['SET k v EX 1.5', '-ERR value is not an integer or out of range\r\n'],
  ['SET k v EX 05', '-ERR value is not an integer or out of range\r\n'],
  ['SET k v EX +5', '-ERR value is not an integer or out of range\r\n'],
  ['SET k v EX -0', '-ERR value is not an integer or out of range\r\n'],
  ['SETEX k 05 v', '-ERR value is not an integer or out of range\r\n'],
  ['SET k v PX 00', '-ERR value is not an integer or out of range\r\n'],
  ['SET k v EX 99999999999999999999', '-ERR value is not an integer or out of range\r\n'],
  ['SET k v EX 5 PX 5', '-ERR syntax error\r\n'],
  ['SET k v EX x NOTHING', '-ERR syntax error\r\n'],
  ['SET k v EX 5 NX', '-ERR SET with the option NX is not supported by meshcache\r\n'],
  ['SET k v KEEPTTL', '-ERR SET with the option KEEPTTL is not supported by meshcache\r\n'],
  ['SET k v EX 315576001', "-ERR invalid expire time in 'set' command: a value expires after ten years at most\r\n"],
  ['SETEX k 0 v', "-ERR invalid expire time in 'setex' command\r\n"],
  ['PSETEX k x v', '-ERR value is not an integer or out of range\r\n'],
  ['SETEX k 5', "-ERR wrong number of arguments for 'setex' command\r\n"],
  ['EXPIRE k 5', '-ERR EXPIRE is not supported by meshcache: SET the value anew, with EX or PX\r\n'],
  ['SET e v EX 100', '+OK\r\n'],
  ['SET e v', '+OK\r\n'],
  ['TTL e', ':-1\r\n'],
  ['SETEX e 200 v', '+OK\r\n'],
  ['PSETEX e 300000 v', '+OK\r\n'],
  ['SET e v EXAT 1000', '+OK\r\n'],
  ['SET e v ex 100', '+OK\r\n'],
  ['SET e w EX 50', '+OK\r\n'],
  ['GET e', '$1\r\nw\r\n'],
  ['DEL e', ':1\r\n'],
  ['TTL e', ':-2\r\n'],
  ['SET k v nx', '-ERR SET with the option NX is not supported by meshcache\r\n'],
  ['SET k v EX', '-ERR syntax error\r\n'],
  ['SET k v NOTHING', '-ERR syntax error\r\n'],
  [
    'AUTH x',
    '-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n',
  ],
  ['HELLO 4', '-NOPROTO unsupported protocol version\r\n'],
  ['HELLO x', '-ERR Protocol version is not an integer or out of range\r\n'],
  ['FLUSHDB', '+OK\r\n'],
  ['DBSIZE', ':0\r\n'],
  ['FLUSHALL async', '+OK\r\n'],
  ['RESET', '+RESET\r\n'],
];

test('resp: answers byte by byte, and the connection stays after errors', async (t) => {
  const { host, port } = await startRespNode(t);
  const client = await RawClient.connect(t, { host, port });
  for (const [words, answer] of ANSWERS) {
    client.send(commandOf(...words.split(' ')));
    t.is(await client.text(answer), answer, words);
  }
  client.send(...ANSWERS.map(([words]) => commandOf(...words.split(' '))));
  const all = ANSWERS.map(([, answer]) => answer).join('');
  t.is(await client.text(all), all, 'all of them in one pipeline');
  for (const byte of commandOf('SET', BINARY, '')) client.send(Buffer.of(byte));
  client.send('GET "a\\r\\nb\\x00\\xc3\\xbf"\r\n', commandOf('QUIT'), commandOf('PING'));
  t.is((await client.rest()).toString(), '+OK\r\n$0\r\n\r\n+OK\r\n', 'half frames, a line, and nothing after QUIT');
});

test('resp: RESP3', async (t) => {
  const { host, port } = await startRespNode(t);
  const client = await RawClient.connect(t, { host, port });
  client.send(commandOf('HELLO', '3', 'SETNAME', 'me'));
  const hello =
    '%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n' +
    '$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n';
  t.is(await client.text(hello), hello);
  for (const [words, answer] of [
    ['GET absent', '_\r\n'],
    ['MGET absent', '*1\r\n_\r\n'],
    ['CLIENT GETNAME', '$2\r\nme\r\n'],
    ['CONFIG GET save', '%1\r\n$4\r\nsave\r\n$0\r\n\r\n'],
    ['INFO persistence', '=53\r\ntxt:# Persistence\r\nloading:0\r\nasync_loading:0\r\n'],
  ] as const) {
    client.send(commandOf(...words.split(' ')));
    if (words.startsWith('INFO')) {
      await client.read('=53\r\n'.length);
      const text = 'txt:# Persistence\r\nloading:0\r\nasync_loading:0\r\n';
      t.is(await client.text(text), text);
      await client.read(2);
    } else {
      t.is(await client.text(answer), answer, words);
    }
  }
  // A value that is not stored: it is larger than the pool.
  const head = '*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$17000000\r\n';
  client.send(head, Buffer.alloc(17_000_000), '\r\n', commandOf('RESET'), commandOf('GET', 'k'));
  t.is(await client.text('_\r\n+RESET\r\n$-1\r\n'), '_\r\n+RESET\r\n$-1\r\n');
});

test('resp: what breaks the protocol is answered and ends the connection, and others go on', async (t) => {
  const { host, port } = await startRespNode(t);
  const other = await RawClient.connect(t, { host, port });
  for (const [sent, answer] of [
    ['*1\r\n$-5\r\n', '-ERR Protocol error: invalid bulk length\r\n'],
    ['*9999999\r\n', '-ERR Protocol error: invalid multibulk length\r\n'],
    ['*1\r\n*1\r\n', "-ERR Protocol error: expected '$', got '*'\r\n"],
    ['PING\r\n*1\r\n$x\r\n', '+PONG\r\n-ERR Protocol error: invalid bulk length\r\n'],
  ] as const) {
    const client = await RawClient.connect(t, { host, port });
    client.send(sent);
    t.is((await client.rest()).toString(), answer);
  }
  other.send('PING\r\n');
  t.is(await other.text('+PONG\r\n'), '+PONG\r\n');
});

test('resp: a client that ends its side gets the answers to what it has sent', async (t) => {
  const { host, port } = await startRespNode(t);
  const client = await RawClient.connect(t, { host, port });
  client.socket.end(Buffer.concat([commandOf('SET', 'k', 'v'), commandOf('GET', 'k'), Buffer.from('*1\r\n$4\r\nPI')]));
  t.is((await client.rest()).toString(), '+OK\r\n$1\r\nv\r\n');
});

test('resp: pipelines of 10,000 commands are answered in order, whatever is mixed', async (t) => {
  const { host, port } = await startRespNode(t);
  const client = await RawClient.connect(t, { host, port });
  const sent: Buffer[] = [];
  const expected: Buffer[] = [];
  const state = new Map<string, Buffer>();
  for (let i = 0; i < 10_000; i++) {
    const key = `k${i % 50}`;
    const value = Buffer.from(content(i, i % 97));
    if (i % 500 === 499) {
      sent.push(commandOf('DEL', key));
      expected.push(Buffer.from(`:${Number(state.delete(key))}\r\n`));
    } else if (i % 3 === 0 || i < 50) {
      sent.push(commandOf('SET', key, value));
      expected.push(Buffer.from('+OK\r\n'));
      state.set(key, value);
    } else {
      sent.push(commandOf('GET', key));
      const there = state.get(key);
      expected.push(there === undefined ? Buffer.from('$-1\r\n') : Buffer.from(`$${there.length}\r\n`));
      if (there !== undefined) expected.push(there, Buffer.from('\r\n'));
    }
  }
  const all = Buffer.concat(expected);
  client.send(Buffer.concat(sent));
  t.true((await client.read(all.length)).equals(all));
});

test('resp: a client that reads only when it has sent 10,000 reads gets them all', async (t) => {
  const { host, port } = await startRespNode(t);
  const client = await RawClient.connect(t, { host, port });
  const value = Buffer.from(content(1, 20_000));
  client.send(commandOf('SET', 'k', value));
  await client.read(5);
  client.socket.pause();
  await new Promise<void>((resolve) => {
    client.socket.write(Buffer.concat(Array.from({ length: 10_000 }, () => commandOf('GET', 'k'))), () => resolve());
  });
  client.socket.resume();
  const one = Buffer.concat([Buffer.from('$20000\r\n'), value, Buffer.from('\r\n')]);
  for (let i = 0; i < 10_000; i += 500) {
    const some = await client.read(500 * one.length);
    if (!some.equals(Buffer.concat(Array.from({ length: 500 }, () => one))))
      t.fail(`answer ${i} and later ones differ`);
  }
  t.is(client.bytes, 0);
});

test('resp: passwords', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-resp-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'password');
  writeFileSync(file, 'from-a-file\n');
  for (const [extra, password] of [
    [{ resp_password: 'right-one' }, 'right-one'],
    [{ resp_password_file: file }, 'from-a-file'],
    [{ resp_host: '0.0.0.0', resp_password: 'of-its-own', cluster_secret: 'a secret of the cluster' }, 'of-its-own'],
  ] as const) {
    const { port } = await startRespNode(t, extra);
    const client = await RawClient.connect(t, { host: '127.0.0.1', port });
    const no = '-NOAUTH Authentication required.\r\n';
    const wrong = '-WRONGPASS invalid username-password pair or user is disabled.\r\n';
    for (const [words, answer] of [
      [['GET', 'k'], no],
      [['PING'], no],
      [['NOTHING'], "-ERR unknown command 'NOTHING', with args beginning with: \r\n"],
      [['HELLO', '3'], '-NOAUTH HELLO must be called with the client already authenticated, otherwise'],
      [['AUTH', 'wrong'], wrong],
      [['AUTH', 'a secret of the cluster'], wrong],
      [['AUTH', 'other', password], wrong],
      [['HELLO', '2', 'AUTH', 'default', 'wrong'], wrong],
    ] as const) {
      client.send(commandOf(...words));
      t.is(await client.text(answer), answer, words.join(' '));
      if (words[0] === 'HELLO' && words.length === 2) await client.text(HELLO_REST);
    }
    // In one piece, with what is allowed only then.
    client.send(
      Buffer.concat([commandOf('AUTH', password), commandOf('SET', 'k', Buffer.alloc(20_000)), commandOf('PING')]),
    );
    t.is(await client.text('+OK\r\n+OK\r\n+PONG\r\n'), '+OK\r\n+OK\r\n+PONG\r\n');
    const third = await RawClient.connect(t, { host: '127.0.0.1', port });
    third.send(commandOf('HELLO', '3', 'AUTH', 'default', password));
    t.is(await third.text('%7\r\n'), '%7\r\n');
    const stranger = await RawClient.connect(t, { host: '127.0.0.1', port });
    stranger.send('*11\r\n');
    t.is((await stranger.rest()).toString(), '-ERR Protocol error: unauthenticated multibulk length\r\n');
  }
});

const HELLO_REST =
  ' the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time\r\n';

test('resp: where the door cannot be opened, the node does not start and says why', async (t) => {
  const { port: taken } = await startRespNode(t);
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-resp-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'empty'), '\n');
  writeFileSync(join(folder, 'zeros'), Buffer.alloc(64));
  const discovery = await freePort();
  for (const [extra, message] of [
    [{ resp_port: taken }, /"resp_port": cannot listen at 127\.0\.0\.1:\d+: the port is taken; choose another/],
    [
      { resp_port: 0, resp_host: '192.0.2.1', resp_password: 'x' },
      /"resp_host": cannot listen at 192\.0\.2\.1:0: .*allowed is/,
    ],
    [{ resp_port: 0, resp_host: '0.0.0.0' }, /"resp_host": 0\.0\.0\.0 is reached from other hosts.*set resp_password/],
    [
      { resp_port: 0, resp_host: '0.0.0.0', cluster_secret: 'a secret of the cluster' },
      /"resp_host": .*set resp_password, resp_password_file or users_file.*cluster_secret is not accepted/,
    ],
    [{ resp_port: 0, resp_password: 'a', resp_password_file: 'b' }, /give one of them, not both/],
    [{ resp_port: 0, resp_password_file: join(folder, 'none') }, /"resp_password_file": .*cannot be read \(ENOENT\)/],
    [{ resp_port: 0, resp_password_file: join(folder, 'empty') }, /"resp_password_file": .*has no password/],
    [{ resp_port: 0, resp_password_file: join(folder, 'zeros') }, /"resp_password_file": .*has no password/],
    [{ resp_port: 0, resp_password_file: '/dev/zero' }, /"resp_password_file": .*cannot be read \(EFTYPE\)/],
    [{ resp_socket: join(folder, 'empty') }, /"resp_socket": .*is there and is no socket/],
    [{ resp_port: -1 }, /"resp_port": got -1/],
  ] as const) {
    const error = await t.throwsAsync(createStore(discovery, extra), { instanceOf: ConfigError });
    t.regex(error?.message ?? '', message);
  }
  const config = MeshCacheConfig.fromExtraConfig({ discovery_addr: '127.0.0.1:1', resp_password: 'hidden-one' });
  t.notRegex(JSON.stringify(config), /hidden-one/);
});

test('resp: the Unix socket has its permissions, serves, and goes with the node', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-resp-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'redis.sock');
  const store = await createStore(await freePort(), { resp_socket: path, client_socket_mode: '0660' });
  t.teardown(() => store.close());
  t.is(store.respEndpoint, path);
  t.is(statSync(path).mode & 0o777, 0o660);
  const client = await RawClient.connect(t, { path });
  client.send(commandOf('SET', 'k', 'v'), commandOf('GET', 'k'));
  t.is(await client.text('+OK\r\n$1\r\nv\r\n'), '+OK\r\n$1\r\nv\r\n');
  await store.close();
  await until(() => client.isEnded);
  t.throws(() => statSync(path), { code: 'ENOENT' });
});
