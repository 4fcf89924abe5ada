import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { collect, runCli } from '../_support/cli/run-cli.js';
import { freePort } from '../_support/support.js';

/** Settings of the unit that decide when the service has started and ended. The others need a machine of its own. */
const KEPT = /^(Type|NotifyAccess|TimeoutStartSec|TimeoutStopSec|KillSignal|ExecStart)=/;

/** Ends with its parent; mounts and processes of its own, so that nothing of the machine changes. */
const NAMESPACES = ['--pid', '--fork', '--mount', '--mount-proc', '--kill-child'];
const isRoot = process.getuid?.() === 0;
const MANAGER = '/lib/systemd/systemd';
const mayRun = isRoot && existsSync(MANAGER) && spawnSync('unshare', [...NAMESPACES, 'true']).status === 0;
const run = mayRun ? test : test.skip;
const why = mayRun ? '' : ' (skipped: needs root and systemd)';

/** Starts a manager of systemd, the service in it, then the node that the service's node waits for. */
const SCRIPT = `
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/manager
export XDG_RUNTIME_DIR=/run/manager SYSTEMD_UNIT_PATH="$1"
${MANAGER} --user --unit=basic.target >/dev/null 2>&1 &
manager=$!
shown() { systemctl --user show meshcache --property "$1" --value; }
for _ in $(seq 100); do systemctl --user list-units >/dev/null 2>&1 && break; sleep 0.1; done
systemctl --user list-units >/dev/null 2>&1 || { echo none; exit 0; }
systemctl --user start --no-block meshcache
until [ -n "$(shown StatusText)" ] || ! kill -0 $manager; do sleep 0.1; done
echo "$(shown ActiveState): $(shown StatusText)"
shift
"$@" >/dev/null 2>&1 &
systemctl --user start meshcache
echo "$(shown ActiveState): $(shown StatusText)"
systemctl --user stop meshcache
echo "$(shown ActiveState): $(shown Result)"
`;

run(`deploy, systemd: a manager waits until the node has joined, and ends it in order${why}`, async (t) => {
  t.timeout(120_000);
  const units = mkdtempSync(join(tmpdir(), 'meshcache-units-'));
  t.teardown(() => rmSync(units, { recursive: true, force: true }));
  const addr = `127.0.0.9:${await freePort()}`;
  const settings = (node_id: string, host: string): Record<string, string> => ({
    MESHCACHE_NODE_ID: node_id,
    MESHCACHE_DISCOVERY_ADDR: addr,
    MESHCACHE_LOCAL_HOSTNAME: host,
    MESHCACHE_GLOBAL_SEGMENT_SIZE: '1mb',
    MESHCACHE_METRICS_PORT: '0',
    MESHCACHE_PROTOCOL: 'tcp',
  });
  const assignments = (values: Record<string, string>): string[] =>
    Object.entries(values).map((pair) => pair.join('='));
  const printed = (await runCli(['node', '--print-unit'])).stdout.split('\n').filter((line) => KEPT.test(line));
  const environment = assignments(settings('served', '127.0.0.1')).map((each) => `Environment=${each}`);
  writeFileSync(join(units, 'meshcache.service'), ['[Service]', ...printed, ...environment, ''].join('\n'));
  writeFileSync(join(units, 'basic.target'), '[Unit]\nDescription=nothing\n');
  const [, node, program] = /^ExecStart=(\S+) (\S+) node$/m.exec(printed.join('\n')) ?? [];
  const master = ['env', ...assignments(settings('master', '127.0.0.9')), node, program, 'node'] as string[];
  const child = spawn('unshare', [...NAMESPACES, 'bash', '-c', SCRIPT, 'bash', units, ...master], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const { stdout, stderr } = await collect(child);
  if (stdout === 'none\n') return t.pass('no manager starts on this machine');
  t.deepEqual(
    stdout.trimEnd().split('\n'),
    [
      `activating: not joined yet: no discovery master answers (${addr})`,
      `active: node served has joined the cluster at ${addr}`,
      'inactive: success',
    ],
    stderr,
  );
});
