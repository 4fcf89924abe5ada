import test from 'ava';
import { MeshCacheConfig } from '../../src/config.js';
import { FAULT_KINDS, type FaultKind } from '../../src/sim/scenario/faults.js';
import { randomScenario } from '../../src/sim/scenario/random-scenario.js';
import { hasDisk, scenarioOf } from '../../src/sim/scenario/scenario.js';

const SEEDS = Array.from({ length: 400 }, (_, i) => i + 1);

test('scenario: by chance, the same seed gives the same one, and each can be', (t) => {
  for (const seed of SEEDS) {
    const scenario = randomScenario(seed);
    t.deepEqual(JSON.parse(JSON.stringify(scenario)), scenario);
    t.deepEqual(randomScenario(seed), scenario);
    t.notThrows(() => scenarioOf(scenario));
    t.notThrows(() => new MeshCacheConfig({ discoveryAddr: 'a:1', ...scenario.shape.config }));
    for (const { atMs, durationMs } of scenario.faults) t.true(atMs + durationMs <= scenario.durationMs);
  }
});

test('scenario: seeds draw every kind of fault, and disk faults only for nodes with disks', (t) => {
  const drawn = new Set<FaultKind>();
  for (const seed of SEEDS) {
    const scenario = randomScenario(seed);
    for (const { kind, nodes } of scenario.faults) {
      drawn.add(kind);
      if (kind.startsWith('disk')) for (const node of nodes) t.true(hasDisk(scenario, node), `seed ${seed}`);
    }
  }
  t.deepEqual([...drawn].sort(), (Object.keys(FAULT_KINDS) as FaultKind[]).sort());
});

test('scenario: what cannot be is refused by name', (t) => {
  t.throws(() => scenarioOf({ nodes: 0 }), { message: /nodes: got 0/ });
  t.throws(() => scenarioOf({ shape: { pageBytes: 30 } }), { message: /shape.pageBytes: got 30/ });
  const fault = { kind: 'kill', atMs: 1, durationMs: 1, nodes: [4], peers: [], amount: 0 } as const;
  t.throws(() => scenarioOf({ nodes: 3, faults: [fault] }), { message: /faults: nodes.*1 to 3/ });
});
