import { setTimeout as sleep } from 'node:timers/promises';
import type { BenchOptions, BenchReport } from '../measuring/report.js';
import { type ClusterAnswer, ClusterNodes, type ClusterRead, clusterHost } from './cluster-nodes.js';

/** Default time-to-live of a member. */
const MEMBER_TTL_MS = 6_000;
const HEARTBEAT_MS = 2_000;
const FULL = { pages: 300, afterTtlMs: 6_000 } as const;
const QUICK = { pages: 20, afterTtlMs: 500 } as const;
const BEFORE_MS = 1_000;
const BUCKET_MS = 100;

interface Outcome {
  readonly killedAtMs: number;
  readonly reads: readonly ClusterRead[];
  /** Wall clock time at which both survivors had dropped the killed node. */
  readonly droppedAtMs: number;
  /** Wall clock times at which a node told to join at the kill was up, and at which both survivors knew it. */
  readonly joined: { readonly createdAtMs: number; readonly knownAtMs: number } | undefined;
}

/**
 * Kills one of three nodes, each on a host of its own with a master, while the other two read each other's pages.
 * Reports how many of their reads fail before and after the kill and the time-to-live, and how fast a node can join if
 * the killed node was the head.
 */
export async function killBench(options: BenchOptions): Promise<BenchReport> {
  const { pages, afterTtlMs } = { ...(options.quick ? QUICK : FULL), ...pagesOf(options) };
  const outcomes = new Map<string, Outcome>();
  const rounds = options.quick ? 1 : options.rounds;
  for (let round = 1; round <= rounds; round++) {
    for (const victim of [0, 2]) {
      const name = victim === 0 ? 'the head of three' : 'another one of three';
      options.progress(`round ${round} of ${rounds}: ${name}`);
      outcomes.set(`${name}, round ${round}`, await killOne(victim, pages, afterTtlMs));
    }
  }
  return {
    title:
      'cluster: one of three nodes is killed (-9), the two others read each other’s pages; heartbeat 2 s, time-to-live 6 s, two directory replicas',
    rows: [...outcomes].flatMap(([killed, outcome]) => rowsOf(killed, outcome)),
    notes: [...outcomes].flatMap(([killed, outcome]) => notesOf(killed, outcome)),
  };
}

async function killOne(victim: number, pages: number, afterTtlMs: number): Promise<Outcome> {
  const cluster = await ClusterNodes.make(pages);
  const three = [0, 1, 2];
  const late = 3;
  const survivors = three.filter((index) => index !== victim);
  const isHead = victim === 0;
  try {
    await cluster.load(isHead ? [...three, late] : three);
    // The nodes join one after the other, so that all three masters exist when the last node has settled.
    for (const index of three) await cluster.join(index, three.slice(0, index + 1));
    for (const index of three) await cluster.call(index, { kind: 'settle', peers: three });
    for (const index of three) await cluster.call(index, { kind: 'awaitMaster' });
    for (const index of survivors) {
      await cluster.call(index, { kind: 'read', peers: survivors.filter((other) => other !== index) });
    }
    await sleep(BEFORE_MS);
    const killedAtMs = Date.now();
    const gone = cluster.kill(victim);
    const joining = isHead ? cluster.join(late, [...survivors, late]) : undefined;
    const watch = async (index: number, isMember: boolean): Promise<number> => {
      const host = clusterHost(index);
      const seen = await Promise.all(survivors.map((i) => cluster.call(i, { kind: 'watch', host, isMember })));
      return Math.max(...seen.map(({ knownAtMs }) => knownAtMs ?? 0));
    };
    const knownAtMs = joining === undefined ? 0 : await watch(late, true);
    await gone;
    const droppedAtMs = await watch(victim, false);
    const joined = await joining;
    await sleep(Math.max(0, killedAtMs + MEMBER_TTL_MS + afterTtlMs - Date.now()));
    const ended: ClusterAnswer[] = [];
    for (const index of survivors) ended.push(await cluster.call(index, { kind: 'endReading' }));
    return {
      killedAtMs,
      droppedAtMs,
      reads: ended.flatMap(({ reads }) => reads ?? []),
      joined: joined && { createdAtMs: joined.createdAtMs ?? 0, knownAtMs },
    };
  } finally {
    cluster.end();
  }
}

function rowsOf(killed: string, { killedAtMs, reads }: Outcome): BenchReport['rows'] {
  const row = (when: string, fromMs: number, toMs: number): BenchReport['rows'][number] => {
    const these = reads.filter(({ atMs }) => atMs - killedAtMs >= fromMs && atMs - killedAtMs < toMs);
    const failed = these.filter(({ isFound }) => !isFound).length;
    return {
      killed,
      when,
      reads: these.length,
      failed,
      failed_percent: these.length === 0 ? 0 : (100 * failed) / these.length,
      slowest_ms: these.reduce((slowest, { tookMs }) => Math.max(slowest, tookMs), 0),
    };
  };
  return [
    row('before', Number.NEGATIVE_INFINITY, 0),
    row('0 to 100 ms after it', 0, BUCKET_MS),
    row('from then to the time-to-live', BUCKET_MS, MEMBER_TTL_MS),
    row('from the time-to-live on', MEMBER_TTL_MS, Number.POSITIVE_INFINITY),
  ];
}

function notesOf(killed: string, { killedAtMs, droppedAtMs, reads, joined }: Outcome): string[] {
  const seconds = (ms: number): string => `${((ms - killedAtMs) / 1000).toFixed(2)} s`;
  const failures = new Map<number, number>();
  for (const { atMs, isFound } of reads) {
    const bucket = Math.floor((atMs - killedAtMs) / BUCKET_MS);
    if (!isFound) failures.set(bucket, (failures.get(bucket) ?? 0) + 1);
  }
  const buckets = [...failures]
    .sort(([a], [b]) => a - b)
    .map(([bucket, count]) => `${bucket * BUCKET_MS} ms: ${count}`);
  const notes = [
    `${killed}: dropped by both others ${seconds(droppedAtMs)} after the kill; failed reads in 100 ms from: ${buckets.join(', ') || 'none'}.`,
  ];
  if (joined !== undefined) {
    notes.push(
      `${killed}: a node told to join at the moment of the kill was up after ${seconds(joined.createdAtMs)}, and known to both others after ${seconds(joined.knownAtMs)} (two heartbeats are ${(2 * HEARTBEAT_MS) / 1000} s).`,
    );
  }
  return notes;
}

function pagesOf({ cluster }: BenchOptions): { readonly pages?: number } {
  return cluster?.pages === undefined ? {} : { pages: cluster.pages };
}
