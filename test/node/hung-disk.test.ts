// A disk that did not answer held up every call, health, the end of the node and a start, without a word: file calls had no deadline, and
// took all threads that Node has for them.
import { mkdirSync } from 'node:fs';
import { collect, runCli } from '../_support/cli/run-cli.js';
import { CALL_MAX_MS, keysOf, PAGE_BYTES, readAll, setAll, startDiskNode, timed } from '../_support/disk/disk-node.js';
import { type Hanging, hungDisk, hungMissing } from '../_support/disk/hung-disk.js';
import { freePort, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

function hangs(kinds: readonly Hanging[]): void {
  const test = unless(hungMissing);
  test(`hung disk: ${kinds.join(' and ')}: calls end, health says it, and after healing everything is as it was told`, async (t) => {
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

hangs(['read']);
hangs(['write']);
hangs(['sync']);
hangs(['read', 'write', 'sync', 'names']);

unless(hungMissing)('hung disk: SIGTERM ends the node, and a deleted page does not come back', async (t) => {
  const disk = hungDisk(t);
  const { child, client } = await startDiskNode(t, disk);
  const keys = keysOf('page', 20);
  t.false((await setAll(t, client, keys)).includes(false));
  await until(async () => !(await readAll(t, client, keys)).includes(false));
  disk.hang('read', 'write', 'sync', 'names');
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
