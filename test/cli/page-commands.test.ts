import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { defaultClientSocket } from '../../src/clients/socket-path.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { type CliRun, collect, startCli } from '../_support/cli/run-cli.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort } from '../_support/support.js';

const SECRET = 'a secret of at least 16 characters';

/** Folders of a test's own, so that nothing of this machine's nodes is found, and what is left behind is seen. */
interface Place {
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
  /** What is left behind in the folders of the system. */
  left(): string[];
}

function placeFor(t: ExecutionContext): Place {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-pages-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [temp, runtime] = [join(folder, 'temp'), join(folder, 'runtime')];
  for (const path of [temp, runtime]) mkdirSync(path);
  const env = { TMPDIR: temp, XDG_RUNTIME_DIR: runtime, MESHCACHE_SOCKET: '' };
  const files = (path: string): string[] => readdirSync(path, { recursive: true, encoding: 'utf8' });
  return { folder, env, left: () => [...files(temp), ...files(runtime)] };
}

/** Runs the command; `input`: its stdin. Stdout as bytes beside the text. */
async function run(
  { env }: Place,
  args: readonly string[],
  { input, more = {} }: { input?: Uint8Array; more?: Readonly<Record<string, string>> } = {},
): Promise<CliRun & { readonly bytes: Buffer }> {
  // Under a shell that hands on what it reads: stdin of the command is a pipe then.
  const under = input === undefined ? [] : ['sh', '-c', 'printf %s "$INPUT" | base64 -d | "$@"', 'sh'];
  const text: Readonly<Record<string, string>> =
    input === undefined ? {} : { INPUT: Buffer.from(input).toString('base64') };
  const child = startCli(args, { env: { ...env, ...more, ...text }, under });
  const chunks: Buffer[] = [];
  child.stdout?.on('data', (chunk: Buffer | string) => chunks.push(Buffer.from(chunk as string, 'utf8')));
  const ended = await collect(child);
  return { ...ended, bytes: Buffer.concat(chunks) };
}

async function startNode(t: ExecutionContext, extra: Record<string, unknown>, port?: number): Promise<MeshCacheStore> {
  const store = await createStore(port ?? (await freePort()), extra);
  t.teardown(() => store.close());
  return store;
}

test.serial('pages: put, get, exists, stat and delete by --socket, as text and as JSON', async (t) => {
  const place = placeFor(t);
  const socket = join(place.folder, 'node.sock');
  const store = await startNode(t, { client_socket: socket });
  const on = (...args: string[]) => run(place, [...args, '--socket', socket]);
  t.like(await on('put', 'greeting', '--text', 'hello'), { status: 0, stdout: 'greeting: 5 B set\n', stderr: '' });
  t.like(await on('get', 'greeting'), { status: 0, stdout: 'hello', stderr: '' });
  const asJson = JSON.parse((await on('get', 'greeting', '--json')).stdout) as unknown;
  t.deepEqual(asJson, { key: 'greeting', bytes: 5, base64: Buffer.from('hello').toString('base64') });
  t.like(await on('exists', 'greeting'), { status: 0, stdout: 'greeting: there\n' });
  t.like(await on('exists', 'greeting', 'none'), {
    status: 1,
    stdout: 'greeting: there\nnone: not there\n',
    stderr: '',
  });
  t.deepEqual(JSON.parse((await on('exists', 'greeting', 'none', '--json')).stdout), { greeting: true, none: false });
  const stat = await on('stat', 'greeting', 'none', '--json');
  t.is(stat.status, 1);
  t.deepEqual(JSON.parse(stat.stdout), [
    { key: 'greeting', length: 5, holders: [{ node_id: store.runtime.nodeId, tier: 'memory' }] },
    { key: 'none', length: null, holders: [] },
  ]);
  const table = await on('stat', 'greeting');
  t.is(table.status, 0);
  t.regex(table.stdout, new RegExp(`greeting +5 B +${store.runtime.nodeId} +memory`));
  t.deepEqual(JSON.parse((await on('put', 'other', '--text', 'x', '--json')).stdout), { key: 'other', bytes: 1 });
  t.like(await on('delete', 'greeting', 'other'), { status: 0, stdout: 'greeting: deleted\nother: deleted\n' });
  t.like(await on('get', 'greeting'), { status: 1, stdout: '', stderr: 'error: greeting: not found\n' });
  t.like(await on('stat', 'greeting'), { status: 1 });
  t.deepEqual(place.left(), []);
});

test.serial('pages: ping says how fast the node answers', async (t) => {
  const place = placeFor(t);
  const socket = join(place.folder, 'node.sock');
  const store = await startNode(t, { client_socket: socket });
  const one = await run(place, ['ping', '--socket', socket]);
  t.is(one.status, 0);
  t.regex(one.stdout, new RegExp(`^${store.runtime.nodeId} answers: [0-9.]+ ms\n$`));
  const many = await run(place, ['ping', '--socket', socket, '-n', '50', '--json']);
  const { node_id, pings, p50_ms, p99_ms, max_ms } = JSON.parse(many.stdout);
  t.deepEqual([node_id, pings], [store.runtime.nodeId, 50]);
  t.true(p50_ms > 0 && p50_ms <= p99_ms && p99_ms <= max_ms);
});

test.serial('pages: bytes of any kind go through files, stdin and stdout as they are', async (t) => {
  const place = placeFor(t);
  const socket = join(place.folder, 'node.sock');
  const store = await startNode(t, { client_socket: socket });
  const on = (...args: string[]) => run(place, [...args, '--socket', socket]);
  const [page, small] = [content(1, 3_000_001), content(2, 5_000)];
  const [from, to] = [join(place.folder, 'from.bin'), join(place.folder, 'to.bin')];
  writeFileSync(from, page);
  t.is((await on('put', 'large', from)).status, 0);
  t.like(await on('get', 'large', to), { status: 0, stdout: `large: 2.861 MiB written to ${to}\n` });
  t.true(readFileSync(to).equals(page));
  for (const file of [[], ['-']]) {
    const put = await run(place, ['put', 'small', ...file, '--socket', socket], { input: small });
    t.is(put.status, 0, put.stderr);
    t.deepEqual(await store.get('small'), small);
    const got = await run(place, ['get', 'small', ...file, '--socket', socket, '--json']);
    t.true(Buffer.from(JSON.parse(got.stdout).base64, 'base64').equals(small));
    await store.delete(['small']);
  }
  // To a file by the shell: what is a pipe's is a file's.
  const child = startCli(['get', 'large', '--socket', socket], {
    env: place.env,
    under: ['sh', '-c', 'exec "$@" > "$TMPDIR/out.bin"', 'sh'],
  });
  t.is((await collect(child)).status, 0);
  const out = join(place.env.TMPDIR as string, 'out.bin');
  t.true(readFileSync(out).equals(page));
});

test.serial('pages: the node is found by MESHCACHE_SOCKET, and in the run-time folder', async (t) => {
  const place = placeFor(t);
  const socket = join(place.folder, 'a', 'node.sock');
  const known = defaultClientSocket({ runtimeFolder: place.env.XDG_RUNTIME_DIR, uid: 1000 });
  await startNode(t, { client_socket: socket });
  mkdirSync(dirname(known), { recursive: true });
  await startNode(t, { client_socket: known });
  const more = { MESHCACHE_SOCKET: socket };
  t.is((await run(place, ['put', 'here', '--text', 'a'], { more })).status, 0);
  t.is((await run(place, ['put', 'there', '--text', 'b'])).status, 0);
  t.like(await run(place, ['exists', 'here', 'there'], { more }), { stdout: 'here: there\nthere: not there\n' });
  t.like(await run(place, ['exists', 'here', 'there']), { stdout: 'here: not there\nthere: there\n' });
});

test.serial('pages: keys are of the namespace that is named, else of the node', async (t) => {
  const place = placeFor(t);
  const socket = join(place.folder, 'node.sock');
  const store = await startNode(t, { client_socket: socket });
  const parts = ['--model', 'llama', '--dtype', 'fp8', '--layout', 'page_first', '--tag', 'v1'];
  const on = (...args: string[]) => run(place, [...args, '--socket', socket]);
  t.is((await on('put', 'key', '--text', 'named', ...parts)).status, 0);
  t.is((await on('get', 'key')).status, 1);
  t.is((await on('get', 'key', ...parts.slice(0, 6))).status, 1);
  t.is((await on('get', 'key', ...parts)).stdout, 'named');
  const named = store.namespace({ modelName: 'llama', dtype: 'fp8', layout: 'page_first', tag: 'v1' });
  t.is(Buffer.from((await named.get('key')) ?? []).toString(), 'named');
  t.is((await on('get', 'key', ...parts, '--fingerprint', '5eed')).status, 1);
});

test.serial('pages: pages of other weights are not found', async (t) => {
  const place = placeFor(t);
  const socket = join(place.folder, 'node.sock');
  await startNode(t, { client_socket: socket });
  const on = (command: string[], fingerprint: string) =>
    run(place, [...command, '--model', 'test', '--fingerprint', fingerprint, '--socket', socket]);
  t.is((await on(['put', 'key', '--text', 'page'], '5eed')).status, 0);
  t.like(await on(['get', 'key'], '5eed'), { status: 0, stdout: 'page' });
  t.like(await on(['get', 'key'], '5eee'), { status: 1, stdout: '', stderr: 'error: key: not found\n' });
});

for (const secret of [undefined, SECRET]) {
  test.serial(`pages: a cluster is asked by --discovery-addr${secret ? ', with its secret' : ''}`, async (t) => {
    const place = placeFor(t);
    const port = await freePort();
    const shared = secret === undefined ? {} : { cluster_secret: secret };
    const store = await startNode(t, shared, port);
    t.true(await store.namespace({ modelName: 'llama' }).set('key', Buffer.from('page')));
    const more: Readonly<Record<string, string>> = secret === undefined ? {} : { MESHCACHE_CLUSTER_SECRET: secret };
    const on = (...args: string[]) => run(place, [...args, '--discovery-addr', `127.0.0.1:${port}`], { more });
    // No node has a client socket: one that is a member for that long reads.
    t.like(await on('get', 'key', '--model', 'llama'), { status: 0, stdout: 'page', stderr: '' });
    t.like(await on('exists', 'key', 'none', '--model', 'llama'), {
      status: 1,
      stdout: 'key: there\nnone: not there\n',
    });
    const [page] = JSON.parse((await on('stat', 'key', '--model', 'llama', '--json')).stdout);
    t.deepEqual(page, { key: 'key', length: 4, holders: [{ node_id: store.runtime.nodeId, tier: 'memory' }] });
    const put = await on('put', 'other', '--text', 'x');
    t.is(put.status, 1);
    t.regex(put.stderr, /has a client socket on this host, so .* Start a node here with `meshcache node`/);
    t.deepEqual(place.left(), []);
    const socket = join(place.folder, 'node.sock');
    const attached = await startNode(t, { ...shared, client_socket: socket }, port);
    t.is((await on('put', 'other', '--text', 'x')).status, 0);
    t.true(await attached.exists('other'));
    t.deepEqual(place.left(), []);
  });
}

test.serial('pages: without a node the command says what was looked for, and what to do', async (t) => {
  const place = placeFor(t);
  const socket = join(place.folder, 'none.sock');
  const known = defaultClientSocket({ runtimeFolder: place.env.XDG_RUNTIME_DIR, uid: 1000 });
  for (const args of [
    ['ping'],
    ['put', 'k', '--text', 'x'],
    ['get', 'k'],
    ['exists', 'k'],
    ['delete', 'k'],
    ['stat', 'k'],
  ]) {
    const { status, stdout, stderr } = await run(place, [...args, '--socket', socket]);
    t.deepEqual([status, stdout], [1, ''], args[0]);
    t.true(stderr.startsWith(`error: no node at ${socket}: `), stderr);
    t.regex(stderr, /Start one with `meshcache node`, or give --socket or --discovery-addr\.\n$/);
  }
  const byDefault = await run(place, ['ping']);
  t.true(byDefault.stderr.startsWith(`error: no node at ${known}: `), byDefault.stderr);
  t.deepEqual(place.left(), []);
});

test.serial('pages: wrong usage ends with status 2, before anything is done', async (t) => {
  const place = placeFor(t);
  const wrong = [
    ['put'],
    ['get'],
    ['exists'],
    ['delete'],
    ['stat'],
    ['put', 'k', 'file', '--text', 'x'],
    ['put', 'k', '--text', ''],
    ['ping', '-n', '0'],
    ['ping', '--timeout', '0'],
    ['ping', '--socket', '/a', '--discovery-addr', '127.0.0.1:1'],
    ['get', 'k', '--tag'],
  ];
  for (const args of wrong) t.is((await run(place, args)).status, 2, args.join(' '));
  const missing = await run(place, ['put', 'k', join(place.folder, 'no-such-file')]);
  t.is(missing.status, 1);
  t.regex(missing.stderr, /ENOENT.*no-such-file/);
  t.deepEqual(place.left(), []);
});
