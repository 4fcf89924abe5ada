import test from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import { PLACEMENT_DISK_WRITES, type PlacementOptions, PlacementSimulation } from '../../src/core/index.js';
import { conversations } from '../_programs/core/placement-trace.js';
import { freshCore } from '../_support/core/binaries.js';

const PAGE_BYTES = 4096;

function simulation(poolPages: number, options: Partial<PlacementOptions> = {}): PlacementSimulation {
  return new PlacementSimulation({
    nodes: 1,
    poolBytes: poolPages * PAGE_BYTES,
    pageBytes: PAGE_BYTES,
    core: freshCore(),
    ...options,
  });
}

/** Keys with the least recently used first, at most `room` of them. */
class NaiveLru {
  readonly keys = new Set<number>();

  constructor(readonly room: number) {}

  touch(key: number): void {
    if (this.keys.delete(key)) this.keys.add(key);
  }

  /** Adds a key; returns the one that goes for it. */
  add(key: number): number | undefined {
    const [first] = this.keys;
    const gone = this.keys.size === this.room ? first : undefined;
    if (gone !== undefined) this.keys.delete(gone);
    this.keys.add(key);
    return gone;
  }
}

for (const diskWrite of PLACEMENT_DISK_WRITES) {
  test(`placement disk: a node with LRU and a disk is the same as a naive one, ${diskWrite}`, (t) => {
    for (let seed = 1; seed <= 20; seed++) {
      const trace = conversations(seed, 80).map(({ hashIds, ...rest }) => ({
        ...rest,
        hashIds: [...new Set(hashIds)],
      }));
      const [poolPages, diskPages] = [40 + seed, 100 + 7 * seed];
      const simulated = simulation(poolPages, { diskPages, diskWrite, batchPages: 16 });
      const [pool, disk] = [new NaiveLru(poolPages), new NaiveLru(diskPages)];
      const naive = { localHits: 0, diskHits: 0, diskWrites: 0 };
      const write = (key: number): void => {
        if (disk.keys.has(key)) return;
        disk.add(key);
        naive.diskWrites++;
      };
      for (const request of trace) {
        simulated.request(request);
        const { hashIds } = request;
        const miss = hashIds.findIndex((key) => !pool.keys.has(key) && !disk.keys.has(key));
        const hits = miss < 0 ? hashIds.length : miss;
        for (const key of hashIds.slice(0, hits)) {
          naive[pool.keys.has(key) ? 'localHits' : 'diskHits']++;
          pool.touch(key);
          disk.touch(key);
        }
        for (let start = hits; start < hashIds.length; start += 16) {
          const batch = hashIds.slice(start, start + 16);
          const gone: number[] = [];
          for (const key of batch) {
            const isHere = pool.keys.has(key);
            if (isHere) pool.touch(key);
            const left = isHere ? undefined : pool.add(key);
            if (left !== undefined) gone.push(left);
          }
          for (const key of diskWrite === 'wait' ? batch : gone.filter((key) => !pool.keys.has(key))) write(key);
          for (const key of batch) disk.touch(key);
        }
      }
      simulated.verify();
      const { localHits, diskHits, diskWrites } = simulated.counts();
      t.deepEqual({ localHits, diskHits, diskWrites }, naive, `seed ${seed}`);
      t.true(diskHits > 0 && diskWrites > 0);
      simulated.free();
    }
  });
}

test('placement disk: pages that are over must be a list of hash ids', (t) => {
  const simulated = simulation(4, { diskPages: 100, diskWrite: 'evicted' });
  for (const overIds of [5, 'a', null, ['a']] as unknown as number[][]) {
    t.throws(() => simulated.request({ timestampMs: 0, hashIds: [1], overIds }), { instanceOf: ArgumentError });
  }
  simulated.free();
});

test('placement disk: pages that are over are not written, unless they are asked for or set again', (t) => {
  const simulated = simulation(4, { diskPages: 100, diskWrite: 'evicted' });
  const request = (hashIds: number[], overIds: number[] = []) => {
    simulated.request({ timestampMs: 0, hashIds, overIds });
    return simulated.counts().diskWrites;
  };
  request([1, 2, 3, 4], [1, 2, 3]);
  request([1, 2], [2]);
  t.is(request([5, 6, 7, 8]), 2, 'pages 1 and 4');
  const { prefixHits } = simulated.counts();
  request([1]);
  t.is(simulated.counts().prefixHits, prefixHits + 1);
  request([3]);
  t.is(request([9, 10, 11, 12]), 2 + 5, 'pages 5 to 8, and page 3, which was set again');
  simulated.free();
});

test('placement disk: only one node may have a disk, and its options are checked', (t) => {
  t.throws(() => simulation(4, { nodes: 2, diskPages: 8 }), { message: /only one node may have a disk tier, got 2/ });
  t.throws(() => simulation(4, { diskPages: -1 }), { message: /diskPages must be an integer of 0 to/ });
  t.throws(() => simulation(4, { diskWrite: 'never' as 'wait' }), {
    message: /diskWrite must be one of wait, evicted/,
  });
});
