import { type RandomSource, seededRandom } from '../../src/base/environment/random.js';
import { EVICTION_POLICIES, type EvictionPolicy } from '../../src/config.js';
import { SOURCE_TROUBLES, type SourceKind, type SourceTrouble } from './source.js';

/** What a fault needs of the node that it happens to. */
interface Kind {
  /** A node has at most one fault of each group at a time. */
  readonly group: 'process' | 'network' | 'disk' | 'clock';
  /** How often it is drawn, beside the others. */
  readonly weight: number;
  readonly durationMs: readonly [least: number, most: number];
  /** What `amount` is drawn from, evenly on a logarithmic scale. */
  readonly amount?: readonly [least: number, most: number];
  readonly needs?: 'proxy' | 'disk';
}

/** Faults of nodes; `amount` is in the unit that the comment names. */
export const KINDS = {
  /** SIGKILL; started again with the same id and ports. */
  kill: { group: 'process', weight: 4, durationMs: [200, 8_000] },
  /** Closed as a program closes it, started again with the same id and ports. */
  restart: { group: 'process', weight: 2, durationMs: [50, 2_000] },
  /** Drained as by `meshcache drain`, and restarted when it has left, or when the time is over. */
  drain: { group: 'process', weight: 1, durationMs: [1_000, 4_000] },
  /** SIGSTOP, then SIGCONT: for shorter and for longer than members are waited for. */
  stop: { group: 'process', weight: 3, durationMs: [200, 7_000] },
  /** The node's link is down. */
  isolate: { group: 'network', weight: 2, durationMs: [300, 6_000] },
  /** Some nodes and the others drop each other's packets. */
  partition: { group: 'network', weight: 2, durationMs: [500, 7_000] },
  /** The node does not hear some others, which do hear it. */
  oneway: { group: 'network', weight: 2, durationMs: [500, 6_000] },
  /** Percent of the packets to the node. */
  loss: { group: 'network', weight: 2, durationMs: [1_000, 6_000], amount: [1, 25] },
  /** Milliseconds that all bytes to and from the node's servers are late. */
  delay: { group: 'network', weight: 2, durationMs: [1_000, 6_000], amount: [5, 800], needs: 'proxy' },
  /** Bytes a second of each connection. */
  drip: { group: 'network', weight: 2, durationMs: [1_000, 6_000], amount: [200, 200_000], needs: 'proxy' },
  /** Connections stay open and new ones are accepted, but nothing goes through any more. */
  halfopen: { group: 'network', weight: 2, durationMs: [500, 6_000], needs: 'proxy' },
  /** Connections are cut in the middle of what they carry. Bytes that each new one carries until then. */
  reset: { group: 'network', weight: 1, durationMs: [300, 3_000], amount: [1, 100_000], needs: 'proxy' },
  /** Something else takes all that is left of the disk. */
  diskfull: { group: 'disk', weight: 3, durationMs: [1_000, 6_000], needs: 'disk' },
  /** The wall clock jumps so many milliseconds, back or forth, and stays so. */
  clock: { group: 'clock', weight: 1, durationMs: [0, 0], amount: [500, 60_000] },
} as const satisfies Record<string, Kind>;

export type FaultKind = keyof typeof KINDS;
export const FAULT_KINDS = Object.keys(KINDS) as readonly FaultKind[];

/** A time in which the source of addresses has a trouble, or is at the end of it what it was at its beginning. */
export interface SourceFault {
  readonly trouble: SourceTrouble;
  readonly atMs: number;
  readonly durationMs: number;
}

export interface Fault {
  readonly kind: FaultKind;
  readonly atMs: number;
  readonly durationMs: number;
  /** Nodes that it happens to, from 1 on. */
  readonly nodes: readonly number[];
  /** Whom these do not hear. */
  readonly peers: readonly number[];
  readonly amount: number;
}

/** Everything that a run is made of: the same one is the same run, but for what the system and chance do. */
export interface Schedule {
  readonly seed: number;
  readonly seconds: number;
  readonly nodes: number;
  /** The first so many nodes are listed as discovery addresses. */
  readonly listedMasters: number;
  readonly replicas: number;
  readonly evictionPolicy: EvictionPolicy;
  readonly isAuthenticated: boolean;
  /** Nodes copy what they read often. */
  readonly promotesHotReads: boolean;
  /** Nodes whose servers are reached through a proxy from the start. */
  readonly proxied: readonly number[];
  /** Nodes with a disk tier. */
  readonly disks: readonly number[];
  readonly faults: readonly Fault[];
  /** Where nodes find each other; undefined: by the list of discovery addresses. */
  readonly source?: SourceKind;
  readonly sourceFaults?: readonly SourceFault[];
}

export interface ScheduleOptions {
  readonly seconds: number;
  readonly nodes: number;
  readonly kinds: readonly FaultKind[];
  /** Mean time between two faults. */
  readonly gapMs: number;
  /** Nodes with faults of the group `process`; all when left out. */
  readonly mortal?: readonly number[];
  /** Where nodes find each other; default: by a list. */
  readonly source?: SourceKind | undefined;
}

/** Without faults in the first and the last moments of a run, which has nothing to lose and no time to notice then. */
const QUIET_MS = 500;
/** A node that was down has so long to be itself again before it gets the next fault of the group. */
const RETURN_MS = 2_500;
/** Least and longest time of a trouble of the source, and of the pause before it. */
const SOURCE_TIMES_MS = [500, 6_000] as const;
/** Makes the seed of the source's troubles another one than that of the rest. */
const SOURCE_SEED = 0x5eed_0002;

export function scheduleOf(seed: number, options: ScheduleOptions): Schedule {
  const random = seededRandom(seed);
  random.u32();
  const { seconds, nodes, kinds } = options;
  const all = Array.from({ length: nodes }, (_, i) => i + 1);
  const hasProxies = kinds.some((kind) => needOf(kind) === 'proxy');
  const cluster = {
    listedMasters: random.u32() % 4 === 0 ? 1 : Math.min(3, nodes),
    replicas: random.u32() % 4 === 0 ? 3 : 2,
    evictionPolicy: EVICTION_POLICIES[random.u32() % EVICTION_POLICIES.length] as EvictionPolicy,
    isAuthenticated: random.u32() % 2 === 0,
    promotesHotReads: random.u32() % 2 === 0,
    proxied: hasProxies ? some(random, all, Math.min(2, nodes)) : [],
    disks: some(random, all, Math.min(2, nodes)),
  };
  const faults: Fault[] = [];
  const endMs = seconds * 1000 - QUIET_MS;
  for (let atMs = QUIET_MS; ; ) {
    atMs += Math.round(options.gapMs * (0.2 + 1.6 * unit(random)));
    if (atMs >= endMs || kinds.length === 0) break;
    const fault = draw(random, { atMs, endMs, all, cluster, options, before: faults });
    if (fault !== undefined) faults.push(fault);
  }
  const schedule = { seed, seconds, nodes, ...cluster, faults };
  const { source } = options;
  return source === undefined ? schedule : { ...schedule, source, sourceFaults: sourceFaults(seed, endMs) };
}

/** Troubles one after the other, drawn apart, so that all else of a seed is the same without them. */
function sourceFaults(seed: number, endMs: number): SourceFault[] {
  const random = seededRandom(seed ^ SOURCE_SEED);
  random.u32();
  const faults: SourceFault[] = [];
  for (let atMs = QUIET_MS; ; ) {
    atMs += Math.round(between(random, SOURCE_TIMES_MS));
    const durationMs = Math.min(Math.round(between(random, SOURCE_TIMES_MS)), endMs - atMs);
    if (durationMs < SOURCE_TIMES_MS[0]) return faults;
    const trouble = SOURCE_TROUBLES[random.u32() % SOURCE_TROUBLES.length] as SourceTrouble;
    faults.push({ trouble, atMs, durationMs });
    atMs += durationMs;
  }
}

interface Draw {
  readonly atMs: number;
  readonly endMs: number;
  readonly all: readonly number[];
  readonly cluster: Pick<Schedule, 'proxied' | 'disks'>;
  readonly options: ScheduleOptions;
  readonly before: readonly Fault[];
}

/** Undefined: the node that it would have happened to has such a fault already. */
function draw(random: RandomSource, { atMs, endMs, all, cluster, options, before }: Draw): Fault | undefined {
  const kind = drawKind(random, options.kinds);
  const { group, durationMs: range, amount: amounts }: Kind = KINDS[kind];
  const need = needOf(kind);
  const able = need === 'proxy' ? cluster.proxied : need === 'disk' ? cluster.disks : all;
  const allowed = group === 'process' ? able.filter((node) => options.mortal?.includes(node) ?? true) : able;
  const durationMs = Math.min(Math.round(between(random, range)), endMs - atMs);
  const sign = kind === 'clock' && random.u32() % 2 === 0 ? -1 : 1;
  const amount = amounts === undefined ? 0 : sign * Math.round(between(random, amounts));
  const many = kind === 'partition' ? 1 + (random.u32() % Math.max(1, Math.floor(all.length / 2))) : 1;
  const nodes = some(random, allowed, many);
  const others = all.filter((node) => !nodes.includes(node));
  const peers =
    kind === 'partition' ? others : kind === 'oneway' ? some(random, others, 1 + (random.u32() % others.length)) : [];
  const isBusy = before.some(
    (fault) =>
      fault.atMs + fault.durationMs + RETURN_MS >= atMs &&
      fault.nodes.some((node) => nodes.includes(node)) &&
      excludes(fault.kind, kind),
  );
  if (isBusy || nodes.length === 0 || (nodes.length < many && kind === 'partition')) return undefined;
  return { kind, atMs, durationMs, nodes, peers, amount };
}

/** A node that is started while its disk is full refuses to start, and rightly so. */
function excludes(a: FaultKind, b: FaultKind): boolean {
  const groups = [KINDS[a].group, KINDS[b].group];
  return groups[0] === groups[1] || (groups.includes('process') && groups.includes('disk'));
}

function needOf(kind: FaultKind): Kind['needs'] {
  const { needs }: Kind = KINDS[kind];
  return needs;
}

function drawKind(random: RandomSource, kinds: readonly FaultKind[]): FaultKind {
  const total = kinds.reduce((sum, kind) => sum + KINDS[kind].weight, 0);
  let left = random.u32() % total;
  return kinds.find((kind) => {
    left -= KINDS[kind].weight;
    return left < 0;
  }) as FaultKind;
}

function some(random: RandomSource, from: readonly number[], count: number): number[] {
  const left = [...from];
  const taken: number[] = [];
  while (taken.length < count && left.length > 0) taken.push(...left.splice(random.u32() % left.length, 1));
  return taken.sort((a, b) => a - b);
}

function unit(random: RandomSource): number {
  return random.u32() / 2 ** 32;
}

function between(random: RandomSource, [least, most]: readonly [number, number]): number {
  return least > 0 ? least * (most / least) ** unit(random) : least + (most - least) * unit(random);
}
