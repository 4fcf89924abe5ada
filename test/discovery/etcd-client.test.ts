import { execFileSync } from 'node:child_process';
import test, { type ExecutionContext } from 'ava';
import { MeshCacheConfig } from '../../src/config.js';
import {
  afterEvents,
  checkRights,
  EtcdClient,
  type EtcdClientOptions,
  type EtcdObject,
  freeKey,
  readSeats,
  seatRange,
  takeSeat,
} from '../../src/discovery/sources/etcd-client.js';
import { askOnce } from '../../src/discovery/sources/open-source.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { Authority, noCertificates } from '../_support/certificates.js';
import { EtcdServer, hasEtcd } from '../_support/discovery/etcd-server.js';
import { freePort, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const withEtcd = unless(hasEtcd ? '' : 'no etcd and etcdctl');
const withTls = unless(hasEtcd ? noCertificates : 'no etcd and etcdctl');
const env = systemEnvironment();
const base64 = (text: string): string => Buffer.from(text).toString('base64');

function clientOf(t: ExecutionContext, port: number, options: Partial<EtcdClientOptions> = {}): EtcdClient {
  const client = new EtcdClient({ endpoints: [{ host: '127.0.0.1', port }], env, ...options });
  t.teardown(() => client.close());
  return client;
}

/**
 * What `call` resolves to once it does: the servers may have to choose a leader first, on a busy machine at any time.
 */
async function answered<T>(call: () => Promise<T>): Promise<T> {
  let answers: T[] = [];
  await until(async () => {
    answers = await Promise.all([call()]).catch(() => []);
    return answers.length > 0;
  });
  return answers[0] as T;
}

const put = (client: EtcdClient, key: string, value: string) =>
  client.call('kv/put', { key: base64(key), value: base64(value) });

withEtcd('etcd client: seats are taken once each, and values that are none are passed over', async (t) => {
  const etcd = await EtcdServer.start(t);
  const client = clientOf(t, etcd.port);
  const seat = { addr: '10.0.0.1:31990', nodeId: 'a', lease: '0' };
  t.deepEqual((await readSeats(client, 'c')).seats, []);
  t.true(await takeSeat(client, '/c/masters/00', seat));
  t.false(await takeSeat(client, '/c/masters/00', seat), 'another node was faster');
  const known = await readSeats(client, 'c');
  t.deepEqual(known.seats, [{ key: '/c/masters/00', endpoint: { host: '10.0.0.1', port: 31990 }, lease: '0' }]);
  t.is(freeKey('c', known), '/c/masters/01');
  t.true(await takeSeat(client, '/c/masters/01', seat));
  await put(client, '/c/masters/02', '{"addr":"nowhere"}');
  await put(client, '/c/masters/03', 'no JSON');
  await put(client, '/c/masters/04', JSON.stringify({ addr: `${'h'.repeat(400)}:1` }));
  await put(client, '/c/other', '{"addr":"10.0.0.9:1"}');
  await put(client, '/d/masters/00', '{"addr":"10.0.0.9:1"}');
  const { seats, foreign, revision } = await readSeats(client, 'c');
  t.is(seats.length, 2);
  t.is(freeKey('c', { seats, foreign }), '/c/masters/05', 'numbers of values that are none are not free');
  const event = { kv: { key: base64('/c/masters/05'), value: base64('x'), mod_revision: String(revision + 1) } };
  t.is(freeKey('c', afterEvents({ seats, foreign, revision }, [event])), '/c/masters/06');
});

withEtcd('etcd client: a watch tells of changes, and of a revision that is gone', async (t) => {
  const etcd = await EtcdServer.start(t);
  const client = clientOf(t, etcd.port);
  const { revision } = await readSeats(client, 'c');
  const messages: EtcdObject[] = [];
  let ends = 0;
  const watch = (from: number): (() => void) =>
    client.stream(
      'watch',
      { create_request: { ...seatRange('c'), start_revision: String(from) } },
      { onMessage: (message) => messages.push(message.result as EtcdObject), onEnd: () => ends++ },
    );
  const end = watch(revision + 1);
  await until(() => messages.length === 1);
  await put(client, '/c/masters/00', 'x');
  await put(client, '/d/masters/00', 'x');
  await until(() => messages.some(({ events }) => events !== undefined));
  end();
  await put(client, '/c/masters/00', 'y');
  const { revision: last } = await readSeats(client, 'c');
  await client.call('kv/compaction', { revision: String(last) });
  messages.length = 0;
  t.teardown(watch(1));
  await until(() => messages.some(({ canceled }) => canceled === true));
  t.is(ends, 0);
  await etcd.stop();
  await until(() => ends === 1);
});

withEtcd('etcd client: what a watch tells is what a list says, in whatever order both come', async (t) => {
  const etcd = await EtcdServer.start(t);
  const client = clientOf(t, etcd.port);
  const empty = await readSeats(client, 'c');
  let told = empty;
  const batches: unknown[] = [];
  t.teardown(
    client.stream(
      'watch',
      { create_request: { ...seatRange('c'), start_revision: String(empty.revision + 1) } },
      {
        onMessage: ({ result }) => {
          const { events } = (result ?? {}) as EtcdObject;
          if (events === undefined) return;
          batches.push(events);
          told = afterEvents(told, events);
        },
        onEnd: () => {},
      },
    ),
  );
  const lease = String((await client.call('lease/grant', { TTL: 10 })).ID);
  await takeSeat(client, '/c/masters/00', { addr: '10.0.0.1:1', nodeId: 'a', lease });
  await put(client, '/c/masters/01', JSON.stringify({ addr: '10.0.0.2:1' }));
  await put(client, '/c/masters/02', JSON.stringify({ addr: '10.0.0.3:1' }));
  await put(client, '/c/masters/02', 'no JSON');
  const between = await readSeats(client, 'c');
  t.is(between.seats.length, 2);
  await until(() => told.revision === between.revision);
  t.deepEqual(told, between);
  await client.call('lease/revoke', { ID: lease });
  await client.call('kv/deleterange', { key: base64('/c/masters/01') });
  const last = await readSeats(client, 'c');
  t.deepEqual(last.seats, []);
  await until(() => told.revision === last.revision);
  t.deepEqual(told, last);
  // Changes that the list has already are told late, or again.
  t.is(batches.reduce(afterEvents, last), last);
  t.deepEqual(batches.reduce(afterEvents, between), last);
  for (const events of [undefined, {}, [undefined], [{ kv: { key: 5, mod_revision: '999' } }]]) {
    t.is(afterEvents(last, events), last);
  }
});

withEtcd(
  'etcd client: servers that are gone or frozen are left for the next one, and no call outlasts its time',
  async (t) => {
    const [frozen, live] = await Promise.all([EtcdServer.start(t), EtcdServer.start(t)]);
    const endpoints = [await freePort(), frozen.port, live.port].map((port) => ({ host: '127.0.0.1', port }));
    const client = clientOf(t, live.port, { endpoints });
    await frozen.freeze();
    const fromMs = performance.now();
    await readSeats(client, 'c');
    t.true(performance.now() - fromMs < 4_000);
    const thenMs = performance.now();
    await readSeats(client, 'c');
    t.true(performance.now() - thenMs < 1_500, 'it stays with the server that answers');
    await live.freeze();
    await t.throwsAsync(readSeats(client, 'c'), { message: /no answer within 2 s/ });
    const waiting = t.throwsAsync(readSeats(clientOf(t, live.port, { endpoints: endpoints.slice(2) }), 'c'));
    client.close();
    await t.throwsAsync(readSeats(client, 'c'), { message: /not asked any more/ });
    await waiting;
  },
);

withEtcd('etcd client: a user is asked for, a wrong password is told, and a token is renewed', async (t) => {
  const etcd = await EtcdServer.start(t);
  await etcd.addUser('/c/');
  await t.throwsAsync(readSeats(clientOf(t, etcd.port), 'c'), { name: 'EtcdError', message: /user name is empty/ });
  const wrong = clientOf(t, etcd.port, { user: 'node', password: 'wrong' });
  await t.throwsAsync(readSeats(wrong, 'c'), { name: 'EtcdError', message: /invalid user ID or password/ });
  const client = clientOf(t, etcd.port, { user: 'node', password: 'node-password' });
  const lease = String((await client.call('lease/grant', { TTL: 10 })).ID);
  t.true(await takeSeat(client, '/c/masters/00', { addr: 'h:1', nodeId: 'a', lease }));
  t.is((await readSeats(client, 'c')).seats.length, 1);
  t.is(Number((await client.call('lease/keepalive', { ID: lease })).TTL), 10);
  await t.throwsAsync(readSeats(client, 'd'), { message: /permission denied/ });
  await checkRights(client, 'c');
  await t.throwsAsync(checkRights(client, 'd'), { message: /permission denied/ });
  t.is((await readSeats(client, 'c')).seats.length, 1, 'looking at the rights writes nothing');
  // Tokens live in the memory of the server.
  await etcd.stop();
  await etcd.up();
  await until(() =>
    readSeats(client, 'c').then(
      ({ seats }) => seats.length === 1,
      () => false,
    ),
  );
});

withEtcd('etcd client: a user is no obstacle where there are none, as after a loss of all data', async (t) => {
  const etcd = await EtcdServer.start(t);
  const client = clientOf(t, etcd.port, { user: 'node', password: 'node-password' });
  t.deepEqual((await readSeats(client, 'c')).seats, []);
  t.true(await takeSeat(client, '/c/masters/00', { addr: 'h:1', nodeId: 'a', lease: '0' }));
});

withTls('etcd client: a token that has expired is renewed', async (t) => {
  const authority = new Authority();
  t.teardown(() => authority.remove());
  const { tlsCertFile, tlsKeyFile } = authority.issue('token');
  const isRsa = /RSA/.test(
    execFileSync('openssl', ['pkey', '-in', tlsKeyFile, '-text', '-noout'], { encoding: 'utf8' }),
  );
  const files = `pub-key=${tlsCertFile},priv-key=${tlsKeyFile}`;
  const etcd = await EtcdServer.start(t, undefined, [
    `--auth-token=jwt,${files},sign-method=${isRsa ? 'RS256' : 'ES256'},ttl=3s`,
  ]);
  await etcd.addUser('/c/');
  let authenticated = 0;
  const http: typeof env.http = {
    ...env.http,
    post(request, listener) {
      if (request.path.endsWith('/authenticate')) authenticated++;
      return env.http.post(request, listener);
    },
  };
  const client = clientOf(t, etcd.port, { user: 'node', password: 'node-password', env: { ...env, http } });
  // Passwords are slow to check, and the machine may be busy.
  const isAnswered = () =>
    readSeats(client, 'c').then(
      ({ seats }) => seats.length === 0,
      () => false,
    );
  await until(isAnswered);
  const before = authenticated;
  const fromMs = performance.now();
  await until(async () => (await isAnswered()) && performance.now() - fromMs > 4_000);
  t.true(authenticated > before, `${authenticated} times authenticated`);
});

withEtcd('etcd client: of three servers one may fail, and nothing is lost with it', async (t) => {
  const servers = await EtcdServer.startCluster(t, 3);
  const endpoints = servers.map(({ port }) => ({ host: '127.0.0.1', port }));
  const clients = endpoints.map((_, first) => clientOf(t, 0, { endpoints, first }));
  const [client] = clients as [EtcdClient];
  const lease = String((await answered(() => client.call('lease/grant', { TTL: 600 }))).ID);
  await answered(() => takeSeat(client, '/c/masters/00', { addr: 'h:1', nodeId: 'a', lease }));
  await servers[0]?.stop();
  for (const each of clients) await until(async () => (await answered(() => readSeats(each, 'c'))).seats.length === 1);
  t.is(Number((await answered(() => client.call('lease/keepalive', { ID: lease }))).TTL), 600);
  // Calls that fail at the same time do not send each other past the servers that are left.
  const seats = await answered(() => {
    const fresh = clientOf(t, 0, { endpoints: [...endpoints].slice(0, 2) });
    return Promise.all(Array.from({ length: 8 }, () => readSeats(fresh, 'c')));
  });
  t.deepEqual([...new Set(seats.map((one) => one.seats.length))], [1]);
  await servers[1]?.freeze();
  await t.throwsAsync(readSeats(client, 'c'), undefined, 'one of three is no majority');
});

withTls('etcd client: TLS with certificates of an authority, and not without', async (t) => {
  const authority = new Authority();
  t.teardown(() => authority.remove());
  const server = authority.issue('etcd', 30, '127.0.0.1');
  const node = authority.issue('node');
  const etcd = await EtcdServer.start(t, { ca: server.tlsCaFile, cert: server.tlsCertFile, key: server.tlsKeyFile });
  const ask = (keys: Readonly<Record<string, string>>) =>
    askOnce(MeshCacheConfig.fromExtraConfig({ discovery_addr: etcd.addr, ...keys }), env);
  const files = { etcd_ca_file: node.tlsCaFile, etcd_cert_file: node.tlsCertFile, etcd_key_file: node.tlsKeyFile };
  t.deepEqual(await ask(files), []);
  await t.throwsAsync(ask({}), { message: /self.signed certificate|unable to/ });
  await t.throwsAsync(ask({ etcd_ca_file: node.tlsCaFile }), { message: /certificate|ECONNRESET|socket/ });
  await t.throwsAsync(ask({ etcd_ca_file: '/nowhere/ca.pem' }), {
    code: 'ERR_CONFIG',
    message: /"etcd_ca_file": \/nowhere\/ca\.pem cannot be read \(ENOENT\)/,
  });
  const plain = MeshCacheConfig.fromExtraConfig({ discovery_addr: `etcd://127.0.0.1:${etcd.port}` });
  await t.throwsAsync(askOnce(plain, env));
});

test('etcd client: keys that belong together, and files without TLS, are refused', (t) => {
  const refused: [Readonly<Record<string, string>>, RegExp][] = [
    [{ etcd_user: 'a' }, /"etcd_user" and "etcd_password": give both/],
    [{ etcd_cert_file: 'a' }, /"etcd_cert_file" and "etcd_key_file": give both/],
    [{ etcd_ca_file: 'a' }, /"etcd_ca_file": discovery_addr begins with etcd:\/\/, which is not encrypted/],
    [{ discovery_addr: 'etcd://a:hush@h:1' }, /a user or a password, which logs would show; set etcd_user/],
    [{ discovery_addr: 'etcd://h:1,dns://x' }, /several sources/],
    [{ discovery_addr: 'etcd://h:1/a/b' }, /allowed is/],
    [{ discovery_addr: 'etcd://h/a' }, /allowed is/],
  ];
  for (const [keys, message] of refused) {
    const error = t.throws(() => MeshCacheConfig.fromExtraConfig({ discovery_addr: 'etcd://h:2379', ...keys }));
    t.regex(error?.message ?? '', message);
    t.notRegex(error?.message ?? '', /hush/);
  }
  const config = MeshCacheConfig.fromExtraConfig({
    discovery_addr: 'etcd://h:1',
    etcd_user: 'u',
    etcd_password: 'hush',
  });
  t.false(JSON.stringify(config).includes('hush'));
  t.deepEqual(config.discoveryAddress(), {
    kind: 'etcd',
    endpoints: [{ host: 'h', port: 1 }],
    isTls: false,
    name: 'meshcache',
  });
});
