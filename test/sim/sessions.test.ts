import test from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import { runScenario, type ScenarioResult } from '../../src/sim/run/run-scenario.js';
import { type Scenario, scenarioOf } from '../../src/sim/scenario/scenario.js';
import { SESSIONS, type SessionRequest, type SessionsWorkload } from '../../src/sim/scenario/workload.js';

const PAGES = 40;
const PAGE_BYTES = 2 ** 20;

/** Some users, each with a session of some requests for the same pages, 22 seconds apart. */
function requestsOf(turns: number, users = 2): SessionRequest[] {
  return Array.from({ length: turns * users }, (_, i) => {
    const session = i % users;
    const isFirst = i < users;
    return {
      hashIds: Array.from({ length: PAGES }, (_, page) => 1_000 * session + page),
      ...{ session, thread: session, isAnswered: true, answerMs: 2_000 },
      waitMs: isFirst ? 11_000 * session : 20_000,
      ...(isFirst ? {} : { after: i - users }),
      ...(i + users < turns * users ? { nextInMs: 20_000 } : {}),
    };
  });
}

/** Nodes whose pool has room for a session and a half, behind a disk that reads 40 pages in a second. */
function scenario(workload: Partial<SessionsWorkload>, shape: Partial<Scenario['shape']> = {}): Scenario {
  return scenarioOf({
    nodes: 1,
    durationMs: 600_000,
    shape: {
      ...{ poolPages: 60, pageBytes: 1024, standsForBytes: PAGE_BYTES, diskPages: 400 },
      disk: { bytesPerS: PAGES * PAGE_BYTES, latencyMs: 0.1 },
      config: { eviction_policy: 'yield' },
      ...shape,
    },
    workload: { ...SESSIONS, requests: requestsOf(6), ...workload },
  });
}

async function run(
  workload: Partial<SessionsWorkload>,
  shape?: Partial<Scenario['shape']>,
): Promise<ScenarioResult['counts'] & Pick<ScenarioResult, 'hash' | 'virtualMs' | 'violations'>> {
  const { counts, hash, virtualMs, violations } = await runScenario(scenario(workload, shape));
  return { ...counts, hash, virtualMs, violations };
}

test.serial('sessions: a request begins after the answer to the one before it, however long that takes', async (t) => {
  const { requests, virtualMs, violations } = await run({ requests: requestsOf(3, 1) }, { poolPages: 20 });
  t.deepEqual(violations, []);
  t.like(requests, { count: 3, asked: 3 * PAGES, found: 2 * PAGES, lost: 0 });
  // Half of the pages come from the disk, twice, at 40 in a second.
  t.true((requests.waitMs?.p99 ?? 0) > 400, `${requests.waitMs?.p99}`);
  t.true(virtualMs > 3 * 2_000 + 2 * 20_000 + 800, `${virtualMs}`);
});

test.serial('sessions: pages that are brought back in time are in the pool when they are asked for', async (t) => {
  const without = await run({});
  const told = await run({ told: 'prefetch' });
  for (const { violations, requests } of [without, told]) {
    t.deepEqual(violations, []);
    t.like(requests, { count: 12, found: 10 * PAGES });
  }
  t.is(without.prefetched.brought, 0);
  t.true(told.prefetched.brought > 0);
  t.is(told.prefetched.wasted, 0);
  t.true(told.requests.local > without.requests.local, `${told.requests.local}, ${without.requests.local}`);
  const [waited, before] = [told.requests.waitMs?.mean ?? 0, without.requests.waitMs?.mean ?? 0];
  t.true(waited < before / 2, `${waited} ms, without: ${before} ms`);
  t.is((await run({ told: 'prefetch' })).hash, told.hash, 'the same seed gives the same run');
});

test.serial('sessions: wrong times are told as the workload says', async (t) => {
  const [right, wrong] = [await run({ told: 'prefetch' }), await run({ told: 'prefetch', toldError: 1 })];
  t.deepEqual(wrong.violations, []);
  t.not(wrong.hash, right.hash);
});

test.serial('sessions: pages that no node has any more come from the object store', async (t) => {
  const hashIds = (session: number) => Array.from({ length: PAGES }, (_, page) => 1_000 * session + page);
  const turn = (session: number, waitMs: number, after?: number): SessionRequest => {
    const about = { session, thread: session, isAnswered: true, answerMs: 2_000, waitMs };
    return { hashIds: hashIds(session), ...about, ...(after === undefined ? {} : { after }) };
  };
  // Two requests for the same pages have them stored; those of two other sessions then take their place.
  const requests = [turn(0, 0), turn(0, 1_000, 0), turn(1, 30_000), turn(2, 35_000), turn(0, 40_000, 1)];
  const objectStore = { bytesPerS: 100 * PAGE_BYTES, latencyMs: 30 };
  const config = { eviction_policy: 'lru', object_store_write_rate: '1gb' };
  const { hits, requests: counts, violations } = await run({ requests }, { diskPages: null, objectStore, config });
  t.deepEqual(violations, []);
  t.is(hits.object, PAGES, JSON.stringify(hits));
  t.is(counts.found, 2 * PAGES);
  t.true((counts.waitMs?.p99 ?? 0) > 400, 'at 100 pages in a second');
});

test('sessions: what is not allowed is refused', (t) => {
  const wrong: [() => unknown, RegExp][] = [
    [() => scenario({ told: 'all' as 'waiting' }), /workload.told: got "all", allowed is nothing, waiting, prefetch/],
    [() => scenario({ toldWrong: 2 }), /toldWrong: got 2, allowed is 0 to 1/],
    [
      () => scenario({ requests: [{ ...(requestsOf(1)[0] as SessionRequest), after: 0 }] }),
      /each after an earlier one/,
    ],
    [() => scenario({}, { standsForBytes: 10 }), /standsForBytes: got 10, allowed is a number of bytes from pageBytes/],
    [() => scenario({}, { disk: { bytesPerS: 0, latencyMs: 1 } }), /shape.disk.bytesPerS: got 0/],
    [() => scenario({}, { objectStore: { bytesPerS: 1 } as never }), /shape.objectStore.latencyMs/],
  ];
  for (const [make, message] of wrong) t.throws(make, { instanceOf: ArgumentError, message });
});
