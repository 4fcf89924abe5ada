import { existsSync, readFileSync } from 'node:fs';
import test from 'ava';
import * as api from '../../src/core/index.js';
import {
  ArgumentError,
  ConsistentHashRing,
  PLACEMENT_POLICIES,
  PlacementBounds,
  type PlacementOptions,
  type PlacementRequest,
  PlacementSimulation,
} from '../../src/core/index.js';
import { conversations, placements, sequence } from '../_programs/core/placement-trace.js';
import { BINARIES, freshCore } from '../_support/core/binaries.js';
import { NaivePlacement, naiveClairvoyantHits } from '../_support/core/naive-placement.js';

/** Where the real trace lies, if it is here; it is not part of the project. */
const TRACE = process.env.MESHCACHE_TRACE ?? '../shared/data/conversation_trace.jsonl';
const withTrace = existsSync(TRACE) ? test : test.skip;
const suffix = existsSync(TRACE) ? '' : ` (skipped: no ${TRACE}, see MESHCACHE_TRACE)`;
const PAGE_BYTES = 4096;

function simulate(trace: readonly PlacementRequest[], options: Partial<PlacementOptions> & { poolPages: number }) {
  const { poolPages, ...rest } = options;
  const simulation = new PlacementSimulation({
    nodes: 1,
    poolBytes: poolPages * PAGE_BYTES,
    pageBytes: PAGE_BYTES,
    core: freshCore(),
    ...rest,
  });
  const outcomes = trace.map((request) => simulation.request(request));
  simulation.verify();
  return { simulation, outcomes, counts: simulation.counts() };
}

/** Requests of these pages, a second apart. */
function placementRequests(...pages: readonly (readonly number[])[]): PlacementRequest[] {
  return pages.map((hashIds, i) => ({ timestampMs: i * 1000, hashIds }));
}

for (const binary of BINARIES) {
  test(`placement: a cluster with LRU is the same as a naive one, ${binary}`, (t) => {
    const core = freshCore(binary);
    for (let seed = 1; seed <= 40; seed++) {
      const next = sequence(seed);
      const trace = conversations(seed, 60);
      const nodes = 1 + next(4);
      const poolPages = 20 + next(200);
      const batchPages = [1, 7, 128][next(3)] as number;
      const reportDelayMs = [0, 4000, Number.POSITIVE_INFINITY][next(3)] as number;
      const naive = new NaivePlacement({ nodes, poolPages, batchPages, reportDelayMs });
      for (const request of trace) naive.request(request);
      const { counts } = simulate(trace, { nodes, poolPages, batchPages, reportDelayMs, core });
      const { localHits, remoteHits, evictions, duplicates } = naive;
      t.like(counts, { localHits, remoteHits, evictions, duplicates }, `seed ${seed}`);
    }
  });
}

for (const policy of PLACEMENT_POLICIES) {
  test(`placement: counts add up with ${policy}`, (t) => {
    const trace = conversations(3, 400);
    for (const routing of api.PLACEMENT_ROUTINGS) {
      const { simulation, outcomes, counts } = simulate(trace, { nodes: 3, poolPages: 300, policy, routing });
      const asked = trace.reduce((sum, { hashIds }) => sum + hashIds.length, 0);
      t.is(counts.requests, trace.length);
      t.is(counts.pagesAsked, asked);
      t.is(counts.prefixHits + counts.pagesSet + counts.refused, asked);
      t.is(counts.localHits + counts.remoteHits, counts.prefixHits);
      t.is(counts.movedBytes, counts.remoteHits * PAGE_BYTES);
      t.is(
        outcomes.reduce((sum, { prefixHits }) => sum + prefixHits, 0),
        counts.prefixHits,
      );
      const nodes = simulation.nodes();
      t.is(
        nodes.reduce((sum, { evictions }) => sum + evictions, 0),
        counts.evictions,
      );
      t.deepEqual(
        nodes.map(({ requests }) => requests),
        [0, 1, 2].map((node) => outcomes.filter((outcome) => outcome.node === node).length),
      );
      const perInterval = simulation.intervals();
      t.true(perInterval.length > 3);
      for (const name of ['requests', 'pagesAsked', 'prefixHits', 'evictions', 'movedBytes'] as const) {
        t.is(
          perInterval.reduce((sum, interval) => sum + interval[name], 0),
          counts[name],
          name,
        );
      }
    }
  });
}

test('placement: intervals count from the first request, and time does not go back', (t) => {
  const at = (timestampMs: number): PlacementRequest => ({ timestampMs, hashIds: [1] });
  const trace = [1_700_000_000_500, 1_700_000_000_900, 1_700_000_000_100, 1_700_000_061_499, 1_700_000_300_500].map(at);
  const { simulation } = simulate(trace, { poolPages: 2, intervalMs: 1000 });
  t.deepEqual(
    simulation.intervals().map(({ startMs, requests }) => [startMs - 1_700_000_000_000, requests]),
    [
      [500, 3],
      [60_500, 1],
      [300_500, 1],
    ],
  );
});

test('placement: an owner keeps what others read when it hears of it in time', (t) => {
  // Node 0 sets 1 and 2, node 1 reads 1, node 0 needs the room of one page: of 1, unless it has heard of the read.
  const trace = placementRequests([1, 2], [1], [3], [], [1]);
  const hitsAtLast = (reportDelayMs: number) =>
    simulate(trace, { nodes: 2, poolPages: 2, reportDelayMs }).outcomes.at(-1)?.prefixHits;
  t.is(hitsAtLast(0), 1);
  t.is(hitsAtLast(1000), 1);
  t.is(hitsAtLast(1001), 0);
  t.is(hitsAtLast(Number.POSITIVE_INFINITY), 0);
});

test('placement: a page that another node has takes room for the time of the call only', (t) => {
  // Node 0 loses 1 and keeps 2; node 1 sets both, and drops 2 again.
  const { simulation, counts } = simulate(placementRequests([1, 2], [], [2, 3], [1, 2]), { nodes: 2, poolPages: 2 });
  t.like(counts, { duplicates: 1, evictions: 1, remoteHits: 0 });
  t.deepEqual(
    simulation.nodes().map(({ pages }) => pages),
    [2, 1],
  );
});

test('placement: routing by session keeps a conversation on its node, named or not', (t) => {
  const named = placementRequests([0, 1], [0, 9], [0, 1, 2]).map((request, i) => ({
    ...request,
    session: `s${i % 2}`,
  }));
  t.deepEqual(
    simulate(named, { nodes: 4, poolPages: 50, routing: 'session' }).outcomes.map(({ node }) => node),
    [0, 1, 0],
  );
  const trace = placementRequests([0, 1, 2, 3], [0, 5, 6], [0, 1, 2, 7, 8], [0, 5, 9], [0, 20], [0, 1, 2, 7, 8, 10]);
  const { outcomes } = simulate(trace, { nodes: 3, poolPages: 50, routing: 'session' });
  t.deepEqual(
    outcomes.map(({ node }) => node),
    [0, 1, 0, 1, 2, 0],
  );
});

test('placement: routing by prefix goes to the ring’s owner of the last of the first pages', (t) => {
  const core = freshCore();
  const trace = conversations(5, 100);
  const ring = new ConsistentHashRing(160, { core });
  ring.setNodes(['node-0', 'node-1', 'node-2']);
  const { outcomes } = simulate(trace, { nodes: 3, poolPages: 500, routing: 'prefix', routingPages: 2, core });
  t.deepEqual(
    outcomes.map(({ node }) => `node-${node}`),
    trace.map(({ hashIds }) => ring.getNode(String(hashIds[Math.min(2, hashIds.length) - 1]))),
  );
  t.true(new Set(outcomes.map(({ node }) => node)).size === 3);
});

test('placement: a quarantine withholds room for its time', (t) => {
  const trace = conversations(11, 300);
  const free = simulate(trace, { poolPages: 320 }).counts;
  const withheld = simulate(trace, { poolPages: 320, quarantineMs: 60_000 }).counts;
  t.true(withheld.prefixHits < free.prefixHits);
  t.deepEqual(
    simulate(trace, { poolPages: 300 }).counts.prefixHits <= withheld.prefixHits,
    true,
    'a sixteenth at most',
  );
});

test('placement: pages cross no segment', (t) => {
  // Room for two pages in three segments of one and a half.
  const { counts } = simulate(placementRequests([1, 2, 3]), {
    poolPages: 3,
    poolBytes: 3 * PAGE_BYTES,
    segmentBytes: 1.5 * PAGE_BYTES,
  });
  t.like(counts, { evictions: 0, refused: 1 });
});

test('placement: the two builds of the module give the same counts', (t) => {
  const [release, debug] = BINARIES.map((binary) => placements(api, freshCore(binary)));
  t.deepEqual(release, debug);
});

test('placement: options and requests that cannot be are refused', (t) => {
  const options = { nodes: 1, poolBytes: 8192, pageBytes: 4096, core: freshCore() };
  const refused: [Partial<Record<keyof PlacementOptions, unknown>>, RegExp][] = [
    [{ nodes: 0 }, /nodes must be an integer of 1 to/],
    [{ nodes: '3' }, /nodes .* got "3"/],
    [{ poolBytes: 4095 }, /poolBytes must be an integer of 4096 to/],
    [{ pageBytes: 0.5 }, /pageBytes/],
    [{ policy: 'mru' }, /policy must be one of lru, s3fifo.*, got "mru"/],
    [{ routing: 'random' }, /routing must be one of round-robin, session, prefix, got "random"/],
    [{ routingPages: 0 }, /routingPages/],
    [{ batchPages: 0 }, /batchPages/],
    [{ reportDelayMs: -1 }, /reportDelayMs/],
    [{ quarantineMs: -1 }, /quarantineMs/],
    [{ intervalMs: 0 }, /intervalMs/],
    [{ segmentBytes: 0 }, /segmentBytes/],
    [{ vnodes: 0 }, /vnodes/],
  ];
  for (const [wrong, message] of refused) {
    const make = () => new PlacementSimulation({ ...options, ...wrong } as PlacementOptions);
    t.throws(make, { instanceOf: ArgumentError, message });
  }
  const simulation = new PlacementSimulation(options);
  t.throws(() => simulation.request({ timestampMs: Number.NaN, hashIds: [1] }), { instanceOf: ArgumentError });
  for (const returnsInMs of [Number.NaN, -1]) {
    t.throws(() => simulation.request({ timestampMs: 0, hashIds: [1], returnsInMs }), { instanceOf: ArgumentError });
  }
  for (const hashIds of [[1, 1.5], undefined, '12']) {
    const request = { timestampMs: 0, hashIds } as PlacementRequest;
    t.throws(() => simulation.request(request), { instanceOf: ArgumentError });
  }
  t.is(simulation.counts().requests, 0);
  simulation.free();
  simulation.free();
});

test('placement bounds: as a naive cache that knows the future has them', (t) => {
  for (let seed = 1; seed <= 20; seed++) {
    const trace = conversations(seed, 25);
    const bounds = new PlacementBounds(trace);
    for (const pages of [1, 10, 60, 400]) {
      t.is(bounds.clairvoyantHits(pages), naiveClairvoyantHits(trace, pages), `seed ${seed}, ${pages} pages`);
    }
    t.is(bounds.unboundedHits(), simulate(trace, { poolPages: bounds.uniquePages }).counts.prefixHits);
    t.is(bounds.clairvoyantHits(bounds.uniquePages), bounds.unboundedHits());
  }
});

test('placement bounds: a capacity that cannot be is refused', (t) => {
  const bounds = new PlacementBounds([{ hashIds: [1, 2] }]);
  for (const pages of [Number.NaN, -1, 0.5])
    t.throws(() => bounds.clairvoyantHits(pages), { instanceOf: ArgumentError });
});

test('placement bounds: of a trace without pages they are zero', (t) => {
  const bounds = new PlacementBounds([{ hashIds: [] }]);
  t.deepEqual([bounds.pagesAsked, bounds.uniquePages, bounds.unboundedHits(), bounds.clairvoyantHits(5)], [0, 0, 0, 0]);
});

withTrace(`placement: the real trace has its known hit rates${suffix}`, (t) => {
  const trace = readFileSync(TRACE, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { timestamp: number; hash_ids: number[] })
    .map(({ timestamp, hash_ids }): PlacementRequest => ({ timestampMs: timestamp, hashIds: hash_ids }));
  const bounds = new PlacementBounds(trace);
  const share = (hits: number) => (hits / bounds.pagesAsked).toFixed(3);
  t.is(share(bounds.unboundedHits()), '0.366');
  for (const [poolPages, lru, s3fifo, clairvoyant] of [
    [1000, '0.044', '0.056', '0.191'],
    [5859, '0.136', '0.152', '0.353'],
    [10_000, '0.211', '0.195', '0.366'],
    [30_000, '0.326', '0.304', '0.366'],
  ] as const) {
    t.is(share(simulate(trace, { poolPages }).counts.prefixHits), lru);
    t.is(share(simulate(trace, { poolPages, policy: 's3fifo' }).counts.prefixHits), s3fifo);
    t.is(share(bounds.clairvoyantHits(poolPages)), clairvoyant);
  }
});
