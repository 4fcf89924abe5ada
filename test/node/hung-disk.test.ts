// A disk that did not answer held up every call, health, the end of the node and a start, without a word: file calls had no deadline, and
// took all threads that Node has for them.
import type { ChildProcess } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { MeshCacheClient } from '../../src/client/meshcache-client.js';
import { collect, firstLine, runCli, startCli } from '../_support/cli/run-cli.js';
import { type Hanging, type HungDisk, hungDisk, hungMissing } from '../_support/disk/hung-disk.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { content, freePort, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const PAGE = 64 * 1024;
/** A call may take that long, whatever the disk does, and as long again on a busy machine. */
const CALL_MAX_MS = 2 * 5_000;

interface HungNode {
  readonly child: ChildProcess;
  readonly client: MeshCacheClient;
  readonly health: () => Promise<{ readonly ok: boolean; readonly text: string }>;
  readonly log: () => string;
}

/** A node with a pool of 8 pages and a disk tier; resolves when it has joined. */
async function startNode(t: ExecutionContext, disk: HungDisk): Promise<HungNode> {
  const socket = join(temporaryFolder(t), 'socket');
  const port = await freePort();
  const metrics = await freePort();
  const settings = [`client_socket=${socket}`, `metrics_port=${metrics}`, 'disk_enabled=true', 'protocol=tcp'];
  const more = [`disk_path=${disk.path}`, 'disk_size=32mb', 'local_hostname=127.0.0.1', 'reuse_quarantine_ms=0'];
  const args = ['node', '--discovery-addr', `127.0.0.1:${port}`, '--pool', '512kb'];
  const options = [...settings, ...more].flatMap((setting) => ['-o', setting]);
  const child = startCli([...args, ...options], { env: { ...disk.env, MESHCACHE_LOG: 'info' } });
  t.teardown(() => void child.kill('SIGKILL'));
  let log = '';
  child.stderr?.on('data', (text: Buffer) => {
    log += text.toString();
  });
  await firstLine(child);
  const client = await MeshCacheClient.connect({ socket, timeoutMs: CALL_MAX_MS });
  t.teardown(() => client.close());
  const health = async () => {
    const response = await fetch(`http://127.0.0.1:${metrics}/healthz`);
    return { ok: response.ok, text: await response.text() };
  };
  return { child, client, health, log: () => log };
}

const keysOf = (name: string, count: number) => Array.from({ length: count }, (_, i) => `${name}-${i}`);

async function setAll(client: MeshCacheClient, keys: readonly string[]): Promise<boolean[]> {
  const results: boolean[] = [];
  for (const [i, key] of keys.entries()) results.push(await client.set(key, content(i, PAGE)));
  return results;
}

/** Whether each page can be read; a page that is read has its bytes. */
async function readAll(t: ExecutionContext, client: MeshCacheClient, keys: readonly string[]): Promise<boolean[]> {
  const results: boolean[] = [];
  for (const [i, key] of keys.entries()) {
    const target = new Uint8Array(PAGE);
    const isRead = await timed(t, () => client.get(key, target));
    if (isRead) t.deepEqual(target, content(i, PAGE), key);
    results.push(isRead);
  }
  return results;
}

/** The call's result; it must not take longer than a call may. */
async function timed<T>(t: ExecutionContext, call: () => Promise<T>): Promise<T> {
  const startMs = performance.now();
  const result = await call();
  const tookMs = performance.now() - startMs;
  t.true(tookMs < CALL_MAX_MS, `a call took ${tookMs.toFixed(0)} ms`);
  return result;
}

function hangs(kinds: readonly Hanging[]): void {
  const test = unless(hungMissing);
  test(`hung disk: ${kinds.join(' and ')}: calls end, health says it, and after healing everything is as it was told`, async (t) => {
    const disk = hungDisk(t);
    const node = await startNode(t, disk);
    const { client } = node;
    const early = keysOf('early', 40);
    t.false((await setAll(client, early)).includes(false));
    await until(async () => !(await readAll(t, client, early)).includes(false));

    disk.hang(...kinds);
    const late = keysOf('late', 16);
    const isSet = await timed(t, () => setAll(client, late.slice(0, 1)));
    await readAll(t, client, early.slice(0, 2));
    await timed(t, () => client.delete(['early-5']));
    await until(async () => !(await node.health()).ok);
    t.regex((await node.health()).text, /disk tier has failed/);
    await until(() => node.log().includes('the disk does not answer'));
    isSet.push(...(await setAll(client, late.slice(1))));
    t.false(await timed(t, () => client.get('early-5', new Uint8Array(PAGE))), 'what was deleted is not read');
    await readAll(t, client, early.slice(0, 5));

    disk.heal();
    await until(async () => (await node.health()).ok);
    await until(() => node.log().includes('the disk answers again'));
    const others = early.filter((key) => key !== 'early-5');
    const isFound = await readAll(t, client, early);
    t.deepEqual(
      early.filter((_, i) => !isFound[i]),
      ['early-5'],
      'everything else is found',
    );
    t.false(isSet.includes(false), 'new pages go into the pool');
    await until(async () => (await client.delete(['early-5']))[0] === true);

    node.child.kill('SIGTERM');
    await collect(node.child);
    const again = await startNode(t, disk);
    const found = await readAll(t, again.client, early);
    t.deepEqual(
      early.filter((_, i) => found[i]),
      others,
      'a restart finds the same pages',
    );
    again.child.kill('SIGTERM');
  });
}

hangs(['read']);
hangs(['write']);
hangs(['sync']);
hangs(['read', 'write', 'sync', 'names']);

unless(hungMissing)('hung disk: SIGTERM ends the node, and a deleted page does not come back', async (t) => {
  const disk = hungDisk(t);
  const { child, client } = await startNode(t, disk);
  const keys = keysOf('page', 20);
  t.false((await setAll(client, keys)).includes(false));
  await until(async () => !(await readAll(t, client, keys)).includes(false));
  disk.hang('read', 'write', 'sync', 'names');
  const [isDeleted] = await timed(t, () => client.delete(['page-3']));
  const startMs = performance.now();
  const ended = collect(child);
  child.kill('SIGTERM');
  await ended;
  t.true(performance.now() - startMs < CALL_MAX_MS);
  disk.heal();
  const again = await startNode(t, disk);
  const found = await readAll(t, again.client, keys);
  const rest = keys.filter((key) => key !== 'page-3');
  t.deepEqual(
    rest.filter((key) => found[keys.indexOf(key)]),
    rest,
  );
  t.false(isDeleted === true && found[3] === true, 'a delete that was true holds');
  again.child.kill('SIGTERM');
});

unless(hungMissing)('hung disk: a start and doctor say which folder does not answer, and end', async (t) => {
  const disk = hungDisk(t);
  mkdirSync(disk.path, { mode: 0o700 });
  disk.hang('names');
  const startMs = performance.now();
  const settings = ['disk_enabled=true', `disk_path=${disk.path}`, 'disk_size=32mb', 'protocol=tcp', 'metrics_port=0'];
  const options = [...settings, 'local_hostname=127.0.0.1'].flatMap((setting) => ['-o', setting]);
  const discovery = ['--discovery-addr', `127.0.0.1:${await freePort()}`];
  const [start, doctor] = await Promise.all([
    runCli(['node', ...discovery, '--pool', '16mb', ...options], { env: disk.env }),
    runCli(['doctor', ...discovery, ...options], { env: disk.env }),
  ]);
  t.not(start.status, 0);
  t.regex(start.stderr, /does not answer/);
  t.true(start.stderr.includes(disk.path));
  t.not(doctor.status, 0);
  t.regex(doctor.stdout, /does not answer/);
  t.true(performance.now() - startMs < 4 * CALL_MAX_MS);
});
