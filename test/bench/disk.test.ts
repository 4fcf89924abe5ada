import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { diskBench } from '../../src/bench/disk/disk.js';
import { LoopDelay } from '../../src/bench/disk/disk-store-contender.js';

test('disk bench: a quick run measures every contender at every page size, checks the bytes, and leaves nothing', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'meshcache-disk-bench-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  const { rows, notes } = await diskBench({ rounds: 1, quick: true, dir, progress() {} });
  for (const page of ['64 KiB', '1 MiB', '4 MiB']) {
    const these = rows.filter((row) => row.page === page);
    for (const contender of [
      'DiskStore',
      'DiskStore, unaligned memory',
      'DiskStore.put, getInto',
      'one file per page',
    ]) {
      const row = these.find((one) => one.contender === contender);
      for (const step of ['write', 'rewrite', 'read']) {
        t.true(Number(row?.[`${step}_gb_per_s`]) > 0, `${page} ${contender} ${step}`);
        t.true(Number(row?.[`${step}_ratio`]) > 0, `${page} ${contender} ${step}`);
      }
    }
    const [first] = these;
    t.is(first?.write_ratio, 1, 'ratios are to the first row');
    t.true(Number(these.find((row) => row.contender === 'DiskStore')?.loop_max_ms) > 0);
    const hasFio = String(first?.contender).startsWith('fio');
    t.is(hasFio, !notes.some((note) => /Left out: fio/.test(note)));
    t.is(
      these.some((row) => row.contender === 'lmdb'),
      !notes.some((note) => /Left out: the package lmdb/.test(note)),
    );
  }
  const space = /at most (\d+) bytes on disk of (\d+) allowed, in (\d+) samples while (\d+) were written/.exec(
    notes.join('\n'),
  );
  const [used, allowed, samples, written] = (space ?? []).slice(1).map(Number) as [number, number, number, number];
  t.true(used > 0 && used <= allowed, `${used} of ${allowed}`);
  t.true(samples > 1 && written >= 10 * allowed);
  t.regex(notes.join('\n'), /Memory: \d+ bytes a page on disk, at 2000 pages/);
  t.deepEqual(readdirSync(dir), []);
});

test('disk bench: the time between two pieces of work does not count as delay of the event loop', async (t) => {
  const delay = new LoopDelay();
  const briefly = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
  await delay.during(() => briefly(50));
  await briefly(2_000);
  await delay.during(() => briefly(50));
  t.true(delay.maxMs > 0 && delay.maxMs < 1_500, `${delay.maxMs} ms`);
  await delay.during(async () => {
    await briefly(20);
    const untilMs = performance.now() + 100;
    while (performance.now() < untilMs);
    await briefly(20);
  });
  t.true(delay.maxMs >= 90, `${delay.maxMs} ms`);
});
