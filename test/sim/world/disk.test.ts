import test from 'ava';
import type { OpenFile } from '../../../src/base/environment/files.js';
import { type CrashOutcome, FileContent } from '../../../src/sim/world/files/file-content.js';
import { below, forkedRandom } from '../../../src/sim/world/kernel/seeds.js';
import type { SimHost } from '../../../src/sim/world/sim-host.js';
import type { SimProcess } from '../../../src/sim/world/sim-process.js';
import { World } from '../../../src/sim/world/world.js';
import { content } from '../../_support/support.js';

const PATH = '/file';
const BYTES = 100_000;

function begin(seed = 1): { world: World; host: SimHost; process: SimProcess } {
  const world = new World({ seed });
  const host = world.host({ name: 'a' });
  return { world, host, process: host.start() };
}

async function write(file: OpenFile, bytes: Uint8Array, position = 0): Promise<void> {
  for (let done = 0; done < bytes.length; ) done += await file.write([bytes.subarray(done)], position + done);
}

/** What is there after a crash, of a file whose first version was flushed and whose second was not. */
async function afterCrash(outcome: CrashOutcome | undefined, seed = 1): Promise<Buffer> {
  const { world, host, process } = begin(seed);
  const { files } = process.environment;
  await world.complete(
    process.run(async () => {
      const file = await files.open(PATH, { write: true, create: true });
      await write(file, new Uint8Array(BYTES).fill(1));
      await file.datasync();
      for (let at = 0; at < BYTES; at += 10_000) await write(file, new Uint8Array(10_000).fill(2), at);
    }),
  );
  host.disk.crashOutcome = outcome;
  host.restart();
  return Buffer.from(host.start().environment.files.readFileSync(PATH));
}

test.serial('disks: what was flushed is there after a crash, of the rest what the crash leaves', async (t) => {
  t.true((await afterCrash('lost')).every((byte) => byte === 1));
  t.true((await afterCrash('kept')).every((byte) => byte === 2));
  const prefixes = new Set<number>();
  for (let seed = 1; seed <= 20; seed++) {
    const prefix = await afterCrash('prefix', seed);
    const length = prefix.indexOf(1);
    if (length >= 0) {
      t.true(prefix.subarray(length).every((byte) => byte === 1));
      // A crash tears between sectors, within a write as well.
      t.true(length % 512 === 0 || length % 10_000 < 512, String(length));
      prefixes.add(length);
    }
  }
  t.true(prefixes.size > 5);
  const sectors = await afterCrash('sectors');
  let changes = 0;
  for (let at = 512; at < BYTES - 512; at += 512) {
    const sector = sectors.subarray(at, at + 512);
    t.true(sector.every((byte) => byte === sector[0]));
    if (sectors[at] !== sectors[at - 1]) changes++;
  }
  t.true(changes > 50, `${changes} changes`);
});

test.serial('disks: any of these may happen, by the seed', async (t) => {
  const seen = new Set<string>();
  for (let seed = 1; seed <= 20; seed++) {
    const bytes = await afterCrash(undefined, seed);
    const ones = bytes.filter((byte) => byte === 1).length;
    seen.add(ones === 0 ? 'kept' : ones === BYTES ? 'lost' : 'mixed');
    t.deepEqual(await afterCrash(undefined, seed), bytes);
  }
  t.is(seen.size, 3);
});

test.serial('disks: content after a crash is of a version since the last flush, in every sector', (t) => {
  const seed = 1;
  t.log(`seed ${seed}`);
  const random = forkedRandom(seed, 'content');
  for (let round = 0; round < 60; round++) {
    const file = new FileContent();
    // Each sector has the number of the write that it is of; what is flushed cannot be lost.
    const least = new Uint8Array(100);
    const last = new Uint8Array(100);
    file.write(new Uint8Array(51_200), 0, 0);
    file.beginFlush()(true);
    for (let version = 1; version < 40; version++) {
      const from = below(random, 90);
      const count = 1 + below(random, 10);
      file.write(new Uint8Array(512 * count).fill(version), 512 * from, version);
      last.fill(version, from, from + count);
      if (below(random, 4) > 0) continue;
      const end = file.beginFlush();
      const flushed = last.slice();
      // Writes while a flush is under way are not of it.
      if (below(random, 2) > 0) {
        file.write(new Uint8Array(512).fill(100 + version), 512 * from, version);
        last[from] = 100 + version;
      }
      end(true);
      least.set(flushed);
    }
    const outcome = (['lost', 'kept', 'prefix', 'sectors'] as const)[below(random, 4)] as CrashOutcome;
    const before = new Uint8Array(51_200);
    file.read(before, 0);
    for (let i = 0; i < 100; i++) t.is(before[512 * i], last[i]);
    file.crash(outcome, random);
    const after = new Uint8Array(51_200);
    t.is(file.read(after, 0), 51_200);
    for (let i = 0; i < 100; i++) {
      const found = after[512 * i] as number;
      if (outcome === 'lost') t.is(found, least[i] as number);
      else if (outcome === 'kept') t.is(found, last[i] as number);
      else t.true(found % 100 >= (least[i] as number) % 100, `${outcome}: ${found} after ${least[i]}`);
    }
  }
});

test.serial('disks: names that were not committed come back in their order', async (t) => {
  for (let seed = 1; seed <= 10; seed++) {
    const { world, host, process } = begin(seed);
    const { files } = process.environment;
    await world.complete(
      process.run(async () => {
        await files.writeFile('/kept', 'kept');
        const file = await files.open('/kept', { write: true });
        await file.datasync();
        await files.rename('/kept', '/moved');
        await files.writeFile('/kept', 'new');
        await files.rm('/moved');
      }),
    );
    host.disk.crashOutcome = seed === 1 ? 'lost' : undefined;
    host.restart();
    if (seed === 1) t.is(host.start().environment.files.readFileSync('/kept').toString(), 'kept');
    const names = [...host.disk.tree.root.entries.keys()].filter((name) => name !== 'tmp').sort();
    t.true(
      [['kept'], ['moved'], ['kept', 'moved']].some((each) => each.join() === names.join()),
      names.join(),
    );
  }
});

test.serial('disks: a write is whole when its process is killed, and its host lives', async (t) => {
  const { world, host, process } = begin();
  const { files } = process.environment;
  let isWritten = false;
  await world.complete(
    process.run(async () => {
      const file = await files.open(PATH, { write: true, create: true });
      file.write([content(1, 1000)], 0).then(() => (isWritten = true));
    }),
  );
  process.kill();
  await world.runFor(100);
  t.false(isWritten);
  t.deepEqual(host.start().environment.files.readFileSync(PATH), Buffer.from(content(1, 1000)));
});

test.serial('disks: full, read-only and failing disks say so', async (t) => {
  const { world, host, process } = begin();
  const { files } = process.environment;
  const { disk } = host;
  const run = <T>(fn: () => Promise<T>): Promise<T> => world.complete(process.run(fn));
  const file = await run(() => files.open(PATH, { write: true, create: true }));
  await run(() => write(file, new Uint8Array(1000)));
  disk.isFull = true;
  t.is(await run(() => files.freeBytes('/')), 0);
  await t.throwsAsync(
    run(() => write(file, new Uint8Array(100_000), 50_000)),
    { code: 'ENOSPC' },
  );
  await t.throwsAsync(
    run(() => file.reserve(1e6)),
    { code: 'ENOSPC' },
  );
  await run(() => write(file, new Uint8Array(500)));
  disk.isFull = false;
  disk.isReadOnly = true;
  await t.throwsAsync(
    run(() => write(file, new Uint8Array(1))),
    { code: 'EROFS' },
  );
  await t.throwsAsync(
    run(() => files.mkdir('/folder')),
    { code: 'EROFS' },
  );
  await t.throwsAsync(
    run(() => files.rm(PATH)),
    { code: 'EROFS' },
  );
  await t.throwsAsync(
    run(() => files.open(PATH, { write: true })),
    { code: 'EROFS' },
  );
  t.is((await run(() => files.readFile(PATH))).length, 1000);
  disk.isReadOnly = false;
  disk.errorProbability.read = 1;
  disk.errorProbability.write = 1;
  await t.throwsAsync(
    run(() => write(file, new Uint8Array(1))),
    { code: 'EIO' },
  );
  await t.throwsAsync(
    run(() => file.read([new Uint8Array(1)], 0)),
    { code: 'EIO' },
  );
  await t.throwsAsync(
    run(() => files.readFile(PATH)),
    { code: 'EIO' },
  );
});

test.serial('disks: what a failed flush should have flushed is lost, though a later flush succeeds', async (t) => {
  const { world, host, process } = begin();
  const { files } = process.environment;
  await world.complete(
    process.run(async () => {
      const file = await files.open(PATH, { write: true, create: true });
      await write(file, new Uint8Array(50_000).fill(1));
      await file.datasync();
      await write(file, new Uint8Array(50_000).fill(2));
      host.disk.errorProbability.flush = 1;
      await t.throwsAsync(file.datasync(), { code: 'EIO' });
      host.disk.errorProbability.flush = 0;
      await file.datasync();
      // What is written again is flushed.
      await write(file, new Uint8Array(16_384).fill(3));
      await file.datasync();
    }),
  );
  host.disk.crashOutcome = 'lost';
  host.restart();
  const bytes = host.start().environment.files.readFileSync(PATH);
  t.true(bytes.subarray(0, 16_384).every((byte) => byte === 3));
  t.true(bytes.subarray(16_384).every((byte) => byte === 1));
});

test.serial('disks: bits rot, a slow disk is slow, and a new disk is empty', async (t) => {
  const { world, host, process } = begin();
  const { files } = process.environment;
  const bytes = content(1, 1e6);
  await world.complete(process.run(() => files.writeFile(PATH, bytes)));
  host.disk.rot(5);
  const rotten = files.readFileSync(PATH);
  t.true(rotten.filter((byte, i) => byte !== bytes[i]).length > 0);
  const timed = async (): Promise<number> => {
    const startedMs = world.nowMs;
    await world.complete(process.run(() => files.readFile(PATH)));
    return world.nowMs - startedMs;
  };
  const fastMs = await timed();
  host.disk.slowness = 100;
  t.true((await timed()) > 50 * fastMs);
  host.restart({ keepsDisks: false });
  t.throws(() => host.start().environment.files.readFileSync(PATH), { code: 'ENOENT' });
});

test.serial('disks: what was written half a minute ago has reached the disk by itself', async (t) => {
  const { world, host, process } = begin();
  const { files } = process.environment;
  const file = await world.complete(process.run(() => files.open(PATH, { write: true, create: true })));
  await world.complete(process.run(() => write(file, new Uint8Array(1000).fill(1))));
  await world.runFor(31_000);
  await world.complete(process.run(() => write(file, new Uint8Array(1000).fill(2), 1000)));
  host.disk.crashOutcome = 'lost';
  host.restart();
  t.deepEqual(host.start().environment.files.readFileSync(PATH), Buffer.alloc(1000, 1));
});

test.serial(
  'disks: what goes past the system is aligned, takes the time of the disk, and is there a second later',
  async (t) => {
    const { world, host, process } = begin();
    const { files } = process.environment;
    const run = <T>(fn: () => Promise<T>): Promise<T> => world.complete(process.run(fn));
    const file = await run(() => files.open(PATH, { write: true, create: true, direct: true }));
    await t.throwsAsync(
      run(() => file.write([new Uint8Array(512)], 100)),
      { code: 'EINVAL' },
    );
    await t.throwsAsync(
      run(() => file.write([new Uint8Array(100)], 512)),
      { code: 'EINVAL' },
    );
    await t.throwsAsync(
      run(() => file.read([new Uint8Array(100)], 512)),
      { code: 'EINVAL' },
    );
    await run(() => files.writeFile('/other', ''));
    await run(async () => (await files.open('/other')).datasync());
    const startedMs = world.nowMs;
    await run(() => write(file, new Uint8Array(15_000 * 512).fill(1)));
    t.true(world.nowMs - startedMs > 5);
    await world.runFor(1_001);
    host.disk.crashOutcome = 'lost';
    host.restart();
    t.true(
      host
        .start()
        .environment.files.readFileSync(PATH)
        .every((byte) => byte === 1),
    );
    const without = world.host({ name: 'b', disk: { hasDirect: false } }).start();
    const open = () => without.environment.files.open(PATH, { write: true, create: true, direct: true });
    await t.throwsAsync(world.complete(without.run(open)), { code: 'EINVAL' });
  },
);

test.serial('disks: what was under way when the host died has no effect on what comes after', async (t) => {
  const { world, host, process } = begin();
  const { files } = process.environment;
  const file = await world.complete(process.run(() => files.open(PATH, { write: true, create: true })));
  await world.complete(process.run(() => write(file, new Uint8Array(1000))));
  await world.complete(process.run(() => file.datasync()));
  const late: string[] = [];
  file.truncate(0).then(() => late.push('truncated'));
  files.rm(PATH).then(() => late.push('removed'));
  host.restart();
  await world.runFor(1_000);
  t.is(host.start().environment.files.readFileSync(PATH).length, 1000);
  t.deepEqual(late, []);
});
