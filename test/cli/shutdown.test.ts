import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { NODE_CLOSE_TIMEOUT_MS } from '../../src/base/limits.js';
import { addCounts, noCounts, type RunCounts } from '../../src/cli/cluster/agent-protocol.js';
import { Cluster, type ClusterAgent } from '../../src/cli/cluster/cluster.js';
import type { StatusResult } from '../../src/cli/status/status-report.js';
import type { LeavingNodeAnswer, LeavingNodeSetup } from '../_programs/cli/leaving-node.js';
import { type CliSurroundings, collect, firstLine, runCli, startCli, until } from '../_support/cli/run-cli.js';
import { patientClock } from '../_support/patient-clock.js';
import { freePort, listenAlone } from '../_support/support.js';

const PAGE_BYTES = 64 * 1024;
/** What a process that was told to end may take: its own limit, and as much again for a busy machine to end it. */
const END_MAX_MS = 2 * NODE_CLOSE_TIMEOUT_MS;

const folder = mkdtempSync(join(tmpdir(), 'meshcache-shutdown-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

test.serial(
  'shutdown: SIGTERM under load: others fail no call and read no wrong byte; the disk has every page',
  async (t) => {
    const disk = { disk_enabled: true, disk_path: join(folder, 'disk'), disk_size: '512mb' };
    const cluster = await startCluster(t, { nodes: 3, nodeConfig: (index) => (index === 0 ? disk : {}) });
    const [leaving, ...others] = cluster.agents as [ClusterAgent, ...ClusterAgent[]];
    const early = keysOf('early', 300);
    const late = keysOf('late', 400);
    t.is((await leaving.run([early])).counts.set, early.length);

    const load = new Load(others, early);
    await until(() => load.total.remoteHits > 3 * early.length);
    // What is still on its way to the disk when the signal comes.
    t.is((await leaving.run([late])).counts.set, late.length);
    const startedMs = patientClock.nowMs();
    process.kill(leaving.pid, 'SIGTERM');
    await t.throwsAsync(
      until(async () => (await leaving.status()) === undefined),
      { message: /ended with status 0/ },
    );
    const tookMs = patientClock.nowMs() - startedMs;
    t.true(tookMs < END_MAX_MS, `it took ${tookMs.toFixed(0)} ms`);
    const asked = load.total.asked;
    await until(() => load.total.asked > asked + 10 * early.length);
    const total = await load.stop();
    t.is(total.wrongBytes, 0);
    t.log(
      `ended in ${tookMs.toFixed(0)} ms; the others read ${total.remoteHits} pages remotely, ${total.localHits} locally`,
    );
    await cluster.close();

    const again = await startCluster(t, { nodes: 1, nodeConfig: () => disk });
    const found = (await again.agents[0]!.run([early, late])).counts;
    t.like(found, { prefixHits: early.length + late.length, set: 0, wrongBytes: 0 });
    t.is(found.diskHits, early.length + late.length);
  },
);

test.serial('shutdown: SIGTERM ends a node that waits for the directory, before it is ready', async (t) => {
  // Nobody listens there, and it is not this node's own address: there is no master to join.
  const args = [
    '--discovery-addr',
    `127.0.0.9:${await freePort()}`,
    '--pool',
    '16mb',
    '-o',
    'local_hostname=127.0.0.1',
  ];
  const more = ['-o', 'protocol=tcp', '-o', 'metrics_port=0', '-o', 'wait_for_directory=true'];
  const child = startCli(['node', ...args, ...more], { env: { MESHCACHE_LOG: 'info' } });
  t.teardown(() => void child.kill('SIGKILL'));
  const ended = collect(child);
  let log = '';
  child.stderr?.on('data', (text: string) => {
    log += text;
  });
  await until(() => log.includes('node started'));
  child.kill('SIGTERM');
  const { status, stdout, stderr } = await ended;
  t.is(status, 0, stderr);
  t.regex(stdout, /^[^\n]* is started, not joined yet [^\n]*\n$/);
});

test.serial('shutdown: what waits for the disk is written first', async (t) => {
  const setup = { pages: 160, pageBytes: 2 ** 20 };
  const config = {
    discovery_addr: `127.0.0.1:${await freePort()}`,
    global_segment_size: '1gb',
    protocol: 'tcp',
    metrics_enabled: false,
    ...{ disk_enabled: true, disk_path: join(folder, 'queue'), disk_size: '256mb' },
  };
  const set = await runLeavingNode({ ...setup, config, isSetting: true });
  t.is(set.status, 0);
  t.is(set.answer?.pages, setup.pages);
  t.true((set.answer?.queueBytes ?? 0) > 0, 'all was written already: nothing is shown by this');
  t.true(set.tookMs < END_MAX_MS, `it took ${set.tookMs.toFixed(0)} ms`);
  t.log(`${set.answer?.queueBytes} bytes waited; ended in ${set.tookMs.toFixed(0)} ms`);
  const found = await runLeavingNode({ ...setup, config, isSetting: false });
  t.is(found.answer?.pages, setup.pages);
});

test.serial(
  'shutdown: a node that leaves is gone from the others’ lists at once, and they miss nothing by it',
  async (t) => {
    // Silence would not be noticed for a minute.
    const config = { member_ttl: 60, heartbeat_interval: 2 };
    const cluster = await startCluster(t, { nodes: 2, config });
    const keys = keysOf('shared', 200);
    t.is((await cluster.agents[0]!.run([keys])).counts.set, keys.length);
    const load = new Load(cluster.agents, keys);
    const { child, ended } = await startNode(t, cluster.discoveryAddr, [
      '-o',
      'member_ttl=60',
      '-o',
      'heartbeat_interval=2',
    ]);
    await until(() => load.total.asked > 10 * keys.length);
    child.kill('SIGHUP');
    await until(async () => (await membersAt(cluster.discoveryAddr)) === 3);
    const startedMs = patientClock.nowMs();
    child.kill('SIGTERM');
    const run = await ended;
    t.is(run.status, 0, run.stderr);
    t.true(patientClock.nowMs() - startedMs < END_MAX_MS);
    t.is(await membersAt(cluster.discoveryAddr), 2);
    const asked = load.total.asked;
    await until(() => load.total.asked > asked + 5 * keys.length);
    t.like(await load.stop(), { wrongBytes: 0 });
  },
);

test.serial('shutdown: SIGTERM while a node starts ends it, with status 0 and without a word on stdout', async (t) => {
  const { child, ended } = await startWaitingNode(t);
  child.kill('SIGHUP');
  const startedMs = patientClock.nowMs();
  child.kill('SIGTERM');
  const run = await ended;
  t.is(run.status, 0, run.stderr);
  t.is(run.stdout, '');
  t.true(patientClock.nowMs() - startedMs < END_MAX_MS);
});

test.serial('shutdown: a second signal ends a node at once', async (t) => {
  const { child, ended } = await startWaitingNode(t);
  const startedMs = patientClock.nowMs();
  child.kill('SIGTERM');
  // Signals of one kind that come together are one.
  child.kill('SIGINT');
  const run = await ended;
  t.is(run.status, 130, run.stderr);
  t.true(patientClock.nowMs() - startedMs < 2_500, 'its start alone takes three seconds');
});

test.serial('shutdown: a node goes on when nobody reads its output any more, and logs into the void', async (t) => {
  const addr = `127.0.0.1:${await freePort()}`;
  const { child, ended } = await startNode(t, addr, ['-o', 'node_id=unread'], { env: { MESHCACHE_LOG: 'info' } });
  child.stdout?.destroy();
  child.stderr?.destroy();
  // Each that comes and goes is a line of its log.
  for (let i = 1; i <= 2; i++) {
    const other = await startNode(t, addr, ['-o', `node_id=other-${i}`]);
    await until(async () => (await membersAt(addr)) === 2);
    other.child.kill('SIGTERM');
    t.is((await other.ended).status, 0);
  }
  t.is(await membersAt(addr), 1);
  child.kill('SIGTERM');
  t.is((await ended).status, 0);
});

/** Runs a node that ends itself by SIGTERM when it has done its work; `tookMs` from its answer to its end. */
async function runLeavingNode(setup: LeavingNodeSetup) {
  const child = fork(fileURLToPath(new URL('./cli-leaving-node.js', import.meta.url)), { serialization: 'advanced' });
  child.send(setup);
  let answer: LeavingNodeAnswer | undefined;
  let answeredMs = patientClock.nowMs();
  child.once('message', (message) => {
    answer = message as LeavingNodeAnswer;
    answeredMs = patientClock.nowMs();
  });
  const [status] = (await once(child, 'exit')) as [number | null];
  return { status, answer, tookMs: patientClock.nowMs() - answeredMs };
}

/** Nodes that read the same pages again and again, every byte checked. */
class Load {
  readonly total: RunCounts = noCounts();
  readonly #runs: Promise<void>;
  #isStopped = false;

  constructor(agents: readonly ClusterAgent[], keys: readonly string[]) {
    this.#runs = Promise.all(agents.map((agent) => this.#repeat(agent, keys))).then(() => {});
    // Told by stop().
    this.#runs.catch(() => {});
  }

  /** Rejects when a call has failed. */
  async stop(): Promise<RunCounts> {
    this.#isStopped = true;
    await this.#runs;
    return this.total;
  }

  async #repeat(agent: ClusterAgent, keys: readonly string[]): Promise<void> {
    while (!this.#isStopped) addCounts(this.total, (await agent.run([keys])).counts);
  }
}

async function startCluster(
  t: ExecutionContext,
  options: { nodes: number; config?: Record<string, unknown>; nodeConfig?: (index: number) => Record<string, unknown> },
): Promise<Cluster> {
  const config = { global_segment_size: '256mb', metrics_port: 0, ...options.config };
  const cluster = await Cluster.start({ ...options, pageBytes: PAGE_BYTES, components: 1, config });
  t.teardown(() => cluster.close());
  return cluster;
}

/** A `meshcache node` that is ready. */
async function startNode(
  t: ExecutionContext,
  discoveryAddr: string,
  args: readonly string[],
  surroundings?: CliSurroundings,
) {
  const given = ['--discovery-addr', discoveryAddr, '--pool', '1mb', '-o', 'metrics_port=0', ...args];
  const child = startCli(['node', ...given], surroundings);
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  await firstLine(child);
  return { child, ended };
}

/** A node that has been started and waits for a discovery master, which there is not. */
async function startWaitingNode(t: ExecutionContext) {
  const web = createServer();
  t.teardown(() => web.close());
  const addr = `127.0.0.1:${await listenAlone(web)}`;
  const child = startCli(['node', '--discovery-addr', addr, '--pool', '1mb', '-o', 'metrics_port=0']);
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  await new Promise<void>((resolve, reject) => {
    child.stderr?.on('data', (text: string) => /no discovery master is reachable/.test(text) && resolve());
    child.once('exit', () => reject(new Error('it has ended')));
  });
  return { child, ended };
}

async function membersAt(discoveryAddr: string): Promise<number> {
  const run = await runCli(['status', '--discovery-addr', discoveryAddr, '--json']);
  if (run.status !== 0) throw new Error(run.stderr);
  return (JSON.parse(run.stdout) as StatusResult).nodes.length;
}

/** Keys of the form that the content of pages needs. */
function keysOf(name: string, count: number): string[] {
  const start = Buffer.from(name.padEnd(8, '-')).toString('hex');
  return Array.from({ length: count }, (_, i) => start + i.toString(16).padStart(16, '0').repeat(3));
}
