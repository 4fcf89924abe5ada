import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { checkDisk } from '../../src/cli/doctor/disk.js';
import type { Finding } from '../../src/cli/doctor/finding.js';
import { DiskStore } from '../../src/disk/disk-store.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { unless } from '../_support/unless.js';

const MIB = 2 ** 20;

function newFolder(t: ExecutionContext, parent = tmpdir()): string {
  const folder = mkdtempSync(join(parent, 'meshcache-doctor-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function look(path: string, sizeBytes?: number): Promise<Map<string, Finding>> {
  return new Map((await checkDisk(path, sizeBytes)).map((finding) => [finding.subject, finding]));
}

test('doctor, disk: an empty folder is fine, and stays empty', async (t) => {
  const folder = newFolder(t);
  const findings = await look(folder, 16 * MIB);
  t.deepEqual(
    [...findings].filter(([, { state }]) => state === 'problem'),
    [],
  );
  t.like(findings.get('disk folder'), { state: 'ok', detail: `${folder} can be written` });
  t.regex(findings.get('disk space')?.detail ?? '', /iB free; 16 MiB wanted$/);
  t.regex(findings.get('direct I/O')?.detail ?? '', /^works; .*every byte right$|^not on this file system/);
  t.like(findings.get('disk lock'), { state: 'ok' });
  t.like(findings.get('disk store'), { state: 'ok', detail: 'none yet' });
  t.deepEqual(
    readdirSync(folder).filter((name) => name !== 'lock'),
    [],
  );
});

test('doctor, disk: a folder that is not there is not made; the one above is looked at', async (t) => {
  const folder = newFolder(t);
  const findings = await look(join(folder, 'a/b'));
  t.regex(findings.get('disk folder')?.detail ?? '', /a\/b is not there yet; .* can be written$/);
  t.like(findings.get('disk lock'), { state: 'ok' });
  t.false(existsSync(join(folder, 'a')));
  t.deepEqual(readdirSync(folder), []);
});

test('doctor, disk: a file in place of the folder, and one that may not be written', async (t) => {
  const folder = newFolder(t);
  writeFileSync(join(folder, 'file'), '');
  t.like((await look(join(folder, 'file'))).get('disk folder'), { state: 'problem' });
  t.like((await look(join(folder, 'file/below'))).get('disk folder'), { state: 'problem' });
  if (process.getuid?.() === 0) {
    // Root may write everywhere but here.
    const finding = (await look('/proc/self')).get('disk folder');
    t.like(finding, { state: 'problem' });
    t.truthy(finding?.advice);
    return;
  }
  chmodSync(folder, 0o500);
  t.like((await look(folder)).get('disk folder'), { state: 'problem' });
  chmodSync(folder, 0o700);
});

test('doctor, disk: too little space is a problem, with what would fit', async (t) => {
  const finding = (await look(newFolder(t), 2 ** 49)).get('disk space');
  t.like(finding, { state: 'problem' });
  t.regex(finding?.advice ?? '', /^set disk_size to at most [\d.]+ [GT]iB, or make room$/);
});

test('doctor, disk: where the smallest disk tier has no room, another folder is the advice', async (t) => {
  const finding = (await look('/proc', 8 * MIB)).get('disk space');
  t.like(finding, { state: 'problem', advice: 'make room, or choose another disk_path' });
});

test('doctor, disk: a store is found, its own space counts as free, and who uses it is named', async (t) => {
  const folder = newFolder(t);
  const store = await DiskStore.open(folder, 8 * MIB, { nodeId: 'node-x', env: systemEnvironment() });
  store.put('key', new Uint8Array(4096));
  await store.flush();
  const used = await look(folder);
  t.like(used.get('disk lock'), { state: 'warning' });
  t.regex(used.get('disk lock')?.detail ?? '', new RegExp(`in use by .*${process.pid}.*node-x`));
  await store.close();
  const free = await look(folder, 8 * MIB);
  t.like(free.get('disk lock'), { state: 'ok' });
  t.regex(free.get('disk store')?.detail ?? '', /^a store of /);
  t.regex(free.get('disk space')?.detail ?? '', /taken by the tier itself; 8 MiB wanted$/);
  const again = await DiskStore.open(folder, 8 * MIB, { nodeId: 'node-x', env: systemEnvironment() });
  t.true(again.exists('key'));
  await again.close();
});

test('doctor, disk: half a store, and one that was set aside', async (t) => {
  const folder = newFolder(t);
  writeFileSync(join(folder, 'index'), 'MCIX and more');
  mkdirSync(join(folder, 'set-aside'));
  const findings = await look(folder);
  t.like(findings.get('disk store'), { state: 'warning', detail: 'only index of a store' });
  t.like(findings.get('disk set aside'), { state: 'warning' });
});

test('doctor, disk: files of others are a problem, and stay', async (t) => {
  const folder = newFolder(t);
  writeFileSync(join(folder, 'index'), 'an index of a book');
  t.like((await look(folder)).get('disk store'), { state: 'problem' });
  await t.throwsAsync(DiskStore.open(folder, 8 * MIB, { nodeId: 'node-x', env: systemEnvironment() }), {
    message: /no store's/,
  });
  t.true(existsSync(join(folder, 'index')));
});

unless(existsSync('/dev/shm') ? '' : 'no /dev/shm')(
  'doctor, disk: memory that looks like a disk is named',
  async (t) => {
    const finding = (await look(newFolder(t, '/dev/shm'))).get('disk file system');
    t.like(finding, { state: 'warning', detail: 'tmpfs' });
    t.regex(finding?.advice ?? '', /global_segment_size/);
  },
);
