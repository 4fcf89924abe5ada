import { runScenario, scenarioOf } from 'meshcache/sim';

const scenario = scenarioOf({ seed: 7, nodes: 3, durationMs: 10_000 });
const { violations, counts } = await runScenario(scenario, { route: ({ keys }) => keys.length % 3 });
console.log(violations.length, counts.requests.asked >= counts.requests.found);
