import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import { PLACEMENT_ROUTINGS } from '../../core/index.js';
import { PAGE_MIN_BYTES } from '../check/page-bytes.js';
import { FAULT_KINDS, type Fault, type Join, shapeOf } from './faults.js';
import { CONVERSATIONS, MIXED, SESSIONS, type SessionsWorkload, TOLD, TRACE, type Workload } from './workload.js';

/** Speed of a disk, or of the way from a host to the object store. */
export interface StorageSpeed {
  /** Bytes per second of data, in each direction. */
  readonly bytesPerS: number;
  readonly latencyMs: number;
}

/** Properties of every node. */
export interface Shape {
  /** Capacity of a pool in pages of `pageBytes`. */
  readonly poolPages: number;
  readonly pageBytes: number;
  /**
   * Bytes that a page stands for, so that simulated pages may be small: network, disks and object store take the time
   * of so many. Default: `pageBytes`.
   */
  readonly standsForBytes?: number;
  /** Capacity of a disk tier in pages; null: there is none. */
  readonly diskPages: number | null;
  /** Nodes with a disk tier if `diskPages` is not null; default: all. */
  readonly diskNodes?: readonly number[];
  /** Speed of every disk; default: 3 GB/s for reads, 1.5 GB/s for writes, .08 ms. */
  readonly disk?: StorageSpeed;
  /** Speed of the object store behind all nodes; default: there is none. */
  readonly objectStore?: StorageSpeed;
  /** Number of zones, to which the hosts are assigned in turn; default: nodes have no zone. */
  readonly zones?: number;
  /** Whether every pool outlives its process (`pool_path`), until its host loses power; default: no. */
  readonly keepsPools?: boolean;
  /** Removed keys that a directory shard remembers in each generation; default: as many as outside of simulations. */
  readonly removalsMaxKeys?: number;
  /** Nodes with `role: storage`; default: none. The others have the write policy of `config`. */
  readonly storageNodes?: readonly number[];
  /** Further settings of each node, by the keys of `MeshCacheConfig`: `eviction_policy`, `promote_hot_reads`, … */
  readonly config: Readonly<Record<string, string | number | boolean>>;
  /** Number of nodes whose addresses are listed for discovery, from node 1 on. */
  readonly listedMasters: number;
  /** Where nodes find each other; default: `list`, the addresses of the listed masters. */
  readonly discovery?: 'list' | 'dns' | 'etcd';
}

/** The network between the hosts. */
export interface NetworkSettings {
  /** One-way latency between two hosts, in milliseconds. */
  readonly latencyMs: number;
  /** Bandwidth of every host in each direction, in bytes per second. */
  readonly bytesPerS: number;
  /** Probability that a message takes several times as long. */
  readonly tailProbability: number;
}

/** One simulated run, as plain JSON: the same scenario with the same version gives the same run. */
export interface Scenario {
  readonly seed: number;
  readonly nodes: number;
  /** Number of nodes on each host, each in its own process. */
  readonly ranksPerHost: number;
  readonly shape: Shape;
  readonly network: NetworkSettings;
  /** Milliseconds of the workload; faults end within it. */
  readonly durationMs: number;
  readonly workload: Workload;
  readonly faults: readonly Fault[];
  /** Nodes that join later; all others start at time 0. */
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
  optional.push('standsForBytes', 'disk', 'objectStore');
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
export function hostOf(scenario: Scenario, node: number): number {
  return Math.ceil(node / scenario.ranksPerHost);
}

/** All nodes on the hosts of these nodes. */
export function nodesOfHosts(scenario: Scenario, nodes: readonly number[]): number[] {
  const hosts = new Set(nodes.map((node) => hostOf(scenario, node)));
  return Array.from({ length: scenario.nodes }, (_, i) => i + 1).filter((node) => hosts.has(hostOf(scenario, node)));
}

/** Whether a node has a disk tier. */
export function hasDisk({ shape }: Scenario, node: number): boolean {
  return shape.diskPages !== null && (shape.diskNodes?.includes(node) ?? true);
}

/** Whether nodes find each other by DNS or etcd. */
export function hasSource({ shape }: Scenario): boolean {
  return (shape.discovery ?? 'list') !== 'list';
}

/** Whether wall clocks are wrong at times. */
export function hasClockFaults({ faults }: Scenario): boolean {
  return faults.some(({ kind }) => shapeOf(kind).group === 'clock');
}

/** Whether the workload has so many pages that not everything is checked at every moment. */
export function isLong({ workload }: Scenario): boolean {
  return workload.kind === 'trace' || workload.kind === 'sessions';
}

/** How many times longer data is than the simulated one. */
export function dataScale({ shape }: Scenario): number {
  return (shape.standsForBytes ?? shape.pageBytes) / shape.pageBytes;
}

/** Whether a page may be on more nodes than those that have set it. */
export function hasCopies({ shape, faults, workload }: Scenario): boolean {
  const isPinning = workload.kind === 'mixed' && workload.pinEveryMs > 0;
  const isPlacing = (shape.storageNodes ?? []).length > 0;
  const isFetching = shape.objectStore !== undefined || (workload.kind === 'sessions' && workload.told === 'prefetch');
  return (
    isPinning ||
    isPlacing ||
    isFetching ||
    shape.config.promote_hot_reads === true ||
    faults.some(({ kind }) => kind === 'drain')
  );
}

/** One workload of each kind, with all of its fields. */
const WORKLOADS: { readonly [Kind in Workload['kind']]: Workload } = {
  mixed: MIXED,
  conversations: CONVERSATIONS,
  trace: { ...TRACE, requests: [] },
  sessions: { ...SESSIONS, requests: [] },
  none: { kind: 'none' },
};

const FAULT_NAMES = ['kind', 'atMs', 'durationMs', 'nodes', 'peers', 'amount'];
const DISCOVERIES = ['list', 'dns', 'etcd'];
const JOIN_NAMES = ['atMs', 'nodes'];
/** Settings that are determined by other parts of a scenario. */
const OWN_SETTINGS = [
  'discovery_addr',
  'node_id',
  'zone',
  'local_hostname',
  'control_port',
  'tcp_port',
  'global_segment_size',
  'disk_enabled',
  'disk_path',
  'disk_size',
  'pool_path',
  'role',
  'object_store',
  'object_store_endpoint',
];

/** Throws `ArgumentError` for an invalid scenario, which may come from a file and have any form. */
function checkScenario(scenario: Scenario): void {
  const { seed, nodes, ranksPerHost, shape, network, durationMs, settleMs, workload, faults, joins } = scenario;
  checkWhole('seed', seed, 0);
  checkWhole('nodes', nodes, 1);
  checkWhole('ranksPerHost', ranksPerHost, 1);
  check('durationMs', durationMs, isNumber(durationMs) && durationMs > 0, 'a number above 0');
  checkNumber('settleMs', settleMs);
  checkShape(shape, nodes);
  for (const [name, value] of Object.entries(network)) checkNumber(`network.${name}`, value);
  checkWorkload(workload);
  check('joins', joins, Array.isArray(joins), 'a list');
  for (const join of joins) checkJoin(join, nodes);
  check('faults', faults, Array.isArray(faults), 'a list');
  for (const fault of faults) checkFault(fault, nodes);
}

/** Throws `ArgumentError` for names that are not in `known`, because a misspelt name would have no effect. */
function checkNames(part: string, given: unknown, known: readonly string[]): void {
  check(part, given, typeof given === 'object' && given !== null && !Array.isArray(given), 'an object');
  for (const name of Object.keys(given as object)) check(part, name, known.includes(name), known.join(', '));
}

function checkShape(shape: Scenario['shape'], nodes: number): void {
  const {
    poolPages,
    pageBytes,
    diskPages,
    diskNodes = [],
    storageNodes = [],
    zones = 1,
    keepsPools = false,
    removalsMaxKeys = 1,
    listedMasters,
    discovery = 'list',
    config,
  } = shape;
  checkWhole('shape.poolPages', poolPages, 1);
  const isPage = Number.isSafeInteger(pageBytes) && pageBytes >= PAGE_MIN_BYTES && pageBytes % 8 === 0;
  check('shape.pageBytes', pageBytes, isPage, `a multiple of 8 from ${PAGE_MIN_BYTES} on`);
  const { standsForBytes = pageBytes, disk, objectStore } = shape;
  const isLarger = isNumber(standsForBytes) && standsForBytes >= pageBytes;
  check('shape.standsForBytes', standsForBytes, isLarger, `a number of bytes from pageBytes, ${pageBytes}, on`);
  checkSpeed('shape.disk', disk);
  checkSpeed('shape.objectStore', objectStore);
  if (diskPages !== null) checkWhole('shape.diskPages', diskPages, 1);
  checkNodes('shape.diskNodes', diskNodes, nodes);
  checkWhole('shape.zones', zones, 1);
  check('shape.keepsPools', keepsPools, typeof keepsPools === 'boolean', 'true or false');
  checkWhole('shape.removalsMaxKeys', removalsMaxKeys, 1);
  checkNodes('shape.storageNodes', storageNodes, nodes);
  checkWhole('shape.listedMasters', listedMasters, 1);
  check('shape.discovery', discovery, DISCOVERIES.includes(discovery), DISCOVERIES.join(', '));
  check('shape.config', config, typeof config === 'object' && config !== null, 'settings by their keys');
  for (const name of Object.keys(config)) {
    check('shape.config', name, !OWN_SETTINGS.includes(name), `any setting but ${OWN_SETTINGS.join(', ')}`);
  }
}

function checkSpeed(name: string, speed: StorageSpeed | undefined): void {
  if (speed === undefined) return;
  checkNames(name, speed, ['bytesPerS', 'latencyMs']);
  check(`${name}.bytesPerS`, speed.bytesPerS, isNumber(speed.bytesPerS) && speed.bytesPerS > 0, 'a number above 0');
  checkNumber(`${name}.latencyMs`, speed.latencyMs);
}

function checkWorkload(workload: Workload): void {
  const kinds = Object.keys(WORKLOADS);
  check('workload.kind', workload?.kind, kinds.includes(workload?.kind), kinds.join(', '));
  const fields = workload as unknown as Readonly<Record<string, unknown>>;
  checkNames('keys of workload', workload, Object.keys(WORKLOADS[workload.kind]));
  for (const [name, usual] of Object.entries(WORKLOADS[workload.kind])) {
    if (typeof usual === 'number') checkNumber(`workload.${name}`, fields[name]);
    if (Array.isArray(usual)) check(`workload.${name}`, fields[name], Array.isArray(fields[name]), 'a list');
  }
  if ('routing' in workload) {
    const { routing } = workload;
    check('workload.routing', routing, PLACEMENT_ROUTINGS.includes(routing), PLACEMENT_ROUTINGS.join(', '));
  }
  if (workload.kind === 'sessions') checkSessions(workload);
  if (workload.kind !== 'trace') return;
  check('workload.speed', workload.speed, workload.speed > 0, 'a number above 0');
  for (const request of workload.requests) {
    const isRequest = Number.isFinite(request?.timestampMs) && Array.isArray(request?.hashIds);
    check('workload.requests', request, isRequest, '{ timestampMs: number, hashIds: list }');
  }
}

function checkSessions({ requests, told, toldWrong, toldError }: SessionsWorkload): void {
  check('workload.told', told, TOLD.includes(told), TOLD.join(', '));
  check('workload.toldWrong', toldWrong, toldWrong <= 1, '0 to 1');
  check('workload.toldError', toldError, toldError <= 1, '0 to 1');
  for (const [i, request] of requests.entries()) {
    const { session, thread, after = -1, waitMs, answerMs, nextInMs = 0 } = request ?? {};
    const isTimed = [session, thread, waitMs, answerMs, nextInMs].every((value) => isNumber(value) && value >= 0);
    const isRequest = Array.isArray(request?.hashIds) && Number.isSafeInteger(after) && after < i && isTimed;
    check('workload.requests', request, isRequest, 'requests with times from 0 on, each after an earlier one');
  }
}

function checkJoin(join: Join, nodes: number): void {
  checkNames('joins', join, JOIN_NAMES);
  checkNumber('joins: atMs', join.atMs);
  checkNodes('joins: nodes', join.nodes, nodes);
}

function checkFault(fault: Fault, nodes: number): void {
  checkNames('faults', fault, FAULT_NAMES);
  const { kind, amount } = fault;
  check('faults: kind', kind, Object.hasOwn(FAULT_KINDS, kind), Object.keys(FAULT_KINDS).join(', '));
  checkNumber('faults: atMs', fault.atMs);
  checkNumber('faults: durationMs', fault.durationMs);
  checkNodes('faults: nodes', fault.nodes, nodes);
  const hasNodes = fault.nodes.length > 0 || shapeOf(kind).group === 'source';
  check('faults: nodes', fault.nodes, hasNodes, `nodes of 1 to ${nodes}`);
  checkNodes('faults: peers', fault.peers, nodes);
  check('faults: amount', amount, isNumber(amount), 'a number');
  const isEffective = shapeOf(kind).amount === undefined || amount !== 0;
  check(`faults: amount of ${kind}`, amount, isEffective, 'any other number: with 0 nothing happens');
}

function checkNodes(name: string, value: readonly number[], nodes: number): void {
  const isNode = (node: number) => Number.isSafeInteger(node) && node >= 1 && node <= nodes;
  check(name, value, Array.isArray(value) && value.every(isNode), `a list of nodes of 1 to ${nodes}`);
}

function checkWhole(name: string, value: number, min: number): void {
  check(name, value, Number.isSafeInteger(value) && value >= min, `a whole number from ${min} on`);
}

function checkNumber(name: string, value: unknown): void {
  check(name, value, isNumber(value) && value >= 0, 'a number from 0 on');
}

function isNumber(value: unknown): value is number {
  return Number.isFinite(value);
}

function check(name: string, value: unknown, isAllowed: boolean, allowed: string): void {
  if (!isAllowed) throw new ArgumentError(`scenario: ${name}: got ${shown(value)}, allowed is ${allowed}`);
}
