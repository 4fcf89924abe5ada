// Which way to route requests makes a cluster of four nodes hit most? Three that meshcache has, and one of our own.
import { runScenario, scenarioOf } from 'meshcache/sim';

const workload = {
  kind: 'conversations',
  routing: 'round-robin',
  startsPerS: 1,
  turns: 6,
  pagesPerTurn: 6,
  sharedPages: 4,
  thinkMs: 2_000,
  computeMsPerPage: 2,
};
const base = { seed: 7, nodes: 4, durationMs: 40_000, shape: { poolPages: 100, pageBytes: 1024 } };

/** The node that has served the fewest pages so far, unless the conversation has one already. */
function leastLoaded() {
  const pages = [];
  const nodeOfSession = new Map();
  return ({ keys, session }, nodes) => {
    const free = nodes.reduce((best, node) => {
      return (pages[node.number] ?? 0) < (pages[best.number] ?? 0) ? node : best;
    });
    const chosen = nodeOfSession.get(session) ?? free.number;
    nodeOfSession.set(session, chosen);
    pages[chosen] = (pages[chosen] ?? 0) + keys.length;
    return chosen;
  };
}

const rows = [];
for (const routing of ['round-robin', 'prefix', 'session', 'least loaded']) {
  const isOwn = routing === 'least loaded';
  const scenario = scenarioOf({ ...base, workload: isOwn ? workload : { ...workload, routing } });
  const { counts, violations } = await runScenario(scenario, isOwn ? { route: leastLoaded() } : {});
  if (violations.length > 0) throw new Error(violations[0].detail);
  const { requests, hits } = counts;
  rows.push({
    routing,
    'hit rate': (requests.found / requests.asked).toFixed(3),
    'from the own pool': (hits.local / (hits.local + hits.remote)).toFixed(3),
  });
}
for (const row of rows) console.log(Object.values(row).join('\t'));
