// Disks that the kernel itself does not finish calls on. No signal interrupts such a call, so the process of a node
// cannot end before the disk answers; what it has held must be free nevertheless.
import type { ExecutionContext } from 'ava';
import { collect } from '../_support/cli/run-cli.js';
import {
  CALL_MAX_MS,
  type DiskNode,
  end,
  found,
  freeAddresses,
  keysOf,
  listens,
  PAGE_BYTES,
  readAll,
  setAll,
  spawnDiskNode,
  startDiskNode,
  timed,
} from '../_support/disk/disk-node.js';
import { type Freezing, type FrozenDisk, frozenDisk, frozenMissing } from '../_support/disk/frozen-disk.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const test = unless(frozenMissing);

/** A node that has written pages to its disk, all but the last of which have left its memory. */
async function filledNode(t: ExecutionContext, disk: FrozenDisk): Promise<{ node: DiskNode; keys: string[] }> {
  const node = await startDiskNode(t, disk);
  const keys = keysOf('early', 24);
  t.false((await setAll(t, node.client, keys)).includes(false));
  await until(async () => !(await readAll(t, node.client, keys)).includes(false));
  return { node, keys };
}

for (const how of ['writes', 'device'] satisfies Freezing[]) {
  test(`frozen disk: ${how}: while a node runs, calls end, health says it, and afterwards everything is as it was told`, async (t) => {
    const disk = frozenDisk(t);
    const { node, keys } = await filledNode(t, disk);
    disk.freeze(how);
    const late = keysOf('late', 12);
    await setAll(t, node.client, late.slice(0, 4));
    await readAll(t, node.client, keys.slice(0, 4));
    const [isDeleted] = await timed(t, () => node.client.delete(['early-5']));
    await until(async () => !(await node.health()).ok);
    t.regex((await node.health()).text, /disk tier has failed/);
    await setAll(t, node.client, late);
    t.false(
      await timed(t, () => node.client.get('early-5', new Uint8Array(PAGE_BYTES))),
      'what was deleted is not read',
    );
    disk.thaw();
    await until(async () => (await node.health()).ok);
    const rest = keys.filter((_, i) => i !== 5);
    await found(t, node, rest);
    if (isDeleted !== true) await until(async () => (await node.client.delete(['early-5']))[0] === true);
    await end(node);
    const again = await startDiskNode(t, disk);
    await found(t, again, rest);
    t.deepEqual(await readAll(t, again.client, ['early-5']), [false]);
    await end(again);
  });

  test(`frozen disk: ${how}: a node that ends leaves its addresses to the next one, and its pages to the one after`, async (t) => {
    const disk = frozenDisk(t);
    const { node, keys } = await filledNode(t, disk);
    disk.freeze(how);
    await setAll(t, node.client, keysOf('late', 4));
    const [isDeleted] = await timed(t, () => node.client.delete(['early-5']));
    const startMs = performance.now();
    const ended = collect(node.child);
    node.child.kill('SIGTERM');
    await until(async () => !(await listens(node.at)));
    const tookMs = performance.now() - startMs;
    t.true(tookMs < CALL_MAX_MS, `the node could be reached for ${tookMs.toFixed(0)} ms`);
    const next = await startDiskNode(t, { path: temporaryFolder(t), at: node.at });
    t.deepEqual(await setAll(t, next.client, keysOf('next', 4)), [true, true, true, true], next.log());
    await end(next);
    disk.thaw();
    await ended;
    const again = await startDiskNode(t, { path: disk.path, at: node.at });
    await found(
      t,
      again,
      keys.filter((key) => key !== 'early-5'),
    );
    const isThere = await again.client.get('early-5', new Uint8Array(PAGE_BYTES));
    t.false(isDeleted === true && isThere, 'a delete that was true holds');
    await end(again);
  });

  test(`frozen disk: ${how}: a start says which folder does not answer, and holds no address`, async (t) => {
    const disk = frozenDisk(t);
    const { node, keys } = await filledNode(t, disk);
    await end(node);
    const at = await freeAddresses(t);
    disk.freeze(how);
    const child = spawnDiskNode(t, disk, at);
    let log = '';
    child.stderr?.on('data', (text: Buffer) => {
      log += text.toString();
    });
    const ended = collect(child);
    const startMs = performance.now();
    await until(() => log.includes('does not answer'));
    const tookMs = performance.now() - startMs;
    t.true(tookMs < 2 * CALL_MAX_MS, `${tookMs.toFixed(0)} ms`);
    t.true(log.includes(disk.path), log);
    await until(async () => !(await listens(at)));
    disk.thaw();
    await ended;
    const again = await startDiskNode(t, { path: disk.path, at });
    await found(t, again, keys);
    await end(again);
  });
}
