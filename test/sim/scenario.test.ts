import test from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import { MeshCacheConfig } from '../../src/config.js';
import { FAULT_KINDS, type FaultKind } from '../../src/sim/scenario/faults.js';
import { randomScenario } from '../../src/sim/scenario/random-scenario.js';
import { hasDisk, type ScenarioInit, scenarioOf } from '../../src/sim/scenario/scenario.js';
import { MIXED, TRACE } from '../../src/sim/scenario/workload.js';

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

test('scenario: some seeds have quotas, for a namespace that their workload uses', (t) => {
  const drawn = SEEDS.map((seed) => randomScenario(seed)).filter(({ shape }) => 'namespace_quotas' in shape.config);
  t.true(drawn.length > SEEDS.length / 20, `${drawn.length} scenarios`);
  for (const { shape, workload } of drawn) {
    const { namespaceQuotas } = new MeshCacheConfig({ discoveryAddr: 'a:1', ...shape.config });
    t.deepEqual(Object.keys(namespaceQuotas), workload.kind === 'mixed' ? workload.namespaces : []);
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
  // As files have them, which nobody has checked.
  const wrong: readonly (readonly [unknown, RegExp])[] = [
    [null, /keys: got null/],
    [{ duration: 5 }, /keys: got "duration", allowed is .*durationMs/],
    [{ shape: { pages: 5 } }, /keys of shape: got "pages"/],
    [{ network: { latencyMs: 'far' } }, /network.latencyMs: got "far"/],
    [{ seed: 0.5 }, /seed: got 0.5/],
    [{ workload: { kind: 'dance' } }, /workload.kind: got "dance"/],
    [{ workload: { kind: 'mixed' } }, /workload.callers: got undefined/],
    [{ workload: { ...TRACE, requests: [{ timestampMs: 1, hashIds: 'x' }] } }, /workload.requests/],
    [{ faults: [{ ...fault, nodes: [1], peers: undefined }] }, /faults: peers: got undefined/],
    [{ joins: [{ nodes: [1] }] }, /joins: atMs: got undefined/],
    [{ joins: [{ at: 1, nodes: [1] }] }, /joins: got "at"/],
    [{ workload: { ...MIXED, caller: 3 } }, /keys of workload: got "caller", allowed is .*callers/],
    [{ faults: [{ ...fault, nodes: [1], percent: 5 }] }, /faults: got "percent", allowed is .*amount/],
    [{ faults: [{ ...fault, kind: 'loss', nodes: [1] }] }, /amount of loss: got 0/],
    [{ shape: { config: { discovery_addr: 'a:1' } } }, /shape.config: got "discovery_addr"/],
  ];
  for (const [given, message] of wrong) {
    t.throws(() => scenarioOf(given as ScenarioInit), { instanceOf: ArgumentError, message });
  }
});
