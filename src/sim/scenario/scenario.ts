import { type Fault, type Join, shapeOf } from './faults.js';
import { checkNames, checkScenario } from './scenario-check.js';
import { MIXED, type Workload } from './workload.js';

/** Properties of every node. */
export interface Shape {
  /** Capacity of a pool in pages of `pageBytes`. */
  readonly poolPages: number;
  readonly pageBytes: number;
  /** Capacity of a disk tier in pages; null: there is none. */
  readonly diskPages: number | null;
  /** Nodes with a disk tier if `diskPages` is not null; default: all. */
  readonly diskNodes?: readonly number[];
  /** The hosts are in this many zones, one after the other; default: nodes have no zone. */
  readonly zones?: number;
  /** Whether every pool outlives its process (`pool_path`), until its host loses power; default: no. */
  readonly keepsPools?: boolean;
  /**
   * Removed keys that a directory shard remembers in each generation; default: as many as those that are not simulated.
   */
  readonly removalsMaxKeys?: number;
  /** Nodes with `role: storage`; default: none. The others have the write policy of `config`. */
  readonly storageNodes?: readonly number[];
  /** Further settings of each node, by the keys of `MeshCacheConfig`: `eviction_policy`, `promote_hot_reads`, … */
  readonly config: Readonly<Record<string, string | number | boolean>>;
  /** Number of nodes that are listed as discovery addresses, from the first on. */
  readonly listedMasters: number;
  /** Where nodes find each other; default: `list`, the addresses of the listed masters. */
  readonly discovery?: 'list' | 'dns' | 'etcd';
}

/** The network between the hosts. */
export interface NetworkSettings {
  /** Milliseconds from one host to another, one way. */
  readonly latencyMs: number;
  /** Bytes a second of every host in each direction. */
  readonly bytesPerS: number;
  /** Probability that a message takes several times as long. */
  readonly tailProbability: number;
}

/** One simulated run, as plain JSON: the same scenario with the same version gives the same run. */
export interface Scenario {
  readonly seed: number;
  readonly nodes: number;
  /** Number of nodes on each host; every node is a process of its own. */
  readonly ranksPerHost: number;
  readonly shape: Shape;
  readonly network: NetworkSettings;
  /** Milliseconds of the workload; faults end within it. */
  readonly durationMs: number;
  readonly workload: Workload;
  readonly faults: readonly Fault[];
  /** Nodes that join later; the others start at once, at 0. */
  readonly joins: readonly Join[];
  /** Milliseconds after the last fault in which every page must be found from every node. */
  readonly settleMs: number;
}

/** Default of `settleMs`. */
export const SETTLE_MS = 10_000;

/** The scenario with all defaults. */
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

/** A whole scenario from the given parts. Throws `ArgumentError` for invalid values and unknown names. */
export function scenarioOf(given: ScenarioInit): Scenario {
  checkNames('keys', given, Object.keys(SCENARIO));
  const optional = ['diskNodes', 'storageNodes', 'zones', 'keepsPools', 'removalsMaxKeys', 'discovery'];
  checkNames('keys of shape', given.shape ?? {}, [...Object.keys(SCENARIO.shape), ...optional]);
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

/** Parts of a scenario; the rest is as in {@link SCENARIO}. */
export type ScenarioInit = Partial<Omit<Scenario, 'shape' | 'network'>> & ScenarioParts;

/** Parts of a scenario whose nested objects are partial, too. */
export interface ScenarioParts {
  readonly shape?: Partial<Shape>;
  readonly network?: Partial<NetworkSettings>;
}

/** Number of a node's host, from 1. */
export function hostOf(scenario: Pick<Scenario, 'ranksPerHost'>, node: number): number {
  return Math.ceil(node / scenario.ranksPerHost);
}

/** All nodes on the hosts of these nodes. */
export function nodesOfHosts(scenario: Scenario, nodes: readonly number[]): number[] {
  const hosts = new Set(nodes.map((node) => hostOf(scenario, node)));
  return Array.from({ length: scenario.nodes }, (_, i) => i + 1).filter((node) => hosts.has(hostOf(scenario, node)));
}

/** Whether a node has a disk tier. */
export function hasDisk({ shape }: Pick<Scenario, 'shape'>, node: number): boolean {
  return shape.diskPages !== null && (shape.diskNodes?.includes(node) ?? true);
}

/** Whether nodes find each other by a name service or a registry. */
export function hasSource({ shape }: Pick<Scenario, 'shape'>): boolean {
  return (shape.discovery ?? 'list') !== 'list';
}

/** Whether wall clocks are wrong at times. */
export function hasClockFaults({ faults }: Pick<Scenario, 'faults'>): boolean {
  return faults.some(({ kind }) => shapeOf(kind).group === 'clock');
}

/** Whether a page may be on more nodes than those that have set it. */
export function hasCopies({ shape, faults, workload }: Pick<Scenario, 'shape' | 'faults' | 'workload'>): boolean {
  const isPinning = workload.kind === 'mixed' && workload.pinEveryMs > 0;
  const isPlacing = (shape.storageNodes ?? []).length > 0;
  return (
    isPinning || isPlacing || shape.config.promote_hot_reads === true || faults.some(({ kind }) => kind === 'drain')
  );
}
