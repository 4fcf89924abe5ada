import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { builtinModules } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import test from 'ava';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { deadLinks } from '../_support/docs/markdown.js';
import { createUser, type User } from '../_support/package/packed.js';

const PACKED_MAX_BYTES = 2 * 1024 * 1024;
const CORE_MAX_BYTES = 127_000;

const run = promisify(execFile);

interface Manifest {
  readonly dependencies: Record<string, string>;
  readonly scripts: Record<string, string>;
}

interface Lock {
  readonly packages: Record<string, { readonly dev?: boolean; readonly hasInstallScript?: boolean }>;
}

let user: User;
let root: string;

test.before(async (t) => {
  t.timeout(120_000);
  user = await createUser('unpacked');
  root = join(user.folder, 'node_modules/meshcache');
});
test.after.always(() => user?.remove());

/** Modules that a program imports; examples in its comments do not count. */
function imports(text: string): string[] {
  return [...text.replace(/^ *\*.*$/gm, '').matchAll(/(?:\bfrom\s*|\bimport\s*\(?\s*)["']([^"'\n]+)["']/g)].map(
    ([, name]) => name as string,
  );
}

/** Files that loading `path` loads, itself included. */
function closure(path: string): Set<string> {
  const paths = new Set([path]);
  for (const each of paths) {
    const near = imports(readFileSync(each, 'utf8')).filter((name) => name.startsWith('.'));
    for (const name of near) paths.add(join(dirname(each), name));
  }
  return paths;
}

test('package: the tarball has what a user needs, nothing else, in 2 MB', (t) => {
  const { size, files } = user.packed;
  t.true(size <= PACKED_MAX_BYTES, `${size} bytes packed`);
  const paths = files.map(({ path }) => path);
  const asked = ['package.json', 'README.md', 'LICENSE', 'CHANGELOG.md', 'SECURITY.md', 'build/wasm/meshcache.wasm'];
  for (const path of [
    ...asked,
    'build/dist/cli.js',
    'build/dist/LICENSE-packages.txt',
    'build/dist/dashboard.html',
    'build/python/meshcache/_version.py',
  ])
    t.true(paths.includes(path), path);
  const allowed = [
    /^(package\.json|README\.md|LICENSE|CHANGELOG\.md|CONTRIBUTING\.md|SECURITY\.md)$/,
    /^build\/dist\/([\w-]+\.(js|html)|LICENSE-packages\.txt)$/,
    /^build\/types\/(base|client|clients|core|directory|discovery|disk|memory|metrics|native|net|node|objects|parts|pool|resp|rpc|sim|store|system|transport)\/([\w-]+\/)*[\w-]+\.d\.ts$/,
    /^build\/man\/meshcache(-[a-z]+)*\.1$/,
    /^build\/types\/(index|config|types)\.d\.ts$/,
    /^build\/(wasm\/meshcache\.wasm|native\/meshcache\.node(\.sha256)?)$/,
    /^build\/python\/(pyproject\.toml|README\.md|LICENSE|backend\.py|platform_tag\.py)$/,
    /^build\/python\/meshcache\/(\w+\/)?(\w+\.py|py\.typed)$/,
    /^build\/python\/engine_bench\/(stand_ins\/\w+\/)?\w+\.py$/,
    /^deploy\/(image\/|kubernetes\/\w+\/|helm\/meshcache\/(templates\/|files\/)?)?[\w.-]+$/,
    /^(docs|src)\/([\w-]+\/)*[\w-]+\.md$/,
    /^examples\/[\w-]+\/(README\.md|[\w-]+\.(mjs|py))$/,
  ];
  const strange = paths.filter((path) => !allowed.some((pattern) => pattern.test(path)));
  t.deepEqual(strange, []);
  t.deepEqual(
    paths.filter((path) => path.includes('.test.')),
    [],
  );
  // The addon comes with its checksum or not at all.
  const addon = ['build/native/meshcache.node', 'build/native/meshcache.node.sha256'];
  t.not(addon.filter((path) => paths.includes(path)).length, 1);
});

test('package: no document of it has a link that leads out of it', (t) => {
  const paths = new Set(user.packed.files.map(({ path }) => path));
  const documents = [...paths].filter((path) => path.endsWith('.md'));
  t.true(documents.length > 30);
  const read = (path: string): string | undefined =>
    paths.has(path) ? readFileSync(join(root, path), 'utf8') : undefined;
  for (const path of documents) t.deepEqual(deadLinks(path, read), [], path);
});

test('package: it cannot be published without addresses of its home, its repository and its issues', async (t) => {
  const manifest = JSON.parse(await readFile('package.json', 'utf8'));
  t.is(manifest.scripts.prepublishOnly, 'node test/package/check-addresses.mjs package.json');
  const check = async (content: unknown): Promise<string> => {
    await user.write('manifest.json', JSON.stringify(content));
    const args = ['test/package/check-addresses.mjs', join(user.folder, 'manifest.json')];
    return run(process.execPath, args).then(
      () => 'accepted',
      (error: { stderr: string }) => error.stderr,
    );
  };
  const whole = {
    homepage: 'https://meshcache.dev',
    repository: { type: 'git', url: 'git+https://git.meshcache.dev/meshcache.git' },
    bugs: { url: 'https://git.meshcache.dev/meshcache/issues' },
  };
  t.is(await check({ ...manifest, ...whole }), 'accepted');
  for (const key of ['homepage', 'repository', 'bugs']) {
    const said = await check({ ...manifest, ...whole, [key]: undefined });
    t.regex(said, new RegExp(`package.json has no address in "${key}"`), key);
  }
  t.regex(await check({ ...manifest, ...whole, homepage: 'https://example.com/meshcache' }), /"homepage"/);
  t.regex(await check({ ...manifest, ...whole, bugs: { url: 'change me' } }), /"bugs"/);
});

test('package: its programs are the command and the processes that it starts', (t) => {
  const found = user.packed.files
    .map(({ path }) => /^build\/dist\/(?!chunk-)(.+)\.js$/.exec(path)?.[1])
    .filter((name) => name !== undefined)
    .sort();
  const entries = ['core', 'index', 'native', 'parts', 'sim'];
  t.deepEqual(
    found,
    [
      ...entries,
      'bench-peer',
      'cli',
      'cluster-agent',
      'file-thread',
      'tcp-reading-worker',
      'tcp-serving-worker',
    ].sort(),
  );
});

test('package: the core is below 127 kB with its module, and loads nothing else', (t) => {
  const paths = [...closure(join(root, 'build/dist/core.js')), join(root, 'build/wasm/meshcache.wasm')];
  const bytes = paths.reduce((sum, path) => sum + readFileSync(path).length, 0);
  t.true(bytes < CORE_MAX_BYTES, `${bytes} bytes`);
  const scripts = paths.filter((path) => path.endsWith('.js'));
  t.deepEqual(
    scripts.flatMap((path) => imports(readFileSync(path, 'utf8'))).filter((name) => !name.startsWith('.')),
    [],
  );
});

test('package: nothing runs when it is installed, and all that it imports is a dependency', async (t) => {
  const { dependencies, scripts } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as Manifest;
  for (const name of ['preinstall', 'install', 'postinstall', 'prepare']) t.false(name in scripts, name);
  const lock = JSON.parse(await readFile('package-lock.json', 'utf8')) as Lock;
  const brought = Object.entries(lock.packages).filter(([path, { dev }]) => path !== '' && dev !== true);
  t.true(brought.length > 0);
  t.deepEqual(
    brought.filter(([, { hasInstallScript }]) => hasInstallScript).map(([path]) => path),
    [],
  );
  const dist = join(root, 'build/dist');
  // Contenders of benchmarks, which say so when they are not there.
  const optional = ['hashring', 'ioredis', 'lmdb'];
  const found = new Set<string>();
  for (const file of readdirSync(dist).filter((name) => name.endsWith('.js'))) {
    const text = await readFile(join(dist, file), 'utf8');
    t.notRegex(text, /sourceMappingURL=/, file);
    for (const name of imports(text).filter((each) => !each.startsWith('.'))) {
      if (!name.startsWith('node:') && !builtinModules.includes(name)) found.add(name.replace(/\/.*/, ''));
    }
  }
  const needed = [...found].filter((name) => !optional.includes(name)).sort();
  t.deepEqual(needed, Object.keys(dependencies).sort());
});

test('package: publint finds nothing', async (t) => {
  const pkgDir = root;
  const { messages } = await publint({ pkgDir, pack: false, strict: true });
  const manifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  t.deepEqual(
    messages.map((message) => formatMessage(message, manifest)),
    [],
  );
});

test('package: the types are right in ES modules and for bundlers, says attw', async (t) => {
  t.timeout(60_000);
  const program = 'node_modules/@arethetypeswrong/cli/dist/index.js';
  // A binary has no types.
  const options = ['--profile', 'esm-only', '--exclude-entrypoints', 'meshcache.wasm', '--no-emoji', '--no-color'];
  const result = await run(process.execPath, [program, user.packed.tarball, ...options, '--format', 'ascii']).catch(
    (error) => error as { stdout: string; stderr: string; code: number },
  );
  t.false('code' in result && result.code !== 0, `${result.stdout}${result.stderr}`);
  for (const entry of ['meshcache', 'meshcache/core', 'meshcache/native']) t.true(result.stdout.includes(`"${entry}"`));
});
