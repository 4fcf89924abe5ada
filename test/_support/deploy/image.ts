import { execFile, spawnSync } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { pack } from '../package/packed.js';

const run = promisify(execFile);

const PROGRAMS = ['buildah', 'mmdebstrap', 'runc'];
const SUITE = 'bookworm';
const SOURCE = 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian';
/** What a Debian needs to unpack others; its scripts are not run, so it takes seconds to make. */
const PACKAGES = ['apt', 'coreutils', 'dash', 'dpkg', 'findutils', 'grep', 'libstdc++6', 'sed', 'tar'];

/** The configuration of an image in Docker's format. */
export interface ImageConfig {
  readonly User: string;
  readonly Env: readonly string[];
  readonly Entrypoint: readonly string[];
  readonly Cmd: readonly string[];
  readonly Labels: Readonly<Record<string, string>>;
  readonly StopSignal: string;
  readonly Healthcheck: { readonly Test: readonly string[] };
}

export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A container that runs. */
export interface Container {
  /** Ends, with all that it wrote, when its first process has ended. */
  readonly ended: Promise<Ended>;
  /** A program and its arguments that run a further command in it. */
  readonly under: readonly string[];
  /** The number of its first process on this machine. */
  pid(): Promise<number>;
  /** Runs a further command in it. */
  exec(args: readonly string[]): Promise<Ended>;
  /** Sends the signal of the image that asks for an end. */
  stop(): Promise<void>;
}

/** A mount as the runtime takes it. */
export interface OciMount {
  readonly destination: string;
  readonly type: string;
  readonly source: string;
  readonly options: readonly string[];
}

/** How a container differs from one that the image alone describes. */
export interface Differences {
  readonly env?: Readonly<Record<string, string>>;
  readonly user?: number;
  /** In place of the image's own. */
  readonly entrypoint?: readonly string[];
  /** Further folders, or others in place of /tmp. */
  readonly mounts?: readonly OciMount[];
}

/** An empty folder in memory. */
export function memoryMount(destination: string, mode = '1777'): OciMount {
  return { destination, type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'nodev', `mode=${mode}`] };
}

export interface Image {
  readonly config: ImageConfig;
  /** The root of the image on this machine. */
  readonly root: string;
  /** Starts a container; by default with the image's own command. */
  start(args?: readonly string[], differences?: Differences): Promise<Container>;
  /** Writes it to a file for `docker load` and `podman load`. */
  save(path: string): Promise<void>;
  remove(): Promise<void>;
}

/** What an image cannot be built without on this machine; empty if nothing is missing. */
export function missingForImages(): string {
  if (process.getuid?.() !== 0) return 'not root';
  const missing = PROGRAMS.filter((name) => spawnSync(name, ['--version']).error !== undefined);
  return missing.length === 0 ? '' : `no ${missing.join(', ')}`;
}

/**
 * Builds the image of deploy/Containerfile from what is built now, without a daemon and a registry: its base is a
 * Debian with the Node that runs this, and the stage that builds the package is replaced by the packed package.
 */
export async function buildImage(revision = 'tested'): Promise<Image> {
  const folder = await mkdtemp(join(tmpdir(), 'meshcache-image-'));
  const store = ['--root', join(folder, 'store'), '--runroot', join(folder, 'run')];
  const buildah = async (...args: string[]): Promise<string> =>
    (await run('buildah', [...store, ...args], { maxBuffer: 2 ** 26 })).stdout.trim();
  const remove = async (): Promise<void> => {
    await buildah('rm', '--all');
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await makeBase(join(folder, 'base'));
    const scratch = await buildah('from', 'scratch');
    await buildah('add', scratch, join(folder, 'base'), '/');
    await buildah('commit', '--rm', scratch, 'localhost/base');
    await makePackage(join(folder, 'package'));
    const { version } = JSON.parse(await readFile('package.json', 'utf8'));
    const args = [`NODE_IMAGE=localhost/base`, `VERSION=${version}`, `REVISION=${revision}`];
    await buildah(
      ...['build', '--format', 'docker', '--isolation', 'chroot', '--network', 'host'],
      ...args.flatMap((arg) => ['--build-arg', arg]),
      ...['--build-context', `package=${join(folder, 'package')}`],
      ...['-f', 'deploy/Containerfile', '-t', 'localhost/meshcache', '.'],
    );
    const inspected = JSON.parse(await buildah('inspect', '--type', 'image', 'localhost/meshcache'));
    const config: ImageConfig = inspected.Docker.config;
    const root = await buildah('mount', await buildah('from', 'localhost/meshcache'));
    let count = 0;
    return {
      config,
      root,
      start: (command, differences) => startContainer({ folder, root, config, index: count++ }, command, differences),
      save: async (path) => {
        await buildah('push', 'localhost/meshcache', `docker-archive:${path}:meshcache:${version}`);
      },
      remove,
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** A Debian with Node in `folder`. */
async function makeBase(folder: string): Promise<void> {
  const options = ['--quiet', '--mode=root', '--variant=extract', `--include=${PACKAGES.join(',')}`];
  await run('mmdebstrap', [...options, SUITE, folder, `${SOURCE} ${SUITE} main`]);
  await mkdir(join(folder, 'usr/local/bin'), { recursive: true });
  await cp(process.execPath, join(folder, 'usr/local/bin/node'));
}

/** What the stage `package` of the Containerfile leaves, in `folder`. */
async function makePackage(folder: string): Promise<void> {
  await mkdir(folder);
  const { tarball } = await pack(folder);
  const options = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'];
  await run('npm', ['install', '--global', '--prefix', join(folder, 'package'), ...options, tarball]);
}

interface Bundle {
  readonly folder: string;
  readonly root: string;
  readonly config: ImageConfig;
  readonly index: number;
}

/** Starts a container with a root that cannot be written, no capability, and a network of its own. */
async function startContainer(
  { folder, root, config, index }: Bundle,
  args = config.Cmd,
  { env = {}, user, entrypoint = config.Entrypoint, mounts = [] }: Differences = {},
): Promise<Container> {
  const bundle = join(folder, `container-${index}`);
  await mkdir(bundle);
  await run('runc', ['spec', '--bundle', bundle]);
  const spec = JSON.parse(await readFile(join(bundle, 'config.json'), 'utf8'));
  const [uid, gid] = user === undefined ? config.User.split(':').map(Number) : [user, user];
  Object.assign(spec.process, {
    terminal: false,
    user: { uid, gid },
    args: [...entrypoint, ...args],
    env: [...config.Env, ...Object.entries(env).map(([name, value]) => `${name}=${value}`)],
    capabilities: {},
  });
  spec.root = { path: root, readonly: true };
  spec.mounts.push(memoryMount('/tmp'), ...mounts);
  await writeFile(join(bundle, 'config.json'), JSON.stringify(spec));
  const [state, name] = [['--root', join(folder, 'containers')], `meshcache-${process.pid}-${index}`];
  const runc = (...words: string[]): Promise<Ended> =>
    new Promise((resolve) => {
      const child = execFile('runc', [...state, ...words], { maxBuffer: 2 ** 26 }, (_, stdout, stderr) =>
        resolve({ status: child.exitCode, stdout, stderr }),
      );
    });
  return {
    ended: runc('run', '--bundle', bundle, name),
    under: ['runc', ...state, 'exec', name],
    pid: async () => JSON.parse((await runc('state', name)).stdout).pid,
    exec: (words) => runc('exec', name, ...words),
    stop: async () => void (await runc('kill', name, config.StopSignal)),
  };
}
