// Clusters of real processes, into which a node comes whose date is wrong, or whose date steps while it is a member:
// honest nodes lose nothing, the wrong one is named, and when its date is right again it is a member without being
// started again. `npm run stress` runs the whole table.
import { mkdtempSync, rmSync } from 'node:fs';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../src/system/system-clock.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { DatedCluster, type DatedNode } from '../_support/node/dated-nodes.js';
import { OtherDate, otherDateMissing } from '../_support/node/other-date.js';
import { PATIENCE_MS, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';

const MINUTE_S = 60;
const DAY_S = 86_400;
const WEEK_MS = 7 * DAY_S * 1000;
/** A member's date is at most so much ahead. */
const MEMBER_AHEAD_S = 5 * MINUTE_S;
/** Milliseconds of life of pages whose end is looked at, and what a busy machine may take to look. */
const SHORT_MS = 9_000;
const LOOK_MS = 1_000;
/** Milliseconds by which the clocks of nodes may differ. */
const SLACK_MS = 100;
const DATES: readonly (readonly [string, number])[] = [
  ['2 minutes', 2 * MINUTE_S],
  ['10 minutes', 10 * MINUTE_S],
  ['7 months', 210 * DAY_S],
  ['300 years', 300 * 365 * DAY_S],
];
const TIERS = ['memory', 'disk', 'pool file'] as const;
type Tier = (typeof TIERS)[number];
const test = unless(otherDateMissing);
const isWide = process.env.MESHCACHE_STRESS_SECONDS !== undefined;
const ROWS = isWide
  ? DATES.flatMap(([name, s]) => [3, 5].flatMap((count) => TIERS.map((tier) => ({ name, s, count, tier }))))
  : [{ name: '7 months', s: 210 * DAY_S, count: 3, tier: 'disk' as const }];

const REFUSED = /node wrong at \S+ is refused as a member: its clock is .* ahead/;

const keysOf = (name: string, count: number) => Array.from({ length: count }, (_, i) => `${name} ${i}`);

function settingsOf(t: ExecutionContext, tier: Tier): string[] {
  if (tier === 'memory') return [];
  if (tier === 'disk') return ['disk_enabled=true', 'disk_size=32mb', `disk_path=${temporaryFolder(t)}/own`];
  const folder = mkdtempSync('/dev/shm/meshcache-test-');
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return [`pool_path=${folder}/own`];
}

/**
 * Looks when pages end. Reads that a busy machine has missed are missed once; a clock that makes pages end early does
 * so each time.
 */
async function expiryIsRight(t: ExecutionContext, cluster: DatedCluster, writer: DatedNode): Promise<void> {
  let readMs = 0;
  for (let attempt = 0; attempt < 3 && readMs <= SHORT_MS / 3; attempt++) readMs = await lastRead(t, cluster, writer);
  t.true(readMs > SHORT_MS / 3 && readMs < SHORT_MS + SLACK_MS);
}

/**
 * Sets pages that live for some seconds, none of which may be read afterwards; the milliseconds after which all honest
 * nodes have read all of them last.
 */
async function lastRead(t: ExecutionContext, cluster: DatedCluster, writer: DatedNode): Promise<number> {
  const keys = keysOf(`short ${performance.now()}`, 4);
  const startMs = performance.now();
  await writer.setAll(keys, SHORT_MS).catch((error: Error) => t.log(error.message));
  let readMs = 0;
  while (performance.now() - startMs < SHORT_MS) {
    const askedMs = performance.now();
    if ((await cluster.missing(keys)).length === 0) readMs = askedMs - startMs;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  t.log(`pages with ${SHORT_MS} ms to live were read after ${Math.round(readMs)} ms`);
  await until(() => performance.now() - startMs >= SHORT_MS + LOOK_MS);
  t.deepEqual(await cluster.missing(keys), keys, 'expired on all nodes');
  return readMs;
}

/** Two clusters at a time: one whose wrong date is ahead, and one whose is behind. */
const lanes = new Map<number, Promise<void>>();

/** The time of a test begins with its turn: the table takes longer than any of its rows may. */
function inTurn(t: ExecutionContext, lane: number, work: () => Promise<void>): Promise<void> {
  const turn = (lanes.get(lane) ?? Promise.resolve())
    .catch(() => {})
    .then(() => {
      t.timeout(PATIENCE_MS * 20);
      return work();
    });
  lanes.set(lane, turn);
  return turn;
}

/** A cluster, the pages that it must not lose, and a node on a machine whose date is wrong. */
interface Scene {
  readonly t: ExecutionContext;
  readonly cluster: DatedCluster;
  readonly kept: readonly string[];
  readonly own: readonly string[];
  readonly wrong: DatedNode;
  readonly date: OtherDate;
  readonly aheadS: number;
  /** Whether the date is so far ahead that the node is refused. */
  readonly isRefused: boolean;
}

async function makeScene(t: ExecutionContext, aheadS: number, { count, tier }: (typeof ROWS)[number]): Promise<Scene> {
  const cluster = await DatedCluster.start(t, count);
  const kept = [...keysOf('week', 20), ...keysOf('for good', 20)];
  await (cluster.nodes[0] as DatedNode).sets(kept.slice(0, 20), WEEK_MS);
  await (cluster.nodes[1] as DatedNode).sets(kept.slice(20));
  const date = new OtherDate(t, aheadS);
  const wrong = cluster.node('wrong', { date, settings: settingsOf(t, tier) });
  return { t, cluster, kept, own: keysOf('own', 20), wrong, date, aheadS, isRefused: aheadS > MEMBER_AHEAD_S };
}

function isMeasured({ wrong, aheadS }: Scene): Promise<void> {
  // A date before 1970 counts as one of the beginning of 1970.
  const from1970S = Math.max(aheadS, (systemClock.nowMs() - Date.now()) / 1000);
  return until(async () => Math.abs((await wrong.metric('meshcache_clock_offset_seconds')) - from1970S) < MINUTE_S);
}

/** The masters of honest nodes count whom they refuse, also a node that has ended and has no metrics itself. */
async function isCounted({ t, cluster }: Scene): Promise<void> {
  const name = 'meshcache_discovery_refusals_total';
  const counts = await Promise.all(cluster.nodes.map((node) => node.metric(name, 'reason="clock"')));
  t.true(counts.some((count) => count > 0));
}

/** The node comes with its wrong date, sets a page, leaves, and comes back. */
async function comesAndGoes(scene: Scene): Promise<void> {
  const { t, cluster, kept, wrong, isRefused } = scene;
  for (const key of ['set when it came', 'set when it came again']) {
    const end = await wrong.start();
    if (isRefused) {
      t.regex(end?.stderr ?? '', /the clock of this machine is .* ahead/);
      continue;
    }
    t.is(end, undefined, end?.stderr);
    await cluster.hasMembers(cluster.nodes.length + 1);
    await wrong.sets([key], WEEK_MS);
    await cluster.reads([key]);
    await until(async () => (await wrong.missing(kept)).length === 0);
    await isMeasured(scene);
    await cluster.says(/clock \d+\.\d s (ahead of|behind)/);
    await wrong.stop();
    await cluster.hasMembers(cluster.nodes.length);
  }
  if (isRefused) {
    await cluster.says(REFUSED);
    await isCounted(scene);
  }
  await cluster.reads(kept);
}

/** The date is right when the node starts, and steps while it is a member; an honest node starts again meanwhile. */
async function steps(scene: Scene): Promise<void> {
  const { t, cluster, kept, own, wrong, date, aheadS, isRefused } = scene;
  const { length: count } = cluster.nodes;
  date.set(0);
  t.is(await wrong.start(), undefined);
  await cluster.hasMembers(count + 1);
  await wrong.sets(own);
  date.set(aheadS);
  await wrong.setAll(keysOf('late', 5), WEEK_MS).catch(() => {});
  if (isRefused) {
    await cluster.hasMembers(count);
    await until(() => /a discovery master refuses this node: its clock is too far ahead/.test(wrong.log));
    await until(() => cluster.nodes.some(({ log }) => log.includes('node refused: its clock is too far ahead')));
    await until(async () => /refused by the discovery master .*: its clock is .* ahead/.test(await wrong.health()));
    await cluster.says(REFUSED);
    await isCounted(scene);
  } else if (Math.abs(aheadS) > MEMBER_AHEAD_S) {
    await until(async () => /the clock of this machine is \d+ s behind/.test(await wrong.health()));
  }
  await isMeasured(scene);
  await until(() => /the clock of this machine differs from those of the cluster/.test(wrong.log));
  await wrong.setAll(keysOf('late', 5), WEEK_MS).catch(() => {});
  await cluster.reads(kept);
  const again = cluster.nodes[1] as DatedNode;
  await again.stop();
  t.is(await again.start(), undefined);
  await cluster.hasMembers(isRefused ? count : count + 1);
  await cluster.reads(kept.slice(0, 20));
  await again.sets(kept.slice(20));
  await expiryIsRight(t, cluster, again);
}

/** The date is right again: the node is a member without being started again, and afterwards. */
async function isRightAgain({ t, cluster, kept, own, wrong, date }: Scene, tier: Tier): Promise<void> {
  date.set(0);
  await cluster.hasMembers(cluster.nodes.length + 1);
  await until(() => /the clock of this machine agrees with the cluster again/.test(wrong.log));
  await until(async () => (await wrong.missing(kept)).length === 0);
  await wrong.sets(['when it is right'], WEEK_MS);
  await cluster.reads([...kept, 'when it is right']);
  await expiryIsRight(t, cluster, wrong);
  await wrong.stop();
  t.is(await wrong.start(), undefined);
  await cluster.hasMembers(cluster.nodes.length + 1);
  await cluster.reads(kept);
  if (tier !== 'memory') await cluster.reads(own);
}

for (const row of ROWS) {
  for (const sign of [1, -1]) {
    const where = `${row.name} ${sign > 0 ? 'ahead' : 'behind'}, ${row.count} nodes, ${row.tier}`;
    test(`other dates: ${where}: honest nodes lose nothing, and the wrong one is named`, (t) => {
      return inTurn(t, sign, async () => {
        const scene = await makeScene(t, sign * row.s, row);
        await comesAndGoes(scene);
        await steps(scene);
        await isRightAgain(scene, row.tier);
      });
    });
  }
}
