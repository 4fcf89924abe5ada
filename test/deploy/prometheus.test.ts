import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { Cluster, NodeFolders } from '../../src/cli/cluster/cluster.js';
import { runLoad } from '../../src/cli/load/load.js';
import { loadReport } from '../../src/cli/load/load-report.js';
import { conversationWorkload, uniquePages } from '../../src/cli/load/workload.js';
import { diskSizeFor } from '../../src/disk/disk-store.js';
import { systemClock } from '../../src/system/system-clock.js';
import { AttachedClient } from '../_support/attached-client.js';
import { isAlive } from '../_support/cli/run-cli.js';
import { ALERTS, DASHBOARD, deployFile, missingProgram, PrometheusServer, promtool } from '../_support/deploy/files.js';
import { until } from '../_support/support.js';

interface Panel {
  readonly id: number;
  readonly title: string;
  readonly type: string;
  readonly datasource?: { readonly uid: string };
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly panels?: readonly Panel[];
  readonly targets?: readonly { readonly expr: string; readonly refId: string }[];
}

interface Dashboard {
  readonly schemaVersion: number;
  readonly uid: string;
  readonly panels: readonly Panel[];
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly type: string; definition?: string }[];
  };
}

const NODES = 3;
const PAGE_BYTES = 16_384;
const TOKEN = 'scraping-token';
/** Nodes on this machine may have no RDMA, and have no object store. */
const ELSEWHERE = /meshcache_(rdma|object)_/;

const dashboard = JSON.parse(readFileSync(deployFile(DASHBOARD), 'utf8')) as Dashboard;
const panels = dashboard.panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);
const noPromtool = missingProgram('promtool');
const noPrometheus = missingProgram('prometheus');

/** What Grafana makes of an expression before it asks. */
function asAsked(expression: string): string {
  return expression.replaceAll('$node_id', '.*').replaceAll('$__rate_interval', '2m');
}

const withPromtool = noPromtool === undefined ? test : test.skip;
const withPrometheus = noPrometheus === undefined ? test.serial : test.serial.skip;

function titled(title: string, missing: string | undefined): string {
  return missing === undefined ? title : `${title} (skipped: ${missing})`;
}

const ACCEPTED = 'deploy: Prometheus’ own tool accepts the alert rules, their tests and the example configuration';
withPromtool(titled(ACCEPTED, noPromtool), (t) => {
  for (const [first, second, file] of [
    ['check', 'rules', ALERTS],
    ['test', 'rules', 'prometheus-alerts.test.yml'],
    ['check', 'config', 'prometheus.yml'],
  ] as const) {
    const { status, output } = promtool(first, second, deployFile(file));
    t.is(status, 0, output);
  }
});

const KUBERNETES_JOB =
  'deploy: the job for Kubernetes is one that Prometheus takes, and it sends the token of the DaemonSet';
withPromtool(titled(KUBERNETES_JOB, noPromtool), (t) => {
  const text = readFileSync(deployFile('prometheus.yml'), 'utf8');
  const [, commented = ''] = text.split(/# In Kubernetes, .*\n/);
  const job = commented.replaceAll(/^ {2}# /gm, '  ');
  t.regex(job, /^ {2}- job_name: meshcache\n/);
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-promtool-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const token = join(folder, 'token');
  writeFileSync(token, TOKEN);
  // Debian's promtool knows no Kubernetes: the job with targets of its own instead. It asks for the file of the token.
  const inKubernetes = /kubernetes_sd_configs:\n +- role: pod\n/;
  t.regex(job, inKubernetes);
  const checked = job
    .replace(inKubernetes, 'static_configs: [{ targets: ["10.0.0.1:31997"] }]\n')
    .replace(/(?<=credentials_file: ).*/, token);
  const config = join(folder, 'prometheus.yml');
  writeFileSync(config, `scrape_configs:\n${checked}`);
  const { status, output } = promtool('check', 'config', config);
  t.is(status, 0, output);
  rmSync(token);
  t.not(promtool('check', 'config', config).status, 0, 'the token is not taken from the file');
});

test('deploy: every alert says how bad it is, what has happened and what to do, and has a test', (t) => {
  const rules = readFileSync(deployFile(ALERTS), 'utf8').split('- alert: ').slice(1);
  const tests = readFileSync(deployFile('prometheus-alerts.test.yml'), 'utf8');
  t.true(rules.length >= 11);
  for (const rule of rules) {
    const name = rule.slice(0, rule.indexOf('\n'));
    t.regex(rule, /severity: (info|warning|critical)\n/, name);
    t.regex(rule, /summary: ".{20,}"\n/, name);
    t.regex(rule, /description: >-\n +\S.{40,}/, name);
    t.true(tests.includes(`alertname: ${name}\n        exp_alerts: []`), `${name}: when it is not firing`);
    t.true(tests.includes(`alertname: ${name}\n        exp_alerts:\n`), `${name}: when it is firing`);
  }
});

test('deploy: the Grafana dashboard is whole: one data source, panels that do not overlap, all for the chosen nodes', (t) => {
  t.true(dashboard.schemaVersion >= 38);
  t.is(dashboard.uid, 'meshcache');
  t.deepEqual(
    dashboard.templating.list.map(({ name, type }) => [name, type]),
    [
      ['datasource', 'datasource'],
      ['node_id', 'query'],
    ],
  );
  t.is(new Set(panels.map(({ id }) => id)).size, panels.length);
  for (const { title, type, datasource, targets = [], gridPos } of panels) {
    t.true(gridPos.x + gridPos.w <= 24, title);
    if (type === 'row') continue;
    t.regex(datasource?.uid ?? '', /^\$\{datasource\}$/, title);
    t.true(targets.length > 0, title);
    t.is(new Set(targets.map(({ refId }) => refId)).size, targets.length, title);
    for (const { expr } of targets) {
      const selectors = expr.match(/\{[^}]*\}/g) ?? [];
      t.true(selectors.length > 0 && selectors.every((selector) => selector.includes('node_id=~"$node_id"')), expr);
    }
  }
  for (const [index, { title, gridPos: a }] of dashboard.panels.entries()) {
    for (const { title: other, gridPos: b } of dashboard.panels.slice(index + 1)) {
      const isApart = a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
      t.true(isApart, `${title} and ${other}`);
    }
  }
});

withPrometheus(
  titled(
    'deploy: a real Prometheus has the numbers of the demo’s table; every panel and every alert works on them',
    noPrometheus,
  ),
  async (t) => {
    t.timeout(120_000);
    const requests = conversationWorkload({ conversations: 30, seed: 7 });
    const pagesPerNode = uniquePages(requests) / NODES;
    const longest = requests.reduce((most, { keys }) => Math.max(most, keys.length), 0);
    const disk = diskSizeFor(Math.ceil(pagesPerNode * 2), PAGE_BYTES);
    const folders = await NodeFolders.create(undefined, disk.maxBytes * NODES);
    t.teardown(() => folders.remove());
    const sockets = mkdtempSync(join(tmpdir(), 'meshcache-deploy-'));
    t.teardown(() => rmSync(sockets, { recursive: true, force: true }));
    const socketOf = (index: number): string => join(sockets, `node-${index}.sock`);
    const cluster = await Cluster.start({
      nodes: NODES,
      pageBytes: PAGE_BYTES,
      components: 2,
      config: {
        protocol: 'tcp',
        global_segment_size: Math.ceil(Math.max(longest, pagesPerNode / 4)) * PAGE_BYTES,
        metrics_token: TOKEN,
      },
      nodeConfig: (index) => ({ ...folders.config(index, disk), client_socket: socketOf(index) }),
    });
    t.teardown(() => cluster.close());
    const clients = await Promise.all(
      cluster.agents.map((_, index) => AttachedClient.attach(socketOf(index), `engine-${index}`)),
    );
    t.teardown(() => Promise.all(clients.map((client) => client.close())));
    const targets = cluster.agents.map(({ metricsEndpoint }) => metricsEndpoint);
    t.is(new Set(targets).size, NODES);

    const prometheus = await PrometheusServer.start(`
global: { scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 1s }
rule_files: [${JSON.stringify(deployFile(ALERTS))}]
scrape_configs:
  - job_name: meshcache
    authorization: { credentials: ${TOKEN} }
    static_configs: [{ targets: ${JSON.stringify(targets)} }]
  - job_name: without-the-token
    static_configs: [{ targets: ${JSON.stringify(targets)} }]
`);
    t.teardown(() => prometheus.stop());
    // Rates need a sample from before the load.
    let atS = 0;
    /**
     * All nodes have been scraped since then at `atS`: what is asked from then on is of that time, whatever scrape
     * fails later.
     */
    const scrapedSince = async (seconds: number): Promise<boolean> => {
      atS = systemClock.wallMs() / 1000;
      const scraped = `count(timestamp(meshcache_build_info{job="meshcache"}) > ${seconds}) or vector(0)`;
      return (await prometheus.number(scraped, atS)) === NODES;
    };
    const ofCluster = (expression: string): Promise<number> => prometheus.number(expression, atS);
    await until(() => scrapedSince(0));

    const load = await runLoad(cluster.agents, requests, { concurrency: NODES, clock: systemClock });
    const loadEndedS = systemClock.wallMs() / 1000;
    const statuses = await Promise.all(cluster.agents.map((agent) => agent.status()));
    const table = loadReport(load, { statuses, pageBytes: PAGE_BYTES });
    t.is(table.wrong_bytes, 0);
    t.true(table.hits.local > 0 && table.hits.remote > 0 && table.hits.disk > 0 && table.evictions > 0);
    await until(() => scrapedSince(loadEndedS));

    for (const source of ['local', 'remote', 'disk'] as const) {
      t.is(await ofCluster(`sum(meshcache_reads_total{result="hit", source="${source}"})`), table.hits[source], source);
    }
    t.is(await ofCluster('sum(meshcache_read_bytes_total)'), table.read_bytes);
    t.is(await ofCluster('sum(meshcache_writes_total)'), table.pages_set);
    t.is(await ofCluster('sum(meshcache_written_bytes_total)'), table.set_bytes);
    t.is(await ofCluster('sum(meshcache_lookup_pages_total)'), table.pages_asked);
    t.is(await ofCluster('sum(meshcache_skipped_writes_total)'), table.set_failures);
    t.is(await ofCluster('sum(meshcache_checksum_failures_total)'), table.checksum_failures);
    t.is(await ofCluster('sum(meshcache_pool_evictions_total{reason="capacity"})'), table.evictions);
    // A prefix that was found and could then not be read whole, for a read of a busy machine was too slow.
    const found = await ofCluster('sum(meshcache_lookup_pages_total{result="found"})');
    if (table.stale_misses === 0) t.is(found, table.prefix_hits);
    else t.true(found > table.prefix_hits, `${found} found, ${table.prefix_hits} read`);
    const hitRate = await ofCluster(
      'sum(meshcache_lookup_pages_total{result="found"}) / sum(meshcache_lookup_pages_total)',
    );
    t.is(hitRate.toFixed(4), (found / table.pages_asked).toFixed(4));
    t.is(await ofCluster('min(meshcache_members)'), NODES);
    t.is(await ofCluster('sum(meshcache_healthy)'), NODES);

    // From here on clients count among what the nodes have read and written.
    for (const [index, client] of clients.entries()) {
      t.deepEqual(await client.set({ [`of client ${index}`]: new Uint8Array(PAGE_BYTES).fill(index) }), [true]);
      t.is(await client.exists([`of client ${index}`, 'absent', `of client ${index}`]), 1);
      await client.get([`of client ${index}`, 'absent']);
      await client.getNowhere('absent');
    }
    const clientsEndedS = systemClock.wallMs() / 1000;
    await until(() => scrapedSince(clientsEndedS));
    t.is(await ofCluster('sum(meshcache_clients)'), NODES);
    t.is(await ofCluster('count(count by (client) (meshcache_client_requests_total))'), NODES);
    t.is(await ofCluster('sum(meshcache_client_reads_total{result="hit"})'), NODES);
    t.is(await ofCluster('sum(meshcache_client_lookup_pages_total{result="found"})'), NODES);
    t.is(await ofCluster('sum(meshcache_lookup_pages_total)'), table.pages_asked + 3 * NODES);
    t.is(await ofCluster('sum(meshcache_client_written_bytes_total)'), NODES * PAGE_BYTES);
    t.is(await ofCluster('sum(meshcache_client_errors_total{reason="no_region"})'), NODES);

    // Families of counters are without `_total` in OpenMetrics only.
    t.deepEqual(
      await prometheus.typesOf('meshcache_reads'),
      Array.from({ length: NODES }, () => 'counter'),
    );
    // Scrapes of a busy machine may end with other errors for once.
    await until(async () => {
      const refused = await prometheus.targetErrors();
      return refused.length === NODES && refused.every((error) => error.includes('401'));
    });

    for (const { title, targets: asked = [] } of panels) {
      for (const { expr } of asked) {
        const samples = await prometheus.query(asAsked(expr), atS);
        if (ELSEWHERE.test(expr)) continue;
        t.true(
          samples.some(({ value }) => Number.isFinite(value)),
          `${title}: ${expr} gives ${JSON.stringify(samples)}`,
        );
      }
    }
    for (const { definition } of dashboard.templating.list) {
      const [, metric, label] = /^label_values\((\w+), (\w+)\)$/.exec(definition ?? '') ?? [];
      if (metric === undefined) continue;
      t.is((await prometheus.query(`count by (${label}) (${metric})`, atS)).length, NODES);
    }

    await until(async () => (await prometheus.rules()).every(({ health }) => health !== 'unknown'));
    const rules = await prometheus.rules();
    t.is(rules.length, readFileSync(deployFile(ALERTS), 'utf8').split('- alert: ').length - 1);
    const known = new Set(
      (await prometheus.query('count by (__name__) ({job="meshcache"})', atS)).map(({ metric }) => metric.__name__),
    );
    for (const { name, query, health, lastError } of rules) {
      t.is(health, 'ok', `${name}: ${lastError}`);
      for (const [metric] of query.matchAll(/\b(meshcache|nodejs)_\w+/g))
        t.true(known.has(metric) || ELSEWHERE.test(metric), `${name}: ${metric}`);
    }

    await prometheus.stop();
    await cluster.close();
    t.false(existsSync(prometheus.folder));
    t.false([prometheus.pid, ...cluster.agents.map(({ pid }) => pid)].some(isAlive));
  },
);
