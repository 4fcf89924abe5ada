/**
 * What nodes say of themselves, to those that show it to people: to other nodes for the dashboard, and to the command
 * line.
 */

import { isStatus, readDrainProgress } from '../../../src/cli/status/cluster-query.js';
import { formatProgress } from '../../../src/cli/status/drain.js';
import { nodeRow, statusResult } from '../../../src/cli/status/status-report.js';
import { formatStatus } from '../../../src/cli/status/status-text.js';
import { CommandFailure } from '../../../src/command/context.js';
import { countsOf } from '../../../src/dashboard/data/counts.js';
import { EventLog } from '../../../src/dashboard/data/event-log.js';
import { Members } from '../../../src/dashboard/data/members.js';
import { clientLines } from '../../../src/dashboard/views/clients-view.js';
import { TOTAL_GROUPS } from '../../../src/dashboard/views/totals-view.js';
import type { MetricsReport, NodeReport } from '../../../src/metrics/node-report.js';
import { ClusterReporter } from '../../../src/node/reporting/cluster-reporter.js';
import type { RpcClient } from '../../../src/rpc/client.js';
import { NodeInfo } from '../../../src/types.js';
import { ManualClock } from '../../_support/clock.js';
import { check, type Fuzzer, unlessRefused } from '../fuzzer.js';
import { receivedValue, valueInput } from '../values.js';

const SOURCES = { local: 1, remote: 2, disk: 3, object: 5 };
const CALLS = { count: 3, sum_s: 0.5, buckets: [1, 2] };
const METRICS: MetricsReport = {
  reads: { ...SOURCES, misses: 4 },
  read_bytes: SOURCES,
  writes: { pages: 1, bytes: 2 },
  lookups: { asked: 2, found: 1 },
  latency: { bounds_s: [0.5], read: { local: CALLS, remote: CALLS, disk: CALLS, object: CALLS }, write: CALLS },
  checksum_failures: 0,
  stale_reads: 0,
  skipped_writes: 0,
  event_loop_delay: { p50_s: 0, p99_s: 0, max_s: 0 },
};
const CLIENT = {
  name: 'engine',
  pid: 7,
  mode: 'direct',
  requests: 1,
  errors: 0,
  in_flight: 0,
  lookups: 9,
  found: 8,
  hits: 1,
  misses: 2,
  pages_written: 3,
  read_bytes: 4,
  written_bytes: 5,
  mapped_bytes: 6,
};
const NAMESPACE = {
  digest: 'f'.repeat(32),
  ...{ model_name: 'm', dtype: 'd', layout: 'vllm/1 cp=0/2 page=16', tag: '', fingerprint: 'f' },
  ...{ tp_rank: 0, tp_size: 1, pp_rank: 0, pp_size: 1, is_mla: false, attached: 2, clients: ['engine'] },
};
const NAMESPACES = [NAMESPACE, { ...NAMESPACE, digest: 'e'.repeat(32), layout: 'vllm/1 cp=0/2 page=32' }];
const REPORT: NodeReport = {
  ...METRICS,
  node_id: 'other',
  version: '0.1.0',
  incarnation: 5,
  uptime_s: 1,
  vnodes: 8,
  is_meta: true,
  masters: ['192.0.2.9:8'],
  protocols: ['tcp'],
  control_endpoint: '192.0.2.9:9',
  data_endpoint: '192.0.2.9:10',
  data_protocol: 'tcp',
  transport: { wanted: 'rdma', reason: 'no device' },
  metrics_endpoint: '192.0.2.9:31997',
  members: 2,
  health: { status: 'degraded', reasons: ['the disk is slow'] },
  directory: { keys: 3 },
  pool: { entries: 1, used_bytes: 2, capacity_bytes: 3, quarantined_bytes: 0, evictions: 0 },
  disk: {
    entries: 1,
    used_bytes: 2,
    capacity_bytes: 3,
    queue_bytes: 0,
    skipped_pages: 0,
    corrupt_pages: 0,
    evictions: 0,
    write_errors: 0,
  },
  clients: { socket: '/run/meshcache/node.sock', attached: 2, busiest: [CLIENT], namespaces: NAMESPACES },
  rss_bytes: 1,
  events: [{ id: 1, time_ms: 2, level: 'warn', message: 'm', fields: { a: 'b', c: 1, d: true } }],
  recent: {
    window_s: 30,
    read_p50_s: 0.001,
    read_p99_s: null,
    read_bytes_per_s: 5,
    written_bytes_per_s: 6,
    evictions_per_s: 0,
    lookups: { asked: 2, found: 1 },
    page_lifetime_s: null,
  },
  departed: [{ node_id: 'gone', incarnation: 3, control_endpoint: '192.0.2.7:9', how: 'lost', time_ms: 4 }],
  member_events: [{ node_id: 'gone', incarnation: 3, change: 'lost', time_ms: 4 }],
};

const ME = new NodeInfo({ nodeId: 'me', controlHost: '192.0.2.8', controlPort: 9, incarnation: 1 });
const OTHER = new NodeInfo({
  nodeId: 'other',
  controlHost: '192.0.2.9',
  controlPort: 9,
  incarnation: 5,
  metricsPort: 31997,
});
const MEMBERS = new Map([ME, OTHER].map((info) => [info.nodeId, info]));

const clock = new ManualClock();
let answer: unknown;
const reporter = new ClusterReporter({
  nodeId: ME.nodeId,
  vnodes: 1,
  heartbeatInterval: 2,
  memberTtl: 6,
  history: () => undefined,
  members: () => MEMBERS,
  ownReport: async () => REPORT,
  rpc: { call: async () => answer } as unknown as RpcClient,
  clock,
});

/** One member's odd answer must not spoil the report of all. */
export const clusterReports: Fuzzer = {
  name: 'cluster-reports',
  what: 'reports of other nodes: up or unreachable, and whatever shows all of them can',
  form: 'value',
  seeds: () => [
    valueInput(REPORT as never),
    valueInput({ ...REPORT, disk: null } as never),
    valueInput({
      pool: {},
      latency: {},
      health: { reasons: [] },
      events: [],
    }),
  ],
  async run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    answer = received.value;
    // Older than any report may be.
    clock.advance(60_000);
    const report = await reporter.report();
    check(report.nodes.map((node) => node.node_id).join() === 'me,other', 'other members than there are');
    check(report.nodes[0]?.state === 'up', 'the own report is missing');
    const shown = JSON.parse(JSON.stringify(report)) as typeof report;
    check(shown.nodes.length === 2, 'lost on the way to the dashboard');
    const history = await reporter.history(2);
    check(history.nodes.length <= 1, 'more histories than nodes that answer');
    check(JSON.stringify(history).includes('nodes'), 'a history that JSON cannot say');
    const [members, events] = [new Members(), new EventLog()];
    members.update(shown);
    for (const line of clientLines(members.list())) {
      check(
        Object.values(line).every((value) => typeof value === 'string' || value >= 0),
        'a client that cannot be shown',
      );
    }
    for (const node of shown.nodes) {
      if (node.state !== 'up') continue;
      const counts = countsOf(node.report);
      check(
        Object.values(counts).every((count) => typeof count === 'object' || count >= 0),
        'a count below nothing',
      );
      for (const total of TOTAL_GROUPS.flatMap(({ totals }) => totals)) check(total.of(node.report) >= 0, total.metric);
      events.add(node.node_id, 1, node.report.events);
      const { transport, control_endpoint, metrics_endpoint } = node.report;
      check(
        typeof `${transport?.wanted}${transport?.reason}${control_endpoint}${metrics_endpoint}` === 'string',
        'text',
      );
    }
  },
};

/** Lines of text, and nothing that steers a terminal. */
function checkPrintable(text: string): void {
  check(!/[^\P{Cc}\n]/u.test(text), 'a control character for the terminal');
}

export const statusAnswers: Fuzzer = {
  name: 'status-answers',
  what: 'answers of nodes to `meshcache status` and `meshcache drain`: a line of text, or no status of this version',
  form: 'value',
  seeds: () => [
    valueInput(REPORT as never),
    valueInput({ node_id: 'other', vnodes: 160 }),
    valueInput({ error: 'not today' }),
    valueInput({
      node_id: 'other',
      state: 'leaving',
      wanted_pages: 3,
      handed_pages: 2,
      left_pages: 1,
      disk_queue_bytes: 0,
    }),
  ],
  run(input) {
    const received = receivedValue(input);
    if (received === undefined) return;
    const { value } = received;
    if (isStatus(value)) {
      for (const isHere of [true, false]) {
        const row = nodeRow(OTHER, value, { ringShare: 0.5, isHere });
        check(row.node_id === OTHER.nodeId && row.state === 'up', 'a status that says whose it is');
        const result = statusResult([row], { discoveryAddr: '192.0.2.8:1', timeMs: 0 });
        for (const columns of [40, 10_000]) checkPrintable(formatStatus(result, { columns }));
        JSON.stringify(result);
      }
    }
    const progress = unlessRefused([CommandFailure], () =>
      readDrainProgress(value, { host: '192.0.2.9', port: 9 }),
    )?.value;
    if (progress === undefined) return;
    for (const count of [progress.wanted_pages, progress.handed_pages, progress.left_pages, progress.disk_queue_bytes])
      check(Number.isSafeInteger(count) && count >= 0, `${count} pages or bytes`);
    checkPrintable(formatProgress(progress));
  },
};
