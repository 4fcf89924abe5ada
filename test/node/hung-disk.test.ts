// A disk that did not answer held up every call, health, the end of the node and a start, without a word: file calls
// had no deadline, and took all threads that Node has for them.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { collect, firstLine, runCli } from '../_support/cli/run-cli.js';
import {
  CALL_MAX_MS,
  end,
  found,
  freeAddresses,
  keysOf,
  PAGE_BYTES,
  readAll,
  setAll,
  spawnDiskNode,
  startDiskNode,
  timed,
} from '../_support/disk/disk-node.js';
import { HANGING, type Hanging, type HungDisk, hungDisk, hungMissing } from '../_support/disk/hung-disk.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { freePort, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

/** A table of many hangs takes minutes on a busy machine. */
const TABLE_TIMEOUT_MS = 900_000;

function hangs(kinds: readonly Hanging[]): void {
  const test = unless(hungMissing);
  test(`hung disk: ${kinds.join(', ')}: calls end, health says it, and after healing everything is as it was told`, async (t) => {
    const disk = hungDisk(t);
    const node = await startDiskNode(t, disk);
    const { client } = node;
    const early = keysOf('early', 40);
    t.false((await setAll(t, client, early)).includes(false));
    await until(async () => !(await readAll(t, client, early)).includes(false));

    disk.hang(...kinds);
    const late = keysOf('late', 16);
    const isSet = await setAll(t, client, late.slice(0, 1));
    await readAll(t, client, early.slice(0, 2));
    await timed(t, () => client.delete(['early-5']));
    await until(async () => !(await node.health()).ok);
    t.regex((await node.health()).text, /disk tier has failed/);
    await until(() => node.log().includes('the disk does not answer'));
    isSet.push(...(await setAll(t, client, late.slice(1))));
    t.false(await timed(t, () => client.get('early-5', new Uint8Array(PAGE_BYTES))), 'what was deleted is not read');
    const isRead = await readAll(t, client, early.slice(0, 5));
    const isThere = await Promise.all(early.slice(0, 5).map((key) => timed(t, () => client.exists(key))));
    t.deepEqual(isThere, isRead, 'what no read finds does not exist');

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
    const again = await startDiskNode(t, disk);
    const found = await readAll(t, again.client, early);
    t.deepEqual(
      early.filter((_, i) => found[i]),
      others,
      'a restart finds the same pages',
    );
    again.child.kill('SIGTERM');
  });
}

hangs(HANGING);

const EACH = 'one kind of call at a time: while a node runs, calls end, and afterwards everything is as it was told';
unless(hungMissing)(`hung disk: ${EACH}`, async (t) => {
  t.timeout(TABLE_TIMEOUT_MS);
  const disk = hungDisk(t);
  const node = await startDiskNode(t, disk);
  const { client } = node;
  const keys = keysOf('early', HANGING.length + 12);
  t.false((await setAll(t, client, keys)).includes(false));
  await found(t, node, keys);
  for (const [i, kind] of HANGING.entries()) {
    disk.hang(kind);
    const isSet = await setAll(t, client, keysOf(kind, 4));
    const [isDeleted] = await timed(t, () => client.delete([`early-${i}`]));
    await readAll(t, client, keys.slice(-4));
    t.deepEqual(await readAll(t, client, [`early-${i}`]), [false], `${kind}: what was deleted is not read`);
    disk.heal();
    await until(async () => (await node.health()).ok);
    if (isDeleted !== true) await until(async () => (await client.delete([`early-${i}`]))[0] === true);
    await found(t, node, keys.slice(i + 1));
    t.log(`${kind}: set ${isSet.join(' ')}, deleted ${isDeleted}`);
  }
  await end(node);
  const again = await startDiskNode(t, disk);
  await found(t, again, keys.slice(HANGING.length));
  t.false((await readAll(t, again.client, keys.slice(0, HANGING.length))).includes(true), 'nothing deleted comes back');
  await end(again);
});

/** Starts a node, and ends one, while each of the kinds of calls hangs. */
function startsAndEnds(kinds: readonly Hanging[]): void {
  const title = `a node that starts, and one that ends, while ${kinds.join(', ')} hang one at a time`;
  unless(hungMissing)(`hung disk: ${title}`, async (t) => {
    t.timeout(TABLE_TIMEOUT_MS);
    const disk = hungDisk(t);
    let node = await startDiskNode(t, disk);
    const keys = keysOf('early', kinds.length + 12);
    t.false((await setAll(t, node.client, keys)).includes(false));
    await found(t, node, keys);
    await end(node);
    const deleted: string[] = [];
    for (const [i, kind] of kinds.entries()) {
      disk.hang(kind);
      await startOrRefusal(t, disk, kind);
      disk.heal();
      node = await startDiskNode(t, disk);
      await found(t, node, keys.slice(i));
      t.false((await readAll(t, node.client, deleted)).includes(true), `${kind}: nothing deleted comes back`);
      disk.hang(kind);
      await setAll(t, node.client, keysOf(kind, 4));
      const [isDeleted] = await timed(t, () => node.client.delete([`early-${i}`]));
      if (isDeleted === true) deleted.push(`early-${i}`);
      await timed(t, () => end(node));
      disk.heal();
    }
    node = await startDiskNode(t, disk);
    await found(t, node, keys.slice(kinds.length));
    t.false((await readAll(t, node.client, deleted)).includes(true), 'nothing deleted comes back');
    await end(node);
  });
}

/**
 * Whether a node starts although a call hangs; otherwise it must say within some seconds which folder does not answer.
 */
async function startOrRefusal(t: ExecutionContext, disk: HungDisk, kind: Hanging): Promise<boolean> {
  const startMs = performance.now();
  const child = spawnDiskNode(t, disk, await freeAddresses(t));
  let log = '';
  child.stderr?.on('data', (text: Buffer) => {
    log += text.toString();
  });
  const ended = collect(child);
  const isStarted = await firstLine(child).then(
    () => true,
    () => false,
  );
  // Reserving may take long on a slow disk, and is given more time.
  const limitMs = (kind === 'reserve' || kind === 'remove' ? 6 : 2) * CALL_MAX_MS;
  t.true(performance.now() - startMs < limitMs, `${kind}: a start took ${(performance.now() - startMs).toFixed(0)} ms`);
  child.kill('SIGTERM');
  await ended;
  t.log(`${kind}: ${isStarted ? 'started' : 'refused'}`);
  t.true(isStarted || (log.includes('does not answer') && log.includes(disk.path)), log);
  return isStarted;
}

startsAndEnds(HANGING.slice(0, 5));
startsAndEnds(HANGING.slice(5));

unless(hungMissing)('hung disk: SIGTERM ends the node, and a deleted page does not come back', async (t) => {
  const disk = hungDisk(t);
  const { child, client } = await startDiskNode(t, disk);
  const keys = keysOf('page', 20);
  t.false((await setAll(t, client, keys)).includes(false));
  await until(async () => !(await readAll(t, client, keys)).includes(false));
  disk.hang(...HANGING);
  const [isDeleted] = await timed(t, () => client.delete(['page-3']));
  const startMs = performance.now();
  const ended = collect(child);
  child.kill('SIGTERM');
  await ended;
  t.true(performance.now() - startMs < CALL_MAX_MS);
  disk.heal();
  const again = await startDiskNode(t, disk);
  const found = await readAll(t, again.client, keys);
  const rest = keys.filter((key) => key !== 'page-3');
  t.deepEqual(
    rest.filter((key) => found[keys.indexOf(key)]),
    rest,
  );
  t.false(isDeleted === true && found[3] === true, 'a delete that was true holds');
  again.child.kill('SIGTERM');
});

// Cause: the directory went on naming the node for pages that only its disk has.
unless(hungMissing)(
  'hung disk: on other nodes, too, exists says what reads find, until the disk answers again',
  async (t) => {
    t.timeout(TABLE_TIMEOUT_MS);
    const disk = hungDisk(t);
    const holder = await startDiskNode(t, disk);
    const at = { ...(await freeAddresses(t)), discovery: holder.at.discovery };
    const other = await startDiskNode(t, { path: join(temporaryFolder(t), 'disk'), at });
    const keys = keysOf('page', 40);
    t.false((await setAll(t, holder.client, keys)).includes(false));
    const exist = () => Promise.all(keys.map((key) => timed(t, () => other.client.exists(key))));
    await until(async () => !(await exist()).includes(false));
    disk.hang(...HANGING);
    await readAll(t, holder.client, keys.slice(0, 2));
    await until(() => holder.log().includes('the disk does not answer'));
    await until(async () => (await exist()).filter(Boolean).length <= 8);
    const isThere = await exist();
    t.deepEqual(isThere, await readAll(t, other.client, keys), 'what no read finds does not exist');
    disk.heal();
    await until(async () => !(await exist()).includes(false));
    await found(t, other, keys);
    await Promise.all([end(holder), end(other)]);
  },
);

unless(hungMissing)('hung disk: a start and doctor say which folder does not answer, and end', async (t) => {
  const disk = hungDisk(t);
  mkdirSync(disk.path, { mode: 0o700 });
  disk.hang('open', 'folders');
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

// Cause: a thread of the addon reserved the space, without an end.
unless(hungMissing)('hung disk: a first start says that space cannot be reserved, and ends', async (t) => {
  t.timeout(TABLE_TIMEOUT_MS);
  const disk = hungDisk(t);
  disk.hang('reserve');
  t.false(await startOrRefusal(t, disk, 'reserve'));
  disk.heal();
  const node = await startDiskNode(t, disk);
  t.false((await setAll(t, node.client, keysOf('page', 12))).includes(false));
  await end(node);
});
