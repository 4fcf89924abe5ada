import { once } from 'node:events';
import { chmodSync, mkdirSync, readFileSync, renameSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import test from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { encodePools, RequestType, Status } from '../../src/clients/wire/messages.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { digestOf } from '../../src/net/users.js';
import { wholeNamespace } from '../../src/store/namespace/node-namespace.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { createTransport } from '../../src/transport/create-transport.js';
import { type AuditLine, linesIn, startAuditedNode } from '../_support/audit/audited-node.js';
import { runCli } from '../_support/cli/run-cli.js';
import { helloBody, TestClient } from '../_support/clients/test-client.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { freePort, PATIENCE_MS } from '../_support/support.js';

const SECRET = { MESHCACHE_CLUSTER_SECRET: 'what the nodes of this test know' };
const uid = process.getuid?.();

/** The path of a file with this text, which only this user may read. */
function fileWith(folder: string, name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text, { mode: 0o600 });
  return path;
}

function usersFile(folder: string, ...users: readonly object[]): string {
  return fileWith(folder, 'users.json', JSON.stringify({ users }));
}

const MAINTAINER = 'token-of-a-user-who-may-drain';
const READER = 'token-of-a-user-who-may-read';
const USERS = [
  { name: 'maintainer', token_sha256: [digestOf(MAINTAINER)], tags: [], rights: ['drain'] },
  { name: 'reader', token_sha256: [digestOf(READER)], tags: ['a'], rights: ['read'] },
];

test.serial('audit log: a node writes who has attached, cleared, detached, and who was refused', async (t) => {
  const node = await startAuditedNode(t);
  t.is(statSync(node.path).mode & 0o777, 0o600);
  const client = await TestClient.attach(t, node.clientSocket, { name: 'engine-1', pid: 77 });
  await client.ok(RequestType.clear, encodePools([]));
  client.socket.end();
  const stranger = await TestClient.connect(t, node.clientSocket);
  t.is((await stranger.request(RequestType.hello, helloBody({ minVersion: 99, maxVersion: 99 }))).header.status, 6);
  await node.find(({ action }) => action === 'detach');
  const refused = await node.find(({ outcome }) => outcome === 'refused');
  t.like(refused, { action: 'attach', door: 'client', reason: 'another version', node: node.node_id });
  const told = linesIn(node.path).filter(({ client: name }) => name === 'engine-1');
  t.deepEqual(
    told.map(({ action }) => action),
    ['attach', 'clear', 'detach'],
  );
  for (const line of told) t.like(line, { door: 'client', outcome: 'done', user: 'default' });
  for (const line of told.filter((each) => each.uid !== undefined)) t.like(line, { uid, pid: process.pid });
  node.child.kill('SIGTERM');
  t.is((await node.ended).status, 0);
  const lines = linesIn(node.path);
  t.deepEqual(
    lines.map(({ seq }) => seq),
    lines.map((_, i) => i + 1),
  );
  t.like(lines[0], { action: 'start', door: 'node' });
  t.like(lines.at(-1), { action: 'stop', door: 'node' });
});

test.serial(
  'audit log: what a user may not do at the client socket is refused, with the name of the user',
  async (t) => {
    const folder = temporaryFolder(t);
    const node = await startAuditedNode(t, { settings: [`users_file=${usersFile(folder, ...USERS)}`] });
    const namespace = wholeNamespace({ tag: 'a' });
    const client = await TestClient.attach(t, node.clientSocket, { token: READER, namespace });
    t.is((await client.request(RequestType.clear, encodePools([]))).header.status, Status.denied);
    const stranger = await TestClient.connect(t, node.clientSocket);
    await stranger.request(RequestType.hello, helloBody({ token: 'a wrong token' }));
    const denied = await node.find(({ action, outcome }) => action === 'clear' && outcome === 'refused');
    t.like(denied, { door: 'client', user: 'reader', namespace: 'a', reason: 'no right' });
    t.like(await node.find(({ reason }) => reason === 'wrong token'), { action: 'attach', outcome: 'refused' });
    const text = readFileSync(node.path, 'latin1');
    for (const secret of [READER, digestOf(READER), 'a wrong token']) t.false(text.includes(secret));
  },
);

test.serial('audit log: a stranger at the control port, and one without a token at the metrics server', async (t) => {
  const node = await startAuditedNode(t, {
    settings: ['tcp_port=0'],
    surroundings: { env: { ...SECRET, MESHCACHE_METRICS_TOKEN: 'token' } },
  });
  const args = ['status', '--discovery-addr', node.discoveryAddr, '--json'];
  const { nodes } = JSON.parse((await runCli(args, { env: SECRET })).stdout);
  t.is((await runCli(['drain', nodes[0].control_endpoint])).status, 1);
  t.like(await node.find(({ door }) => door === 'control'), {
    action: 'connect',
    outcome: 'refused',
    reason: 'missing',
    address: '127.0.0.1',
  });
  const reader = await fetch(`http://${node.metricsUrl}/metrics`, { headers: { authorization: 'Bearer wrong' } });
  t.is(reader.status, 401);
  t.like(await node.find(({ door }) => door === 'http'), {
    action: 'status',
    outcome: 'refused',
    reason: 'wrong token',
  });
});

test.serial(
  'drain: with users, only one who may drain does, and the audit log says who has and who was refused',
  async (t) => {
    const folder = temporaryFolder(t);
    const node = await startAuditedNode(t, {
      settings: [`users_file=${usersFile(folder, ...USERS)}`, 'heartbeat_interval=0.5', 'member_ttl=60'],
      surroundings: { env: SECRET },
    });
    const args = ['drain', node.node_id, '--discovery-addr', node.discoveryAddr];
    const none = await runCli(args, { env: SECRET });
    t.is(none.status, 1);
    t.regex(none.stderr, /no token was shown; show the token of a user with the right "drain"/);
    const reader = await runCli([...args, '--token-file', fileWith(folder, 'reader', `${READER}\n`)], { env: SECRET });
    t.is(reader.status, 1);
    t.regex(reader.stderr, /user reader has no right "drain"/);
    const wrong = await runCli([...args, '--token-file', fileWith(folder, 'wrong', 'wrong')], { env: SECRET });
    t.regex(wrong.stderr, /the token is of no user of this node/);
    t.is(node.child.exitCode, null);
    const env = { ...SECRET, MESHCACHE_TOKEN_FILE: fileWith(folder, 'maintainer', MAINTAINER) };
    const run = await runCli(args, { env });
    t.is(run.status, 0, run.stderr);
    t.is((await node.ended).status, 0);
    const drains = linesIn(node.path).filter(({ action }) => action === 'drain');
    t.deepEqual(
      drains.map(({ outcome, reason, user }) => [outcome, reason, user]),
      [
        ['refused', 'no token', undefined],
        ['refused', 'no right', 'reader'],
        ['refused', 'wrong token', undefined],
        ['done', undefined, 'maintainer'],
      ],
    );
    for (const line of drains) t.like(line, { door: 'control', address: '127.0.0.1' });
  },
);

test.serial('audit log: users that change, and files that are wrong, while the node runs', async (t) => {
  const folder = temporaryFolder(t);
  const path = usersFile(folder, ...USERS);
  const node = await startAuditedNode(t, { settings: [`users_file=${path}`] });
  usersFile(folder, USERS[0] as object);
  const isRenewal = ({ action }: AuditLine): boolean => action === 'renew';
  t.like(await node.find(isRenewal), { door: 'node', outcome: 'done', reason: 'users' });
  writeFileSync(path, 'no JSON');
  const failed = await node.find((line) => isRenewal(line) && line.outcome === 'failed');
  t.like(failed, { door: 'node', reason: 'users' });
  t.regex(failed.detail ?? '', /users_file/);
});

test.serial('audit log: the log goes on in a new file when the former one was renamed', async (t) => {
  const node = await startAuditedNode(t);
  await node.find(({ action }) => action === 'start');
  const rotated = `${node.path}.1`;
  renameSync(node.path, rotated);
  await TestClient.attach(t, node.clientSocket, { name: 'after' });
  const after = await node.find(({ client }) => client === 'after');
  t.is(after.seq, (linesIn(rotated).at(-1)?.seq ?? 0) + 1);
  t.is(statSync(node.path).mode & 0o777, 0o600);
  // The same as logrotate's copytruncate.
  writeFileSync(node.path, '');
  await TestClient.attach(t, node.clientSocket, { name: 'after-truncation' });
  await node.find(({ client }) => client === 'after-truncation');
  t.false(readFileSync(node.path, 'latin1').includes('\0'));
});

test.serial('audit log: names and texts of strangers neither end a line nor forge one', async (t) => {
  const node = await startAuditedNode(t);
  const forged = '\n{"seq":1,"door":"control","action":"drain","outcome":"done"}\u2028\u202e\u009b2J';
  for (const name of [forged, 'x'.repeat(5000), '\ud800', '\0'.repeat(40)]) {
    const stranger = await TestClient.connect(t, node.clientSocket);
    t.is((await stranger.request(RequestType.hello, helloBody({ name }))).header.status, Status.refused);
  }
  const namespace = wholeNamespace({ tag: forged });
  await TestClient.attach(t, node.clientSocket, { name: 'engine', namespace });
  t.like(await node.find(({ action, outcome }) => action === 'attach' && outcome === 'done'), { namespace: forged });
  t.like(await node.find(({ reason }) => reason === 'wrong name'), { client: forged });
  node.child.kill('SIGTERM');
  await node.ended;
  const lines = linesIn(node.path);
  t.false(lines.some(({ action }) => action === 'drain'));
  for (const line of readFileSync(node.path, 'latin1').split('\n')) t.true(line.length < 4096, `${line.length}`);
  const refusals = lines.filter(({ reason }) => reason === 'wrong name');
  t.is(
    refusals.reduce((sum, { count = 1 }) => sum + count, 0),
    4,
  );
});

test.serial(
  'audit log: a flood of refusals makes few lines, which count all of them, and hides nobody else',
  async (t) => {
    const node = await startAuditedNode(t);
    const knocks = 300;
    for (let i = 0; i < knocks; i++) {
      const stranger = await TestClient.connect(t, node.clientSocket);
      await stranger.request(RequestType.hello, helloBody({ name: `no name ${i}` }));
      stranger.socket.destroy();
    }
    await TestClient.attach(t, node.clientSocket, { name: 'engine' });
    await node.find(({ client }) => client === 'engine');
    node.child.kill('SIGTERM');
    await node.ended;
    const refusals = linesIn(node.path).filter(({ outcome }) => outcome === 'refused');
    t.is(
      refusals.reduce((sum, { count = 1 }) => sum + count, 0),
      knocks,
    );
    // One at once, one in ten seconds, one at the end.
    t.true(refusals.length <= 2 + PATIENCE_MS / 10_000, `${refusals.length} lines`);
  },
);

test.serial('audit log: a node whose log cannot be trusted or opened does not start, and says why', async (t) => {
  const folder = temporaryFolder(t);
  const target = fileWith(folder, 'of somebody', 'untouched');
  const link = join(folder, 'link');
  symlinkSync(target, link);
  const open = join(folder, 'open');
  mkdirSync(open);
  chmodSync(open, 0o777);
  const inner = join(folder, 'inner');
  mkdirSync(inner, 0o700);
  const others = fileWith(folder, 'others', '');
  chmodSync(others, 0o666);
  const addr = `127.0.0.1:${await freePort()}`;
  for (const [path, reason] of [
    [link, /audit_log_path": .*link cannot be opened: ELOOP/],
    [join(open, 'audit.log'), /audit_log_path": .*open belongs to another user, or others may write to it/],
    [others, /audit_log_path": .*others belongs to another user, or others may write to it/],
    [inner, /audit_log_path": .* cannot be opened: EISDIR/],
    ['/proc/no/such/folder/audit.log', /audit_log_path": .* cannot be opened/],
  ] as const) {
    const args = ['node', '--discovery-addr', addr, '--pool', '1mb', '-o', 'metrics_port=0'];
    const run = await runCli([...args, '-o', `audit_log_path=${path}`]);
    t.not(run.status, 0);
    t.regex(run.stderr, reason);
  }
  t.is(readFileSync(target, 'utf8'), 'untouched');
});

test.serial('audit log: a link that is planted at the path while the node runs is not followed', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'audit.log');
  const target = fileWith(folder, 'of somebody', 'untouched');
  const node = await startAuditedNode(t, { path, surroundings: { env: { MESHCACHE_LOG: 'info' } } });
  await node.find(({ action }) => action === 'start');
  renameSync(path, `${path}.1`);
  symlinkSync(target, path);
  let log = '';
  node.child.stderr?.on('data', (text: string) => {
    log += text;
  });
  await TestClient.attach(t, node.clientSocket, { name: 'engine' });
  await TestClient.attach(t, node.clientSocket, { name: 'engine-2' });
  await node.until(() => /the audit log cannot be written.*ELOOP/.test(log));
  renameSync(path, `${path}.2`);
  // What waited is there.
  await node.find(({ client }) => client === 'engine-2');
  t.is(readFileSync(target, 'utf8'), 'untouched');
});

test.serial('audit log: a reader without the secret is refused at the data port', async (t) => {
  const node = await startAuditedNode(t, { surroundings: { env: SECRET } });
  const args = ['status', '--discovery-addr', node.discoveryAddr, '--json'];
  const { nodes } = JSON.parse((await runCli(args, { env: SECRET })).stdout);
  const reader = await createTransport({ protocol: 'tcp', tcpPort: 0 }, systemEnvironment({ log: silentLogger }));
  t.teardown(() => reader.close());
  const target = HostRegion.allocate(1000);
  t.teardown(() => target.free());
  const op = { remoteAddr: target.addr, rkey: 1, localAddr: target.addr, length: 8 };
  t.deepEqual(await reader.batchRead([{ ...op, remoteEndpoint: nodes[0].data_endpoint }]), [false]);
  const line = await node.find(({ door }) => door === 'data');
  t.like(line, { action: 'connect', outcome: 'refused', reason: 'missing', address: '127.0.0.1' });
});

test.serial(
  'audit log: a Redis client with a wrong password, one who may not clear, and one who has cleared',
  async (t) => {
    const folder = temporaryFolder(t);
    const cleaner = { name: 'cleaner', token_sha256: [digestOf(MAINTAINER)], tags: ['a'], rights: ['clear'] };
    const path = join(folder, 'redis.sock');
    const settings = [
      `users_file=${usersFile(folder, cleaner, USERS[1] as object)}`,
      `resp_socket=${path}`,
      'resp_port=0',
    ];
    const node = await startAuditedNode(t, { settings });
    for (const words of [`AUTH wrong\r\n`, `AUTH ${READER}\r\nFLUSHALL\r\n`, `AUTH ${MAINTAINER}\r\nFLUSHALL\r\n`]) {
      const socket = connect({ path });
      t.teardown(() => socket.destroy());
      socket.resume().end(`${words}QUIT\r\n`);
      await once(socket, 'close');
    }
    await node.find(({ user, action }) => action === 'detach' && user === 'cleaner');
    const told = linesIn(node.path).filter(({ door }) => door === 'redis');
    t.deepEqual(
      told.map(({ user, action, outcome, reason, namespace }) => [user, action, outcome, reason, namespace]),
      [
        [undefined, 'attach', 'refused', 'wrong password', undefined],
        ['reader', 'attach', 'done', undefined, 'a'],
        ['reader', 'clear', 'refused', 'no right', 'a'],
        ['reader', 'detach', 'done', undefined, 'a'],
        ['cleaner', 'attach', 'done', undefined, 'a'],
        ['cleaner', 'clear', 'done', undefined, 'a'],
        ['cleaner', 'detach', 'done', undefined, 'a'],
      ],
    );
    for (const line of told.filter((each) => each.uid !== undefined)) t.like(line, { uid, pid: process.pid });
  },
);
