import { chmodSync, cpSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { DiskStore } from '../../src/disk/disk-store.js';
import { DAMAGES } from '../_support/disk/damages.js';
import { runAndKill } from '../_support/disk/kill-run.js';
import { bytesOnDisk, dice, inTime, listening, seedOf, silentEnv } from '../_support/disk/kill-support.js';
import { pageOf, versionIn } from '../_support/disk/kill-workload.js';
import { temporaryFolder } from '../_support/disk/mounts.js';

const MAX_BYTES = 24 * 2 ** 20;
/** Of each of two tests. */
const ROUNDS = Number(process.env.MESHCACHE_DAMAGE_ROUNDS ?? 60);
const FILES = ['index', 'pages', 'store.json'];

interface Template {
  readonly path: string;
  readonly other: string;
  readonly seed: number;
  readonly pages: ReadonlyMap<string, Uint8Array>;
}

/** A store of nearly 200 pages, and another one; closed, or left by a process that was killed. */
async function template(t: ExecutionContext, seed: number, how: 'closed' | 'killed'): Promise<Template> {
  const [path, other, copy] = [temporaryFolder(t), temporaryFolder(t), temporaryFolder(t)];
  const run = { maxBytes: MAX_BYTES, seed, version: 0 };
  if (how === 'closed') await runAndKill(path, { ...run, steps: 800 });
  else await runAndKill(path, { ...run, steps: 100_000, after: 'open', delayMs: 1000 });
  await runAndKill(other, { ...run, seed: seed + 1, steps: 800 });
  cpSync(path, copy, { recursive: true, filter: (name) => !name.includes('/lock') });
  const store = await DiskStore.open(copy, MAX_BYTES, { nodeId: 'template', env: listening().env });
  const pages = new Map<string, Uint8Array>();
  for (const key of store.keys()) {
    const bytes = await store.get(key);
    if (bytes !== null) pages.set(key, bytes);
  }
  await store.close();
  return { path, other, seed, pages };
}

interface Outcome {
  readonly kind: 'whole' | 'misses' | 'set aside';
  readonly misses: number;
}

/** The store is opened, everything is read, then it works as a new one does. Throws when anything is wrong. */
async function checkDamaged(path: string, { pages, seed }: Template): Promise<Outcome> {
  const { env, said } = listening();
  const evicted: string[] = [];
  const onEvict = (keys: string[]) => void evicted.push(...keys);
  const store = await inTime('open', DiskStore.open(path, MAX_BYTES, { nodeId: 'damaged', env, onEvict }));
  let misses = 0;
  try {
    const isSetAside = said.some((line) => line.includes('set aside'));
    const keys = store.keys();
    if (isSetAside && (keys.length > 0 || !existsSync(join(path, 'set-aside')))) throw new Error('not set aside');
    for (const key of [...keys, ...pages.keys()]) {
      const bytes = await inTime('get', store.get(key));
      if (bytes === null) misses++;
      else if (!pages.has(key) || Buffer.compare(bytes, pages.get(key) as Uint8Array) !== 0)
        versionIn(seed, key, bytes);
    }
    if (store.info().corruptPages !== evicted.length) throw new Error(`${evicted.length} damaged pages are told`);
    for (let i = 0; i < 20; i++) store.put(`new ${i}`, pageOf(i, 1000 * (i + 1)));
    store.verify();
    await inTime('flush', store.flush());
    store.verify();
    await checkNew(store);
    if ((await bytesOnDisk(path)) > MAX_BYTES) throw new Error(`${await bytesOnDisk(path)} bytes are on disk`);
    await inTime('close', store.close());
    const again = await inTime('open', DiskStore.open(path, MAX_BYTES, { nodeId: 'damaged', env }));
    await checkNew(again);
    await inTime('close', again.close());
    if (isSetAside) return { kind: 'set aside', misses };
    return { kind: misses > 0 ? 'misses' : 'whole', misses };
  } finally {
    await store.close();
  }
}

async function checkNew(store: DiskStore): Promise<void> {
  for (let i = 0; i < 20; i++) {
    const bytes = await inTime('get', store.get(`new ${i}`));
    if (bytes === null || Buffer.compare(bytes, pageOf(i, 1000 * (i + 1))) !== 0) throw new Error(`new ${i} is wrong`);
  }
}

for (const how of ['closed', 'killed'] as const) {
  test(`disk damage: a store that was ${how}, then damaged, serves right pages or misses, or is set aside`, async (t) => {
    t.timeout(60_000 + ROUNDS * 10_000);
    const seed = seedOf(t);
    const random = dice(seed);
    const from = await template(t, seed, how);
    t.log(`${from.pages.size} pages`);
    const pairs = FILES.flatMap((file) => Object.keys(DAMAGES).map((damage) => ({ file, damage })));
    const outcomes = new Map<string, number>();
    const failures: string[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const { file, damage } = pairs[round < pairs.length ? round : random(pairs.length)] as (typeof pairs)[number];
      const path = temporaryFolder(t);
      cpSync(from.path, path, { recursive: true, filter: (name) => !name.includes('/lock') });
      const place = { path: join(path, file), otherPath: join(from.other, file), random };
      let done = damage;
      try {
        done = DAMAGES[damage]?.(place) ?? damage;
        const { kind } = await checkDamaged(path, from);
        const name = `${file} ${damage}: ${kind}`;
        outcomes.set(name, (outcomes.get(name) ?? 0) + 1);
      } catch (error) {
        failures.push(`round ${round}, ${file} ${done.slice(0, 200)}: ${(error as Error).stack}`);
      }
      rmSync(path, { recursive: true, force: true });
    }
    for (const [name, count] of outcomes) t.log(`${name}, ${count} times`);
    t.deepEqual(failures, []);
  });
}

const isRoot = process.getuid?.() === 0;
const asUser = isRoot ? test.skip : test;
const userSuffix = isRoot ? ' (skipped: root may read everything)' : '';

asUser(
  `disk damage: a file that may not be read is an error that says so, and nothing is lost${userSuffix}`,
  async (t) => {
    const path = temporaryFolder(t);
    const open = () => DiskStore.open(path, MAX_BYTES, { nodeId: 'n1', env: silentEnv });
    const store = await open();
    store.put('a', pageOf(1, 5000));
    await store.close();
    for (const file of FILES) {
      chmodSync(join(path, file), 0);
      await t.throwsAsync(open(), { code: 'ERR_DISK', message: /EACCES/ }, file);
      chmodSync(join(path, file), 0o600);
    }
    const again = await open();
    t.is(Buffer.compare((await again.get('a')) as Uint8Array, pageOf(1, 5000)), 0);
    await again.close();
  },
);
