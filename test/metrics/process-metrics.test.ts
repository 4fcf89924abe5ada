import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { EVENT_LOOP_TURN_MS } from '../../src/base/limits.js';
import { Metrics } from '../../src/node/machine/machine-node.js';
import { ManualClock } from '../_support/clock.js';
import { sampleIn } from '../_support/metrics/samples.js';
import { until } from '../_support/support.js';

function newMetrics(t: ExecutionContext) {
  const clock = new ManualClock();
  const metrics = new Metrics('n1', { clock });
  t.teardown(() => metrics.close());
  const max = async () => sampleIn(await metrics.renderPrometheus(), 'nodejs_eventloop_lag_max_seconds') as number;
  return { metrics, clock, max };
}

function block(ms: number): void {
  const endMs = performance.now() + ms;
  while (performance.now() < endMs);
}

/** Measuring begins with its first sample, before which nothing is seen. */
async function blockUntilSeen(max: () => Promise<number>): Promise<void> {
  await until(async () => {
    block(300);
    await new Promise((resolve) => setImmediate(resolve));
    return (await max()) > 0.2;
  });
}

test.serial('process metrics: memory, processor time, open files and versions are those of the process', async (t) => {
  const { metrics } = newMetrics(t);
  block(30);
  const text = await metrics.renderPrometheus();
  const value = (name: string): number => sampleIn(text, name) ?? Number.NaN;
  const { user, system } = process.cpuUsage();
  for (const [name, seconds] of [
    ['process_cpu_user_seconds_total', user / 1e6],
    ['process_cpu_system_seconds_total', system / 1e6],
    ['process_cpu_seconds_total', (user + system) / 1e6],
  ] as const) {
    t.true(value(name) > 0 && value(name) <= seconds && value(name) > seconds - 1, `${name} ${value(name)}`);
  }
  const rss = process.memoryUsage.rss();
  t.true(Math.abs(value('process_resident_memory_bytes') - rss) < rss / 2);
  t.true(value('nodejs_heap_size_used_bytes') > 1e6);
  t.true(value('nodejs_external_memory_bytes') > 0);
  t.true(Math.abs(value('process_start_time_seconds') - (Date.now() / 1000 - process.uptime())) < 2);
  if (process.platform === 'linux') {
    const open = readdirSync('/proc/self/fd').length - 1;
    t.true(Math.abs(value('process_open_fds') - open) <= 3, `${value('process_open_fds')} of ${open}`);
  }
  const utilization = value('nodejs_eventloop_utilization_ratio');
  t.true(utilization > 0 && utilization <= 1, `${utilization}`);
  t.is(sampleIn(text, 'nodejs_version_info', { version: process.version }), 1);
});

test.serial(
  'process metrics: a blocked event loop shows for one to two turns, to whoever asks and however often',
  async (t) => {
    const { metrics, clock, max } = newMetrics(t);
    await blockUntilSeen(max);
    t.true((await max()) > 0.2, 'asked again');
    const { event_loop_delay: delay } = await metrics.report();
    t.true(
      delay.max_s > 0.2 && delay.max_s < 60 && delay.p50_s <= delay.p99_s && delay.p99_s <= delay.max_s,
      JSON.stringify(delay),
    );
    clock.advance(EVENT_LOOP_TURN_MS);
    t.true((await max()) > 0.2, 'after one turn');
    // Two turns, unless the machine has kept this process waiting meanwhile.
    await until(async () => {
      clock.advance(EVENT_LOOP_TURN_MS);
      return (await max()) < 0.2;
    });
  },
);

test.serial('process metrics: after close nothing is observed, and what was is still told', async (t) => {
  const { metrics, clock, max } = newMetrics(t);
  t.is(clock.pendingCount, 1);
  await blockUntilSeen(max);
  metrics.close();
  metrics.close();
  t.is(clock.pendingCount, 0);
  const before = await max();
  const other = newMetrics(t);
  block(1000);
  await blockUntilSeen(other.max);
  t.is(await max(), before);
  metrics.recordWrite(1, 0.1);
  t.is(sampleIn(await metrics.renderPrometheus(), 'meshcache_writes_total'), 1);
});

test.serial('process metrics: a Metrics that nobody closes does not keep the process alive', (t) => {
  const program = fileURLToPath(new URL('./metrics-unclosed-program.js', import.meta.url));
  const { status, stdout, stderr } = spawnSync(process.execPath, [program], { encoding: 'utf8', timeout: 20_000 });
  t.is(status, 0, stderr);
  t.regex(stdout, /^meshcache_writes_total\{node_id="n"\} 1$/m);
});
