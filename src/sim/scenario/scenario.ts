import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import { PAGE_MIN_BYTES } from '../check/page-bytes.js';
import { FAULT_KINDS, type Fault, type Join, shapeOf } from './faults.js';
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

/** A whole scenario of what is given. Throws `ArgumentError` for what cannot be. */
export function scenarioOf(given: ScenarioInit): Scenario {
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

function checkScenario({ nodes, ranksPerHost, shape, durationMs, faults, joins }: Scenario): void {
  check('nodes', nodes, Number.isSafeInteger(nodes) && nodes >= 1, 'a whole number from 1 on');
  const ranks = 'a whole number from 1 on';
  check('ranksPerHost', ranksPerHost, Number.isSafeInteger(ranksPerHost) && ranksPerHost >= 1, ranks);
  check('durationMs', durationMs, durationMs > 0, 'a number above 0');
  const { poolPages, pageBytes } = shape;
  check('shape.poolPages', poolPages, poolPages >= 1, 'a number from 1 on');
  const isPage = Number.isSafeInteger(pageBytes) && pageBytes >= PAGE_MIN_BYTES && pageBytes % 8 === 0;
  check('shape.pageBytes', pageBytes, isPage, `a multiple of 8 from ${PAGE_MIN_BYTES} on`);
  const isNode = (node: number) => Number.isSafeInteger(node) && node >= 1 && node <= nodes;
  for (const { nodes: some } of joins) check('joins', some, some.every(isNode), `nodes of 1 to ${nodes}`);
  for (const fault of faults) {
    const { kind, nodes: some, peers, atMs, durationMs: lastsMs } = fault;
    check('faults: kind', kind, Object.hasOwn(FAULT_KINDS, kind), Object.keys(FAULT_KINDS).join(', '));
    check('faults: nodes', some, some.length > 0 && some.every(isNode), `nodes of 1 to ${nodes}`);
    check('faults: peers', peers, peers.every(isNode), `nodes of 1 to ${nodes}`);
    check('faults: atMs', atMs, atMs >= 0 && lastsMs >= 0, 'numbers from 0 on');
  }
}

function check(name: string, value: unknown, isAllowed: boolean, allowed: string): void {
  if (!isAllowed) throw new ArgumentError(`scenario: ${name}: got ${shown(value)}, allowed is ${allowed}`);
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
