import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test, { type ExecutionContext } from 'ava';
import { createUser, give, type User } from '../_support/package/packed.js';
import { canMakeEnvironments } from '../_support/python.js';
import { freePort } from '../_support/support.js';

const TIMEOUT_MS = 240_000;

const hasVenv = canMakeEnvironments();
const withVenv = hasVenv ? test.serial : test.serial.skip;
const why = hasVenv ? '' : ' (skipped: no python3 of 3.10 or newer with venv)';
/** Puts a program where there is no network, not even loopback. */
const offline = spawnSync('unshare', ['--net', 'true']).status === 0 ? ['unshare', '--net'] : [];

let user: User;
/** What the programs get from their surroundings: the socket of a node. */
let env: NodeJS.ProcessEnv;
let stopNode = async (): Promise<void> => {};

/** A node from the installed package; resolves when it is ready. */
async function startNode(t: ExecutionContext<unknown> | { log(text: string): void }): Promise<void> {
  const socket = join(user.folder, 'node.sock');
  const cli = join(user.folder, 'node_modules/meshcache/build/dist/cli.js');
  const args = [
    'node',
    '--discovery-addr',
    `127.0.0.1:${await freePort()}`,
    '--pool',
    '16mb',
    '--client-socket',
    socket,
  ];
  const child = spawn(process.execPath, [cli, ...args, '-o', 'metrics_port=0', '--json'], {
    cwd: user.folder,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'close');
  stopNode = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  child.stderr.on('data', (text: Buffer) => t.log(text.toString()));
  const [line] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), ended.then(() => ['{}'])]);
  if ((JSON.parse(line as string) as { client_socket?: string }).client_socket !== socket) {
    throw new Error(`the node is not ready: ${line}`);
  }
  env = { MESHCACHE_SOCKET: socket };
}

test.before(async (t) => {
  t.timeout(TIMEOUT_MS);
  user = await createUser();
  await startNode(t);
});
test.after.always(async () => {
  await stopNode();
  await user?.remove();
});

/** What the README of an example says that it prints. */
async function promised(example: string): Promise<string> {
  const readme = await readFile(join('examples', example, 'README.md'), 'utf8');
  return /```text\n(.*?)```/s.exec(readme)?.[1] ?? '';
}

withVenv(`package: pip installs it offline in a fresh environment, and the example in Python runs${why}`, async (t) => {
  t.timeout(TIMEOUT_MS);
  const asked = await user.run('npx', ['--no-install', 'meshcache', 'python-path']);
  const path = asked.stdout.trim();
  t.true(path.startsWith(join(user.folder, 'node_modules/meshcache/')), path);
  await user.run('python3', ['-m', 'venv', 'venv']);
  const install = [...offline, 'venv/bin/pip', 'install', '--no-index', '--disable-pip-version-check', path];
  await user.run(install[0] as string, install.slice(1));

  const python = join(user.folder, 'venv/bin/python');
  // `-I`: nothing of this project's surroundings, such as PYTHONPATH.
  const show = `
import meshcache, meshcache.lmcache, meshcache.sglang, meshcache.vllm, sys
classes = [meshcache.sglang.MeshCacheStorage, meshcache.lmcache.MeshCacheConnector, meshcache.vllm.MeshCacheTier]
print(meshcache.__version__, *[each.__name__ for each in classes])
print([name for name in ("numpy", "torch", "sglang", "lmcache", "vllm") if name in sys.modules], meshcache.__file__)`;
  const [first, second] = (await user.run(python, ['-I', '-c', show])).stdout.split('\n');
  const manifest = await readFile(join(user.folder, 'node_modules/meshcache/package.json'), 'utf8');
  t.is(first, `${JSON.parse(manifest).version} MeshCacheStorage MeshCacheConnector MeshCacheTier`);
  t.true(second?.startsWith(`[] ${join(user.folder, 'venv')}`), second);

  await give(user, 'examples/python');
  t.is((await user.run(python, ['-I', 'attach.py'], env)).stdout, await promised('python'));
});

test.serial('package: the example of a client in Node runs', async (t) => {
  t.timeout(TIMEOUT_MS);
  await give(user, 'examples/node-client');
  t.is((await user.run(process.execPath, ['attach.mjs'], env)).stdout, await promised('node-client'));
});
