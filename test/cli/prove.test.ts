// One command that accepts an installation must name what is wrong with it: ten faults are planted by real means.
import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { PYTHON_FOLDER } from '../../src/processes/python-engine.js';
import { encodeHello } from '../../src/rpc/frame.js';
import { names, proven } from '../_support/cli/proven.js';
import { runCli, until } from '../_support/cli/run-cli.js';
import { membersAt, startNode } from '../_support/cli/source-nodes.js';
import { makeReadOnly, mounted, mountsMissing, temporaryFolder } from '../_support/disk/mounts.js';
import { DatedCluster } from '../_support/node/dated-nodes.js';
import { OtherDate, otherDateMissing } from '../_support/node/other-date.js';
import { freePort, freeze, listenAlone } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const PIECE_MIN_BYTES = 32 * 2 ** 10;
const hasPython = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 10))']).status === 0;
const withPython = unless(hasPython ? '' : 'no python3 of 3.10 or newer', test.serial);

/** Flips a byte of every large piece that a process sends, as a broken card does. */
const FLIP = `
import { Socket } from 'node:net';
const write = Socket.prototype.write;
Socket.prototype.write = function (bytes, ...rest) {
  if (!(bytes instanceof Uint8Array) || bytes.length < ${PIECE_MIN_BYTES}) return write.call(this, bytes, ...rest);
  const sent = Buffer.from(bytes);
  sent[sent.length >> 1] ^= 1;
  return write.call(this, sent, ...rest);
};
`;

async function listening(t: ExecutionContext, server: Server): Promise<number> {
  t.teardown(() => server.close());
  return listenAlone(server);
}

test.serial('prove: a machine where all is right passes, and the report has every check and version', async (t) => {
  const html = join(temporaryFolder(t), 'report.html');
  const { status, result } = await proven(t, ['--only', 'bytes,failures', '-o', 'protocol=tcp', '--html', html]);
  t.is(status, 0, JSON.stringify(result));
  t.like(result, { verdict: 'passed', failed: 0 });
  t.is(result.checks.filter(({ area, outcome }) => area === 'Every byte' && outcome === 'passed').length, 3);
  t.true(result.checks.some(({ check, outcome }) => check === 'a node is frozen' && outcome === 'passed'));
  const page = readFileSync(html, 'utf8');
  for (const { check } of result.checks) t.true(page.includes(check), check);
  t.true(page.includes(process.version));
  t.notRegex(page, /<script|https?:\/\//);
});

test.serial('prove: what would cost the result is refused before anything runs', async (t) => {
  const folder = temporaryFolder(t);
  const file = join(folder, 'report.html');
  for (const [args, status, message] of [
    [['--html', folder], 1, /^error: cannot write the report ".*": EISDIR/],
    [['--html', ''], 1, /^error: cannot write the report "": ENOENT/],
    [['--html', '/proc/report.html'], 1, /^error: cannot write the report ".*": E/],
    [['--only', 'bytes', '--html', file, '-o', 'dscp=99'], 2, /^error: configuration key "dscp": got "99"/],
    [['--only', 'bytes,failures', '-o', 'vnode=3'], 2, /^error: unknown configuration key "vnode"/],
  ] as const) {
    const run = await runCli(['prove', ...args]);
    t.regex(run.stderr, message);
    t.is(run.status, status);
    t.is(run.stdout, '');
  }
  t.deepEqual(readdirSync(folder), []);
});

test.serial('prove: a full disk costs the page, and not what has been found', async (t) => {
  const run = await runCli(['prove', '--only', 'cluster', '--html', '/dev/full']);
  t.is(run.status, 1);
  t.regex(run.stdout, /not run +an existing cluster/);
  t.regex(run.stderr, /error: cannot write the report "\/dev\/full": ENOSPC/);
});

test.serial('prove: an installation of which nothing was checked is not accepted', async (t) => {
  const html = join(temporaryFolder(t), 'report.html');
  writeFileSync(html, 'the report before');
  const { status, result } = await proven(t, ['--only', 'cluster', '--html', html]);
  t.is(status, 1);
  t.like(result, { verdict: 'not run', passed: 0, failed: 0, not_run: 1 });
  t.regex(readFileSync(html, 'utf8'), /<h1>meshcache prove: nothing has run<\/h1>/);
});

test.serial('prove: a byte that changes on the way is named, and never delivered', async (t) => {
  const plant = join(temporaryFolder(t), 'flip.mjs');
  writeFileSync(plant, FLIP);
  const args = ['--only', 'bytes', '-o', 'protocol=tcp'];
  const run = await proven(t, args, { env: { NODE_OPTIONS: `--import ${plant}` } });
  const found = names(t, run, /TCP, pages of 64 KiB/, /arrived damaged and were refused/);
  t.is(found?.figures?.wrong_bytes, 0);
});

test.serial('prove: a pool above the memory, a taken port and a device that is not there are named', async (t) => {
  const port = await listening(t, createServer());
  const settings = ['global_segment_size=15tb', `control_port=${port}`, 'protocol=rdma', 'device_name=mlx5_77'];
  const own = ['local_hostname=127.0.0.1', 'metrics_enabled=false', ...settings].flatMap((each) => ['-o', each]);
  const run = await proven(t, ['--only', 'machine,bytes', ...own]);
  names(t, run, /pool/, /15 TiB/);
  names(t, run, /address|port/, new RegExp(`${port}`));
  names(t, run, /RDMA|transport/, /RDMA|mlx5_77/);
});

unless(mountsMissing, test.serial)('prove: a disk that is read-only is named', async (t) => {
  const folder = mounted(t, 'tmpfs', 8);
  await makeReadOnly(folder);
  const run = await proven(t, ['--only', 'machine', '--disk-path', join(folder, 'pages'), '--disk-size', '2mb']);
  names(t, run, /disk/, /EROFS|read-only/);
});

unless(otherDateMissing, test.serial)('prove: a clock far ahead of the cluster is named', async (t) => {
  const { address } = await DatedCluster.start(t, 1);
  const args = ['--only', 'machine', '--discovery-addr', address, '-o', 'local_hostname=127.0.0.1'];
  const run = await proven(t, args, { env: new OtherDate(t, 600).env });
  names(t, run, /clock/, /600 s ahead of those of the cluster/);
});

test.serial('prove: a secret that differs is named', async (t) => {
  const { address } = await DatedCluster.start(t, 1, { env: { MESHCACHE_CLUSTER_SECRET: 'the secret of the nodes' } });
  const env = { MESHCACHE_CLUSTER_SECRET: 'a secret that differs' };
  const run = await proven(t, ['--only', 'cluster', '--discovery-addr', address], { env });
  names(t, run, /every member answers/, /secret/);
});

test.serial('prove: a peer with an older protocol is named', async (t) => {
  const hello = encodeHello();
  hello[4] = 0;
  const port = await listening(
    t,
    createServer((socket) => void socket.on('error', () => {}).end(hello)),
  );
  const run = await proven(t, ['--only', 'cluster', '--discovery-addr', `127.0.0.1:${port}`]);
  names(t, run, /every member answers/, /peer speaks version 0/);
});

test.serial('prove: a cluster is read and written through, and a node that does not answer is named', async (t) => {
  const address = `127.0.0.1:${await freePort()}`;
  const patient = ['member_ttl=600', 'protocol=rdma', 'device_name=none0'].flatMap((each) => ['-o', each]);
  startNode(t, address, '127.0.0.1', patient);
  const frozen = startNode(t, address, '127.0.0.2', patient);
  await until(async () => (await membersAt(address)).split(',').length === 2);
  const args = [
    '--only',
    'cluster',
    '--discovery-addr',
    address,
    '-o',
    'protocol=tcp',
    '-o',
    'local_hostname=127.0.0.3',
  ];
  const sound = await proven(t, args);
  t.is(sound.status, 0, JSON.stringify(sound.result));
  const [members] = sound.result.checks;
  t.regex(members?.detail ?? '', /^2 members, .*; 127\.0\.0\.[12] reads over TCP: .* \(1 more do\)$/);
  await freeze(frozen.child);
  names(t, await proven(t, args), /every member answers/, /127\.0\.0\.2 does not answer/);
});

withPython('prove: a Python client of another version is named, and engines in Python exchange pages', async (t) => {
  const folder = temporaryFolder(t);
  cpSync(join(PYTHON_FOLDER, 'meshcache'), join(folder, 'meshcache'), { recursive: true });
  writeFileSync(join(folder, 'meshcache/_version.py'), '"""Version."""\n\n__version__ = "0.0.7"\n');
  const run = await proven(t, ['--only', 'engine'], { env: { PYTHONPATH: folder } });
  names(t, run, /version of the Python client/, /0\.0\.7/);
  const trip = run.result.checks.find(({ check }) => /between two engines/.test(check));
  t.is(trip?.outcome, 'passed', trip?.detail);
});
