import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export interface Output {
  readonly stdout: string;
  readonly stderr: string;
}

/** The output of `npm pack` about the package. */
export interface Packed {
  /** Path of the tarball. */
  readonly tarball: string;
  /** Bytes of the tarball. */
  readonly size: number;
  readonly files: readonly { readonly path: string; readonly size: number }[];
}

/** A folder of a user who has installed the package, and nothing else. */
export interface User {
  readonly folder: string;
  readonly packed: Packed;
  /** Writes a file below the folder. */
  write(name: string, text: string): Promise<void>;
  /** Runs a program in the folder; rejects, with all that it wrote, unless it ends with status 0. */
  run(program: string, args: readonly string[], env?: NodeJS.ProcessEnv): Promise<Output>;
  /** Removes everything. */
  remove(): Promise<void>;
}

/** Packs a package, this one with what is built now unless another is named, into `folder`. */
export async function pack(folder: string, source = '.'): Promise<Packed> {
  const { stdout } = await run('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', folder, source]);
  const [said] = JSON.parse(stdout) as [Omit<Packed, 'tarball'> & { filename: string }];
  return { ...said, tarball: join(folder, said.filename) };
}

/**
 * The package in an empty folder; `npm install --ignore-scripts`, or `unpacked` alone: without the packages that it
 * needs.
 */
export async function createUser(how: 'installed' | 'unpacked' = 'installed'): Promise<User> {
  const root = await mkdtemp(join(tmpdir(), 'meshcache-package-'));
  const folder = join(root, 'user');
  const installed = join(folder, 'node_modules/meshcache');
  await mkdir(installed, { recursive: true });
  const packed = await pack(root);
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'user', private: true, type: 'module' }));
  if (how === 'unpacked') await run('tar', ['xzf', packed.tarball, '-C', installed, '--strip-components', '1']);
  else {
    const options = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'];
    await run('npm', ['install', ...options, packed.tarball], { cwd: folder });
  }
  return {
    folder,
    packed,
    write: (name, text) => writeFile(join(folder, name), text),
    run: (program, args, env) => run(program, args, { cwd: folder, env: { ...process.env, ...env } }),
    remove: () => rm(root, { recursive: true, force: true }),
  };
}

/** The JavaScript examples of a document, in order. */
export function programsOf(text: string): string[] {
  return [...text.matchAll(/```js\n(.*?)```/gs)].map((match) => match[1] as string);
}

/** Lets programs in the user's folder find packages of this project, which a user would have installed. */
export async function lend(user: User, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const target = join(user.folder, 'node_modules', name);
    await mkdir(dirname(target), { recursive: true });
    await symlink(join(process.cwd(), 'node_modules', name), target, 'dir');
  }
}

/** Copies a folder of this project into the user's. */
export async function give(user: User, folder: string): Promise<string[]> {
  await cp(folder, user.folder, { recursive: true });
  return readdir(folder);
}
