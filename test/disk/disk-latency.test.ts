import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import test, { type ExecutionContext } from 'ava';
import { type DiskSizes, DiskStore, diskSizeFor } from '../../src/disk/disk-store.js';
import { dice, seedOf, silentEnv } from '../_support/disk/kill-support.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { patientClock } from '../_support/patient-clock.js';
import { content } from '../_support/support.js';

const MIB = 2 ** 20;
const PAGES_COUNT = Number(process.env.MESHCACHE_RESTART_PAGES ?? 20_000);
const RESTART_MAX_MS = 10_000;
const BUSY_MS = 3_000;
const READERS_COUNT = 8;

const open = (path: string, { maxBytes, indexBytes }: DiskSizes) =>
  DiskStore.open(path, maxBytes, { nodeId: 'n1', env: silentEnv, ...(indexBytes === undefined ? {} : { indexBytes }) });

/** The largest delay of the event loop while `work` runs, in milliseconds. */
async function largestDelayMs<T>(work: () => Promise<T>): Promise<{ result: T; delayMs: number }> {
  // What was allocated before is not to be collected now.
  (globalThis as { gc?: () => void }).gc?.();
  const histogram = monitorEventLoopDelay({ resolution: 1 });
  histogram.enable();
  await new Promise((resolve) => setTimeout(resolve, 20));
  histogram.reset();
  const result = await work();
  await new Promise((resolve) => setTimeout(resolve, 5));
  histogram.disable();
  return { result, delayMs: histogram.max / 1e6 };
}

async function fillWith(t: ExecutionContext, path: string, sizes: DiskSizes): Promise<void> {
  const store = await open(path, sizes);
  t.teardown(() => store.close());
  const page = content(1, 4096);
  const view = new DataView(page.buffer);
  for (let i = 0; i < PAGES_COUNT; i++) {
    view.setUint32(0, i, true);
    store.put(`page ${i}`, page);
    if (store.info().queueBytes > 16 * MIB) await store.flush();
  }
  // Used in another order than they lie.
  for (let i = 0; i < PAGES_COUNT; i++) {
    store.touchBatch([`page ${(i * 7919) % PAGES_COUNT}`]);
    if (i % 1000 === 0) await store.flush();
  }
  await store.close();
}

test.serial('disk latency: a restart with many pages, to the first hit', async (t) => {
  t.timeout(240_000);
  const path = temporaryFolder(t);
  const sizes = diskSizeFor(PAGES_COUNT, 4096);
  await fillWith(t, path, sizes);
  const startMs = patientClock.nowMs();
  const { result: store, delayMs } = await largestDelayMs(() => open(path, sizes));
  t.teardown(() => store.close());
  const openMs = patientClock.nowMs() - startMs;
  const hit = await store.get(`page ${PAGES_COUNT >> 1}`);
  const hitMs = patientClock.nowMs() - startMs;
  t.is(new DataView((hit as Uint8Array).buffer).getUint32(0, true), PAGES_COUNT >> 1);
  t.is(store.stats()[1], PAGES_COUNT);
  t.log(
    `${PAGES_COUNT} pages: open ${openMs.toFixed()} ms, first hit ${hitMs.toFixed()} ms, event loop blocked ${delayMs.toFixed(1)} ms at most`,
  );
  t.true(hitMs < RESTART_MAX_MS);
});

test.serial('disk latency: the event loop while eight read and one writes', async (t) => {
  t.timeout(120_000);
  const random = dice(seedOf(t));
  const store = await open(temporaryFolder(t), { maxBytes: 256 * MIB });
  t.teardown(() => store.close());
  const pages = Array.from({ length: 16 }, (_, i) => content(i, MIB));
  for (let i = 0; i < 200; i++) {
    store.put(`k${i}`, pages[i % 16] as Uint8Array);
    if (i % 16 === 15) await store.flush();
  }
  await store.flush();
  const counts = { reads: 0, writes: 0 };
  const endMs = performance.now() + BUSY_MS;
  const read = async (): Promise<void> => {
    const target = new Uint8Array(MIB);
    while (performance.now() < endMs) {
      const first = Math.max(0, counts.writes - 100);
      if (await store.getInto(`k${first + random(200)}`, target)) counts.reads++;
    }
  };
  const write = async (): Promise<void> => {
    while (performance.now() < endMs) {
      store.put(`k${200 + counts.writes}`, pages[counts.writes % 16] as Uint8Array);
      counts.writes++;
      await store.flush();
    }
  };
  const work = () => Promise.all([write(), ...Array.from({ length: READERS_COUNT }, read)]);
  const { delayMs } = await largestDelayMs(work);
  t.log(`${counts.reads} MiB read, ${counts.writes} MiB written, event loop blocked ${delayMs.toFixed(1)} ms at most`);
  t.true(counts.reads > 0 && counts.writes > 0);
  t.is(store.info().corruptPages, 0);
});
