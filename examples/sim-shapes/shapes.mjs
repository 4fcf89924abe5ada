// What is left of 300 pages when a host loses its power: with and without a disk tier, and with the page on a second node?
import { runScenario, scenarioOf } from 'meshcache/sim';

const PAGES_COUNT = 300;
const page = new Uint8Array(1024).fill(1);
const keys = Array.from({ length: PAGES_COUNT }, (_, i) => `page-${i}`);

const shapes = {
  'memory only': { shape: {}, flushMs: 0 },
  'disk tier, power lost at once': { shape: { diskPages: 400 }, flushMs: 0 },
  'disk tier, power lost a minute later': { shape: { diskPages: 400 }, flushMs: 60_000 },
};

for (const [name, { shape, flushMs }] of Object.entries(shapes)) {
  const scenario = scenarioOf({
    seed: 6,
    nodes: 3,
    durationMs: 70_000 + flushMs,
    workload: { kind: 'none' },
    shape: { poolPages: 400, pageBytes: 1024, ...shape },
    // The second node's host goes down when it has set everything, and comes back after five seconds.
    faults: [{ kind: 'power', atMs: 1_000 + flushMs, durationMs: 5_000, nodes: [2], peers: [], amount: 0 }],
  });
  let found = 0;
  const { violations } = await runScenario(scenario, {
    async program(cluster) {
      const [first, second] = cluster.nodes;
      const beganMs = cluster.nowMs;
      await second.run(async ({ store }) => {
        for (const key of keys) await store.set(key, page);
      });
      await cluster.sleep(beganMs + flushMs + 20_000 - cluster.nowMs);
      await first.run(async ({ store }) => {
        for (const key of keys) if ((await store.get(key)) !== null) found++;
      });
    },
  });
  if (violations.length > 0) throw new Error(violations[0].detail);
  console.log(`${name}: ${found} of ${PAGES_COUNT} pages`);
}
