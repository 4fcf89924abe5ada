import test from 'ava';
import {
  type EvictionPolicy,
  PlacementBounds,
  type PlacementRequest,
  PlacementSimulation,
} from '../../src/core/index.js';
import { freshCore } from '../_support/core/binaries.js';
import { LOADS } from '../_support/core/loads.js';

/** Requests of each load; more of them take longer and change little. */
const REQUESTS = Number(process.env.MESHCACHE_LOADS_REQUESTS ?? 8_000);
const PAGE_BYTES = 4096;
const POOLS_PAGES = [500, 1_000] as const;
/** How much less than LRU `yield` may find, as a share of the pages asked for. */
const LOSS_MAX = 0.002;
/**
 * Loads on which values do much worse than the last use until the first trial is over, which is a good part of a load
 * that overwrites the pool 32 times.
 */
const TRIAL_LOSSES: Readonly<Record<string, number>> = { phases: 0.003, 'twice, soon': 0.008 };

/** Share of the pages that are found before the first one of their request that is not. */
function rateOf(requests: readonly PlacementRequest[], pages: number, policy: EvictionPolicy): number {
  const core = freshCore();
  const simulation = new PlacementSimulation({
    core,
    nodes: 1,
    poolBytes: pages * PAGE_BYTES,
    pageBytes: PAGE_BYTES,
    policy,
  });
  for (const request of requests) simulation.request(request);
  simulation.verify();
  const { prefixHits, pagesAsked } = simulation.counts();
  simulation.free();
  return prefixHits / pagesAsked;
}

for (const [name, load] of Object.entries(LOADS)) {
  test(`yield: it finds hardly less than LRU: ${name}`, (t) => {
    const requests = load(REQUESTS);
    const bounds = new PlacementBounds(requests);
    for (const pages of POOLS_PAGES) {
      const [lru, s3fifo, byYield] = (['lru', 's3fifo', 'yield'] as const).map((each) => rateOf(requests, pages, each));
      const clairvoyant = bounds.clairvoyantHits(pages) / bounds.pagesAsked;
      const rates = Object.entries({ lru, s3fifo, yield: byYield, clairvoyant });
      t.log(`${pages} pages: ${rates.map(([each, rate]) => `${each} ${rate?.toFixed(4)}`).join(', ')}`);
      t.true((byYield as number) >= (lru as number) - (TRIAL_LOSSES[name] ?? LOSS_MAX), `${pages} pages`);
    }
  });
}
