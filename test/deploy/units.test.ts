import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import test, { type ExecutionContext } from 'ava';
import { collect, firstLine, startCli } from '../_support/cli/run-cli.js';
import { freePort } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const UNIT = 'deploy/meshcache.service';
/** The longest that a node takes to end, by its own help. */
const END_MAX_SECONDS = 5;

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;

const run = unless(hasSystemd ? '' : 'no systemd-analyze');

run('deploy, systemd: the unit is one that systemd takes without a word', (t) => {
  const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', UNIT], { encoding: 'utf8' });
  t.is(status, 0);
  t.is(stdout + stderr, '');
});

run('deploy, systemd: the service can reach little of the machine', (t) => {
  const args = ['security', '--offline=true', '--threshold=25', '--no-pager', UNIT];
  const { status, stdout } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
  t.is(
    status,
    0,
    stdout
      .split('\n')
      .filter((line) => line.startsWith('✗') || line.startsWith('→'))
      .join('\n'),
  );
});

test('deploy, systemd: RDMA may lock its memory and use its devices, and the node has its time to end', (t) => {
  const unit = settingsOf(readFileSync(UNIT, 'utf8'));
  t.deepEqual(unit.get('LimitMEMLOCK'), ['infinity']);
  t.true(Number(unit.get('LimitNOFILE')?.[0]) >= 4096);
  t.true(unit.get('DeviceAllow')?.some((device) => device.startsWith('char-infiniband_verbs')));
  t.true(unit.get('RestrictAddressFamilies')?.[0]?.includes('AF_NETLINK'));
  t.false(unit.has('MemoryDenyWriteExecute'));
  t.true(Number(unit.get('TimeoutStopSec')?.[0]) > END_MAX_SECONDS);
  t.is(unit.get('KillSignal')?.[0], 'SIGTERM');
});

test('deploy, systemd: the service has started when its node has joined, however long that takes', (t) => {
  const unit = settingsOf(readFileSync(UNIT, 'utf8'));
  t.deepEqual(unit.get('Type'), ['notify']);
  // The message comes from the program systemd-notify, a child of the node.
  t.deepEqual(unit.get('NotifyAccess'), ['all']);
  t.deepEqual(unit.get('TimeoutStartSec'), ['infinity']);
});

test('deploy, systemd: a node has one name, a log, and is not started for ever', (t) => {
  const unit = settingsOf(readFileSync(UNIT, 'utf8'));
  t.deepEqual(unit.get('Environment'), [
    'MESHCACHE_NODE_ID=%H',
    'MESHCACHE_LOG=info',
    'MESHCACHE_CLIENT_SOCKET=/run/meshcache/node.sock',
  ]);
  t.is(unit.get('StartLimitIntervalSec')?.[0], '10min');
  // All starts have to fall into the interval, else the limit is never reached.
  const eachS = Number(unit.get('RestartSec')?.[0]) + END_MAX_SECONDS;
  t.true(Number(unit.get('StartLimitBurst')?.[0]) * eachS < 600);
});

test('deploy, systemd: other processes reach the client socket, in a folder that systemd makes and takes away', (t) => {
  const unit = settingsOf(readFileSync(UNIT, 'utf8'));
  t.deepEqual(unit.get('RuntimeDirectory'), ['meshcache']);
  t.deepEqual(unit.get('RuntimeDirectoryMode'), ['0755']);
  t.false(unit.has('RuntimeDirectoryPreserve'), 'for a dynamic user the folder would be a private one');
  const socket = unit.get('Environment')?.find((setting) => setting.startsWith('MESHCACHE_CLIENT_SOCKET='));
  t.regex(socket ?? '', /=\/run\/meshcache\/[^/]+$/);
  t.true(unit.get('RestrictAddressFamilies')?.[0]?.includes('AF_UNIX'));
});

test('deploy, systemd: its command is one that the program takes', async (t) => {
  const [command] = settingsOf(readFileSync(UNIT, 'utf8')).get('ExecStart') ?? [];
  const [env, program, ...args] = (command as string).split(' ');
  t.deepEqual([env, program], ['/usr/bin/env', 'meshcache']);
  await runAndEnd(t, args, { MESHCACHE_METRICS_PORT: '0' });
});

/** Runs `meshcache` until it is ready, alone on this machine, and ends it; resolves with its line. */
async function runAndEnd(
  t: ExecutionContext,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<string> {
  const small = { MESHCACHE_DISCOVERY_ADDR: `127.0.0.1:${await freePort()}`, MESHCACHE_GLOBAL_SEGMENT_SIZE: '1mb' };
  const child = startCli(args, { env: { ...env, ...small } });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  const line = await firstLine(child);
  child.kill('SIGTERM');
  t.is((await ended).status, 0);
  return line;
}

/** Values by name; systemd lets several of one name add up. */
function settingsOf(unit: string): Map<string, string[]> {
  const settings = new Map<string, string[]>();
  for (const line of unit.split('\n')) {
    const [, name, value] = /^(\w+)=(.*)$/.exec(line) ?? [];
    if (name !== undefined) settings.set(name, [...(settings.get(name) ?? []), value as string]);
  }
  return settings;
}
