import { createHash } from 'node:crypto';
import test from 'ava';
import { HostBuffer, type PageStore, RequestRunner } from '../../src/cli/cluster/request-runner.js';
import { systemClock } from '../../src/system/system-clock.js';

const PAGE_BYTES = 4096;
const KEYS = Array.from({ length: 300 }, (_, i) => createHash('sha256').update(`page ${i}`).digest('hex'));

/** A store in a map, with places where a test makes it fail. */
class MapStore implements PageStore {
  readonly pages = new Map<string, Uint8Array>();
  readonly hits = { local: 0, remote: 0, disk: 0 };
  readonly batchSizes: number[] = [];
  /** What waited for the disk when a batch was set. */
  readonly queuedAtSet: number[] = [];
  /** What a read does instead of the right thing. */
  fault: ((key: string, target: Uint8Array) => boolean) | undefined;
  readonly #buffer: HostBuffer;

  constructor(buffer: HostBuffer) {
    this.#buffer = buffer;
  }

  async batchExists(keys: string[]): Promise<number> {
    const missing = keys.findIndex((key) => !this.pages.has(key));
    return missing < 0 ? keys.length : missing;
  }

  async batchGetV1(keys: string[], hostIndices: ArrayLike<number>): Promise<boolean[]> {
    this.batchSizes.push(keys.length);
    return keys.map((key, i) => {
      const views = this.#views(hostIndices[i] as number);
      const page = this.pages.get(key);
      if (page === undefined) return false;
      if (this.fault !== undefined && !this.fault(key, views[0] as Uint8Array)) return false;
      if (this.fault === undefined) scatter(page, views);
      this.hits.remote++;
      return true;
    });
  }

  async batchSetV1(keys: string[], hostIndices: ArrayLike<number>): Promise<boolean[]> {
    this.queuedAtSet.push(this.queueBytes);
    this.queueBytes += keys.length * PAGE_BYTES;
    return keys.map((key, i) => {
      const page = Buffer.concat(this.#views(hostIndices[i] as number));
      this.pages.set(key, page);
      return true;
    });
  }

  /** Goes down by a page each time that somebody looks. */
  queueBytes = 0;

  stats(): ReturnType<PageStore['stats']> {
    this.queueBytes = Math.max(0, this.queueBytes - PAGE_BYTES);
    return { hits: this.hits, disk: { queueBytes: this.queueBytes } };
  }

  #views(slot: number): Uint8Array[] {
    const { ptrs, sizes } = this.#buffer.getPageBufferMeta([slot]);
    return ptrs.map((ptr, i) => this.#buffer.region.bytes(Number(ptr - this.#buffer.region.addr), sizes[i]));
  }
}

function scatter(page: Uint8Array, views: readonly Uint8Array[]): void {
  let at = 0;
  for (const view of views) {
    view.set(page.subarray(at, at + view.length));
    at += view.length;
  }
}

function runnerOn(components: 1 | 2): { store: MapStore; runner: RequestRunner } {
  const buffer = new HostBuffer({ pageBytes: PAGE_BYTES, components });
  const store = new MapStore(buffer);
  return { store, runner: new RequestRunner(store, buffer, { pageBytes: PAGE_BYTES, clock: systemClock }) };
}

for (const components of [1, 2] as const) {
  test(`request runner: reads the prefix that exists and sets the rest, ${components} components a page`, async (t) => {
    const { store, runner } = runnerOn(components);
    const first = await runner.run([KEYS.slice(0, 200)]);
    t.like(first.counts, { requests: 1, asked: 200, prefixHits: 0, set: 200, setBytes: 200 * PAGE_BYTES });
    const second = await runner.run([KEYS, KEYS, []]);
    t.like(second.counts, { requests: 3, asked: 600, prefixHits: 500, remoteHits: 500, set: 100, wrongBytes: 0 });
    t.is(second.counts.readBytes, 500 * PAGE_BYTES);
    t.deepEqual(store.batchSizes, [128, 72, 128, 128, 44]);
    t.is(second.readLatenciesUs.length, 5);
    t.is(second.lookupLatenciesUs.length, 2);
  });
}

test('request runner: a page that is not delivered ends the prefix and is set again with the rest', async (t) => {
  const { store, runner } = runnerOn(2);
  await runner.run([KEYS.slice(0, 10)]);
  store.fault = (key) => key !== KEYS[4];
  const { counts } = await runner.run([KEYS.slice(0, 10)]);
  t.like(counts, { prefixHits: 4, staleMisses: 1, set: 6 });
});

test('request runner: a read that says true and delivers nothing is noticed, although the page was here before', async (t) => {
  const { store, runner } = runnerOn(1);
  await runner.run([KEYS.slice(0, 3), KEYS.slice(0, 3)]);
  store.fault = () => true;
  const { counts } = await runner.run([KEYS.slice(0, 3)]);
  t.true(counts.wrongBytes > 3 * PAGE_BYTES * 0.98);
});

test('request runner: one wrong byte is one wrong byte', async (t) => {
  const { store, runner } = runnerOn(2);
  await runner.run([KEYS.slice(0, 3)]);
  const page = store.pages.get(KEYS[1] as string) as Uint8Array;
  page[3000] = (page[3000] as number) ^ 1;
  t.is((await runner.run([KEYS.slice(0, 3)])).counts.wrongBytes, 1);
});

test('request runner: a request starts when the disk has taken what the one before it has set', async (t) => {
  const { store, runner } = runnerOn(1);
  await runner.run([KEYS.slice(0, 50), KEYS.slice(50, 60), KEYS.slice(60, 70)]);
  t.deepEqual(store.queuedAtSet, [0, 0, 0]);
});
