import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { systemRandom } from '../../src/system/system-random.js';
import { suffix as noAddon } from '../_support/native/addon.js';
import { noPython } from '../_support/native/python-process.js';
import { PATIENCE_MS } from '../_support/support.js';
import { Engine, type EngineOptions, type EngineReport, startLateWritesCluster } from './late-writes-cluster.js';

// A slot of an engine's pool is used for something else as soon as the call that was to fill it has returned. From then
// on the node must not write into it: whether the read was aborted at its deadline, the node was frozen meanwhile, was
// killed, or has closed the connection.

/** Rounds of a test, in each of which one call reads a few pages; set in the environment for all of them. */
const WANTED = process.env.MESHCACHE_STRESS_ROUNDS;
const ROUNDS = Number(WANTED ?? 600);
const FAULT_ROUNDS = Number(WANTED ?? 200);
/** Between two faults. */
const ROUNDS_A_FAULT = 100;
const SEED = Number(process.env.MESHCACHE_STRESS_SEED ?? systemRandom.u32() % 1_000_000);
/** A full machine may keep a call from returning for so long; more than this is blocked. */
const GRACE_S = 20;
const FROZEN_MIN_MS = 200;
const FROZEN_MAX_MS = 3_000;
/** Longer than a client keeps a connection on which nothing is said. */
const FROZEN_LONG_MS = 6_000;

const OPTIONS: EngineOptions = {
  seed: SEED,
  rounds: FAULT_ROUNDS,
  threads: 4,
  maxTimeoutMs: 50,
  endFrozenNode: true,
  fenceTimeoutMs: 5_000,
  withoutFence: false,
};

const suffix = noPython === '' ? noAddon : ` (skipped: ${noPython})`;
const late = suffix === '' ? test.serial : test.serial.skip;

async function bench(t: ExecutionContext, overrides: Partial<EngineOptions> = {}) {
  t.log(`seed ${SEED}`);
  t.timeout(ROUNDS * 300 + 10 * PATIENCE_MS);
  const random = seededRandom(SEED);
  const { node, clientSocket } = await startLateWritesCluster(t, random);
  const engine = new Engine(t, clientSocket, { ...OPTIONS, ...overrides });
  await engine.served();
  const frozen = (minMs = FROZEN_MIN_MS, maxMs = FROZEN_MAX_MS) => {
    const ms = minMs + (random.u32() % (maxMs - minMs + 1));
    return new Promise((resolve) => setTimeout(resolve, ms));
  };
  /** The node may be ended by its client at the last moment, when it seems to be over: it is started anew then. */
  const servedAgain = async () => {
    const { hits } = engine.latest as EngineReport;
    for (;;) {
      await engine.until((report) => report.hits > hits || node.hasEnded);
      if (!node.hasEnded) return;
      await node.restart();
    }
  };
  /** One fault after the other, until all rounds are played; at least `count`. */
  const faults = async (count: number, fault: () => Promise<void>) => {
    for (let done = 0; done < count || (engine.latest?.rounds ?? 0) < FAULT_ROUNDS; done++) {
      const { rounds } = engine.latest as EngineReport;
      await engine.until((report) => report.rounds >= rounds + ROUNDS_A_FAULT);
      await fault();
      await servedAgain();
    }
  };
  return { node, engine, frozen, faults };
}

/** What holds for every engine. `mayBlock`: calls last as long as a node is frozen. */
function judge(t: ExecutionContext, report: EngineReport, { mayBlock = false } = {}): void {
  const { rounds, hits, expired, changed_bytes, longest_overrun } = report;
  t.log({ rounds, hits, expired, changed_bytes, longest_overrun, fences: report.fences, absent: report.absent });
  t.deepEqual(report.errors, []);
  t.is(changed_bytes, 0, 'bytes were written after a call had returned');
  t.is(report.wrong_pages, 0, 'pages were said to be there and were others');
  t.true(hits > 0 && expired > 0, 'reads have succeeded, and others were late');
  if (!mayBlock) t.true(longest_overrun < OPTIONS.fenceTimeoutMs / 1000 + GRACE_S, `${longest_overrun} s too long`);
}

late(`late writes: after a deadline not one byte of the memory changes${suffix}`, async (t) => {
  const { engine } = await bench(t, { rounds: ROUNDS });
  await engine.until((report) => report.rounds >= Math.min(ROUNDS, ROUNDS_A_FAULT) && report.expired > 0);
  const report = await engine.finish(ROUNDS * 200 + 2 * PATIENCE_MS);
  judge(t, report);
  t.is(report.connections_lost, 0);
});

late(`late writes: the test notices a client that returns without the fence${suffix}`, async (t) => {
  const { engine } = await bench(t, { rounds: 0, withoutFence: true });
  const { rounds, changed_slots } = await engine.until((report) => report.changed_slots > 0);
  t.log(`${changed_slots} slots after ${rounds} rounds`);
  await engine.finish(PATIENCE_MS);
  t.pass();
});

late(`late writes: none when a frozen node goes on, for which calls have waited${suffix}`, async (t) => {
  const { node, engine, frozen, faults } = await bench(t, { endFrozenNode: false, fenceTimeoutMs: 500 });
  await faults(1, async () => {
    await node.freeze();
    await frozen();
    node.thaw();
  });
  await node.freeze();
  await engine.until(({ overdue }) => overdue === OPTIONS.threads);
  await frozen(FROZEN_LONG_MS, FROZEN_LONG_MS);
  t.is(engine.latest?.overdue, OPTIONS.threads, 'calls have returned although the node could still write');
  node.thaw();
  await engine.until(({ overdue }) => overdue === 0);
  await engine.served();
  const report = await engine.finish(PATIENCE_MS);
  judge(t, report, { mayBlock: true });
  t.is(report.nodes_ended, 0);
  t.false(node.hasEnded);
});

late(`late writes: none when a frozen node is ended by its client${suffix}`, async (t) => {
  const { node, engine, frozen, faults } = await bench(t, { fenceTimeoutMs: 500 });
  await faults(1, async () => {
    await node.freeze();
    await frozen();
    node.thaw();
    await engine.until(({ overdue }) => overdue === 0);
  });
  await node.freeze();
  await engine.until(({ overdue }) => overdue === 0 && node.hasEnded);
  await node.restart();
  await engine.served();
  const report = await engine.finish(PATIENCE_MS);
  judge(t, report);
  t.true((report.nodes_ended as number) > 0);
});

late(`late writes: none when a node is killed, and one that is started anew serves again${suffix}`, async (t) => {
  const { node, engine, faults } = await bench(t);
  await faults(2, async () => {
    await node.kill();
    const { absent } = engine.latest as EngineReport;
    await engine.until((report) => report.absent > absent + OPTIONS.threads && report.overdue === 0);
    await node.restart();
  });
  const report = await engine.finish(PATIENCE_MS);
  judge(t, report);
  t.true((report.reconnects as number) >= 2);
});

late(`late writes: none when a node closes the connection${suffix}`, async (t) => {
  const { node, engine, faults } = await bench(t, { fenceTimeoutMs: 1_000 });
  let cuts = 0;
  await faults(3, async () => {
    cuts++;
    node.cut();
  });
  await engine.until(({ overdue }) => overdue === 0);
  const report = await engine.finish(PATIENCE_MS);
  judge(t, report);
  t.true((report.reconnects as number) > 0 && (report.reconnects as number) <= cuts);
  t.is(report.nodes_ended, 0);
});
