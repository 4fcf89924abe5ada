// An owner of RDMA machines accepts them by one command: the report must name what is wrong with them.
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import type { ExecutionContext } from 'ava';
import type { Proof } from '../../src/cli/prove/proof.js';
import { names, proven } from '../_support/cli/proven.js';
import type { CliSurroundings } from '../_support/cli/run-cli.js';
import { devices, rdmaTest, suffix } from '../_support/rdma/soft-devices.js';

const [first = '', second = ''] = devices.map(({ name }) => name);
const OWN = ['protocol=rdma', 'global_segment_size=64mb', 'local_hostname=127.0.0.1', 'metrics_enabled=false'];
const DEVICE_FILES = '/dev/infiniband';
const SOME_USER = 65_534;
const LIBRARY = "/sbin/ldconfig -p | sed -n 's/.*NAME\\.so\\.1 .*=> //p'";

/** The limit of a machine that nobody has set up for RDMA; for a process with that capability it does not count. */
const LITTLE_LOCKED = ['sh', '-c', 'ulimit -l 8192; exec setpriv --bounding-set=-ipc_lock "$@"', '-'];
/** Root opens any file by this privilege. */
const NO_OVERRIDE = ['setpriv', '--bounding-set=-dac_override,-dac_read_search'];

/** A fault, and how the report names it. */
interface Fault {
  readonly device?: string;
  readonly settings?: readonly string[];
  readonly surroundings?: CliSurroundings;
  readonly detail: RegExp;
  readonly advice?: RegExp;
}

function settings(device: string, more: readonly string[] = []): string[] {
  return [...OWN, `device_name=${device}`, ...more].flatMap((pair) => ['-o', pair]);
}

/** A program that starts another one, which sees file systems that this script has changed. */
function inMounts(script: string): CliSurroundings {
  return { under: ['unshare', '--mount', 'sh', '-c', `set -e; ${script}; exec "$@"`, '-'] };
}

function withoutLibrary(name: string): CliSurroundings {
  const files = `$(${LIBRARY.replace('NAME', name)})`;
  return inMounts(`for file in ${files}; do mount --bind /dev/null "$(readlink -f "$file")"; done`);
}

/** Asserts that the report names each fault, with an advice. Two run at a time, as the machine has two processors. */
async function named(t: ExecutionContext, faults: readonly Fault[]): Promise<void> {
  for (let i = 0; i < faults.length; i += 2)
    await Promise.all(faults.slice(i, i + 2).map((fault) => isNamed(t, fault)));
}

async function isNamed(t: ExecutionContext, fault: Fault): Promise<Proof | undefined> {
  const args = ['--only', 'rdma', ...settings(fault.device ?? first, fault.settings)];
  const found = names(t, await proven(t, args, fault.surroundings), /^transport$/, fault.detail);
  if (fault.advice !== undefined) t.regex(found?.advice ?? '', fault.advice);
  return found;
}

function shell(command: string): void {
  execFileSync('sh', ['-ec', command]);
}

rdmaTest(`prove over RDMA: settings that the machine does not have are named${suffix}`, async (t) => {
  const { name } = devices[0] ?? { name: '' };
  await named(t, [
    {
      device: 'mlx5_0',
      detail: new RegExp(`"device_name": there is no RDMA device mlx5_0; this machine has ${name} `),
    },
    { settings: ['gid_index=77'], detail: /"gid_index": .* has no RoCE v2 GID 77; this machine has .*GID 1 RoCE v2/ },
    { settings: ['ib_port=2'], detail: /"ib_port": .* has no port 2; this machine has / },
    { settings: ['global_segment_size=64gb'], detail: /64 GiB of memory have to be locked, and .* are available/ },
  ]);
});

rdmaTest(`prove over RDMA: limits, libraries and device files of a process are named${suffix}`, async (t) => {
  await named(t, [
    { surroundings: { under: LITTLE_LOCKED }, detail: /may lock 8 MiB at most/, advice: /ulimit -l unlimited/ },
    { surroundings: { env: { MESHCACHE_NATIVE: 'off' } }, detail: /MESHCACHE_NATIVE=off/, advice: /unset/ },
    { surroundings: withoutLibrary('libibverbs'), detail: /libibverbs cannot be loaded/, advice: /libibverbs1/ },
    { surroundings: withoutLibrary('librdmacm'), detail: /librdmacm cannot be loaded/, advice: /librdmacm1/ },
    {
      surroundings: inMounts('mount -t tmpfs none /etc/libibverbs.d'),
      detail: /libibverbs knows no device of this machine.* provider/,
      advice: /ibverbs-providers/,
    },
    {
      surroundings: inMounts(`mount -t tmpfs none ${DEVICE_FILES}`),
      detail: /\/dev\/infiniband has no verbs device/,
      advice: /--device=\/dev\/infiniband/,
    },
  ]);
});

rdmaTest(`prove over RDMA: a port that is down, and device files of another user, are named${suffix}`, async (t) => {
  const netdev = readFileSync(`/sys/class/infiniband/${second}/ports/1/gid_attrs/ndevs/0`, 'utf8').trim();
  // Addresses of IPv6 would go with the link.
  writeFileSync(`/proc/sys/net/ipv6/conf/${netdev}/keep_addr_on_down`, '1');
  shell(`ip link set ${netdev} down; chown ${SOME_USER} ${DEVICE_FILES}/uverbs*; chmod 600 ${DEVICE_FILES}/uverbs*`);
  try {
    const down = new RegExp(`RDMA device ${second} can be used: ${second} \\(port 1 down`);
    await named(t, [
      { device: second, detail: down, advice: /ip link set/ },
      {
        surroundings: { under: NO_OVERRIDE },
        detail: /uverbs\d+ cannot be opened \(EACCES\)/,
        advice: /let this user/,
      },
    ]);
  } finally {
    shell(`ip link set ${netdev} up; chown 0 ${DEVICE_FILES}/uverbs*; chmod 666 ${DEVICE_FILES}/uverbs*`);
  }
});
