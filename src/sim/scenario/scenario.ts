import { type Fault, type Join, shapeOf } from './faults.js';
import { checkNames, checkScenario } from './scenario-check.js';
import { MIXED, type Workload } from './workload.js';

/** How each node is. */
export interface Shape {
  /** Pages of `pageBytes` that a pool has room for. */
  readonly poolPages: number;
  readonly pageBytes: number;
  /** Pages that a disk tier has room for; null: there is none. */
  readonly diskPages: number | null;
  /** Nodes with a disk tier, if `diskPages` is not null; all when left out. */
  readonly diskNodes?: readonly number[];
  /** Further settings of each node, by the keys of `MeshCacheConfig`; `eviction_policy`, `promote_hot_reads`, … */
  readonly config: Readonly<Record<string, string | number | boolean>>;
  /** The first so many nodes are listed as discovery addresses. */
  readonly listedMasters: number;
}

/** The network between the hosts. */
export interface NetworkSettings {
  /** From one host to another, one way. */
  readonly latencyMs: number;
  /** Of every host in each direction. */
  readonly bytesPerS: number;
  /** So often a message takes several times as long. */
  readonly tailProbability: number;
}

/** One simulated run, as plain JSON: the same scenario with the same version gives the same run. */
export interface Scenario {
  readonly seed: number;
  readonly nodes: number;
  /** Nodes of one host, each a process of its own. */
  readonly ranksPerHost: number;
  readonly shape: Shape;
  readonly network: NetworkSettings;
  /** Of the workload; faults end within it. */
  readonly durationMs: number;
  readonly workload: Workload;
  readonly faults: readonly Fault[];
  /** The others start at once, at 0. */
  readonly joins: readonly Join[];
  /** After the last fault, until every page is found from everywhere. */
  readonly settleMs: number;
}

/** Pages are found within this after the last fault. */
export const SETTLE_MS = 10_000;

/** What a scenario is where nothing else is said. */
export const SCENARIO: Scenario = {
  seed: 1,
  nodes: 3,
  ranksPerHost: 1,
  shape: { poolPages: 64, pageBytes: 1024, diskPages: null, config: {}, listedMasters: 3 },
  network: { latencyMs: 0.05, bytesPerS: 3e9, tailProbability: 0.001 },
  durationMs: 30_000,
  workload: MIXED,
  faults: [],
  joins: [],
  settleMs: SETTLE_MS,
};

/** A whole scenario of what is given. Throws `ArgumentError` for what cannot be, and for names that a scenario does not have. */
export function scenarioOf(given: ScenarioInit): Scenario {
  checkNames('keys', given, Object.keys(SCENARIO));
  checkNames('keys of shape', given.shape ?? {}, [...Object.keys(SCENARIO.shape), 'diskNodes']);
  checkNames('keys of network', given.network ?? {}, Object.keys(SCENARIO.network));
  const scenario: Scenario = {
    ...SCENARIO,
    ...given,
    shape: { ...SCENARIO.shape, ...given.shape },
    network: { ...SCENARIO.network, ...given.network },
  };
  checkScenario(scenario);
  return scenario;
}

/** What is left out is as in {@link SCENARIO}. */
export type ScenarioInit = Partial<Omit<Scenario, 'shape' | 'network'>> & ScenarioParts;

/** Parts of a scenario; the rest is as {@link SCENARIO} has it. */
export interface ScenarioParts {
  readonly shape?: Partial<Shape>;
  readonly network?: Partial<NetworkSettings>;
}

/** The host of a node, from 1 on. */
export function hostOf(scenario: Pick<Scenario, 'ranksPerHost'>, node: number): number {
  return Math.ceil(node / scenario.ranksPerHost);
}

/** All nodes of the hosts of these. */
export function nodesOfHosts(scenario: Scenario, nodes: readonly number[]): number[] {
  const hosts = new Set(nodes.map((node) => hostOf(scenario, node)));
  return Array.from({ length: scenario.nodes }, (_, i) => i + 1).filter((node) => hosts.has(hostOf(scenario, node)));
}

/** Nodes that have a disk tier. */
export function hasDisk({ shape }: Pick<Scenario, 'shape'>, node: number): boolean {
  return shape.diskPages !== null && (shape.diskNodes?.includes(node) ?? true);
}

/** Whether wall clocks are wrong at times. */
export function hasClockFaults({ faults }: Pick<Scenario, 'faults'>): boolean {
  return faults.some(({ kind }) => shapeOf(kind).group === 'clock');
}

/** Whether a page may be on more nodes than those that have set it. */
export function hasCopies({ shape, faults }: Pick<Scenario, 'shape' | 'faults'>): boolean {
  return shape.config.promote_hot_reads === true || faults.some(({ kind }) => kind === 'drain');
}
