import type { RandomSource } from '../../../../src/base/environment/random.js';
import { FAULT_KINDS, type Fault, type FaultKind } from '../../../../src/sim/world/faults.js';
import { below, chance, fraction } from '../../../../src/sim/world/kernel/seeds.js';

/** Properties of random faults. */
export interface FaultShape {
  /** Names of the hosts that faults may affect. */
  readonly hosts: readonly string[];
  /** Faults begin after this time; the end of all follows. */
  readonly fromMs: number;
  readonly untilMs: number;
  readonly count: number;
  /** Kinds of faults; default: all. */
  readonly kinds?: readonly FaultKind[];
  /** Shortest duration of a fault; the longest follows. Default: 100 to 10,000. */
  readonly minDurationMs?: number;
  readonly maxDurationMs?: number;
  /** Part of the hosts that one fault may affect; default: a third, at least one. */
  readonly maxTargetsFraction?: number;
}

const MIN_DURATION_MS = 100;
const MAX_DURATION_MS = 10_000;
const MAX_TARGETS_FRACTION = 1 / 3;
/** Probability that a fault is about some peers and not about all. */
const PEERS_PROBABILITY = 0.5;

/** Range of the amount for each kind that has one. */
const AMOUNTS: Readonly<Partial<Record<FaultKind, readonly [number, number]>>> = {
  slow: [0.1, 5],
  delay: [1, 300],
  loss: [0.01, 0.3],
  throttle: [1e5, 1e8],
  reset: [0, 1e6],
  'clock-jump': [-3_600_000, 3_600_000],
  'clock-drift': [-2000, 2000],
  'disk-slow': [2, 2000],
  'disk-errors': [0.01, 0.5],
  'disk-flush-errors': [0.01, 0.9],
  'disk-rot': [1, 64],
};

/**
 * A random plan of faults, in the order of their times. Durations and amounts are whole where that makes no difference.
 */
export function randomFaults(random: RandomSource, shape: FaultShape): Fault[] {
  const kinds = shape.kinds ?? (Object.keys(FAULT_KINDS) as FaultKind[]);
  const faults = Array.from({ length: shape.count }, () => randomFault(random, shape, kinds));
  return faults.sort((a, b) => a.atMs - b.atMs);
}

function randomFault(random: RandomSource, shape: FaultShape, kinds: readonly FaultKind[]): Fault {
  const { hosts, fromMs, untilMs, minDurationMs = MIN_DURATION_MS, maxDurationMs = MAX_DURATION_MS } = shape;
  const kind = kinds[below(random, kinds.length)] as FaultKind;
  const durationMs = durationBetween(random, minDurationMs, maxDurationMs);
  const atMs = Math.round(fromMs + fraction(random) * Math.max(0, untilMs - fromMs - durationMs));
  const maxCount = Math.max(1, Math.floor(hosts.length * (shape.maxTargetsFraction ?? MAX_TARGETS_FRACTION)));
  const targets = chosen(random, hosts, 1 + below(random, maxCount));
  const others = hosts.filter((host) => !targets.includes(host));
  const peers = chance(random, PEERS_PROBABILITY)
    ? chosen(random, others, 1 + below(random, others.length))
    : undefined;
  const amount = amountOf(random, kind);
  return { atMs, kind, targets, durationMs, ...(peers && { peers }), ...(amount !== undefined && { amount }) };
}

/**
 * A random duration: some doublings of the shortest, so that short ones are as frequent as long ones. The arithmetic is
 * alike on every machine.
 */
function durationBetween(random: RandomSource, minMs: number, maxMs: number): number {
  let doublings = 0;
  while (minMs * 2 ** (doublings + 1) <= maxMs) doublings++;
  const durationMs = minMs * 2 ** below(random, doublings + 1) * (1 + fraction(random));
  return Math.round(Math.min(maxMs, durationMs));
}

function amountOf(random: RandomSource, kind: FaultKind): number | undefined {
  const range = AMOUNTS[kind];
  if (range === undefined) return undefined;
  const amount = range[0] + (range[1] - range[0]) * fraction(random);
  return Math.abs(range[1]) > 1 ? Math.round(amount) : Math.round(amount * 1000) / 1000;
}

function chosen<T>(random: RandomSource, from: readonly T[], count: number): T[] {
  const rest = [...from];
  return Array.from({ length: Math.min(count, rest.length) }, () => rest.splice(below(random, rest.length), 1)[0] as T);
}
