import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { StatusResult } from '../../src/cli/status/status-report.js';
import { AttachedClient } from '../_support/attached-client.js';
import { type CliRun, collect, firstLine, runCli, startCli } from '../_support/cli/run-cli.js';
import { content, freePort } from '../_support/support.js';

interface Ready {
  readonly node_id: string;
  readonly discovery_addr: string;
  readonly client_socket: string;
}

function folderFor(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-sockets-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A node that is ready. */
async function startNode(t: ExecutionContext, args: readonly string[], env: Record<string, string> = {}) {
  const own = ['--discovery-addr', `127.0.0.1:${await freePort()}`, '--pool', '1mb', '-o', 'metrics_port=0'];
  const child = startCli(['node', ...own, ...args, '--json'], { env });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  const ready = JSON.parse(await firstLine(child)) as Ready;
  const end = (signal: NodeJS.Signals): Promise<CliRun> => {
    child.kill(signal);
    return ended;
  };
  return { ready, end };
}

test.serial('client socket: nodes of one run-time folder have one each, and leave none', async (t) => {
  const folder = folderFor(t);
  const env = { XDG_RUNTIME_DIR: folder };
  const first = await startNode(t, [], env);
  const second = await startNode(t, [], env);
  const paths = ['node.sock', 'node-2.sock'].map((name) => join(folder, 'meshcache', name));
  t.deepEqual([first.ready.client_socket, second.ready.client_socket], paths);
  for (const path of paths) t.is(statSync(path).mode & 0o777, 0o600, path);
  t.is(statSync(join(folder, 'meshcache')).mode & 0o777, 0o700);
  const client = await AttachedClient.attach(paths[0] as string, 'engine');
  t.teardown(() => client.close());
  t.deepEqual(await client.set({ page: content(1, 1000) }), [true]);
  t.is((await first.end('SIGTERM')).status, 0);
  t.false(existsSync(paths[0] as string));

  // The file of a node that was killed is no hindrance.
  await second.end('SIGKILL');
  t.true(existsSync(paths[1] as string));
  const third = await startNode(t, [], env);
  const fourth = await startNode(t, [], env);
  t.deepEqual([third.ready.client_socket, fourth.ready.client_socket], paths);
  for (const node of [third, fourth]) t.is((await node.end('SIGTERM')).status, 0);
  for (const path of paths) t.false(existsSync(path) || existsSync(`${path}.fds`), path);
});

test.serial('client socket: nodes that start at one instant have one each', async (t) => {
  const folder = folderFor(t);
  const env = { XDG_RUNTIME_DIR: folder };
  const killed = await startNode(t, [], env);
  await killed.end('SIGKILL');
  const nodes = await Promise.all(Array.from({ length: 3 }, () => startNode(t, [], env)));
  const paths = nodes.map(({ ready }) => ready.client_socket);
  const expected = ['node.sock', 'node-2.sock', 'node-3.sock'];
  t.deepEqual([...paths].sort(), expected.map((name) => join(folder, 'meshcache', name)).sort());
  for (const [i, path] of paths.entries()) {
    const client = await AttachedClient.attach(path, 'engine');
    t.teardown(() => client.close());
    t.deepEqual(await client.set({ [`page ${i}`]: content(i, 1000) }), [true]);
  }
  for (const node of nodes) t.is((await node.end('SIGTERM')).status, 0);
  t.deepEqual(readdirSync(join(folder, 'meshcache')), []);
});

test.serial('client socket: the option, the configuration or nobody says where it is', async (t) => {
  const folder = folderFor(t);
  const env = { XDG_RUNTIME_DIR: join(folder, 'not-used') };
  const [path, other] = [join(folder, 'a.sock'), join(folder, 'b.sock')];
  const mode = ['-o', 'client_socket_mode=0666'];
  const given = await startNode(t, ['--client-socket', path, '-o', `client_socket=${other}`, ...mode], env);
  t.is(given.ready.client_socket, path);
  t.is(statSync(path).mode & 0o777, 0o666);
  const configured = await startNode(t, [], { ...env, MESHCACHE_CLIENT_SOCKET: other });
  t.is(configured.ready.client_socket, other);
  const none = await startNode(t, ['--no-client-socket'], { ...env, MESHCACHE_CLIENT_SOCKET: other });
  t.is(none.ready.client_socket, '');
  for (const node of [given, configured, none]) t.notRegex((await node.end('SIGTERM')).stderr, /client socket/);
  t.false(existsSync(env.XDG_RUNTIME_DIR));
});

test.serial(
  'client socket: where the run-time folder is of no use, the node says so and works without one',
  async (t) => {
    const folder = folderFor(t);
    const file = join(folder, 'a-file');
    writeFileSync(file, '');
    const shared = join(folder, 'shared');
    mkdirSync(join(shared, 'meshcache'), { recursive: true });
    for (const path of [shared, join(shared, 'meshcache')]) chmodSync(path, 0o1777);
    for (const [where, reason] of [
      [file, /warning: there is no client socket: .*; --client-socket says where/],
      [shared, /warning: there is no client socket: other users may write into .*meshcache; .*; --client-socket says/],
      [
        join(folder, 'x'.repeat(100)),
        /warning: there is no client socket: .* is longer than 100 bytes; --client-socket/,
      ],
    ] as const) {
      const node = await startNode(t, [], { XDG_RUNTIME_DIR: where });
      t.is(node.ready.client_socket, '');
      const run = await node.end('SIGTERM');
      t.is(run.status, 0, run.stderr);
      t.regex(run.stderr, reason);
    }
  },
);

test.serial('client socket: status shows who is attached', async (t) => {
  const folder = folderFor(t);
  const node = await startNode(t, ['--client-socket', join(folder, 'node.sock')]);
  const { discovery_addr, client_socket } = node.ready;
  const status = () => runCli(['status', '--discovery-addr', discovery_addr]);
  t.notRegex((await status()).stdout, /^client /m);
  const client = await AttachedClient.attach(client_socket, 'engine-0', 4711);
  t.teardown(() => client.close());
  await client.set({ page: content(1, 2048) });
  await client.get(['page', 'absent']);
  const { stdout } = await status();
  t.regex(stdout, /^client +process +node /m);
  t.regex(stdout, /^engine-0 +4711 +\S+ +bytes +2 +0 +50\.0 % +2 KiB +2 KiB +0$/m);
  const json = await runCli(['status', '--discovery-addr', discovery_addr, '--json']);
  const [row] = (JSON.parse(json.stdout) as StatusResult).nodes;
  t.like(row?.clients, { socket: client_socket, attached: 1 });
  t.like(row?.clients?.busiest[0], { name: 'engine-0', hits: 1, misses: 1 });
  t.is((await node.end('SIGTERM')).status, 0);
});

test.serial('client socket: one that cannot be had as it is configured ends the command with status 2', async (t) => {
  const folder = folderFor(t);
  const [file, taken] = [join(folder, 'file'), join(folder, 'taken.sock')];
  writeFileSync(file, 'mine');
  mkdirSync(join(folder, 'sub'));
  const serving = await startNode(t, ['--client-socket', taken]);
  const group = `no-such-group-${process.pid}`;
  for (const [args, says] of [
    [['--client-socket', file], /client_socket.* is there and is no socket; choose another path/],
    [['--client-socket', taken], /client_socket.* another node serves clients at .*; choose another path/],
    [['--client-socket', join(file, 'a.sock')], /client_socket.* cannot listen at/],
    [['--client-socket', `/${'x'.repeat(100)}`], /client_socket.* at most 100 bytes/],
    [['--client-socket', join(folder, 'g.sock'), '-o', `client_socket_group=${group}`], /there is no group "no-such/],
    [['-o', 'client_socket_mode=0o660'], /"client_socket_mode": got "0o660", allowed is permission bits/],
  ] as const) {
    const run = await runCli(['node', '--discovery-addr', `127.0.0.1:${await freePort()}`, '--pool', '1mb', ...args]);
    t.is(run.status, 2, run.stderr);
    t.regex(run.stderr, says);
    t.notRegex(run.stderr, /\n\s+at /);
  }
  const client = await AttachedClient.attach(taken, 'engine');
  await client.close();
  t.is((await serving.end('SIGTERM')).status, 0);
});

test.serial('client socket: nodes of a demo have none', async (t) => {
  const folder = folderFor(t);
  const env = { XDG_RUNTIME_DIR: folder, MESHCACHE_CLIENT_SOCKET: join(folder, 'of-the-environment.sock') };
  const run = await runCli(['demo', '--nodes', '2', '--conversations', '5', '--page-bytes', '4kb', '--json'], { env });
  t.is(run.status, 0, run.stderr);
  t.deepEqual(readdirSync(folder), []);
});
