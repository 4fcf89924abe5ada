// Regression: a directory owner that pauses keeps locations of pages that have been overwritten or cleared meanwhile.
// The freed ranges were intact until they were used again, so the old bytes were read as hits.
import { type ChildProcess, fork } from 'node:child_process';
import test, { type ExecutionContext } from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import type { DyingNodeMessage, DyingNodeSetup } from '../_programs/node/dying-node.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort, until } from '../_support/support.js';

const PAGES = 200;
const PAGE_BYTES = 4096;
const PAUSE_MS = 2_500;
const CONFIG = { member_ttl: 20, heartbeat_interval: 0.5 };

/**
 * A store in this process that sets, one that reads, and a node of another process, which owns two thirds of the
 * directory.
 */
interface Trio {
  readonly setter: MeshCacheStore;
  readonly reader: MeshCacheStore;
  readonly owner: ChildProcess;
  /** Keeps the owner from answering for PAUSE_MS; resolves when it has been over for a moment. */
  pause(): Promise<void>;
}

type Pause = 'stopped' | 'busy';

async function trio(t: ExecutionContext, how: Pause, config: Record<string, unknown>): Promise<Trio> {
  const discoveryPort = await freePort();
  const all = { ...CONFIG, ...config };
  const setter = await createStore(discoveryPort, all);
  const reader = await createStore(discoveryPort, all);
  const owner = fork(new URL('./node-dying-node.js', import.meta.url));
  t.teardown(async () => {
    owner.kill('SIGKILL');
    await Promise.all([setter.close(), reader.close()]);
  });
  const setup: DyingNodeSetup = { discoveryPort, config: all, keys: [], pageBytes: 1 };
  owner.send(setup);
  await until(() => setter.stats().members === 3 && reader.stats().members === 3);
  const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  const pause = async (): Promise<void> => {
    if (how === 'busy') owner.send({ busyMs: PAUSE_MS } satisfies DyingNodeMessage);
    else owner.kill('SIGSTOP');
    await sleep(PAUSE_MS);
    owner.kill('SIGCONT');
  };
  return { setter, reader, owner, pause };
}

function pages(t: ExecutionContext): {
  readonly region: HostRegion;
  readonly ptrs: bigint[];
  readonly sizes: number[];
} {
  const region = HostRegion.allocate(PAGES * PAGE_BYTES);
  t.teardown(() => region.free());
  const ptrs = Array.from({ length: PAGES }, (_, i) => region.addr + BigInt(i * PAGE_BYTES));
  return { region, ptrs, sizes: ptrs.map(() => PAGE_BYTES) };
}

const keys = Array.from({ length: PAGES }, (_, i) => `key ${i}`);

function versionOf(bytes: Uint8Array, i: number): number | undefined {
  return [1, 2].find((version) => Buffer.compare(bytes, content(version * 1000 + i, PAGE_BYTES)) === 0);
}

for (const how of ['stopped', 'busy'] as const) {
  for (const config of [{}, { verify_reads: false }] as const) {
    const title = `a directory owner is ${how}${'verify_reads' in config ? ', reads are not verified' : ''}`;
    test.serial(
      `freed pages: ${title}: what was overwritten is not read any more, from the first read on`,
      async (t) => {
        const { setter, reader, pause } = await trio(t, how, config);
        const [source, target] = [pages(t), pages(t)];
        const fill = (version: number): void => {
          for (let i = 0; i < PAGES; i++)
            source.region.bytes(i * PAGE_BYTES, PAGE_BYTES).set(content(version * 1000 + i, PAGE_BYTES));
        };
        const read = async (): Promise<(number | undefined)[]> => {
          const results = await reader.batchGet(keys, target.ptrs, target.sizes);
          return results.map((isRead, i) =>
            isRead ? versionOf(target.region.bytes(i * PAGE_BYTES, PAGE_BYTES), i) : 0,
          );
        };
        fill(1);
        t.true((await setter.batchSet(keys, source.ptrs, source.sizes)).every(Boolean));
        // Without checksums a read that takes long is a miss.
        await until(async () => (await read()).every((version) => version === 1));
        fill(2);
        const paused = pause();
        // Call by call: what waits behind the first calls to the owner is never sent once these have failed.
        const isSet = await Promise.all(keys.map((key, i) => setter.set(key, source.ptrs[i] as bigint, PAGE_BYTES)));
        await paused;
        t.true(isSet.every(Boolean));
        const versions = await read();
        t.deepEqual(
          versions.filter((version) => version !== 2 && version !== 0),
          [],
          'old or other bytes',
        );
        await until(async () => (await read()).every((version) => version === 2));
      },
    );
  }

  test.serial(`freed pages: a directory owner is ${how}: what was cleared is not read any more`, async (t) => {
    const { setter, reader, pause } = await trio(t, how, {});
    const [source, target] = [pages(t), pages(t)];
    source.region.bytes().set(content(7, PAGES * PAGE_BYTES));
    t.true((await setter.batchSet(keys, source.ptrs, source.sizes)).every(Boolean));
    t.true((await reader.batchGet(keys, target.ptrs, target.sizes)).every(Boolean));
    const paused = pause();
    // An owner that has just failed to answer is not told at all.
    await setter.batchExists(keys.map((key) => `unknown ${key}`));
    await setter.clear();
    const during = await reader.batchGet(keys, target.ptrs, target.sizes);
    await paused;
    t.deepEqual(during.filter(Boolean), []);
    t.deepEqual((await reader.batchGet(keys, target.ptrs, target.sizes)).filter(Boolean), []);
    // Its place may be in use again, even by the same bytes under another key.
    t.true(
      (
        await setter.batchSet(
          keys.map((key) => `other ${key}`),
          source.ptrs,
          source.sizes,
        )
      ).every(Boolean),
    );
    t.deepEqual((await reader.batchGet(keys, target.ptrs, target.sizes)).filter(Boolean), []);
  });
}
