import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { Cluster } from '../../src/cli/cluster/cluster.js';
import type { DemoResult } from '../../src/cli/demo/demo.js';
import type { ReplayResult } from '../../src/cli/replay.js';
import type { StatusResult } from '../../src/cli/status/status-report.js';
import { childrenOf, collect, firstLine, isAlive, runCli, startCli, until } from '../_support/cli/run-cli.js';
import { freePort } from '../_support/support.js';

const SMALL = { nodes: 2, pageBytes: 4096, components: 2, config: { global_segment_size: '16mb' } } as const;
const KEYS = Array.from({ length: 300 }, (_, i) => i.toString(16).padStart(16, '0').repeat(4));

const folder = mkdtempSync(join(tmpdir(), 'meshcache-cli-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

test.serial('cluster: what one process sets another reads, byte for byte', async (t) => {
  const cluster = await Cluster.start(SMALL);
  t.teardown(() => cluster.close());
  const [first, second] = cluster.agents;
  const set = (await first!.run([KEYS])).counts;
  t.like(set, { asked: 300, set: 300, prefixHits: 0, wrongBytes: 0 });
  const read = (await second!.run([KEYS.slice(0, 200), KEYS.slice(0, 250)])).counts;
  t.like(read, { requests: 2, asked: 450, set: 0, prefixHits: 450, remoteHits: 450, localHits: 0, wrongBytes: 0 });
  t.is(read.readBytes, 450 * 4096);
  const again = (await first!.run([KEYS])).counts;
  t.like(again, { prefixHits: 300, localHits: 300, remoteHits: 0, wrongBytes: 0 });
  t.is((await first!.status()).poolEntries, 300);
  t.is((await second!.status()).poolEntries, 0);
});

test.serial('cluster: a process that dies fails what it was asked, with its end', async (t) => {
  const cluster = await Cluster.start(SMALL);
  t.teardown(() => cluster.close());
  const victim = cluster.agents[1]!;
  const run = victim.run(Array.from({ length: 2_000 }, () => KEYS));
  process.kill(victim.pid, 'SIGKILL');
  await t.throwsAsync(run, { message: new RegExp(`node 1 \\(process ${victim.pid}\\) was ended by SIGKILL`) });
  await t.throwsAsync(victim.status(), { message: /was ended by SIGKILL/ });
});

test.serial('cluster: a configuration that a node refuses fails the start and leaves no process', async (t) => {
  await t.throwsAsync(Cluster.start({ ...SMALL, config: { vnodes: 'many' } }), { message: /node \d: .*"vnodes"/ });
});

test.serial('demo: three processes, every byte checked, none wrong', async (t) => {
  const args = ['demo', '--nodes', '3', '--conversations', '12', '--page-bytes', '16kb', '--seed', '5', '--json'];
  const run = await runCli(args);
  t.is(run.status, 0, run.stderr);
  const result = JSON.parse(run.stdout) as DemoResult;
  t.is(result.wrong_bytes, 0);
  t.is(result.nodes, 3);
  t.is(result.stale_misses, 0);
  t.true(result.requests >= 24);
  t.true(result.prefix_hit_rate > 0.5 && result.prefix_hit_rate < 1);
  t.true(result.hits.local > 0 && result.hits.remote > 0);
  t.is(result.hits.local + result.hits.remote + result.hits.disk, result.prefix_hits);
  t.is(result.pages_asked - result.prefix_hits, result.pages_set);
  t.is(result.read_bytes, result.prefix_hits * result.page_bytes);
  t.true(result.read_gb_per_s > 0 && result.read_p50_us > 0 && result.read_p99_us >= result.read_p50_us);
});

test.serial('demo: with small pools and disks behind them most pages come from disk, none wrong', async (t) => {
  const args = ['demo', '--disk', '--nodes', '3', '--conversations', '20', '--page-bytes', '16kb', '--seed', '5'];
  const run = await runCli([...args, '--json']);
  t.is(run.status, 0, run.stderr);
  const result = JSON.parse(run.stdout) as DemoResult;
  t.like(result, { wrong_bytes: 0, nodes: 3 });
  t.true(result.evictions > 0 && result.hits.disk > 0, JSON.stringify(result));
  const read = result.hits.local + result.hits.remote + result.hits.disk;
  const { read_pages } = result.disk as { readonly read_pages: number };
  t.true(read_pages > read / 2 && read_pages > result.hits.disk, `${read_pages} of ${read} pages`);
  t.like(result.disk, { corrupt_pages: 0, write_errors: 0 });
  t.true(result.disk!.entries > 0 && result.disk!.used_bytes <= result.disk!.capacity_bytes);
});

test.serial('demo: the table names what matters', async (t) => {
  const run = await runCli(['demo', '--nodes', '2', '--conversations', '3', '--page-bytes', '4kb']);
  t.is(run.status, 0, run.stderr);
  for (const row of [
    'pages set',
    'hits, own pool',
    'hits, other nodes',
    'hits, own disk',
    'prefix hit rate',
    'read call p50, p99',
  ]) {
    t.regex(run.stdout, new RegExp(`^ {2}${row} +\\S`, 'm'));
  }
  t.regex(run.stdout, /GB\/s/);
  t.regex(run.stdout, /^ {2}wrong bytes +0$/m);
});

test.serial('demo: a kept cluster can be looked at, answers further nodes, and stops', async (t) => {
  const kept = await runCli([
    ...['demo', '--nodes', '2', '--conversations', '3', '--page-bytes', '4kb'],
    ...['--keep', '--json'],
  ]);
  t.is(kept.status, 0, kept.stderr);
  const { discovery_addr, pids, dashboards } = (JSON.parse(kept.stdout) as DemoResult).kept!;
  t.teardown(() => {
    for (const pid of pids) if (isAlive(pid)) process.kill(pid, 'SIGKILL');
  });
  t.is(pids.length, 2);
  t.is(new Set(dashboards).size, 2);
  for (const url of dashboards) t.regex(await (await fetch(url)).text(), /<title>/);
  const status = await statusOf(discovery_addr);
  t.deepEqual(
    status.nodes.map((node) => node.state),
    ['up', 'up'],
  );
  t.true(Math.abs(status.nodes.reduce((sum, node) => sum + node.ring_share, 0) - 1) < 0.01);
  t.true(status.nodes.every((node) => (node.pool?.entries ?? 0) > 0));
  // The load goes on in each node.
  const asked = status.nodes.map((node) => (node as { lookups?: { asked: number } }).lookups?.asked ?? 0);
  const isPlaying = async (): Promise<boolean> =>
    (await statusOf(discovery_addr)).nodes.every((node, i) => {
      const { lookups } = node as { lookups?: { asked: number } };
      return (lookups?.asked ?? 0) > (asked[i] as number);
    });
  await until(isPlaying);
  const table = await runCli(['status', '--discovery-addr', discovery_addr]);
  t.is(table.status, 0, table.stderr);
  for (const node of status.nodes) t.true(table.stdout.includes(node.node_id));
  t.deepEqual(status.nodes.map((node) => node.metrics_url).sort(), [...dashboards].sort());
  for (const url of dashboards) t.true(table.stdout.includes(url));

  const node = startCli(['node', '--discovery-addr', discovery_addr, '--pool', '1mb', '-o', 'node_id=third', '--json']);
  const ended = collect(node);
  t.is((JSON.parse(await firstLine(node)) as { node_id: string }).node_id, 'third');
  await until(async () => (await statusOf(discovery_addr)).nodes.some((member) => member.node_id === 'third'));
  node.kill('SIGHUP');
  node.kill('SIGTERM');
  t.is((await ended).status, 0);

  for (const pid of pids) process.kill(pid, 'SIGTERM');
  await until(() => pids.every((pid) => !isAlive(pid)));
  const dead = await runCli(['status', '--discovery-addr', discovery_addr]);
  t.is(dead.status, 1);
  t.regex(dead.stderr, /no discovery master answers/);
  t.true(dead.stderr.includes(discovery_addr));
});

for (const signal of ['SIGINT', 'SIGTERM', 'SIGKILL'] as const) {
  test.serial(`demo: a run that ${signal} ends leaves no process behind`, async (t) => {
    const child = startCli(['demo', '--nodes', '2', '--conversations', '5000', '--page-bytes', '4kb']);
    const ended = collect(child);
    let seen = '';
    child.stderr?.on('data', (text: string) => {
      seen += text;
    });
    await until(() => /turns/.test(seen));
    const pids = childrenOf(child.pid!);
    t.is(pids.length, 2);
    child.kill(signal);
    const run = await ended;
    t.is(run.status, signal === 'SIGKILL' ? null : 130);
    if (signal !== 'SIGKILL') t.regex(run.stderr, /error: interrupted/);
    await until(() => pids.every((pid) => !isAlive(pid)));
  });
}

test.serial('replay: one node without quarantine hits exactly what an exact LRU hits', async (t) => {
  const seed = Date.now() >>> 0;
  const requests = syntheticTrace(seed, 400);
  const trace = writeTrace('lru.jsonl', requests);
  for (const pages of [50, 200]) {
    const result = await replay(
      trace,
      '--nodes',
      '1',
      '--pool',
      `${pages}p`,
      '--quarantine-ms',
      '0',
      '--policy',
      'lru',
    );
    t.is(result.wrong_bytes, 0);
    t.is(result.prefix_hits, exactLruHits(requests, pages), `seed ${seed}, ${pages} pages`);
    t.is(result.requests, requests.length);
    t.is(result.pages_asked, requests.flat().length);
  }
  const unbounded = await replay(trace, '--nodes', '1', '--pool', 'unbounded');
  t.is(unbounded.prefix_hits, exactLruHits(requests, Number.POSITIVE_INFINITY), `seed ${seed}`);
  t.is(unbounded.evictions, 0);
});

test.serial('replay: three nodes that share hit what one large node hits', async (t) => {
  const requests = syntheticTrace(11, 200);
  const trace = writeTrace('shared.jsonl', requests);
  const result = await replay(trace, '--nodes', '3', '--pool', 'unbounded', '--policy', 's3fifo');
  t.like(result, { nodes: 3, wrong_bytes: 0, stale_misses: 0, evictions: 0, policy: 's3fifo' });
  t.is(result.prefix_hits, exactLruHits(requests, Number.POSITIVE_INFINITY));
  t.true(result.hits.remote > result.hits.local);
  const part = await replay(trace, '--nodes', '2', '--requests', '10');
  t.is(part.requests, 10);
});

test.serial('replay: a small pool with a disk behind it hits what an exact LRU of the disk’s size hits', async (t) => {
  const seed = Date.now() >>> 0;
  const requests = syntheticTrace(seed, 400);
  const trace = writeTrace('disk.jsonl', requests);
  const disks = mkdtempSync(join(folder, 'disks-'));
  // A pool whose part that may wait for the disk takes a whole request.
  const options = ['--nodes', '1', '--pool', '240p', '--disk', '1000p', '--disk-path', disks, '--quarantine-ms', '0'];
  options.push('--policy', 'lru');
  const result = await replay(trace, ...options);
  t.is(result.wrong_bytes, 0);
  const exact = exactLruHits(requests, 1_000) / requests.flat().length;
  t.is(result.exact_lru_hit_rate, Number(exact.toFixed(4)));
  t.is(result.exact_lru_pages, 1_000);
  t.true(Math.abs(result.prefix_hit_rate - exact) <= 0.005, `seed ${seed}: ${result.prefix_hit_rate} and ${exact}`);
  t.true(result.hits.disk > 0 && result.hits.local > 0);
  t.is(result.hits.local + result.hits.remote + result.hits.disk, result.prefix_hits);
  t.like(result.disk, { skipped_pages: 0, corrupt_pages: 0, write_errors: 0 });
  t.deepEqual(readdirSync(disks), [], 'the folders are gone');
});

test.serial('replay: disks are gone also when a run is interrupted', async (t) => {
  const trace = writeTrace('long.jsonl', syntheticTrace(3, 20_000));
  const disks = mkdtempSync(join(folder, 'disks-'));
  const child = startCli([
    'replay',
    trace,
    '--page-bytes',
    '64kb',
    '--pool',
    '240p',
    '--disk',
    '1gb',
    '--disk-path',
    disks,
  ]);
  const ended = collect(child);
  await until(() => readdirSync(disks, { recursive: true }).some((name) => String(name).endsWith('pages')));
  child.kill('SIGINT');
  t.is((await ended).status, 130);
  t.deepEqual(readdirSync(disks), []);
});

test.serial('replay: disks that do not fit are refused before anything is started', async (t) => {
  const trace = writeTrace('tiny.jsonl', [[1, 2, 3]]);
  const run = await runCli(['replay', trace, '--disk', '1000tb', '--disk-path', folder]);
  t.is(run.status, 1);
  t.regex(run.stderr, /the disks will take [\d.]+ TiB and .* are free below .*: choose another folder/);
});

test.serial('node: a disk tier is told of when it is ready, and in the status', async (t) => {
  const discovery_addr = `127.0.0.1:${await freePort()}`;
  const disk = join(folder, 'node-disk');
  const node = startCli([
    ...['node', '--discovery-addr', discovery_addr, '--pool', '1mb', '--json'],
    ...['--disk-path', disk, '--disk-size', '8mb'],
  ]);
  const ended = collect(node);
  t.teardown(() => node.kill('SIGKILL'));
  const ready = JSON.parse(await firstLine(node)) as { disk_bytes: number };
  t.true(ready.disk_bytes > 6 * 2 ** 20 && ready.disk_bytes <= 8 * 2 ** 20, `${ready.disk_bytes}`);
  const [row] = (await statusOf(discovery_addr)).nodes;
  t.like(row?.state === 'up' ? row.disk : undefined, { entries: 0, used_bytes: 0, capacity_bytes: ready.disk_bytes });
  const table = await runCli(['status', '--discovery-addr', discovery_addr]);
  t.regex(table.stdout, /0 B of [\d.]+ MiB/);
  const second = await runCli(['node', '--discovery-addr', discovery_addr, '--pool', '1mb', '--disk-path', disk]);
  t.is(second.status, 2);
  t.regex(second.stderr, /in use by/);
  node.kill('SIGTERM');
  t.is((await ended).status, 0);
});

async function statusOf(discoveryAddr: string): Promise<StatusResult> {
  const run = await runCli(['status', '--discovery-addr', discoveryAddr, '--json']);
  if (run.status !== 0) throw new Error(run.stderr);
  return JSON.parse(run.stdout) as StatusResult;
}

async function replay(trace: string, ...options: string[]): Promise<ReplayResult> {
  const run = await runCli(['replay', trace, '--page-bytes', '4kb', '--json', ...options]);
  if (run.status !== 0) throw new Error(run.stderr);
  return JSON.parse(run.stdout) as ReplayResult;
}

function writeTrace(name: string, requests: readonly (readonly number[])[]): string {
  const path = join(folder, name);
  const lines = requests.map((hash_ids, i) =>
    JSON.stringify({ timestamp: i, input_length: hash_ids.length * 512, output_length: 1, hash_ids }),
  );
  writeFileSync(path, lines.join('\n'));
  return path;
}

/** Chained ids: a path from the root of a random tree for each request. */
function syntheticTrace(seed: number, count: number): number[][] {
  const random = seededRandom(seed);
  const children = new Map<string, number>();
  let nextId = 0;
  return Array.from({ length: count }, () => {
    const path: number[] = [];
    const length = 1 + (random.u32() % 30);
    for (let depth = 0; depth < length; depth++) {
      const branches = depth < 3 ? 2 : 1 + (random.u32() % 3 === 0 ? 1 : 0);
      const edge = `${path.at(-1) ?? 'root'} ${random.u32() % branches}`;
      if (!children.has(edge)) children.set(edge, nextId++);
      path.push(children.get(edge) as number);
    }
    return path;
  });
}

/** The naive model: prefix pages are used in order, then the rest are put in order. */
function exactLruHits(requests: readonly (readonly number[])[], capacity: number): number {
  const pages = new Map<number, true>();
  let hits = 0;
  for (const ids of requests) {
    let prefix = 0;
    while (prefix < ids.length && pages.has(ids[prefix] as number)) prefix++;
    hits += prefix;
    for (const id of ids) {
      pages.delete(id);
      pages.set(id, true);
      if (pages.size > capacity) pages.delete(pages.keys().next().value as number);
    }
  }
  return hits;
}
