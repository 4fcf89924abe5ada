import { setTimeout as sleep } from 'node:timers/promises';
import type { BenchOptions, BenchReport } from '../measuring/report.js';
import { killBench } from './cluster-kill.js';
import { type ClusterAnswer, ClusterNodes, type Traffic, type TrafficKind, trafficSince } from './cluster-nodes.js';

const FULL = { nodes: [50], pages: 300, seconds: 30 } as const;
const QUICK = { nodes: [3], pages: 20, seconds: 1 } as const;

/** Milliseconds after a phase during which costs still count towards it. */
const AFTERWARDS_MS = 2_000;

interface Work {
  readonly pages: number;
  readonly seconds: number;
}

type Answers = ReadonlyMap<number, ClusterAnswer>;

/** One phase of a cluster's life. Figures are means over the nodes; bytes count both directions. */
interface PhaseRow {
  readonly nodes: number;
  readonly phase: string;
  /** Seconds that the phase took. In the steady state, the costs below are per second. */
  readonly duration_s: number;
  /** Seconds from the beginning of the phase until the last node knows every member. */
  readonly all_known_s: number | '';
  /** Seconds from the beginning of the phase until the last node finds the pages of every other node. */
  readonly all_found_s: number | '';
  readonly node_cpu_ms: number;
  readonly master_cpu_ms: number;
  readonly discovery_calls: number;
  readonly discovery_bytes: number;
  readonly announcing_calls: number;
  readonly announcing_bytes: number;
  readonly lookup_bytes: number;
  /** Calls that a master receives and answers, including those of its own node. */
  readonly master_calls: number;
  readonly master_bytes: number;
  /** Pages announced to new owners. */
  readonly reannounced_keys: number;
}

/**
 * Measures a cluster of real processes on loopback addresses: all join at once, they idle for a while, one is killed,
 * one leaves. Reports what each phase costs a node in processor time, calls and bytes, and how that grows with the
 * number of nodes.
 */
export async function clusterBench(options: BenchOptions): Promise<BenchReport> {
  if (options.cluster?.kill) return killBench(options);
  const work = { ...(options.quick ? QUICK : FULL), ...definedOf(options.cluster ?? {}) };
  const rows: PhaseRow[] = [];
  let rssBytes = 0;
  for (const count of work.nodes) {
    const cluster = await ClusterNodes.make(work.pages);
    try {
      const life = await liveThrough(cluster, count, work, (text) => options.progress(`${count} nodes: ${text}`));
      rows.push(...life.rows);
      rssBytes = life.rssBytes;
    } finally {
      cluster.end();
    }
  }
  return {
    title: `cluster: ${work.nodes.join(', ')} node processes on one machine, ${work.pages} pages of 16 KiB each, two directory replicas, heartbeat 2 s, time-to-live 6 s`,
    rows: rows.map((row) => ({ ...row })),
    notes: [
      'A node: the mean of all that run no master (of all where there is none); bytes: calls and answers with their frames, both ways, without TCP and IP; a node’s own calls, so that the sum over the nodes is all there is.',
      'A master: the mean of the nodes that run one; master_calls and master_bytes are what it is asked, in addition to its own calls.',
      'join storm: from the word to join, given to all at once, until every node finds all pages of another one and some of each; processor time includes that search and counting the bytes.',
      `steady: ${work.seconds} s without any work; cpu_ms, calls and bytes are per second (10 ms of processor time are 1 % of a core). Pages are stated again from 150 to 450 s after the start on.`,
      `${Math.round(rssBytes / 2 ** 20)} MiB resident a process in the largest cluster. The figures are of one pass.`,
      ...growthNotes(rows),
    ],
  };
}

async function liveThrough(
  cluster: ClusterNodes,
  count: number,
  { pages, seconds }: Work,
  progress: (text: string) => void,
): Promise<{ rows: PhaseRow[]; rssBytes: number }> {
  const all = Array.from({ length: count }, (_, i) => i);
  const rows: PhaseRow[] = [];
  progress('starting the processes');
  await cluster.load(all);
  const before = await cluster.callAll({ kind: 'usage' });
  progress(`all join at once and set ${pages} pages each`);
  const stormMs = Date.now();
  const joined = new Map(await Promise.all(all.map(async (i) => [i, await cluster.join(i, all)] as const)));
  rows.push(phaseRow('join storm', before, await afterwards(cluster, joined), { startMs: stormMs }));

  // The join storm leaves work behind, such as dropping keys that are no longer owned; nodes do it after the
  // time-to-live and a heartbeat.
  progress(`everybody was found after ${rows[0]?.all_found_s} s; waiting for the steady state`);
  await sleep(Math.min(9, seconds) * 1000);
  progress('steady state');
  const restMs = Date.now();
  const calm = await cluster.callAll({ kind: 'usage' });
  await sleep(seconds * 1000);
  const later = await cluster.callAll({ kind: 'usage' });
  rows.push(phaseRow('steady, per second', calm, later, { startMs: restMs, perSecond: true }));
  const rssBytes = mean([...later.values()].map((answer) => answer.rssBytes));

  for (const phase of ['one killed', 'one leaves'] as const) {
    const victim = cluster.live.length - 1;
    progress(phase);
    const peers = all.slice(0, victim);
    const whole = await cluster.callAll({ kind: 'usage' });
    const startMs = Date.now();
    if (phase === 'one killed') await cluster.kill(victim);
    else await cluster.leave(victim);
    const settled = await cluster.callAll({ kind: 'settle', peers });
    rows.push(phaseRow(phase, whole, await afterwards(cluster, settled), { startMs }));
  }
  return { rows, rssBytes };
}

/** Waits for the announcements that were still pending when every node had found the pages. */
async function afterwards(cluster: ClusterNodes, settled: Answers): Promise<Answers> {
  await sleep(AFTERWARDS_MS);
  const answers = await cluster.callAll({ kind: 'usage' });
  return new Map([...answers].map(([i, answer]) => [i, { ...settled.get(i), ...answer }]));
}

function phaseRow(
  phase: string,
  before: Answers,
  after: Answers,
  { startMs, perSecond = false }: { startMs: number; perSecond?: boolean },
): PhaseRow {
  const answers = [...after];
  const durationS = (Date.now() - startMs) / 1000;
  const per = perSecond ? durationS : 1;
  const masters = answers.filter(([, { isMaster }]) => isMaster);
  const others = answers.filter(([, { isMaster }]) => !isMaster);
  const nodes = others.length > 0 ? others : masters;
  const meanOf = (of: typeof answers, pick: (answer: ClusterAnswer) => number): number =>
    rounded(mean(of.map(([i, answer]) => pick(answer) - pick(before.get(i) as ClusterAnswer))) / per);
  const ofKind = (kind: TrafficKind, side: 'client' | 'server', of: typeof answers): Traffic => {
    const each = of.map(([i, { traffic }]) =>
      trafficSince((before.get(i) as ClusterAnswer).traffic[side][kind], traffic[side][kind]),
    );
    return {
      calls: rounded(mean(each.map(({ calls }) => calls)) / per),
      bytes: rounded(mean(each.map(({ bytes }) => bytes)) / per),
    };
  };
  const last = (pick: (answer: ClusterAnswer) => number | undefined): number | '' =>
    perSecond ? '' : rounded((Math.max(...answers.map(([, answer]) => pick(answer) ?? 0)) - startMs) / 1000);
  const discovery = ofKind('discovery', 'client', nodes);
  const announcing = ofKind('announcing', 'client', nodes);
  const asked = ofKind('discovery', 'server', masters);
  return {
    nodes: before.size,
    phase,
    duration_s: rounded(durationS),
    all_known_s: last(({ knownAtMs }) => knownAtMs),
    all_found_s: last(({ foundAtMs }) => foundAtMs),
    node_cpu_ms: meanOf(nodes, ({ cpuMs }) => cpuMs),
    master_cpu_ms: meanOf(masters, ({ cpuMs }) => cpuMs),
    discovery_calls: discovery.calls,
    discovery_bytes: discovery.bytes,
    announcing_calls: announcing.calls,
    announcing_bytes: announcing.bytes,
    lookup_bytes: ofKind('lookups', 'client', nodes).bytes,
    master_calls: asked.calls,
    master_bytes: asked.bytes,
    reannounced_keys: meanOf(nodes, ({ reannouncedKeys }) => reannouncedKeys),
  };
}

/** Figures for which a straight line through the cluster sizes is reported. */
const GROWING = ['node_cpu_ms', 'master_cpu_ms', 'discovery_bytes', 'announcing_bytes', 'master_bytes'] as const;
const PREDICTED_NODES = 1000;

/** For each phase and figure, the straight line `a + b * nodes` that fits best. */
function growthNotes(rows: readonly PhaseRow[]): string[] {
  return [...new Set(rows.map(({ phase }) => phase))].flatMap((phase) => {
    const these = rows.filter((row) => row.phase === phase);
    if (these.length < 2) return [];
    const lines = GROWING.map((name) => {
      const { a, b } = straightLine(these.map((row) => [row.nodes, row[name]]));
      return `${name} = ${rounded(a)} ${b < 0 ? '-' : '+'} ${rounded(Math.abs(b))} n (${PREDICTED_NODES}: ${rounded(a + b * PREDICTED_NODES)})`;
    });
    return [`${phase}, n nodes: ${lines.join('; ')}.`];
  });
}

/** Fits `a + b * x` by least squares to points with at least two different x. */
export function straightLine(points: readonly (readonly [x: number, y: number])[]): { a: number; b: number } {
  const meanX = mean(points.map(([x]) => x));
  const meanY = mean(points.map(([, y]) => y));
  const spread = points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0);
  const b = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0) / spread;
  return { a: meanY - b * meanX, b };
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

function rounded(value: number): number {
  return Number(value.toPrecision(4));
}

function definedOf<T extends object>(given: T): Partial<T> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Partial<T>;
}
