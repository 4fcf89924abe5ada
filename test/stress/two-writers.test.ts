import { setTimeout as sleep } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { systemRandom } from '../../src/system/system-random.js';
import type { NamedContents } from '../_programs/stress/named-agent.js';
import { PATIENCE_MS, until } from '../_support/support.js';
import { ORDER_BOUND_MS, orderEvents, sharedMs } from '../faults/order.js';
import { FIXED_NAMED_FROM } from '../faults/pages.js';
import { FaultTimes, NamedCluster, type NamedNode } from './named-cluster.js';

const SECONDS = Number(process.env.MESHCACHE_STRESS_SECONDS ?? 6);
const WRITERS = [1, 2];
const OTHERS = [3, 4, 5];
const KEYS = 1_000;
/** So many that the pools of five nodes do not hold all of them. */
const CHURN_KEYS = 3_000;
const CHURN_SET_PERCENT = 10;
const PAUSE_MIN_MS = 1_000;
const PAUSE_MAX_MS = 3_000;

function randomOf(t: ExecutionContext): (least: number, most: number) => number {
  const seed = Number(process.env.MESHCACHE_STRESS_SEED ?? systemRandom.u32());
  t.log(`MESHCACHE_STRESS_SEED=${seed}`);
  const random = seededRandom(seed);
  return (least, most) => least + (random.u32() % (most - least));
}

async function clusterOf(
  t: ExecutionContext,
  common: Parameters<typeof NamedCluster.create>[0],
): Promise<NamedCluster> {
  const cluster = await NamedCluster.create(common);
  t.teardown(() => cluster.end());
  return cluster;
}

/** Keys by why they are not read alike: not found by some node, or with different contents. */
function disagreement(
  all: readonly NamedContents[],
  isThere: (key: number) => boolean,
): { readonly missing: number[]; readonly different: number[] } {
  const missing: number[] = [];
  const different: number[] = [];
  for (let key = 0; key < KEYS; key++) {
    const contents = all.map((each) => each[key]);
    if (isThere(key) && contents.includes(-1)) missing.push(key);
    if (new Set(contents.filter((content) => content !== -1)).size > 1) different.push(key);
  }
  return { missing, different };
}

test.serial(
  'named keys: two writers, owners paused and killed: in the end every node reads one content, the newest',
  async (t) => {
    t.timeout(SECONDS * 1000 + 4 * PATIENCE_MS);
    const between = randomOf(t);
    const config = { global_segment_size: '64mb', member_ttl: 4, heartbeat_interval: 0.4, promote_hot_reads: false };
    const cluster = await clusterOf(t, { config, firstKey: 0, keys: KEYS });
    for (const node of WRITERS) await cluster.start(node, 50);
    const others = await Promise.all(OTHERS.map((node) => cluster.start(node, 0)));
    const times = new FaultTimes();
    const untilMs = sharedMs() + SECONDS * 1000;
    const faults = { pauses: 0, kills: 0 };
    while (sharedMs() < untilMs) {
      const which = between(0, others.length);
      const other = others[which] as NamedNode;
      await times.during(async () => {
        if (between(0, 3) > 0) {
          faults.pauses++;
          other.signal('SIGSTOP');
          await sleep(between(PAUSE_MIN_MS, PAUSE_MAX_MS));
          other.signal('SIGCONT');
        } else {
          faults.kills++;
          await other.count().catch(() => {});
          await other.kill();
          others[which] = await cluster.start(OTHERS[which] as number, 0);
        }
      });
      await sleep(between(100, 600));
    }
    await Promise.all(cluster.nodes.map((node) => node.rest()));
    const restMs = sharedMs();
    const isSet = new Set<number>();
    for (const { kind, key, isTrue } of orderEvents(cluster.folder)) {
      if (kind === 'set' && isTrue) isSet.add(key % 0x10000);
    }
    let agreedMs = 0;
    let rounds = 0;
    for (;;) {
      rounds++;
      const startMs = sharedMs();
      const found = disagreement(await Promise.all(cluster.nodes.map((node) => node.readAll())), (key) =>
        isSet.has(key),
      );
      const { missing, different } = found;
      agreedMs = Math.round(sharedMs() - restMs);
      if (missing.length + different.length === 0) break;
      if (startMs - restMs > ORDER_BOUND_MS) {
        t.fail(`not found by all: ${missing.join()}; read differently: ${different.join()}`);
        break;
      }
    }
    await sleep(Math.max(0, restMs + ORDER_BOUND_MS + 500 - sharedMs()));
    const last = await Promise.all(cluster.nodes.map((node) => node.readAll()));
    t.deepEqual(
      disagreement(last, (key) => isSet.has(key)),
      { missing: [], different: [] },
    );
    const { problems, ...totals } = await cluster.totals();
    await Promise.all(cluster.nodes.map((node) => node.close()));
    const tooOld = cluster.tooOld({ faults: times.all, hasNoCopies: true });
    t.log({ ...totals, ...faults, keys: isSet.size, rounds, agreedMs });
    t.deepEqual(problems, [], 'every page is whole');
    t.deepEqual(tooOld.slice(0, 5), []);
    t.true(totals.hits > 0 && faults.pauses + faults.kills > 0);
  },
);

test.serial(
  'named keys: while nodes join and leave, and pages are overwritten and evicted, no read is wrong or older than what its node has set',
  async (t) => {
    t.timeout(SECONDS * 1000 + 4 * PATIENCE_MS);
    const between = randomOf(t);
    const config = { global_segment_size: '1mb', promote_hot_reads: false };
    const cluster = await clusterOf(t, { config, firstKey: FIXED_NAMED_FROM, keys: CHURN_KEYS });
    for (const node of WRITERS) await cluster.start(node, CHURN_SET_PERCENT);
    const others: NamedNode[] = await Promise.all(OTHERS.map((node) => cluster.start(node, CHURN_SET_PERCENT)));
    const untilMs = sharedMs() + SECONDS * 1000;
    const changes = { left: 0, killed: 0, joined: 0 };
    while (sharedMs() < untilMs) {
      const which = between(0, others.length);
      const other = others[which] as NamedNode;
      if (between(0, 3) > 0) {
        changes.left++;
        await other.close();
      } else {
        changes.killed++;
        await other.count();
        await other.kill();
      }
      await sleep(between(0, 300));
      changes.joined++;
      others[which] = await cluster.start(OTHERS[which] as number, CHURN_SET_PERCENT);
      await sleep(between(0, 500));
    }
    await until(async () => {
      const counts = await Promise.all(cluster.nodes.map((node) => node.count()));
      return counts.every(({ members }) => members === WRITERS.length + OTHERS.length);
    });
    const { problems, ...totals } = await cluster.totals();
    await Promise.all(cluster.nodes.map((node) => node.close()));
    const tooOld = cluster.tooOld({ hasNoCopies: true, boundMs: Number.POSITIVE_INFINITY });
    t.log({ ...totals, ...changes });
    t.deepEqual(problems, [], 'every page is whole');
    t.deepEqual([tooOld.length, ...tooOld.slice(0, 5)], [0]);
    t.true(totals.hits > 0 && changes.joined > 0);
  },
);
