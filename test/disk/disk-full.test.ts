import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ExecutionContext } from 'ava';
import { DiskStore } from '../../src/disk/disk-store.js';
import { bytesOnDisk, inTime, silentEnv } from '../_support/disk/kill-support.js';
import { makeReadOnly, mounted, mountSuffix, withMounts } from '../_support/disk/mounts.js';
import { patientClock } from '../_support/patient-clock.js';
import { content } from '../_support/support.js';
import { verifiedEnd } from '../_support/verified.js';

const MIB = 2 ** 20;
const PAGE = 64 * 1024;
const CLOSE_MS = 5_000;
/** A disk that has failed is not written for a while. */
const RECOVERY_MS = 45_000;

async function open(t: ExecutionContext, path: string, maxBytes: number): Promise<DiskStore> {
  const store = await DiskStore.open(path, maxBytes, { nodeId: 'n1', env: silentEnv });
  t.teardown(() => verifiedEnd([store], () => store.close()));
  return store;
}

/** Puts pages, each written or given up before the next. */
async function putAll(store: DiskStore, from: number, to: number): Promise<void> {
  for (let i = from; i < to; i++) {
    store.put(`k${i}`, content(i, PAGE));
    await inTime('flush', store.flush());
    store.verify();
  }
}

/** All pages that are listed; throws at one that is not what was put. */
async function readAll(store: DiskStore): Promise<number> {
  const keys = store.keys();
  for (const key of keys) {
    const bytes = await inTime('get', store.get(key));
    if (bytes === null || Buffer.compare(bytes, content(Number(key.slice(1)), PAGE)) !== 0)
      throw new Error(`${key}: ${bytes === null ? 'a miss' : 'wrong bytes'}`);
  }
  return keys.length;
}

/** Another process takes all space that is left. */
async function fill(path: string): Promise<void> {
  const child = spawn('dd', ['if=/dev/zero', `of=${path}`, 'bs=4k'], { stdio: 'ignore' });
  await once(child, 'exit');
}

/** Whether a page that is put is written, in the end. */
async function writesAgain(store: DiskStore): Promise<boolean> {
  const giveUpAt = performance.now() + RECOVERY_MS;
  for (let i = 9000; performance.now() < giveUpAt; i++) {
    await putAll(store, i, i + 1);
    if (store.keys().includes(`k${i}`)) return true;
    await sleep(100);
  }
  return false;
}

const CASES = [
  { type: 'tmpfs', mib: 8, maxBytes: 4 * MIB },
  { type: 'ext4', mib: 64, maxBytes: 32 * MIB },
  { type: 'ext2', mib: 16, maxBytes: 12 * MIB },
] as const;

for (const { type, mib, maxBytes } of CASES) {
  withMounts(
    `disk full: ${type} that others fill: reads go on, writes too once there is space${mountSuffix}`,
    async (t) => {
      t.timeout(120_000);
      const folder = mounted(t, type, mib);
      const path = join(folder, 'store');
      const store = await open(t, path, maxBytes);
      await putAll(store, 0, 20);
      t.is(await readAll(store), 20);
      const filling = fill(join(folder, 'fill'));
      await putAll(store, 20, 60);
      await filling;
      const capacity = Math.floor(store.info().capacityBytes / PAGE);
      await putAll(store, 100, 100 + 3 * capacity);
      const listed = await readAll(store);
      const { skippedPages, writeErrors, corruptPages } = store.info();
      t.log({ listed, skippedPages, writeErrors, corruptPages });
      t.true(listed > 0);
      t.is(corruptPages, 0);
      rmSync(join(folder, 'fill'));
      t.true(await writesAgain(store));
      await inTime('close', store.close());
      const again = await open(t, path, maxBytes);
      t.is(await readAll(again), store.info().entries);
      t.true((await bytesOnDisk(path)) <= maxBytes);
    },
  );
}

withMounts(`disk full: a store closed on a full file system is found again${mountSuffix}`, async (t) => {
  t.timeout(120_000);
  for (const type of ['tmpfs', 'ext4'] as const) {
    const folder = mounted(t, type, 24);
    const path = join(folder, 'store');
    const store = await open(t, path, 8 * MIB);
    await putAll(store, 0, 40);
    await fill(join(folder, 'fill'));
    await putAll(store, 40, 60);
    await inTime('close', store.close());
    const again = await open(t, path, 8 * MIB);
    t.log(type, store.stats(), again.stats());
    t.true((await readAll(again)) >= 40);
    await inTime('close', again.close());
  }
});

withMounts(
  `disk full: too little space for the store: an error that says so, a smaller one fits${mountSuffix}`,
  async (t) => {
    const path = join(mounted(t, 'tmpfs', 8), 'store');
    const error = await t.throwsAsync(open(t, path, 32 * MIB), { code: 'ERR_DISK' });
    t.regex(error.message, /needs .* more on its file system/);
    t.false(existsSync(path), 'what was made for it is gone');
    mkdirSync(path);
    writeFileSync(join(path, 'mine'), 'x');
    await t.throwsAsync(open(t, path, 32 * MIB), { code: 'ERR_DISK' });
    t.deepEqual(readdirSync(path), ['mine'], 'a folder that was there stays');
    const store = await open(t, path, 4 * MIB);
    await putAll(store, 0, 10);
    t.is(await readAll(store), 10);
  },
);

withMounts(`disk read-only: while it runs, reads go on and writes are counted as skipped${mountSuffix}`, async (t) => {
  t.timeout(60_000);
  const folder = mounted(t, 'ext4', 64);
  const path = join(folder, 'store');
  const store = await open(t, path, 16 * MIB);
  await putAll(store, 0, 20);
  // As the kernel does it after an error: in spite of the files that are open.
  execFileSync('mount', ['-o', 'remount,abort', folder]);
  await putAll(store, 20, 40);
  t.is(await readAll(store), 20);
  const { skippedPages, writeErrors } = store.info();
  t.log({ skippedPages, writeErrors });
  t.is(skippedPages, 20);
  t.true(writeErrors > 0);
  const startMs = patientClock.nowMs();
  await inTime('close', store.close());
  t.true(patientClock.nowMs() - startMs < CLOSE_MS);
});

withMounts(`disk read-only: opening a store there is an error that says so${mountSuffix}`, async (t) => {
  const folder = mounted(t, 'ext4', 64);
  const path = join(folder, 'store');
  const store = await open(t, path, 16 * MIB);
  await putAll(store, 0, 5);
  await store.close();
  await makeReadOnly(folder);
  const error = await t.throwsAsync(open(t, path, 16 * MIB), { code: 'ERR_DISK', message: /read-only/ });
  t.log(error.message);
  await t.throwsAsync(open(t, join(folder, 'another'), 16 * MIB), { code: 'ERR_DISK', message: /read-only/ });
  execFileSync('mount', ['-o', 'remount,rw', folder]);
  t.is(await readAll(await open(t, path, 16 * MIB)), 5);
});

// Cause: the index found no room for the removal of the oldest pages, so their places were given to no new ones.
for (const type of ['tmpfs', 'ext4', 'ext2'] as const) {
  withMounts(
    `disk full: ${type} that others fill: new pages take the places of the oldest ones${mountSuffix}`,
    async (t) => {
      t.timeout(180_000);
      const folder = mounted(t, type, 24);
      const store = await open(t, join(folder, 'store'), 12 * MIB);
      await putAll(store, 0, 60);
      t.is(await readAll(store), 60);
      await fill(join(folder, 'fill'));
      const giveUpAt = performance.now() + RECOVERY_MS;
      let last = 100;
      for (; store.info().writtenPages < 160 && performance.now() < giveUpAt; last++) {
        await putAll(store, last, last + 1);
        if (store.info().failure !== null) await sleep(100);
      }
      const listed = await readAll(store);
      t.log({ last, listed, ...store.info() });
      const newest = Array.from({ length: last - 100 }, (_, i) => `k${100 + i}`).filter((key) => store.exists(key));
      t.true(newest.length >= 40, `${newest.length} new pages`);
      t.is(store.info().corruptPages, 0);
      t.true(listed >= 50, `${listed} pages`);
    },
  );
}
