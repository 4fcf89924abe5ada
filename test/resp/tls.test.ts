import { execFile, spawnSync } from 'node:child_process';
import { copyFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import tls from 'node:tls';
import { promisify } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT } from '../../src/base/limits.js';
import { MeshCacheConfig } from '../../src/config.js';
import { KeyEncoder } from '../../src/core/index.js';
import { DoorTls } from '../../src/net/credentials/door-tls.js';
import { Users } from '../../src/net/users.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { RespServer } from '../../src/resp/resp-server.js';
import { StoredPages } from '../../src/store/namespace/namespace-pages.js';
import { type CertificateFiles, noCertificates } from '../_support/certificates.js';
import { HeldStore } from '../_support/clients/client-fixture.js';
import { ManualClock } from '../_support/clock.js';
import { authorityOf, clientOf, doorFiles, HOST, textOf } from '../_support/door-certificates.js';
import { metricOf } from '../_support/metrics/metric-of.js';
import { startRecorded } from '../_support/node/recorded-node.js';
import { commandOf, placeOf } from '../_support/resp/resp-fixture.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { content, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';
import { verifiedEnd } from '../_support/verified.js';

const run = promisify(execFile);
const help = spawnSync('redis-cli', ['--help'], { encoding: 'utf8' });
const noCli = `${help.stdout}${help.stderr}`.includes('--tls') ? '' : 'no redis-cli that speaks TLS';
const withCertificates = unless(noCertificates);
const withCli = unless(noCertificates || noCli);

const PASSWORD = 'right-one';

/** The configuration of a door with this certificate. */
const doorOf = (files: CertificateFiles, caFile?: string) => ({ resp_port: 0, ...doorFiles('resp', files, caFile) });

/**
 * What the door answers to these bytes until the connection ends, or has answered as much as that; empty if there is no
 * answer.
 */
async function answered(socket: net.Socket, sent: Uint8Array | string, expected: string): Promise<string> {
  let text = '';
  socket.on('error', () => {});
  socket.write(sent);
  await new Promise<void>((resolve) => {
    socket.on('close', () => resolve());
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      if (text.length >= expected.length) resolve();
    });
  });
  socket.destroy();
  return text;
}

const PONG = '+PONG\r\n';

/** Whether such a client gets in. */
async function getsIn(store: MeshCacheStore, options: tls.ConnectionOptions): Promise<boolean> {
  const { port } = placeOf(store);
  return (await answered(tls.connect({ host: HOST, port, ...options }), commandOf('PING'), PONG)) === PONG;
}

const failures = (store: MeshCacheStore, reason = 'tls'): Promise<number> =>
  metricOf(store, 'meshcache_auth_failures_total', { plane: 'resp', reason });

withCli('resp tls: redis-cli, with a password and with a certificate', async (t) => {
  const authority = authorityOf(t);
  const door = authority.issue('door', 30, HOST);
  const client = authority.issue('client');
  const stranger = authorityOf(t, 'another authority').issue('client');
  const { store } = await startRecorded(t, { ...doorOf(door, door.tlsCaFile), resp_password: PASSWORD });
  const { port } = placeOf(store);
  const cli = async (files: CertificateFiles, ...words: string[]): Promise<string> => {
    const own = ['--cert', files.tlsCertFile, '--key', files.tlsKeyFile];
    const args = ['-p', `${port}`, '--tls', '--cacert', door.tlsCaFile, ...own, '-a', PASSWORD, '--no-auth-warning'];
    return (await run('redis-cli', [...args, ...words])).stdout;
  };
  t.is(await cli(client, 'set', 'greeting', 'hello'), 'OK\n');
  t.is(await cli(client, '-3', 'get', 'greeting'), 'hello\n');
  const refused = await cli(stranger, 'get', 'greeting').catch(({ stderr }: { stderr: string }) => stderr);
  t.notRegex(refused, /hello/);
  const plain = await run('redis-cli', ['-p', `${port}`, 'ping']).catch(({ stderr }: { stderr: string }) => stderr);
  t.notRegex(String(plain), /PONG/);
});

withCertificates('resp tls: ioredis and node-redis, values of many sizes', async (t) => {
  const door = authorityOf(t).issue('door', 30, HOST);
  const { store } = await startRecorded(t, { ...doorOf(door), resp_password: PASSWORD, global_segment_size: '128mb' });
  const { port } = placeOf(store);
  const ca = textOf(door.tlsCaFile);
  const redis = new Redis({ host: HOST, port, password: PASSWORD, tls: { ca } });
  t.teardown(() => redis.disconnect());
  for (const [i, size] of [0, 1, 100_000, 8 * 2 ** 20].entries()) {
    const value = Buffer.from(content(i, size));
    t.is(await redis.set('k', value), 'OK');
    t.true((await redis.getBuffer('k'))?.equals(value), `${size}`);
  }
  const client = createClient({ socket: { host: HOST, port, tls: true, ca }, password: PASSWORD });
  await client.connect();
  t.teardown(() => client.destroy());
  t.is(await client.set('k', 'v'), 'OK');
  t.is(await client.get('k'), 'v');
  t.is(await failures(store), 0);
});

withCertificates('resp tls: only TLS of version 1.2 and later is spoken at the port', async (t) => {
  const door = authorityOf(t).issue('door', 30, HOST);
  const { store, lines } = await startRecorded(t, doorOf(door));
  const options = clientOf(door, false);
  t.true(await getsIn(store, options));
  t.true(await getsIn(store, { ...options, maxVersion: 'TLSv1.2' }));
  const old = { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT:@SECLEVEL=0' } as const;
  t.false(await getsIn(store, { ...options, ...old }));
  await until(async () => (await failures(store)) === 1);
  for (const sent of [commandOf('PING'), 'PING\r\n', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n', Buffer.alloc(5000, 0xff)]) {
    const before = await failures(store);
    const text = await answered(net.connect(placeOf(store)), sent, '+PONG\r\n'.repeat(1000));
    t.notRegex(text, /PONG|OK|ERR/);
    await until(async () => (await failures(store)) === before + 1);
  }
  t.true(lines.some((line) => /the client speaks no TLS.*redis-cli --tls/.test(line)));
  t.true(lines.filter((line) => /authentication failed/.test(line)).length < 5);
  const gone = net.connect(placeOf(store));
  await new Promise<void>((resolve) => gone.once('connect', () => gone.end(resolve)));
  t.true(await getsIn(store, options));
  t.is(await failures(store), 5, 'a connection that is only opened is no failure');
});

withCertificates('resp tls: with an authority, clients without a certificate of it do not get in', async (t) => {
  const authority = authorityOf(t);
  const [door, client, expired] = [authority.issue('door', 30, HOST), authority.issue('one'), authority.issue('x', -1)];
  const stranger = authorityOf(t, 'another authority').issue('client');
  // Beyond loopback a certificate stands for a password.
  const { store, lines } = await startRecorded(t, { ...doorOf(door, door.tlsCaFile), resp_host: '0.0.0.0' });
  const ca = textOf(door.tlsCaFile);
  t.true(await getsIn(store, clientOf(client)));
  t.true(await getsIn(store, { ...clientOf(client), maxVersion: 'TLSv1.2' }));
  for (const options of [clientOf(door, false), { ...clientOf(stranger), ca }, clientOf(expired)]) {
    const before = await failures(store);
    t.false(await getsIn(store, options));
    await until(async () => (await failures(store)) === before + 1);
  }
  for (const text of [/shows no certificate, and resp_tls_ca_file wants one/, /is not accepted \(CERT_HAS_EXPIRED\)/])
    t.true(
      lines.some((line) => text.test(line)),
      String(text),
    );
  await t.throwsAsync(startRecorded(t, { ...doorOf(door), resp_host: '0.0.0.0' }), { message: /resp_tls_ca_file/ });
});

withCertificates('resp tls: a client that does not trust the certificate is told apart', async (t) => {
  const door = authorityOf(t).issue('door', 30, HOST);
  const other = authorityOf(t, 'another authority').issue('door');
  const { store, lines } = await startRecorded(t, doorOf(door));
  const { port } = placeOf(store);
  const args = ['s_client', '-connect', `${HOST}:${port}`, '-CAfile', other.tlsCaFile, '-verify_return_error'];
  await t.throwsAsync(run('openssl', args));
  await until(async () => (await failures(store)) === 1);
  t.true(lines.some((line) => /does not accept the certificate in resp_tls_cert_file/.test(line)));
});

withCertificates('resp tls: certificates and their authority are renewed while the door is open', async (t) => {
  const [former, next] = [authorityOf(t, 'former'), authorityOf(t, 'next')];
  const paths = ['cert', 'key', 'ca'].map((name) => join(former.folder, `used-${name}`)) as [string, string, string];
  const put = (files: CertificateFiles): void => {
    copyFileSync(files.tlsCertFile, paths[0]);
    copyFileSync(files.tlsKeyFile, paths[1]);
    copyFileSync(files.tlsCaFile, paths[2]);
  };
  put(former.issue('door', 20, HOST));
  const used = { tlsCertFile: paths[0], tlsKeyFile: paths[1], tlsCaFile: paths[2] };
  const { store, lines } = await startRecorded(t, doorOf(used, used.tlsCaFile));
  const [old, later] = [former.issue('client'), next.issue('client')];
  const expiryS = (): Promise<number> => metricOf(store, 'meshcache_tls_certificate_expiry_seconds', { plane: 'resp' });
  const daysLeft = async (): Promise<number> => ((await expiryS()) * 1000 - Date.now()) / 86_400_000;
  t.true(Math.abs((await daysLeft()) - 20) < 1);
  let ticket: Buffer | undefined;
  const open = tls.connect({ host: HOST, port: placeOf(store).port, ...clientOf(old) });
  t.teardown(() => open.destroy());
  open.on('session', (session) => {
    ticket = session;
  });
  open.write(commandOf('PING'));
  await new Promise((resolve) => open.once('data', resolve));
  t.deepEqual([await getsIn(store, clientOf(old)), await getsIn(store, clientOf(later))], [true, false]);
  copyFileSync(next.issue('half').tlsKeyFile, paths[1]);
  await until(() => lines.some((line) => /cannot be read anew.*resp_tls_key_file/.test(line)));
  t.is(await metricOf(store, 'meshcache_credential_files_failing', { plane: 'resp' }), 1);
  t.true(await getsIn(store, clientOf(old)));
  put(next.issue('door', 10, HOST));
  await until(() => getsIn(store, clientOf(later)));
  t.false(await getsIn(store, clientOf(old)));
  t.false(await getsIn(store, { ...clientOf(next.issue('x'), false), ...(ticket ? { session: ticket } : {}) }));
  t.true(Math.abs((await daysLeft()) - 10) < 1);
  t.is(await metricOf(store, 'meshcache_credential_files_failing', { plane: 'resp' }), 0);
  open.write(commandOf('PING'));
  t.is(String(await new Promise((resolve) => open.once('data', resolve))), PONG, 'open connections stay');
});

/** A door on a clock that stands still, so that no share comes back with time. */
async function startedDoor(t: ExecutionContext, config: Record<string, unknown>, password?: string) {
  const clock = new ManualClock(1_000, Date.now());
  const env = testEnvironment({ clock });
  const door = DoorTls.of('resp', MeshCacheConfig.fromExtraConfig({ discovery_addr: '127.0.0.1:1', ...config }), env);
  const encoder = new KeyEncoder({ tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false });
  const server = await RespServer.listen(
    { endpoint: { host: HOST, port: 0 }, password, tls: door },
    {
      env,
      pauses: { sentAfterMs: () => clock.nowMs() },
      users: { users: new Users(), nodeTag: 'redis', pagesOf: () => new StoredPages(new HeldStore().pages, encoder) },
      facts: {
        nodeId: 'node',
        packageVersion: '0',
        processId: 1,
        poolUsedBytes: () => 0,
        poolCapacityBytes: () => 0,
        poolEntries: () => 0,
      },
    },
  );
  t.teardown(() => verifiedEnd([server], () => server.close()));
  const refused = (): number => env.counts.get('meshcache_auth_failures_total resp paused') ?? 0;
  return { port: Number(server.endpoint.split(':')[1]), clock, refused };
}

withCertificates('resp tls: handshakes that do not go on keep nobody out, and end', async (t) => {
  const door = authorityOf(t).issue('door', 30, HOST);
  const { port, clock, refused } = await startedDoor(t, doorOf(door), PASSWORD);
  const tooMany = 30;
  const count = UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT + tooMany;
  let ended = 0;
  const silent = Array.from({ length: count }, (_, i) => {
    const socket = net.connect({ host: HOST, port, localAddress: '127.0.0.9' });
    socket.on('error', () => {}).resume();
    // The beginning of a record that does not come whole.
    socket.once('connect', () => socket.write(Buffer.from('1603010200010001', 'hex')));
    const drip = i % 50 === 0 ? setInterval(() => socket.write('x'), 1000) : undefined;
    socket.once('close', () => {
      clearInterval(drip);
      ended++;
    });
    return socket;
  });
  t.teardown(() => silent.forEach((socket) => void socket.destroy()));
  const login = Buffer.concat([commandOf('AUTH', PASSWORD), commandOf('PING')]);
  const trusting = { ...clientOf(door, false), servername: '', host: HOST };
  const answer = (from: string): Promise<string> => {
    const socket = tls.connect({ socket: net.connect({ host: HOST, port, localAddress: from }), ...trusting });
    return answered(socket, login, `+OK\r\n${PONG}`);
  };
  await until(() => refused() === tooMany);
  t.is(await answer('127.0.0.1'), `+OK\r\n${PONG}`);
  t.is(await answer('127.0.0.9'), '');
  await until(() => ended === count);
  clock.advance(1000);
  t.is(await answer('127.0.0.9'), `+OK\r\n${PONG}`);
});

withCertificates(
  'resp tls: clients that prove themselves are not limited, those that only shake hands are',
  async (t) => {
    const authority = authorityOf(t);
    const [door, client] = [authority.issue('door', 30, HOST), authority.issue('client')];
    const more = UNAUTHENTICATED_PER_ADDRESS_BURST_COUNT + 10;
    const visit = (port: number, options: tls.ConnectionOptions, sent: Buffer, expected: string): Promise<string> =>
      answered(tls.connect({ host: HOST, port, ...options }), sent, expected);
    const bare = clientOf(door, false);
    const [ping, login, wrong] = [commandOf('PING'), commandOf('AUTH', PASSWORD), commandOf('AUTH', 'wrong')];
    const locked = await startedDoor(t, doorOf(door), PASSWORD);
    for (let i = 0; i < more; i++) t.is(await visit(locked.port, bare, login, '+OK\r\n'), '+OK\r\n');
    const mutual = await startedDoor(t, doorOf(door, door.tlsCaFile));
    for (let i = 0; i < more; i++) t.is(await visit(mutual.port, clientOf(client), ping, PONG), PONG);
    t.is(locked.refused() + mutual.refused(), 0);
    for (let i = 0; i < more; i++) await visit(locked.port, bare, wrong, '-WRONG');
    t.true(locked.refused() >= 10, `${locked.refused()}`);
  },
);

withCertificates('resp tls: a node closes at once although handshakes have begun', async (t) => {
  const door = authorityOf(t).issue('door', 30, HOST);
  const { store } = await startRecorded(t, doorOf(door));
  const sockets = Array.from({ length: 5 }, () => net.connect(placeOf(store)).on('error', () => {}));
  t.teardown(() => sockets.forEach((socket) => void socket.destroy()));
  await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once('connect', resolve))));
  // Without the certificate's help: the deadline of a handshake is longer than that.
  let isSlow = false;
  const timer = setTimeout(() => {
    isSlow = true;
  }, 4_000);
  await store.close();
  clearTimeout(timer);
  t.false(isSlow);
});

test('resp tls: a client that speaks TLS to a plain port is told so, and so is the log', async (t) => {
  const { store, lines } = await startRecorded(t, { resp_port: 0 });
  const socket = net.connect(placeOf(store));
  const hello = Buffer.from(`160301020001000100${'00'.repeat(400)}`, 'hex');
  t.regex(await answered(socket, hello, 'x'.repeat(1000)), /^-ERR this port speaks no TLS/);
  t.true(lines.some((line) => /redis client disconnected.*this port speaks no TLS/.test(line)));
});

withCertificates('resp tls: files that cannot be used, or that are missing, are refused by their keys', async (t) => {
  const authority = authorityOf(t);
  const [door, expired] = [authority.issue('door'), authority.issue('expired', -1)];
  const key = { resp_tls_key_file: door.tlsKeyFile };
  const cases: readonly (readonly [Record<string, unknown>, RegExp])[] = [
    [doorOf(expired), /"resp_tls_cert_file": .* has expired on/],
    [{ ...doorOf(door), resp_tls_key_file: expired.tlsKeyFile }, /"resp_tls_key_file": .* does not belong/],
    [doorOf(door, '/nowhere/ca.pem'), /"resp_tls_ca_file": \/nowhere\/ca.pem cannot be read \(ENOENT\)/],
  ];
  for (const [extra, message] of cases) await t.throwsAsync(startRecorded(t, extra), { message });
  const init = { discovery_addr: '127.0.0.1:1', ...key };
  t.throws(() => MeshCacheConfig.fromExtraConfig(init), { message: /"resp_tls_cert_file" and "resp_tls_key_file"/ });
});
