import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

/** Programs that the virtual machine is made with or that are used in it, and Debian's packages of them. */
const PACKAGE_OF: Readonly<Record<string, string>> = {
  'qemu-system-x86_64': 'qemu-system-x86',
  busybox: 'busybox-static',
  cpio: 'cpio',
  depmod: 'kmod',
  modprobe: 'kmod',
  'apt-get': 'apt',
  'dpkg-deb': 'dpkg',
  setpriv: 'util-linux',
  ip: 'iproute2',
  rdma: 'iproute2',
  tc: 'iproute2',
  ibv_devinfo: 'ibverbs-utils',
  ib_read_bw: 'perftest',
};
/** Debian's users have no sbin in their path, and these programs are there. */
const PATH = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/sbin'].join(delimiter);

/** Throws with the command that installs them when programs are missing. */
export async function checkTools(): Promise<void> {
  const missing = new Set<string>();
  for (const [program, name] of Object.entries(PACKAGE_OF)) {
    if (!(await isInPath(program))) missing.add(name);
  }
  // The verbs providers are plugins, not programs.
  if (!(await exists('/etc/libibverbs.d/rxe.driver'))) missing.add('ibverbs-providers');
  if (missing.size === 0) return;
  throw new Error(
    `the virtual machine needs programs that are not installed: apt-get install ${[...missing].join(' ')}`,
  );
}

export async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

export interface RunOptions {
  readonly cwd?: string;
  readonly input?: string;
}

/** What the program wrote to its standard output; throws with what it said when it does not end with status 0. */
export async function output(program: string, args: readonly string[], options: RunOptions = {}): Promise<Buffer> {
  const child = spawn(program, args, { cwd: options.cwd, env: { ...process.env, PATH, LC_ALL: 'C' } });
  const chunks: Buffer[] = [];
  let said = '';
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => {
    said += chunk;
  });
  // A program that ends early does not read its input; its status says why.
  child.stdin.on('error', () => {});
  child.stdin.end(options.input ?? '');
  const status = await new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} ended with status ${status}: ${said.trim()}`);
  return Buffer.concat(chunks);
}

async function isInPath(program: string): Promise<boolean> {
  for (const folder of PATH.split(delimiter)) {
    const isThere = await access(join(folder, program), constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return true;
  }
  return false;
}
