import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import type { Finding } from '../../src/cli/doctor/finding.js';
import { checkTransport } from '../../src/cli/doctor/rdma.js';
import { MeshCacheConfig } from '../../src/config.js';
import { loadNative } from '../../src/native/addon/loader.js';
import { type CliSurroundings, collect, firstLine, runCli, startCli, until } from '../_support/cli/run-cli.js';
import { FakeFabric } from '../_support/native/fake-rdma.js';
import { freePort, listenAlone } from '../_support/support.js';

/** Without an addon, or with one without RDMA, no device would help. */
const { addon } = loadNative();
const RDMA_ADVICE =
  addon === null ? /npm run build:native/ : addon.hasRdma ? /rdma link/ : /build it without MESHCACHE_NO_RDMA/;

const SECRET = 's3cret-that-nobody-sees';
/** An address of no machine (TEST-NET-3). */
const NOBODY = '203.0.113.77';

const folder = mkdtempSync(join(tmpdir(), 'meshcache-wrong-'));
const holder = createServer();
const web = createHttpServer((_, response) => response.end('hello'));
const ports = { taken: 0, web: 0, free: 0 };

test.before(async () => {
  ports.taken = await listenAlone(holder);
  ports.web = await listenAlone(web);
  ports.free = await freePort();
  writeFileSync(join(folder, 'file'), '');
  writeFileSync(join(folder, 'unfinished.json'), `{"metrics_token": ${SECRET}}`);
  writeFileSync(join(folder, 'list.json'), '[]');
  writeFileSync(
    join(folder, 'twice.json'),
    '{"vnodes": 3, "vnodes": 4, "discovery_addr": "a:1", "discoveryAddr": "b:1"}',
  );
  writeFileSync(join(folder, 'wrong.json'), '{"vnodes": "many", "discovery_addr": "127.0.0.1:1"}');
  mkdirSync(join(folder, 'foreign'));
  writeFileSync(join(folder, 'foreign/pages'), 'somebody’s');
});
test.after.always(() => {
  holder.close();
  web.close();
  rmSync(folder, { recursive: true, force: true });
});

interface Case {
  /** What is wrong. */
  readonly name: string;
  /** Configuration keys, as `--option`. */
  readonly keys?: () => Record<string, string | number | boolean>;
  readonly args?: () => string[];
  readonly env?: Record<string, string>;
  readonly under?: readonly string[] | undefined;
  /** What `node` ends with and says; absent: it starts with it. */
  readonly node?: { readonly status: 1 | 2; readonly says: readonly RegExp[] };
  /** The finding of `doctor`: its subject, what it says, and what to do. */
  readonly doctor: { readonly subject: string; readonly state?: Finding['state']; readonly says: readonly RegExp[] };
  /** Why it cannot be tried here; empty: it can. */
  readonly skipped?: string;
}

const withoutPrivilege = ['setpriv', '--bounding-set=-net_bind_service', '--inh-caps=-net_bind_service'];
const needsPrivileges =
  process.getuid?.() === 0 && spawnSync('setpriv', [...withoutPrivilege.slice(1), 'true']).status !== 0
    ? 'root, and no setpriv that takes a privilege away'
    : '';
/** Runs a program with a file system of 4 MiB at `folder/small`, which nobody else sees. */
const onSmallDisk = [
  'unshare',
  '-m',
  'sh',
  '-c',
  'mount -t tmpfs -o size=4m,mode=0700 t "$0" && exec "$@"',
  join(folder, 'small'),
];
mkdirSync(join(folder, 'small'));
mkdirSync(join(folder, 'shared'));
chmodSync(join(folder, 'shared'), 0o777);
const needsMounts =
  spawnSync(onSmallDisk[0]!, [...onSmallDisk.slice(1), 'true']).status !== 0 ? 'no mounts are allowed here' : '';
const unprivileged = process.getuid?.() === 0 ? withoutPrivilege : [];

const CASES: readonly Case[] = [
  {
    name: 'a key that there is not',
    keys: () => ({ vnode: 3 }),
    node: { status: 2, says: [/unknown configuration key "vnode"; did you mean "vnodes"/] },
    doctor: {
      subject: 'configuration',
      says: [/unknown configuration key "vnode"; did you mean "vnodes"/, /would not start/],
    },
  },
  {
    name: 'a port out of range',
    keys: () => ({ control_port: 70_000 }),
    node: { status: 2, says: [/"control_port": got "70000", allowed is a whole number of 0 to 65535/] },
    doctor: { subject: 'configuration', says: [/"control_port": got "70000"/] },
  },
  {
    name: 'a value in the environment, which is named',
    env: { MESHCACHE_VNODES: 'many' },
    node: { status: 2, says: [/MESHCACHE_VNODES: .*"vnodes": got "many", allowed is a whole number of 1 to 4096/] },
    doctor: { subject: 'configuration', says: [/MESHCACHE_VNODES: .*"many"/] },
  },
  {
    name: 'a value in the file, which is named',
    args: () => ['--config', join(folder, 'wrong.json')],
    node: { status: 2, says: [/wrong\.json: .*"vnodes": got "many"/] },
    doctor: { subject: 'configuration', says: [/wrong\.json: .*"vnodes": got "many"/] },
  },
  {
    name: 'a file that is not there',
    args: () => ['--config', join(folder, 'nothing.json')],
    node: { status: 2, says: [/--config .*nothing\.json: ENOENT/] },
    doctor: { subject: 'configuration', says: [/--config .*nothing\.json: ENOENT/] },
  },
  {
    name: 'a file that is not JSON, without what stands in it',
    args: () => ['--config', join(folder, 'unfinished.json')],
    node: { status: 2, says: [/unfinished\.json: not JSON: Unexpected token/] },
    doctor: { subject: 'configuration', says: [/unfinished\.json: not JSON/] },
  },
  {
    name: 'a file with something else than keys',
    args: () => ['--config', join(folder, 'list.json')],
    node: { status: 2, says: [/list\.json: must hold a JSON object of configuration keys/] },
    doctor: { subject: 'configuration', says: [/must hold a JSON object/] },
  },
  {
    name: 'a key in two spellings',
    args: () => ['--config', join(folder, 'twice.json')],
    node: { status: 2, says: [/twice\.json: configuration key "discovery_addr" is given twice/] },
    doctor: { subject: 'configuration', says: [/"discovery_addr" is given twice/] },
  },
  {
    name: 'a secret that is refused, which is not shown',
    env: { MESHCACHE_METRICS_TOKEN: `${SECRET} with spaces` },
    node: { status: 2, says: [/"metrics_token": got a value that is not shown/] },
    doctor: { subject: 'configuration', says: [/"metrics_token": got a value that is not shown/] },
  },
  {
    name: 'a time-to-live shorter than two heartbeats',
    keys: () => ({ heartbeat_interval: 5, member_ttl: 6 }),
    node: { status: 2, says: [/"member_ttl": got 6 s, allowed is at least twice heartbeat_interval/] },
    doctor: { subject: 'configuration', says: [/"member_ttl": got 6 s/] },
  },
  {
    name: 'a discovery address that listens and cannot be connected to',
    args: () => ['--discovery-addr', '0.0.0.0:31990'],
    node: {
      status: 2,
      says: [/discovery address "0\.0\.0\.0:31990": nodes cannot reach each other there; give the address/],
    },
    doctor: { subject: 'configuration', says: [/nodes cannot reach each other there/] },
  },
  {
    name: 'a discovery host that does not resolve',
    args: () => ['--discovery-addr', 'no-such-host.invalid:31990'],
    node: {
      status: 2,
      says: [
        /no route from this host to "no-such-host\.invalid" \(configuration key "discovery_addr"\); check the name/,
      ],
    },
    doctor: { subject: 'discovery', says: [/the name no-such-host\.invalid does not resolve/, /getent hosts/] },
  },
  {
    name: 'a discovery port that something else has',
    args: () => ['--discovery-addr', `127.0.0.1:${ports.web}`],
    doctor: {
      subject: 'discovery',
      says: [/is taken on this machine by something that is no discovery master/, /ss -ltnp/],
    },
  },
  {
    name: 'a discovery port that needs a privilege',
    args: () => ['--discovery-addr', '127.0.0.1:81'],
    under: unprivileged,
    skipped: needsPrivileges,
    node: { status: 2, says: [/"discovery_addr": cannot listen on 127\.0\.0\.1:81: .*privilege.*above 1023/] },
    doctor: {
      subject: 'discovery',
      says: [/discovery_addr 127\.0\.0\.1:81: the port needs a privilege/, /from 1024 on/],
    },
  },
  {
    name: 'an own address of another machine',
    keys: () => ({ local_hostname: NOBODY }),
    node: {
      status: 2,
      says: [/"local_hostname": cannot listen on 203\.0\.113\.77:0 .*; give a host name or address of this machine/],
    },
    doctor: {
      subject: 'own address',
      says: [/local_hostname "203\.0\.113\.77": is no address of this machine/, /that the other nodes reach/],
    },
  },
  {
    name: 'an own address that nobody can connect to',
    keys: () => ({ local_hostname: '0.0.0.0' }),
    node: { status: 2, says: [/"local_hostname": got "0\.0\.0\.0", allowed is .*that the other nodes reach/] },
    doctor: { subject: 'configuration', says: [/"local_hostname": got "0\.0\.0\.0"/] },
  },
  {
    name: 'an own address that only this host reaches',
    keys: () => ({ local_hostname: 'localhost', discovery_addr: `${NOBODY}:31990` }),
    node: {
      status: 2,
      says: [/"local_hostname": other hosts cannot reach this node at "localhost": it is loopback; set local_hostname/],
    },
    doctor: { subject: 'own address', says: [/other hosts cannot reach this node at "localhost": it is loopback/] },
  },
  {
    name: 'an own name that does not resolve',
    keys: () => ({ local_hostname: 'no-such-host.invalid' }),
    node: {
      status: 2,
      says: [/no-such-host\.invalid/, /"local_hostname": .*; give a host name or address of this machine/],
    },
    doctor: { subject: 'own address', says: [/local_hostname "no-such-host\.invalid": the name does not resolve/] },
  },
  {
    name: 'a control port that is taken',
    keys: () => ({ control_port: ports.taken }),
    node: { status: 2, says: [/"control_port": cannot listen on .*in use already; choose another port, or 0/] },
    doctor: {
      subject: 'control port',
      says: [/the port is in use already/, /choose another control_port, or 0/, /ss -ltnp/],
    },
  },
  {
    name: 'a control port that needs a privilege',
    keys: () => ({ control_port: 81 }),
    under: unprivileged,
    skipped: needsPrivileges,
    node: { status: 2, says: [/"control_port": cannot listen on 127\.0\.0\.1:81: .*privilege/] },
    doctor: { subject: 'control port', says: [/needs a privilege/, /from 1024 on/] },
  },
  {
    name: 'a data port that is taken',
    keys: () => ({ tcp_port: ports.taken }),
    node: { status: 2, says: [/"tcp_port": cannot listen on .*EADDRINUSE.*choose a port that is free, or 0/] },
    doctor: { subject: 'tcp port', says: [/the port is in use already/, /choose another tcp_port, or 0/] },
  },
  {
    name: 'one port for two servers',
    keys: () => ({ control_port: ports.free }),
    doctor: { subject: 'ports', says: [/control_port and discovery_addr both have port \d+/, /a port of its own/] },
  },
  {
    name: 'a metrics host of another machine',
    keys: () => ({ metrics_host: NOBODY }),
    node: { status: 2, says: [/metrics_host: "203\.0\.113\.77" is no address of this machine/] },
    doctor: {
      subject: 'metrics',
      says: [/metrics_host "203\.0\.113\.77": is no address of this machine/, /127\.0\.0\.1/],
    },
  },
  {
    name: 'a metrics host that does not resolve',
    keys: () => ({ metrics_host: 'no-such-host.invalid' }),
    node: {
      status: 2,
      says: [/metrics_host: .*"no-such-host\.invalid".*; allowed: a name or an address of this machine/],
    },
    doctor: { subject: 'metrics', says: [/metrics_host "no-such-host\.invalid": the name does not resolve/] },
  },
  {
    name: 'a metrics port that needs a privilege',
    keys: () => ({ metrics_port: 81 }),
    under: unprivileged,
    skipped: needsPrivileges,
    node: { status: 2, says: [/metrics_port: .*81 needs a privilege/, /above 1023/] },
    doctor: { subject: 'metrics', says: [/metrics_port 127\.0\.0\.1:81: the port needs a privilege/, /from 1024 on/] },
  },
  {
    name: 'metrics that everybody may read',
    keys: () => ({ metrics_host: '0.0.0.0' }),
    doctor: { subject: 'metrics', state: 'warning', says: [/everybody who reaches it may read/, /set metrics_token/] },
  },
  {
    name: 'a port for Redis clients that is taken',
    keys: () => ({ resp_port: ports.taken }),
    node: { status: 2, says: [/resp_port.*/] },
    doctor: { subject: 'Redis clients', says: [/the port is in use already/, /choose another resp_port, or 0/] },
  },
  {
    name: 'a host for Redis clients that is another machine',
    keys: () => ({ resp_port: 0, resp_host: NOBODY }),
    env: { MESHCACHE_RESP_PASSWORD: 'secret' },
    node: { status: 2, says: [/resp_host.*/] },
    doctor: {
      subject: 'Redis clients',
      says: [/resp_host "203\.0\.113\.77": is no address of this machine/, /127\.0\.0\.1/],
    },
  },
  {
    name: 'a pool larger than memory',
    args: () => ['--pool', '15tb'],
    node: {
      status: 2,
      says: [/"global_segment_size": got 15 TiB, allowed is at most the memory of this machine or container/],
    },
    doctor: { subject: 'pool', says: [/global_segment_size 15 TiB; .* free of/, /choose at most/] },
  },
  {
    name: 'a device where there is none',
    keys: () => ({ device_name: 'mlx5_77' }),
    doctor: { subject: 'transport', state: 'warning', says: [/TCP: no RDMA: .*\(asked for: mlx5_77\)/, RDMA_ADVICE] },
    skipped: spawnSync('ls', ['/sys/class/infiniband']).stdout.length > 0 ? 'this machine has RDMA devices' : '',
  },
  {
    name: 'a disk folder that cannot be made',
    args: () => ['--disk-path', '/proc/meshcache', '--disk-size', '8mb'],
    node: { status: 2, says: [/\/proc\/meshcache cannot be made: .*choose a path that this user may write/] },
    doctor: { subject: 'disk folder', says: [/\/proc: ENOENT|\/proc.*(EACCES|EPERM)/, /set another disk_path/] },
  },
  {
    name: 'a disk folder that is a file',
    args: () => ['--disk-path', join(folder, 'file'), '--disk-size', '8mb'],
    node: { status: 2, says: [/file is no folder; give the path of one/] },
    doctor: { subject: 'disk folder', says: [/file is not a folder/, /set disk_path to a folder/] },
  },
  {
    name: 'a disk folder that everybody may write to',
    args: () => ['--disk-path', join(folder, 'shared'), '--disk-size', '8mb'],
    node: {
      status: 2,
      says: [/shared belongs to another user, or others may write to it; give a folder of this user/],
    },
    doctor: { subject: 'disk folder', says: [/others may write to it/, /give a folder of this user/] },
  },
  {
    name: 'a disk folder with files of others',
    args: () => ['--disk-path', join(folder, 'foreign'), '--disk-size', '8mb'],
    node: { status: 2, says: [/foreign has a file pages that is no store's: choose an empty directory/] },
    doctor: { subject: 'disk store', says: [/foreign has a file pages that is no store's/, /empty folder/] },
  },
  {
    name: 'a disk larger than what is free',
    args: () => ['--disk-path', join(folder, 'large'), '--disk-size', '1000tb'],
    node: { status: 2, says: [/large.*(free|too large|File too large)/] },
    doctor: { subject: 'disk space', says: [/free; 1000 TiB wanted/, /set disk_size to at most/] },
  },
  {
    name: 'a disk that is full',
    args: () => ['--disk-path', join(folder, 'small'), '--disk-size', '8mb'],
    under: onSmallDisk,
    skipped: needsMounts,
    node: { status: 2, says: [/small/, /free/, /make room|disk_size/] },
    doctor: { subject: 'disk space', says: [/free; 8 MiB wanted/, /set disk_size to at most 4 MiB, or make room/] },
  },
  {
    name: 'an index that would take more than half of the disk',
    args: () => ['--disk-path', join(folder, 'index'), '--disk-size', '8mb', '-o', 'disk_index_size=6mb'],
    node: { status: 2, says: [/disk_index_size: its index may have 256 KiB to half of the disk/] },
    doctor: { subject: 'disk index', says: [/disk_index_size 6 MiB is more than half of disk_size 8 MiB/] },
  },
  {
    name: 'a disk tier that is not turned on',
    keys: () => ({ disk_path: '/tmp' }),
    doctor: {
      subject: 'configuration',
      state: 'warning',
      says: [/disk_path \(--option\) has no effect: disk_enabled is not set/],
    },
  },
  {
    name: 'pages to write to a disk that is not there',
    keys: () => ({ disk_write: 'evicted' }),
    doctor: {
      subject: 'configuration',
      state: 'warning',
      says: [/disk_write \(--option\) has no effect: disk_enabled is not set/],
    },
  },
];

for (const each of CASES) {
  const run = each.skipped ? test.serial.skip : test.serial;
  const title = each.skipped ? `${each.name} (skipped: ${each.skipped})` : each.name;
  const surroundings: CliSurroundings = { env: each.env ?? {}, under: each.under ?? [] };

  run(`doctor: ${title}: a finding`, async (t) => {
    const { subject, state = 'problem', says } = each.doctor;
    const result = await runCli(['doctor', '--json', ...argumentsOf(each)], surroundings);
    t.is(result.status, state === 'problem' ? 1 : 0, result.stderr);
    const { findings } = JSON.parse(result.stdout) as { findings: Finding[] };
    const found = findings.find((finding) => finding.subject === subject && finding.state === state);
    t.truthy(found, `no ${state} about ${subject} in ${JSON.stringify(findings.filter((one) => one.state !== 'ok'))}`);
    for (const pattern of says) t.regex(`${found?.detail} -> ${found?.advice}`, pattern);
    t.false(result.stdout.includes(SECRET) || result.stderr.includes(SECRET));
  });

  if (each.node === undefined) continue;
  const { status, says } = each.node;
  run(`node: ${title}: status ${status} and why`, async (t) => {
    const result = await runCli(['node', ...argumentsOf(each)], surroundings);
    t.is(result.status, status, result.stderr);
    t.is(result.stdout, '');
    for (const pattern of says) t.regex(result.stderr, pattern);
    t.regex(result.stderr, /^error: /m);
    t.notRegex(result.stderr, /\n\s+at /);
    t.false(result.stderr.includes(SECRET));
  });
}

test.serial('doctor: a configuration that works has no problem, and says what it was made of', async (t) => {
  const file = join(folder, 'good.json');
  writeFileSync(file, JSON.stringify({ discoveryAddr: `127.0.0.1:${ports.free}`, metrics_token: SECRET }));
  const surroundings = { env: { MESHCACHE_GLOBAL_SEGMENT_SIZE: '16mb', MESHCACHE_METRICS_PORT: '' } };
  const run = await runCli(['doctor', '--json', '--config', file, '-o', 'metrics_port=0'], surroundings);
  t.is(run.status, 0, run.stdout);
  const { findings } = JSON.parse(run.stdout) as { findings: Finding[] };
  const bySubject = new Map(findings.map((finding) => [finding.subject, finding]));
  t.is(
    bySubject.get('configuration')?.detail,
    `4 keys accepted, from ${file}, MESHCACHE_GLOBAL_SEGMENT_SIZE, --option`,
  );
  t.regex(bySubject.get('pool')?.detail ?? '', /^global_segment_size 16 MiB/);
  t.regex(bySubject.get('discovery')?.advice ?? '', /start the first node here/);
  t.false(run.stdout.includes(SECRET));
});

test.serial('node: options win over the environment, and that over the file', async (t) => {
  const file = join(folder, 'layers.json');
  writeFileSync(
    file,
    JSON.stringify({ discovery_addr: 'file.invalid:1', globalSegmentSize: '1mb', node_id: 'from-file' }),
  );
  const env = {
    MESHCACHE_DISCOVERY_ADDR: 'environment.invalid:1',
    MESHCACHE_GLOBAL_SEGMENT_SIZE: '2mb',
    MESHCACHE_METRICS_PORT: '0',
    MESHCACHE_VNODE: '7',
    MESHCACHE_METRICS_TOKEN: SECRET,
  };
  const args = ['node', '--config', file, '--discovery-addr', `127.0.0.1:${await freePort()}`, '--json'];
  const child = startCli(args, { env });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  const ready = JSON.parse(await firstLine(child)) as Record<string, unknown>;
  t.like(ready, { node_id: 'from-file', pool_bytes: 2 * 2 ** 20 });
  const metrics = String(ready.metrics_endpoint);
  t.regex(metrics, /^127\.0\.0\.1:\d+$/);
  t.is((await fetch(`http://${metrics}/metrics`)).status, 401);
  t.is((await fetch(`http://${metrics}/metrics`, { headers: { authorization: `Bearer ${SECRET}` } })).status, 200);
  child.kill('SIGTERM');
  const run = await ended;
  t.is(run.status, 0, run.stderr);
  t.regex(run.stderr, /warning: MESHCACHE_VNODE in the environment is not known; did you mean MESHCACHE_VNODES\?/);
  t.false(run.stderr.includes(SECRET) || run.stdout.includes(SECRET));
});

test.serial('node: a metrics port that is taken makes it take the next one', async (t) => {
  const args = [
    '--discovery-addr',
    `127.0.0.1:${await freePort()}`,
    '--pool',
    '1mb',
    '-o',
    `metrics_port=${ports.taken}`,
  ];
  const child = startCli(['node', ...args]);
  t.teardown(() => child.kill('SIGKILL'));
  const line = await firstLine(child);
  const port = Number(/dashboard at http:\/\/127\.0\.0\.1:(\d+)\/$/.exec(line)?.[1]);
  t.true(port > ports.taken, line);
  t.is((await fetch(`http://127.0.0.1:${port}/healthz`)).status, 200);
});

test.serial('node: one that does not find discovery says so, and starts', async (t) => {
  const keys = { local_hostname: '127.0.0.1', metrics_port: 0 };
  const child = startCli([
    'node',
    ...optionsOf({ discovery_addr: `127.0.0.1:${ports.web}`, ...keys }),
    '--pool',
    '1mb',
  ]);
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  await firstLine(child);
  child.kill('SIGTERM');
  const run = await ended;
  t.is(run.status, 0, run.stderr);
  t.regex(run.stderr, /no discovery master is reachable; this node keeps the members it knows/);
  t.true(run.stderr.includes(`127.0.0.1:${ports.web}`));
});

test.serial('status: the address from the environment or the file, and what is wrong with it', async (t) => {
  const file = join(folder, 'status.json');
  writeFileSync(file, JSON.stringify({ discoveryAddr: `127.0.0.1:${ports.free}` }));
  const dead = await runCli(['status', '--config', file]);
  t.is(dead.status, 1);
  t.regex(dead.stderr, /no discovery master answers \(127\.0\.0\.1:\d+: .*ECONNREFUSED.*\)\. Check the address/);
  const wrong = await runCli(['status', '--config', file], { env: { MESHCACHE_DISCOVERY_ADDR: 'nowhere' } });
  t.is(wrong.status, 2);
  t.regex(wrong.stderr, /MESHCACHE_DISCOVERY_ADDR: discovery_addr "nowhere": Allowed is host:port/);
  const none = await runCli(['status']);
  t.is(none.status, 2);
  t.regex(none.stderr, /--discovery-addr is missing; .*MESHCACHE_DISCOVERY_ADDR/);
});

test.serial('status: an address of something that is no node', async (t) => {
  const run = await runCli(['status', '--discovery-addr', `127.0.0.1:${ports.web}`]);
  t.is(run.status, 1);
  t.is(run.stdout, '');
  t.regex(run.stderr, /no discovery master answers \(127\.0\.0\.1:\d+.*not a meshcache control connection\)/);
});

test.serial('status: a node that has died without leaving is shown as unreachable', async (t) => {
  const addr = `127.0.0.1:${await freePort()}`;
  const start = async (id: string) => {
    const child = startCli([
      'node',
      ...optionsOf({ discovery_addr: addr, node_id: id, metrics_port: 0 }),
      '--pool',
      '1mb',
    ]);
    t.teardown(() => child.kill('SIGKILL'));
    await firstLine(child);
    return child;
  };
  await start('first');
  const victim = await start('second');
  await until(async () => /2 members/.test((await runCli(['status', '--discovery-addr', addr])).stdout));
  victim.kill('SIGKILL');
  await new Promise((resolve) => victim.once('exit', resolve));
  const run = await runCli(['status', '--discovery-addr', addr]);
  t.is(run.status, 0, run.stderr);
  t.regex(run.stdout, /2 members at .*: 1 up, 1 unreachable/);
  t.regex(run.stdout, /^second: unreachable: .*ECONNREFUSED/m);
  t.regex(run.stdout, /^first +head .* http:\/\/127\.0\.0\.1:\d+\/$/m);
  t.regex(run.stdout, /^first: reads over tcp, not rdma: no RDMA: /m);
});

test('doctor, transport: a device that this machine does not have, with those that it has', async (t) => {
  const config = MeshCacheConfig.fromExtraConfig({ discovery_addr: '127.0.0.1:1', device_name: 'mlx5_77' });
  const [finding] = await checkTransport(config, { isAskedFor: true, host: new FakeFabric().host() });
  t.like(finding, { state: 'problem' });
  t.regex(
    finding?.detail ?? '',
    /"device_name": there is no RDMA device mlx5_77; this machine has fake0 \(port 1 active/,
  );
});

test('doctor, transport: a pool that may not be locked, and how to change that', async (t) => {
  const lockedMemory = () => ({ limitBytes: 2 ** 23, isPrivileged: false });
  const config = MeshCacheConfig.fromExtraConfig({ discovery_addr: '127.0.0.1:1', global_segment_size: '1gb' });
  const [finding] = await checkTransport(config, { isAskedFor: true, host: new FakeFabric().host({ lockedMemory }) });
  t.like(finding, { state: 'warning' });
  t.regex(finding?.detail ?? '', /have to be locked, and this process may lock 8 MiB at most/);
  t.regex(finding?.advice ?? '', /LimitMEMLOCK=infinity/);
});

test('doctor, transport: RDMA that works is named with its device', async (t) => {
  const config = MeshCacheConfig.fromExtraConfig({ discovery_addr: '127.0.0.1:1' });
  const [finding] = await checkTransport(config, { isAskedFor: false, host: new FakeFabric().host() });
  t.deepEqual(finding, { subject: 'transport', state: 'ok', detail: 'RDMA by fake0: as configured' });
});

function argumentsOf({ args, keys }: Case): string[] {
  const given = [...(args?.() ?? []), ...optionsOf({ metrics_port: 0, ...keys?.() })];
  const isOwn = given.some((text) => /^--(discovery-addr|config)$/.test(text));
  return isOwn ? given : ['--discovery-addr', `127.0.0.1:${ports.free}`, ...given];
}

function optionsOf(keys: Readonly<Record<string, string | number | boolean>>): string[] {
  return Object.entries(keys).flatMap(([key, value]) => ['-o', `${key}=${value}`]);
}
