import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { clusterStatus } from '../../src/cli/status/status.js';
import type { NodeRow, StatusResult } from '../../src/cli/status/status-report.js';
import { formatStatus } from '../../src/cli/status/status-text.js';
import { History, pastOf } from '../../src/dashboard/data/history.js';
import { totalOf } from '../../src/dashboard/data/points.js';
import type { ClusterHistory } from '../../src/metrics/history-report.js';
import type { ClusterReport } from '../../src/metrics/node-report.js';
import { collect, firstLine, runCli, startCli } from '../_support/cli/run-cli.js';
import { folder } from '../_support/clients/client-fixture.js';
import { noPython, PythonProcess } from '../_support/native/python-process.js';
import { freePort, until } from '../_support/support.js';

const NODES_COUNT = 3;
/** Turns that each engine plays at a time. */
const TURNS_COUNT = 30;

/**
 * Plays conversations as engines do: asks what is there, reads that, and sets the rest. It counts for itself what it
 * has asked and found.
 */
const ENGINE = `
import json, random, time
sys.path.insert(0, sys.argv[1])
import meshcache
name = sys.argv[3]
client = meshcache.Client(sys.argv[2], namespace={'model_name': 'm', 'computed': True}, name=name, timeout=60, mode='bytes')
dice = random.Random(name)
asked = found = 0
def leading(flags):
    return ([*flags, False]).index(False)
def play(turn):
    global asked, found
    prompt = dice.randrange(12)
    keys = [f'{prompt}-{i}' for i in range(dice.randrange(1, 40))]
    if turn % 3 == 0:
        count = client.exists_prefix(keys)
    elif turn % 3 == 1:
        count = leading(client.exists_many(keys))
    else:
        # A page has two parts here. A further pool is asked for the same pages, which is no lookup of its own.
        count = client.exists_prefix(keys, suffixes=['', '+'])
        client.exists_prefix(keys, pool='side')
    asked += len(keys)
    found += count
    client.get_many(keys[:count])
    rest = [key + part for key in keys[count:] for part in ('', '+')[:1 + turn % 2]]
    client.set_many(rest, [bytes(64)] * len(rest))
for line in sys.stdin:
    command, count = line.split()
    if command == 'attach':
        while not client.is_connected:
            time.sleep(0.005)
        # The node has been told of all lookups when this is answered.
        client.stats()
    for turn in range(int(count)):
        play(turn)
    stats = client.stats()
    say(json.dumps({'asked': asked, 'found': found, 'lookups': stats['lookups'], 'known': stats['found']}))
`;

interface Lookups {
  readonly asked: number;
  readonly found: number;
}

function sumOf(all: readonly Lookups[]): Lookups {
  return {
    asked: all.reduce((sum, { asked }) => sum + asked, 0),
    found: all.reduce((sum, { found }) => sum + found, 0),
  };
}

function minus(a: Lookups, b: Lookups): Lookups {
  return { asked: a.asked - b.asked, found: a.found - b.found };
}

/** A node of the cluster in a process of its own, under one name over all of its starts. */
class RestartedNode {
  readonly socket: string;
  readonly #args: readonly string[];
  #end: () => Promise<unknown> = async () => {};
  url = '';

  constructor(t: ExecutionContext, { name, addr, path }: { name: string; addr: string; path: string }) {
    this.socket = join(path, `${name}.sock`);
    const settings = [`node_id=${name}`, 'metrics_port=0', 'protocol=tcp'].flatMap((setting) => ['-o', setting]);
    this.#args = ['--discovery-addr', addr, '--pool', '16mb', '--client-socket', this.socket, ...settings, '--json'];
    t.teardown(() => this.stop());
  }

  async start(): Promise<void> {
    const child = startCli(['node', ...this.#args, '--wait-joined', '60']);
    const ended = collect(child);
    this.#end = () => {
      child.kill('SIGTERM');
      return ended;
    };
    const { metrics_endpoint } = JSON.parse(await firstLine(child)) as { readonly metrics_endpoint: string };
    this.url = `http://${metrics_endpoint}`;
  }

  async stop(): Promise<void> {
    await this.#end();
  }

  /** What its metrics say of lookups. */
  async lookups(): Promise<Lookups> {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const counts = [...text.matchAll(/^meshcache_lookup_pages_total\{result="(\w+)".*\} (\d+)$/gm)];
    const of = (result: string): number => Number(counts.find(([, label]) => label === result)?.[2]);
    return { asked: of('found') + of('missing'), found: of('found') };
  }
}

/**
 * What `increase()` of Prometheus does: a counter that falls has begun anew at 0. It is scraped often enough for that.
 */
class Increase {
  #last: Lookups = { asked: 0, found: 0 };
  total: Lookups = { asked: 0, found: 0 };

  add(now: Lookups): void {
    const from = now.asked < this.#last.asked ? { asked: 0, found: 0 } : this.#last;
    this.total = sumOf([this.total, minus(now, from)]);
    this.#last = now;
  }
}

class Engine {
  readonly #process: PythonProcess;
  now: Lookups = { asked: 0, found: 0 };

  constructor(t: ExecutionContext, socket: string, name: string) {
    this.#process = PythonProcess.start(t, ENGINE, join(process.cwd(), 'src/python'), socket, name);
  }

  /** Plays turns; with `attach`, first waits until there is a node. Returns what the client has counted. */
  async do(command: 'attach' | 'play', turns: number): Promise<Lookups> {
    this.#process.tell(`${command} ${turns}`);
    const { asked, found, lookups, known } = JSON.parse(await this.#process.line());
    this.now = { asked, found };
    return { asked: lookups, found: known };
  }
}

const run = noPython === '' ? test.serial : test.serial.skip;

run(
  `engines: what five of them count themselves is what metrics, status and dashboard say, through a rolling restart${
    noPython && ` (skipped: ${noPython})`
  }`,
  async (t) => {
    t.timeout(300_000);
    const ports = [await freePort(), await freePort(), await freePort()];
    const addr = ports.map((port) => `127.0.0.1:${port}`).join();
    const path = folder(t);
    const nodes = Array.from(
      { length: NODES_COUNT },
      (_, i) => new RestartedNode(t, { name: `node-${i}`, addr, path }),
    );
    for (const node of nodes) await node.start();
    const engines = Array.from({ length: 5 }, (_, i) => {
      return new Engine(t, (nodes[i % NODES_COUNT] as RestartedNode).socket, `engine-${i}`);
    });
    const of = (node: number): Engine[] => engines.filter((_, i) => i % NODES_COUNT === node);
    const playAll = async (command: 'attach' | 'play', turns: number): Promise<void> => {
      const counted = await Promise.all(engines.map((engine) => engine.do(command, turns)));
      t.deepEqual(
        counted,
        engines.map(({ now }) => now),
        'clients count what their engines do',
      );
    };
    const scraped = nodes.map(() => new Increase());
    const scrape = async (): Promise<void> => {
      for (const [i, node] of nodes.entries()) scraped[i]?.add(await node.lookups());
    };
    const dashboard = new History();
    let [reportedMs, polls] = [0, 0];
    const poll = async (node: number): Promise<void> => {
      const report = async () => (await (await fetch(`${nodes[node]?.url}/api/cluster`)).json()) as ClusterReport;
      await until(async () => {
        const now = await report();
        const isWhole = now.nodes.length === NODES_COUNT && now.nodes.every(({ state }) => state === 'up');
        // A report is shared for a moment: the next one is later.
        if (!isWhole || now.time_ms <= reportedMs) return false;
        reportedMs = now.time_ms;
        // As if a second lay between two polls: on a busy machine it may be more than what the dashboard takes for a
        // gap.
        return dashboard.record({ ...now, time_ms: ++polls * 1_000 });
      });
    };
    await poll(0);
    await playAll('attach', TURNS_COUNT);
    const atStart = nodes.map(() => ({ asked: 0, found: 0 }));
    for (const [i, node] of nodes.entries()) {
      await scrape();
      await poll((i + 1) % NODES_COUNT);
      atStart[i] = sumOf(of(i).map(({ now }) => now));
      await node.stop();
      await playAll('play', TURNS_COUNT);
      await node.start();
      await scrape();
      await poll((i + 1) % NODES_COUNT);
      await playAll('attach', TURNS_COUNT);
    }
    await scrape();
    await poll(0);
    const counted = sumOf(engines.map(({ now }) => now));
    const rate = counted.found / counted.asked;
    t.true(rate > 0.2 && rate < 0.9, `a rate of ${rate} shows nothing`);
    const isSame = (what: string, shown: Lookups, expected = counted): void => {
      t.log(what, shown.found / shown.asked, expected.found / expected.asked);
      t.true(Math.abs(shown.found / shown.asked - expected.found / expected.asked) <= 0.001, what);
      t.true(Math.abs(shown.asked / expected.asked - 1) <= 0.001, `${what}: ${shown.asked} of ${expected.asked}`);
    };
    isSame('metrics, over all starts', sumOf(scraped.map(({ total }) => total)));
    isSame('dashboard, while it was open', totalOf(dashboard.points(null)).counts);

    // Since their last starts.
    const since = nodes.map((_, i) => minus(sumOf(of(i).map(({ now }) => now)), atStart[i] as Lookups));
    const { status, stdout } = await runCli(['status', '--discovery-addr', addr, '--json']);
    t.is(status, 0);
    const result = JSON.parse(stdout) as StatusResult;
    isSame('status', result.totals.lookups, sumOf(since));
    for (const [i, row] of (result.nodes as (NodeRow & { state: 'up' })[]).entries()) {
      isSame(row.node_id, row.lookups as Lookups, since[i]);
      const clients = (row.clients?.busiest ?? []).map(({ lookups = 0, found = 0 }) => ({ asked: lookups, found }));
      t.is(clients.length, of(i).length);
      isSame(`clients of ${row.node_id}`, sumOf(clients), since[i]);
    }
    const text = formatStatus(await clusterStatus([{ host: '127.0.0.1', port: ports[0] as number }]));
    t.regex(text, /prefix hits +\d+\.\d %/);
    await until(async () => {
      const history = await (await fetch(`${nodes[0]?.url}/api/history?step_s=2`)).json();
      const { counts } = totalOf(pastOf(history as ClusterHistory).cluster);
      const all = sumOf(since);
      return Math.abs(counts.asked - all.asked) < 1 && Math.abs(counts.found - all.found) < 1;
    });
  },
);
