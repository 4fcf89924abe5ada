import test from 'ava';
import { noCounts, type RunResult } from '../../src/cli/cluster/agent-protocol.js';
import { type LoadTarget, quantile, runLoad } from '../../src/cli/load/load.js';
import { systemClock } from '../../src/system/system-clock.js';

/** A target whose runs end when the test says so. */
class HeldTarget implements LoadTarget {
  readonly started: string[] = [];
  #release: (() => void)[] = [];

  async run(requests: readonly (readonly string[])[]): Promise<RunResult> {
    this.started.push(...requests.map((keys) => keys.join()));
    await new Promise<void>((resolve) => this.#release.push(resolve));
    const counts = { ...noCounts(), requests: requests.length };
    return { counts, readLatenciesUs: Float64Array.of(requests.length), lookupLatenciesUs: new Float64Array() };
  }

  release(): boolean {
    const next = this.#release.shift();
    next?.();
    return next !== undefined;
  }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const loadRequests = (...names: string[]): { keys: string[] }[] => names.map((name) => ({ keys: [name] }));

test('load: requests reach the targets round-robin, one at a time with a concurrency of 1', async (t) => {
  const targets = [new HeldTarget(), new HeldTarget()];
  const done = runLoad(targets, loadRequests('a', 'b', 'c'), { concurrency: 1, clock: systemClock });
  for (const [target, name] of [
    [0, 'a'],
    [1, 'b'],
    [0, 'c'],
  ] as const) {
    await turn();
    t.is(targets[target]?.started.at(-1), name);
    t.is(targets[1 - target]?.release(), false);
    targets[target]?.release();
  }
  t.is((await done).counts.requests, 3);
});

test('load: a turn waits for the turn before it, whatever the concurrency', async (t) => {
  const targets = [new HeldTarget(), new HeldTarget()];
  const requests = [
    { keys: ['first'], conversation: 1 },
    { keys: ['second'], conversation: 1 },
  ];
  const done = runLoad(targets, requests, { concurrency: 2, clock: systemClock });
  await turn();
  t.deepEqual(targets[1]?.started, []);
  targets[0]?.release();
  await turn();
  t.deepEqual(targets[1]?.started, ['second']);
  targets[1]?.release();
  await done;
});

test('load: requests go where they say, after other targets were told of the reads that are due', async (t) => {
  const log: string[] = [];
  const targets = [0, 1].map(
    (i): LoadTarget => ({
      async run([keys], atMs) {
        log.push(`${i} runs ${keys?.join()} at ${atMs}`);
        return { counts: noCounts(), readLatenciesUs: new Float64Array(), lookupLatenciesUs: new Float64Array() };
      },
      async tellReads(untilMs) {
        log.push(`${i} tells ${untilMs}`);
      },
    }),
  );
  const requests = [
    { keys: ['a'], target: 1, atMs: 0 },
    { keys: ['b'], target: 1, atMs: 10 },
    { keys: ['c'], target: 0, atMs: 99 },
    { keys: ['d'], target: 0, atMs: 110 },
    { keys: ['e'], target: 1, atMs: 198 },
    { keys: ['f'], target: 1, atMs: 199 },
  ];
  await runLoad(targets, requests, { concurrency: 1, clock: systemClock, reportDelayMs: 100 });
  t.deepEqual(log, [
    '1 runs a at 0',
    '1 runs b at 10',
    '0 runs c at 99',
    '1 tells 0',
    '1 tells 10',
    '0 runs d at 110',
    '1 runs e at 198',
    '0 tells 99',
    '1 runs f at 199',
  ]);
});

test('load: one target gets slices of requests, and all results are added up', async (t) => {
  const target = new HeldTarget();
  const names = Array.from({ length: 150 }, (_, i) => `r${i}`);
  const done = runLoad([target], loadRequests(...names), { concurrency: 1, clock: systemClock });
  let slices = 0;
  while (slices < 3) {
    await turn();
    if (target.release()) slices++;
  }
  const result = await done;
  t.deepEqual(target.started, names);
  t.is(result.counts.requests, 150);
  t.deepEqual(result.readLatenciesUs, Float64Array.of(22, 64, 64));
});

test('load: the first failure of a target ends it', async (t) => {
  const failing: LoadTarget = { run: () => Promise.reject(new Error('node 1 is gone')) };
  const target = new HeldTarget();
  const done = runLoad([target, failing], loadRequests('a', 'b', 'c', 'd'), { concurrency: 2, clock: systemClock });
  await turn();
  target.release();
  await t.throwsAsync(done, { message: 'node 1 is gone' });
  t.deepEqual(target.started, ['a']);
});

test('load: no request starts after the time is over', async (t) => {
  const target = new HeldTarget();
  const result = await runLoad([target], loadRequests('a'), { concurrency: 1, clock: systemClock, maxMs: 0 });
  t.is(result.counts.requests, 0);
});

test('load: quantiles of sorted values', (t) => {
  const values = Float64Array.from({ length: 100 }, (_, i) => i + 1);
  t.is(quantile(values, 0.5), 50);
  t.is(quantile(values, 0.99), 99);
  t.is(quantile(Float64Array.of(7), 0.99), 7);
  t.is(quantile(new Float64Array(), 0.5), Number.NaN);
});
