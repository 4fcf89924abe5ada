import { ConfigError } from '../../base/errors.js';
import { likeness, type Violation } from '../check/violations.js';
import type { Fault } from '../scenario/faults.js';
import { hasSource, SCENARIO, type Scenario } from '../scenario/scenario.js';
import type { MixedWorkload } from '../scenario/workload.js';
import { type RunOptions, runScenario, type ScenarioResult } from './run-scenario.js';

/** Limits and callbacks of {@link shrink}. */
export interface ShrinkOptions extends Omit<RunOptions, 'untilMs'> {
  /** Kind and rule of the violation that must still occur; default: those of the first violation. */
  readonly like?: Violation;
  /** Most runs; default: 300. */
  readonly runsMaxCount?: number;
  /** Seeds to try for each smaller scenario, because its random choices differ; default: 3. */
  readonly seedsCount?: number;
  /** Called with each smaller scenario that still fails. */
  readonly onSmaller?: (scenario: Scenario, result: ScenarioResult) => void;
}

/** A smaller scenario with the same failure. */
export interface Shrunk {
  readonly scenario: Scenario;
  readonly result: ScenarioResult;
  readonly runs: number;
}

/** Difference between the seeds to try. */
const SEED_STEP = 1_000_003;

/** Makes a failing scenario smaller while it has the same failure. Resolves to undefined if it does not fail. */
export async function shrink(scenario: Scenario, options: ShrinkOptions = {}): Promise<Shrunk | undefined> {
  const { like: given, runsMaxCount = 300, seedsCount = 3, onSmaller, ...runOptions } = options;
  const first = await runScenario(scenario, runOptions);
  const like = given ?? first.violations[0];
  if (like === undefined || !fails(first, like)) return undefined;
  let smallest: Shrunk = { scenario, result: first, runs: 1 };
  let runs = 1;
  const isSmaller = async (candidate: Scenario): Promise<boolean> => {
    for (let i = 0; i < seedsCount && runs < runsMaxCount; i++) {
      const tried = { ...candidate, seed: (candidate.seed + i * SEED_STEP) >>> 0 };
      runs++;
      const result = await resultOf(tried, runOptions);
      if (result === undefined || !fails(result, like)) continue;
      smallest = { scenario: tried, result, runs };
      onSmaller?.(tried, result);
      return true;
    }
    return false;
  };
  for (let before: Scenario | undefined; before !== smallest.scenario && runs < runsMaxCount; ) {
    before = smallest.scenario;
    await shrinkFaults(() => smallest.scenario, isSmaller);
    for (const name of Object.keys(smallest.scenario.shape.config)) {
      const { [name]: _, ...config } = smallest.scenario.shape.config;
      await isSmaller(ofShape(smallest.scenario, { config }));
    }
    for (const smaller of STEPS) {
      for (let again = true; again && runs < runsMaxCount; ) {
        const candidate = smaller(smallest.scenario);
        again = candidate !== undefined && (await isSmaller(candidate));
      }
    }
  }
  return { ...smallest, runs };
}

/** The result of a run; undefined if nodes reject the settings after some were left out. */
async function resultOf(scenario: Scenario, options: RunOptions): Promise<ScenarioResult | undefined> {
  try {
    return await runScenario(scenario, options);
  } catch (error) {
    if (error instanceof ConfigError) return undefined;
    throw error;
  }
}

function fails({ violations }: ScenarioResult, like: Violation): boolean {
  return violations.some((violation) => likeness(violation) === likeness(like));
}

/** Leaves out faults: half of them, then smaller parts. */
async function shrinkFaults(
  current: () => Scenario,
  isSmaller: (candidate: Scenario) => Promise<boolean>,
): Promise<void> {
  for (let size = Math.ceil(current().faults.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let from = 0; from < current().faults.length; ) {
      const { faults } = current();
      const rest = [...faults.slice(0, from), ...faults.slice(from + size)];
      if (!(await isSmaller({ ...current(), faults: rest }))) from += size;
    }
  }
}

type Step = (scenario: Scenario) => Scenario | undefined;

/** Steps that each return a smaller scenario, or undefined if they cannot. */
const STEPS: readonly Step[] = [
  (scenario) => (scenario.joins.length > 0 ? { ...scenario, joins: [] } : undefined),
  (scenario) => (scenario.ranksPerHost > 1 ? { ...scenario, ranksPerHost: 1 } : undefined),
  fewerNodes,
  (scenario) => shorter(scenario, 0.5),
  (scenario) => shorter(scenario, 0.8),
  ...(['namespaces', 'ownKeys', 'computedKeys', 'mixedKeys', 'namedKeys'] as const).map(withoutKeys),
  ...(['clearOneIn', 'deleteOneIn', 'hotShare'] as const).map((name) =>
    ofWorkload((workload) => lower(workload, name, 0)),
  ),
  ofWorkload((workload) => (workload.pinEveryMs > 0 ? { ...workload, pinEveryMs: 0 } : undefined)),
  ...(['callers', 'batchMaxPages'] as const).map((name) => ofWorkload((workload) => lower(workload, name, 1))),
  ofWorkload((workload) =>
    workload.pauseMaxMs < 1_000 ? { ...workload, pauseMaxMs: workload.pauseMaxMs * 2 } : undefined,
  ),
  (scenario) => (scenario.shape.diskPages === null ? undefined : ofShape(scenario, { diskPages: null })),
  (scenario) => (hasSource(scenario) ? ofShape(scenario, { discovery: 'list' }) : undefined),
  (scenario) => (isUsualNetwork(scenario) ? undefined : { ...scenario, network: SCENARIO.network }),
];

/** The scenario without its last node. */
function fewerNodes(scenario: Scenario): Scenario | undefined {
  const nodes = scenario.nodes - 1;
  if (nodes < 1) return undefined;
  const left = (some: readonly number[]) => some.filter((node) => node <= nodes);
  const faults = scenario.faults.flatMap((fault): Fault[] => {
    const peers = left(fault.peers);
    const isEmpty =
      (fault.nodes.length > 0 && left(fault.nodes).length === 0) || (fault.peers.length > 0 && peers.length === 0);
    return isEmpty ? [] : [{ ...fault, nodes: left(fault.nodes), peers }];
  });
  const joins = scenario.joins
    .map((join) => ({ ...join, nodes: left(join.nodes) }))
    .filter((join) => join.nodes.length > 0);
  const { diskNodes, storageNodes, listedMasters } = scenario.shape;
  const shape = {
    ...scenario.shape,
    listedMasters: Math.min(nodes, listedMasters),
    ...(diskNodes === undefined ? {} : { diskNodes: left(diskNodes) }),
    ...(storageNodes === undefined ? {} : { storageNodes: left(storageNodes) }),
  };
  return { ...scenario, nodes, faults, joins, shape };
}

/** The scenario with a shorter duration. Faults after the new end are removed, and others end with it. */
function shorter(scenario: Scenario, factor: number): Scenario | undefined {
  const durationMs = Math.round(scenario.durationMs * factor);
  if (durationMs < 200) return undefined;
  const faults = scenario.faults
    .filter(({ atMs }) => atMs < durationMs)
    .map((fault) => ({ ...fault, durationMs: Math.min(fault.durationMs, durationMs - fault.atMs) }));
  const joins = scenario.joins.filter(({ atMs }) => atMs < durationMs);
  return { ...scenario, durationMs, faults, joins };
}

function withoutKeys(name: 'namespaces' | 'ownKeys' | 'computedKeys' | 'mixedKeys' | 'namedKeys'): Step {
  return ofWorkload((workload) => {
    if (name === 'namespaces') return workload.namespaces.length > 0 ? { ...workload, namespaces: [] } : undefined;
    const without = lower(workload, name, 0);
    const { ownKeys, computedKeys, mixedKeys, namedKeys } = { ...workload, ...without };
    if (without !== undefined && ownKeys + computedKeys + mixedKeys + namedKeys > 0) return without;
    return lower(workload, name, 1);
  });
}

function lower(workload: MixedWorkload, name: keyof MixedWorkload, to: number): MixedWorkload | undefined {
  return (workload[name] as number) > to ? { ...workload, [name]: to } : undefined;
}

function ofWorkload(smaller: (workload: MixedWorkload) => MixedWorkload | undefined): Step {
  return (scenario) => {
    const workload = scenario.workload.kind === 'mixed' ? smaller(scenario.workload) : undefined;
    return workload === undefined ? undefined : { ...scenario, workload };
  };
}

function ofShape(scenario: Scenario, changes: Partial<Scenario['shape']>): Scenario {
  return { ...scenario, shape: { ...scenario.shape, ...changes } };
}

function isUsualNetwork({ network }: Scenario): boolean {
  return JSON.stringify(network) === JSON.stringify(SCENARIO.network);
}
