import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { type ClientSocketConfig, checkClientMemory, checkClientSocket } from '../../src/cli/doctor/clients.js';
import type { Finding } from '../../src/cli/doctor/finding.js';
import { runCli } from '../_support/cli/run-cli.js';
import { FakeFabric } from '../_support/native/fake-rdma.js';

const fabric = new FakeFabric();
const ADDON = { addon: fabric.addon(), reason: '' } as const;

function folderFor(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-clients-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function configOf(clientSocket: string, more: Partial<ClientSocketConfig> = {}): ClientSocketConfig {
  return { clientSocket, clientSocketMode: '0600', clientSocketGroup: undefined, ...more };
}

function bySubject(findings: readonly Finding[]): Map<string, Finding> {
  return new Map(findings.map((finding) => [finding.subject, finding]));
}

const me = { uid: process.geteuid?.() ?? 0, gids: [process.getegid?.() ?? 0] };

test('doctor, clients: a path that is free, one that is left over, one that is served and one that is no socket', async (t) => {
  const folder = folderFor(t);
  const path = join(folder, 'node.sock');
  const look = async () => bySubject(await checkClientSocket(configOf(path), true)).get('client socket');
  t.like(await look(), { state: 'ok', detail: `${path} is free` });
  t.false(existsSync(path));

  const server = createServer();
  await new Promise<void>((resolve) => server.listen(path, resolve));
  t.like(await look(), { state: 'problem', detail: `another node serves clients at ${path}` });
  t.truthy((await look())?.advice);
  t.true(existsSync(path), 'it is not touched');
  await new Promise((resolve) => server.close(resolve));

  writeFileSync(path, 'mine');
  t.like(await look(), { state: 'problem', detail: `${path} is there and is no socket` });
  t.like((await checkClientSocket(configOf(path), false))[0], { state: 'n/a', detail: 'none (--no-client-socket)' });
});

test('doctor, clients: a path that the kernel does not take with .fds behind it', async (t) => {
  const [finding, ...more] = await checkClientSocket(configOf(`/run/${'x'.repeat(96)}`), true);
  t.like(finding, { subject: 'client socket', state: 'problem' });
  t.regex(finding?.detail ?? '', /longer than 100 bytes.*108.*\.fds/);
  t.deepEqual(more, []);
});

test('doctor, clients: the folder, who may replace the socket, and whether those it is for get there', async (t) => {
  const folder = folderFor(t);
  const look = async (path: string, more: Partial<ClientSocketConfig> = {}, identity = me) =>
    bySubject(await checkClientSocket(configOf(path, more), true, identity)).get('client folder');
  const path = join(folder, 'node.sock');
  t.like(await look(path), { state: 'ok', detail: `${folder} can be written` });
  const missing = join(folder, 'not', 'there');
  const later = await look(join(missing, 'node.sock'));
  t.like(later, { state: 'ok', detail: `${missing} is not there yet; ${folder} can be written` });
  t.false(existsSync(join(folder, 'not')));

  const file = join(folder, 'file');
  writeFileSync(file, '');
  t.like(await look(join(file, 'node.sock')), { state: 'problem', detail: `${file} is no folder` });

  // mkdtemp makes it for its user alone.
  for (const clientSocketMode of ['0666', '0660']) {
    const closed = await look(path, { clientSocketMode }, { ...me, gids: [me.gids[0] as number] });
    t.like(closed, { state: 'warning' }, clientSocketMode);
    t.regex(closed?.detail ?? '', /client_socket_mode lets .* connect, and .* lets them not in/);
  }
  chmodSync(folder, 0o711);
  t.like(await look(path, { clientSocketMode: '0666' }), { state: 'ok' });
  t.like(await look(path, { clientSocketMode: '0660' }), { state: 'ok' });
  chmodSync(folder, 0o701);
  t.like(await look(path, { clientSocketMode: '0660' }), { state: 'warning' }, 'the group alone is kept out');
  chmodSync(folder, 0o777);
  t.regex((await look(path))?.detail ?? '', /everybody may write in/);
  chmodSync(folder, 0o1777);
  t.like(await look(path), { state: 'ok' });
  const other = { uid: me.uid + 1, gids: [me.uid + 1] };
  const open = join(folder, 'open');
  mkdirSync(open);
  // A folder of root's is as safe as an own one.
  if (me.uid !== 0) t.regex((await look(join(open, 'a'), {}, other))?.detail ?? '', /belongs to another user/);
});

test('doctor, clients: the group is there, this user may give the socket to it, and the mode lets it in', async (t) => {
  const path = join(folderFor(t), 'node.sock');
  const look = async (more: Partial<ClientSocketConfig>, identity = me) =>
    bySubject(await checkClientSocket(configOf(path, more), true, identity)).get('client group');
  t.is(await look({}), undefined);
  const unknown = await look({ clientSocketGroup: 'no-such-group' });
  t.like(unknown, { state: 'problem' });
  t.regex(`${unknown?.detail} ${unknown?.advice}`, /no group "no-such-group".*groupadd/);
  const mode = { clientSocketMode: '0660', clientSocketGroup: '4242' };
  const stranger = await look(mode, { uid: 1000, gids: [1000, 7] });
  t.like(stranger, { state: 'problem' });
  t.regex(stranger?.detail ?? '', /not in the group 4242/);
  t.like(await look(mode, { uid: 1000, gids: [1000, 4242] }), { state: 'ok' });
  t.like(await look(mode, { uid: 0, gids: [0] }), { state: 'ok' });
  t.like(await look({ ...mode, clientSocketMode: '0600' }, { uid: 0, gids: [0] }), { state: 'warning' });
});

test('doctor, clients: mappings, open files and locked memory', (t) => {
  const proc = folderFor(t);
  const host = fabric.host({ devices: () => [] });
  const config = { protocol: 'rdma', globalSegmentSize: 2 ** 32 } as const;
  t.like(checkClientMemory(config, { native: ADDON, host, proc })[0], { state: 'n/a' });
  mkdirSync(join(proc, 'self'));
  mkdirSync(join(proc, 'sys/vm'), { recursive: true });
  const give = (maps: number, files: number | string): Finding[] => {
    writeFileSync(join(proc, 'sys/vm/max_map_count'), `${maps}\n`);
    writeFileSync(join(proc, 'self/maps'), 'a\n'.repeat(1000));
    writeFileSync(join(proc, 'self/limits'), `Max open files            ${files}                 9999 files\n`);
    return checkClientMemory(config, { native: ADDON, host, proc });
  };
  t.deepEqual(
    give(65_530, 65_536).map(({ subject, state }) => [subject, state]),
    [
      ['client memory', 'ok'],
      ['client files', 'ok'],
    ],
  );
  const [maps, files] = give(17_000, 1100);
  t.like(maps, { state: 'warning' });
  t.regex(
    maps?.detail ?? '',
    /^17000 mappings at most \(vm\.max_map_count\), about 1000 in use; clients may need 16384$/,
  );
  t.regex(maps?.advice ?? '', /sysctl vm\.max_map_count=\d+/);
  t.like(files, { state: 'warning', detail: '1100 open files leave room for about 38 clients of 256' });
  t.like(give(65_530, 'unlimited')[1], { state: 'ok' });

  const lockedMemory = () => ({ limitBytes: 2 ** 23, isPrivileged: false });
  const rdma = checkClientMemory(config, { native: ADDON, host: fabric.host({ lockedMemory }), proc });
  t.regex(
    rdma.at(-1)?.detail ?? '',
    /^8 MiB at most .* can be locked, for the pool of 4 GiB and for the memory of clients/,
  );
  const tcp = { ...config, protocol: 'tcp' } as const;
  t.notRegex(checkClientMemory(tcp, { native: ADDON, host, proc }).at(-1)?.detail ?? '', /locked/);
});

test('doctor, clients: without the addon no memory is mapped', (t) => {
  const native = { addon: null, reason: 'off' } as const;
  const [finding] = checkClientMemory({ protocol: 'tcp', globalSegmentSize: 1 }, { native, host: fabric.host() });
  t.like(finding, { subject: 'client memory', state: 'warning' });
  t.regex(finding?.detail ?? '', /cannot be mapped/);
});

test('doctor, clients: the command looks at the socket that a node with the same options would have', async (t) => {
  const folder = folderFor(t);
  const path = join(folder, 'node.sock');
  const findings = async (...args: string[]) => {
    const env = { XDG_RUNTIME_DIR: folder };
    const run = await runCli(['doctor', '--json', '-o', 'local_hostname=127.0.0.1', '--pool', '1mb', ...args], { env });
    return bySubject((JSON.parse(run.stdout) as { findings: Finding[] }).findings);
  };
  t.like((await findings('--client-socket', path)).get('client socket'), { state: 'ok', detail: `${path} is free` });
  const byDefault = await findings();
  t.is(byDefault.get('client socket')?.detail, `${join(folder, 'meshcache/node.sock')} is free`);
  t.true(byDefault.has('client memory'));
  const none = await findings('--no-client-socket');
  t.regex(none.get('client socket')?.detail ?? '', /^none/);
  t.false(none.has('client memory'));
  const long = await findings('--client-socket', `/${'x'.repeat(101)}`);
  t.regex(long.get('configuration')?.detail ?? '', /client_socket.*at most 100 bytes/);
  t.false(existsSync(join(folder, 'meshcache')));
  mkdirSync(join(folder, 'meshcache'));
  for (const at of [folder, join(folder, 'meshcache')]) chmodSync(at, 0o1777);
  const shared = (await findings()).get('client socket');
  t.is(shared?.state, 'warning');
  t.regex(shared?.detail ?? '', /^other users may write into .*meshcache; it must have mode 0700$/);
});
