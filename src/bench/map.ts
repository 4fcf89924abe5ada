import { seededRandom } from '../base/environment/random.js';
import { KeyBatch } from '../core/index.js';
import { MARK_WORDS, NOWHERE, PageMap } from '../core/map/page-map.js';
import { type Benchmark, type BenchReport, median } from './measuring/report.js';
import { hexKeyBatches, timePerOperationNs } from './ring.js';

const FULL_PAGES = [100_000, 1_000_000, 10_000_000] as const;
const QUICK_PAGES = [100_000] as const;
const NODES = 16;
const BATCH_KEYS = 2_048;
const BATCHES = 32;
/** Pages whose marks a node takes at a time. */
const MARKS_AT_ONCE = 16_384;
/** Uncounted rounds, after which the code is compiled. */
const WARM_UP_ROUNDS = 3;

/**
 * Measures the map of a cluster's pages: what a page takes, how long a node needs to note one, how long it takes to look
 * up a batch of keys, and how many keys that nobody has seem to be there.
 */
export const mapBench: Benchmark = async (options) => {
  const rows: BenchReport['rows'][number][] = [];
  for (const pages of options.quick ? QUICK_PAGES : FULL_PAGES) {
    options.progress(`map of ${pages} pages`);
    rows.push(measure(pages, options.rounds));
  }
  return {
    title: 'map: which node has a page',
    rows,
    notes: [
      `${NODES} nodes; batches of ${BATCH_KEYS} keys of 64 characters that nobody has; medians of ${options.rounds} rounds of ${BATCHES} batches.`,
      'exists_us: a batch of strings, encoding and hashing included; hashed_us: a batch that has been on a ring before.',
    ],
  };
};

function measure(pages: number, rounds: number): BenchReport['rows'][number] {
  const map = new PageMap();
  for (let node = 0; node < NODES; node++) map.rank(node, node);
  const noteNs = timePerOperationNs(pages, () => fill(map, pages));
  const batches = hexKeyBatches(BATCHES, BATCH_KEYS, 1);
  const exists: number[] = [];
  const hashed: number[] = [];
  let wrong = 0;
  for (let round = -WARM_UP_ROUNDS; round < rounds; round++) {
    const existsNs = timePerOperationNs(BATCHES, () => {
      for (const keys of batches) wrong += map.nodesOf(keys).reduce((sum, node) => sum + Number(node !== NOWHERE), 0);
    });
    const known = batches.map((keys) => KeyBatch.of(keys));
    for (const batch of known) map.nodesOf(batch);
    const hashedNs = timePerOperationNs(BATCHES, () => {
      for (const batch of known) map.nodesOf(batch);
    });
    if (round < 0) continue;
    exists.push(existsNs);
    hashed.push(hashedNs);
  }
  const { entries, bytes } = map.stats();
  map.free();
  return {
    pages,
    bytes_per_page: Number((bytes / entries).toFixed(2)),
    note_ns: Math.round(noteNs),
    exists_us: Number((median(exists) / 1e3).toFixed(1)),
    hashed_us: Number((median(hashed) / 1e3).toFixed(1)),
    wrong_percent: Number(((100 * wrong) / ((rounds + WARM_UP_ROUNDS) * BATCHES * BATCH_KEYS)).toFixed(4)),
  };
}

/** Fills a map with pages at random positions, in equal shares for all nodes. */
function fill(map: PageMap, pages: number): void {
  const random = seededRandom(1);
  const marks = new Uint32Array(MARK_WORDS * MARKS_AT_ONCE);
  for (let done = 0, turn = 0; done < pages; turn++) {
    const count = Math.min(MARKS_AT_ONCE, pages - done);
    for (let i = 0; i < MARK_WORDS * count; i += MARK_WORDS) {
      marks[i] = random.u32() | 1;
      marks[i + 1] = random.u32();
    }
    map.note(turn % NODES, marks.subarray(0, MARK_WORDS * count));
    done += count;
  }
}
