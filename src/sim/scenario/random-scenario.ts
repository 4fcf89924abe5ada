import { type RandomSource, seededRandom } from '../../base/environment/random.js';
import { EVICTION_POLICIES } from '../../config.js';
import { PLACEMENT_ROUTINGS } from '../../core/index.js';
import { below, forkedRandom, fraction } from '../world/kernel/seeds.js';
import { FAULT_KINDS, type Fault, type FaultKind, type Join, NODE_FAULT_KINDS, shapeOf } from './faults.js';
import { hasSource, hostOf, type NetworkSettings, type Scenario, SETTLE_MS, type Shape } from './scenario.js';
import { CONVERSATIONS, MIXED, type MixedWorkload, type Workload } from './workload.js';

/** Properties that are given instead of drawn. */
export interface RandomScenarioOptions {
  /** Milliseconds of the workload; default: 8 to 30 s, random. */
  readonly durationMs?: number;
  /** Number of nodes; default: 2 to 6, rarely more. */
  readonly nodes?: number;
  /** Kinds of faults; default: all, or a random subset. */
  readonly kinds?: readonly FaultKind[];
}

/**
 * Milliseconds without faults at the beginning and the end of a run: at first there is nothing to lose, and at the end
 * there is no time to notice a fault.
 */
const QUIET_MS = 500;
/**
 * Pages of a pool that quotas leave to namespaces without one. With fewer, other nodes could not read all pages on a
 * storage node's disk in the time that a run waits for them.
 */
const OTHERS_POOL_PAGES = 8;
/** Changes the seed, so that quotas are drawn separately. */
const QUOTAS_SEED = 0x5eed_0001;
/** Changes the seed, so that the source of addresses is drawn separately. */
const SOURCE_SEED = 0x5eed_0002;
/** Milliseconds after a fault in which no other of its group begins, so that a node which was down can recover. */
const RETURN_MS = 2_500;

/** A random scenario; the same seed gives the same one. */
export function randomScenario(seed: number, options: RandomScenarioOptions = {}): Scenario {
  const draw = new Draw(seed);
  const nodes = options.nodes ?? (draw.oneIn(12) ? 7 + draw.below(10) : 2 + draw.below(5));
  const durationMs = options.durationMs ?? 8_000 + 1_000 * draw.below(23);
  const ranksPerHost = draw.oneIn(5) ? 2 : 1;
  const drawn = drawShape(draw, nodes);
  const workload = drawWorkload(draw, { shape: drawn, nodes, durationMs });
  const shape = withoutMap(withZones(withQuotas(drawn, workload, seed), seed), seed);
  const before = { seed, nodes, ranksPerHost, shape, network: drawNetwork(draw, shape), durationMs, workload };
  const joins = drawJoins(draw, nodes, durationMs);
  const scenario: Scenario = { ...before, faults: [], joins, settleMs: SETTLE_MS };
  const kinds = options.kinds?.filter((kind) => shapeOf(kind).group !== 'source') ?? drawKinds(draw);
  const whole = withStorage(withPins({ ...scenario, faults: drawFaults(draw, scenario, kinds) }));
  return withFewRemovals(withKeptPools(withSource(whole, options.kinds ?? (Object.keys(FAULT_KINDS) as FaultKind[]))));
}

/**
 * For some seeds, lets nodes find each other by DNS or etcd, which have faults of their own. Drawn separately, so that
 * everything else stays the same.
 */
function withSource(scenario: Scenario, kinds: readonly FaultKind[]): Scenario {
  const draw = new Draw(scenario.seed ^ SOURCE_SEED);
  if (!draw.oneIn(5)) return scenario;
  const shape = { ...scenario.shape, discovery: draw.of(['dns', 'etcd', 'etcd'] as const) };
  const chosen = draw.oneIn(6) ? [] : kinds.filter((kind) => shapeOf(kind).group === 'source');
  const faults = [...scenario.faults, ...drawFaults(draw, { ...scenario, shape }, chosen)];
  return { ...scenario, shape, faults: faults.sort((a, b) => a.atMs - b.atMs) };
}

/** For one seed in three, lets pools outlive their processes. Drawn separately, so that all else stays the same. */
function withKeptPools(scenario: Scenario): Scenario {
  const { seed, shape } = scenario;
  return below(forkedRandom(seed, 'kept pools'), 3) > 0
    ? scenario
    : { ...scenario, shape: { ...shape, keepsPools: true } };
}

/** For one seed in three, lets nodes soon forget removals. Drawn separately, so that all else stays the same. */
function withFewRemovals(scenario: Scenario): Scenario {
  const { seed, shape, workload } = scenario;
  // A page that may be outdated is dropped even if it is pinned.
  if (workload.kind === 'mixed' && workload.pinEveryMs > 0) return scenario;
  const removalsMaxKeys = [0, 0, 0, 0, 2, 8][below(forkedRandom(seed, 'removals'), 6)] as number;
  return removalsMaxKeys === 0 ? scenario : { ...scenario, shape: { ...shape, removalsMaxKeys } };
}

/**
 * For three of five seeds, adds calls that pin pages to a mixed workload. Drawn separately, so that everything else
 * stays the same.
 */
function withPins(scenario: Scenario): Scenario {
  const { seed, workload, shape } = scenario;
  const random = forkedRandom(seed, 'pins');
  const pinEveryMs = [0, 0, 100, 400, 1_500][below(random, 5)] as number;
  const pinMaxShare = [0.1, 0.25, 0.5][below(random, 3)] as number;
  if (workload.kind !== 'mixed' || pinEveryMs === 0) return scenario;
  const config = { ...shape.config, pin_max_share: pinMaxShare };
  return { ...scenario, workload: { ...workload, pinEveryMs }, shape: { ...shape, config } };
}

/** For one seed in four, makes some nodes storage nodes. Drawn separately, so that all else stays the same. */
function withStorage(scenario: Scenario): Scenario {
  const { seed, nodes, shape } = scenario;
  const random = forkedRandom(seed, 'storage');
  if (nodes < 2 || below(random, 4) > 0) return scenario;
  const count = 1 + below(random, Math.ceil(nodes / 2));
  const first = 1 + below(random, nodes - count + 1);
  const storageNodes = Array.from({ length: count }, (_, i) => first + i);
  const config = { ...shape.config, write_policy: ['storage', 'storage', 'both'][below(random, 3)] as string };
  return { ...scenario, shape: { ...shape, storageNodes, config } };
}

/** The scenario with faults of these kinds, drawn by its seed, instead of its own. */
export function withRandomFaults(scenario: Scenario, kinds: readonly FaultKind[]): Scenario {
  return { ...scenario, faults: drawFaults(new Draw(scenario.seed), scenario, kinds) };
}

/** Draws random values. */
class Draw {
  readonly #random: RandomSource;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
    // The first numbers of consecutive seeds are similar.
    this.#random.u32();
  }

  unit(): number {
    return fraction(this.#random);
  }

  below(count: number): number {
    return below(this.#random, count);
  }

  oneIn(count: number): boolean {
    return this.below(count) === 0;
  }

  of<T>(values: readonly T[]): T {
    return values[this.below(values.length)] as T;
  }

  some<T>(from: readonly T[], count: number): T[] {
    const left = [...from];
    const taken: T[] = [];
    while (taken.length < count && left.length > 0) taken.push(...left.splice(this.below(left.length), 1));
    return taken;
  }

  /** A value drawn evenly on a logarithmic scale, or on a linear one if `least` is 0. */
  between([least, most]: readonly [number, number]): number {
    const unit = this.unit();
    return least > 0 ? least * (most / least) ** unit : least + (most - least) * unit;
  }
}

function drawShape(draw: Draw, nodes: number): Shape {
  const pageBytes = draw.of([64, 256, 1024, 1024, 4096, 1000]);
  // Pools that keep almost nothing, pools that hold everything, and sizes in between.
  const poolPages = draw.of([4, 8, 24, 64, 64, 150, 400]);
  const all = Array.from({ length: nodes }, (_, i) => i + 1);
  const config: Record<string, string | number | boolean> = {};
  config.eviction_policy = draw.of(EVICTION_POLICIES);
  config.directory_replicas = draw.of([1, 2, 2, 2, 3]);
  config.reuse_quarantine_ms = draw.of([0, 100, 1000, 1000]);
  if (draw.oneIn(5)) config.verify_reads = false;
  if (draw.oneIn(2)) config.promote_hot_reads = true;
  if (draw.oneIn(4)) config.keep_duplicates = true;
  if (draw.oneIn(3)) config.disk_write = draw.of(['skip', 'evicted']);
  if (draw.oneIn(4)) config.wait_for_directory = true;
  if (draw.oneIn(3)) config.max_masters = draw.of([1, 2, 5]);
  if (draw.oneIn(3)) config.cluster_secret = 'a secret of the simulated cluster';
  if (draw.oneIn(4)) config.vnodes = draw.of([1, 16]);
  if (draw.oneIn(4)) {
    config.heartbeat_interval = 0.5;
    config.member_ttl = 1.5;
  }
  return {
    poolPages,
    pageBytes,
    diskPages: draw.oneIn(2) ? null : draw.of([40, 120, 400]),
    diskNodes: draw.some(all, 1 + draw.below(nodes)).sort((a, b) => a - b),
    config,
    listedMasters: draw.oneIn(4) ? 1 : Math.min(3, nodes),
  };
}

/** Adds quotas for the namespace of some workloads. Drawn separately, so that everything else stays the same. */
function withQuotas(shape: Shape, workload: Workload, seed: number): Shape {
  const [tag] = workload.kind === 'mixed' ? workload.namespaces : [];
  const draw = new Draw(seed ^ QUOTAS_SEED);
  if (tag === undefined || draw.oneIn(4)) return shape;
  const max = draw.of([0.1, 0.3, 0.5, 1]);
  // On a disk, pages of other namespaces need some of the pool to be read by other nodes.
  const min = Math.min(max * draw.of([0, 0.5, 1]), Math.max(0, 1 - OTHERS_POOL_PAGES / shape.poolPages));
  const quotas = { [tag]: { min, max, max_disk: draw.of([max, 1]) } };
  return { ...shape, config: { ...shape.config, namespace_quotas: JSON.stringify(quotas) } };
}

/** For one seed in four, keeps no map of the cluster. Drawn separately, so that all else stays the same. */
function withoutMap(shape: Shape, seed: number): Shape {
  const isWithout = below(forkedRandom(seed, 'no map'), 4) === 0;
  return isWithout ? { ...shape, config: { ...shape.config, cluster_map: 0 } } : shape;
}

/** For one seed in three, adds zones. Drawn separately, so that all else stays the same. */
function withZones(shape: Shape, seed: number): Shape {
  const random = forkedRandom(seed, 'zones');
  return below(random, 3) === 0 ? { ...shape, zones: 2 + below(random, 2) } : shape;
}

function drawNetwork(draw: Draw, { config }: Shape): NetworkSettings {
  const latencyMs = draw.of([0.02, 0.05, 0.05, 0.5, 5]);
  const tailProbability = draw.of([0, 0.001, 0.01, 0.05]);
  const bytesPerS = draw.of([1e6, 1e8, 3e9, 3e9]);
  return {
    latencyMs,
    // Without checksums, a read that takes longer than half of the quarantine is a miss, however often it is repeated.
    bytesPerS: config.verify_reads === false ? Math.max(bytesPerS, 1e8) : bytesPerS,
    // On a slow network, the tail of the latencies would be longer than any deadline.
    tailProbability: latencyMs > 1 ? Math.min(tailProbability, 0.001) : tailProbability,
  };
}

function drawWorkload(
  draw: Draw,
  { shape, nodes, durationMs }: Pick<Scenario, 'shape' | 'nodes' | 'durationMs'>,
): Workload {
  if (draw.oneIn(8)) return { ...CONVERSATIONS, routing: draw.of(PLACEMENT_ROUTINGS), pagesPerTurn: 1 + draw.below(8) };
  const callers = 1 + draw.below(4);
  const calls = draw.of([200, 500, 1_000, 2_000]);
  const mixed: MixedWorkload = {
    ...MIXED,
    callers,
    // The mean pause is half of the longest.
    pauseMaxMs: Math.max(1, Math.round((2 * durationMs * nodes * callers) / calls)),
    ownKeys: draw.of([0, 4, 40]),
    namedKeys: draw.of([1, 3, 20, 60]),
    computedKeys: draw.of([0, 3, 20, 60]),
    mixedKeys: draw.of([0, 0, 2, 6]),
    batchMaxPages: Math.max(1, Math.min(draw.of([1, 4, 12, 12, 40]), shape.poolPages * 2)),
    deleteOneIn: draw.of([0, 20, 60, 60]),
    clearOneIn: draw.of([0, 100, 600, 600]),
    setShare: draw.of([0.1, 0.3, 0.3, 0.6]),
    hotShare: draw.of([0, 0.2, 0.8]),
    namespaces: draw.oneIn(3) ? ['b'] : [],
  };
  return mixed;
}

function drawJoins(draw: Draw, nodes: number, durationMs: number): Join[] {
  if (nodes < 3 || !draw.oneIn(4)) return [];
  const late = Array.from({ length: nodes }, (_, i) => i + 1).slice(1 + draw.below(nodes - 1));
  return [{ atMs: Math.round(durationMs * draw.unit() * 0.6), nodes: late }];
}

/** All kinds, a few, or none. Many faults of one kind reveal problems that a mix of all kinds would hardly touch. */
function drawKinds(draw: Draw): readonly FaultKind[] {
  if (draw.oneIn(10)) return [];
  return draw.oneIn(2) ? NODE_FAULT_KINDS : draw.some(NODE_FAULT_KINDS, 1 + draw.below(4));
}

function drawFaults(draw: Draw, scenario: Scenario, kinds: readonly FaultKind[]): Fault[] {
  const { nodes, shape, durationMs } = scenario;
  const has = { disk: shape.diskPages !== null, source: hasSource(scenario) };
  const able = kinds.filter((kind) => has[shapeOf(kind).needs ?? 'disk'] || shapeOf(kind).needs === undefined);
  if (able.length === 0) return [];
  const faults: Fault[] = [];
  const endMs = durationMs - QUIET_MS;
  const gapMs = draw.of([500, 1_500, 1_500, 4_000]);
  const all = Array.from({ length: nodes }, (_, i) => i + 1);
  for (let atMs = QUIET_MS; ; ) {
    atMs += Math.round(gapMs * (0.2 + 1.6 * draw.unit()));
    if (atMs >= endMs) return faults;
    const fault = drawFault(draw, scenario, { atMs, endMs, all, kinds: able });
    if (!isBusy(scenario, fault, faults)) faults.push(fault);
  }
}

function drawFault(
  draw: Draw,
  scenario: Scenario,
  given: {
    readonly atMs: number;
    readonly endMs: number;
    readonly all: readonly number[];
    readonly kinds: readonly FaultKind[];
  },
): Fault {
  const { atMs, endMs, all } = given;
  const kind = drawKind(draw, given.kinds);
  const { durationMs: range, amount: amounts, peers: between, needs } = shapeOf(kind);
  const durationMs = Math.min(Math.round(draw.between(range)), endMs - atMs);
  const sign = (kind === 'clockjump' || kind === 'clockdrift') && draw.oneIn(2) ? -1 : 1;
  const amount = amounts === undefined ? 0 : sign * Math.round(draw.between(amounts));
  const { diskNodes = all } = scenario.shape;
  const many = kind === 'partition' || kind === 'rack' ? 1 + draw.below(Math.ceil(all.length / 2)) : 1;
  const affected = needs === 'source' ? [] : needs === 'disk' ? diskNodes : all;
  const nodes = draw.some(affected, many).sort((a, b) => a - b);
  const others = all.filter((node) => !nodes.some((each) => hostOf(scenario, each) === hostOf(scenario, node)));
  const peers =
    kind === 'oneway' ? draw.some(others, 1 + draw.below(others.length)) : between === 'others' ? others : [];
  return { kind, atMs, durationMs, nodes, peers: [...peers].sort((a, b) => a - b), amount };
}

function drawKind(draw: Draw, kinds: readonly FaultKind[]): FaultKind {
  const total = kinds.reduce((sum, kind) => sum + shapeOf(kind).weight, 0);
  let left = draw.below(total);
  return kinds.find((kind) => {
    left -= shapeOf(kind).weight;
    return left < 0;
  }) as FaultKind;
}

/** Whether one of the hosts, or the source, has a fault that excludes this one. */
function isBusy(scenario: Scenario, fault: Fault, before: readonly Fault[]): boolean {
  const hosts = new Set(fault.nodes.map((node) => hostOf(scenario, node)));
  const isOfSource = shapeOf(fault.kind).group === 'source';
  return before.some(
    ({ kind, atMs, durationMs, nodes }) =>
      atMs + durationMs + RETURN_MS >= fault.atMs &&
      (isOfSource || nodes.some((node) => hosts.has(hostOf(scenario, node)))) &&
      excludes(kind, fault.kind),
  );
}

/**
 * Whether two faults exclude each other. Process and disk faults do: a node may not start on a full or failing disk.
 */
function excludes(a: FaultKind, b: FaultKind): boolean {
  const groups = [shapeOf(a).group, shapeOf(b).group];
  return groups[0] === groups[1] || (groups.includes('process') && groups.includes('disk'));
}
