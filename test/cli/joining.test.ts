import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { canNotify, NotifySocket } from '../_support/cli/notify-socket.js';
import { type CliSurroundings, collect, firstLine, runCli, startCli, until } from '../_support/cli/run-cli.js';
import { freePort } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const SMALL = [
  '--no-client-socket',
  '--pool',
  '1mb',
  '-o',
  'metrics_port=0',
  '-o',
  'protocol=tcp',
  '-o',
  'local_hostname=127.0.0.1',
];

/** A node of which the master is to be at an address that is not the node's own. */
function startWithoutMaster(
  t: ExecutionContext,
  discoveryAddr: string,
  more: readonly string[] = [],
  surroundings: CliSurroundings = {},
) {
  const child = startCli(['node', '--discovery-addr', discoveryAddr, ...SMALL, ...more], surroundings);
  t.teardown(() => void child.kill('SIGKILL'));
  const lines: string[] = [];
  child.stdout?.setEncoding('utf8').on('data', (text: string) => lines.push(...text.trimEnd().split('\n')));
  return { child, lines, ended: collect(child) };
}

/** The master that the others wait for. */
async function startMaster(t: ExecutionContext, discoveryAddr: string): Promise<void> {
  const [host] = discoveryAddr.split(':');
  const child = startCli(['node', '--discovery-addr', discoveryAddr, ...SMALL, '-o', `local_hostname=${host}`]);
  t.teardown(() => void child.kill('SIGKILL'));
  await firstLine(child);
}

test('joining: a node without a master says that it has not joined, and that it is ready when a master comes', async (t) => {
  const addr = `127.0.0.9:${await freePort()}`;
  const text = startWithoutMaster(t, addr, ['-o', 'node_id=waiting'], { env: { MESHCACHE_LOG: 'info' } });
  const json = startWithoutMaster(t, addr, ['--json']);
  await until(() => text.lines.length === 1 && json.lines.length === 1);
  t.regex(
    text.lines[0] ?? '',
    /^node waiting \(process \d+\) is started, not joined yet \(no discovery master answers/,
  );
  t.like(JSON.parse(json.lines[0] as string), { is_joined: false, discovery_addr: addr });
  await startMaster(t, addr);
  await until(() => text.lines.length === 2 && json.lines.length === 2);
  t.regex(text.lines[1] ?? '', /^node waiting \(process \d+\) is ready: data at /);
  t.like(JSON.parse(json.lines[1] as string), {
    is_joined: true,
    data_endpoint: JSON.parse(json.lines[0] as string).data_endpoint,
  });
  for (const { child, ended } of [text, json]) {
    child.kill('SIGTERM');
    t.is((await ended).status, 0);
  }
  t.regex((await text.ended).stderr, /info meshcache: node started, not joined yet node_id="waiting"/);
});

test('joining: with --wait-joined nothing is printed before a master comes', async (t) => {
  const addr = `127.0.0.9:${await freePort()}`;
  const waiting = startWithoutMaster(t, addr, ['--wait-joined'], { env: { MESHCACHE_LOG: 'info' } });
  let log = '';
  waiting.child.stderr?.on('data', (text: string) => {
    log += text;
  });
  await until(() => log.includes('not joined yet'));
  t.deepEqual(waiting.lines, []);
  await startMaster(t, addr);
  await until(() => waiting.lines.length > 0);
  t.regex(waiting.lines.join('\n'), /^node \S+ \(process \d+\) is ready: [^\n]*$/);
});

test('joining: a node that waits ends with status 0 on SIGTERM, and with 1 when its time is over', async (t) => {
  const addr = `127.0.0.9:${await freePort()}`;
  const late = runCli(['node', '--discovery-addr', addr, ...SMALL, '--wait-joined', '0.5']);
  const waiting = startWithoutMaster(t, addr, ['--wait-joined'], { env: { MESHCACHE_LOG: 'info' } });
  let log = '';
  waiting.child.stderr?.on('data', (text: string) => {
    log += text;
  });
  await until(() => log.includes('not joined yet'));
  waiting.child.kill('SIGTERM');
  t.like(await waiting.ended, { status: 0, stdout: '' });
  const { status, stdout, stderr } = await late;
  t.is(status, 1);
  t.is(stdout, '');
  t.regex(stderr, new RegExp(`has not joined in the time of --wait-joined: no discovery master answers \\(${addr}\\)`));
});

const notified = unless(canNotify ? '' : 'no systemd-notify and python3');

for (const kind of ['a path', 'an abstract name']) {
  notified(`joining, systemd: it is told by ${kind} when the node has joined, and when it ends`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'meshcache-notify-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const name = kind === 'a path' ? join(folder, 'notify') : `@${folder}/notify`;
    const socket = await NotifySocket.bind(name);
    t.teardown(() => socket.close());
    const addr = `127.0.0.9:${await freePort()}`;
    const { child, ended } = startWithoutMaster(t, addr, ['-o', 'node_id=told'], { env: { NOTIFY_SOCKET: name } });
    await until(() => socket.messages.length === 1);
    t.is(socket.messages[0], `STATUS=not joined yet: no discovery master answers (${addr})`);
    await startMaster(t, addr);
    await until(() => socket.messages.length === 2);
    t.is(socket.messages[1], `READY=1 | STATUS=node told has joined the cluster at ${addr}`);
    child.kill('SIGTERM');
    const { status, stderr } = await ended;
    t.is(status, 0, stderr);
    await until(() => socket.messages.length === 3);
    t.is(socket.messages[2], 'STOPPING=1 | STATUS=leaving the cluster');
  });
}

notified('joining, systemd: it is told that a drained node ends', async (t) => {
  const name = `@meshcache-test-${process.pid}-drain`;
  const socket = await NotifySocket.bind(name);
  t.teardown(() => socket.close());
  const addr = `127.0.0.1:${await freePort()}`;
  const { ended } = startWithoutMaster(t, addr, ['-o', 'node_id=drained'], { env: { NOTIFY_SOCKET: name } });
  await until(() => socket.messages.length === 1);
  t.regex(socket.messages[0] ?? '', /^READY=1 /);
  t.is((await runCli(['drain', 'drained', '--discovery-addr', addr])).status, 0);
  t.is((await ended).status, 0);
  await until(() => socket.messages.length === 2);
  t.regex(socket.messages[1] ?? '', /^STOPPING=1 /);
});

test('joining, systemd: without the program or a listener the node goes on, and says so', async (t) => {
  const env = { NOTIFY_SOCKET: '/nowhere/notify', PATH: '/nowhere' };
  const { child, lines, ended } = startWithoutMaster(t, `127.0.0.1:${await freePort()}`, [], { env });
  await until(() => lines.length === 1);
  child.kill('SIGTERM');
  const { status, stderr } = await ended;
  t.is(status, 0);
  t.regex(stderr, /warn meshcache: cannot tell systemd about this service .*reason="systemd-notify is not installed"/);
});
