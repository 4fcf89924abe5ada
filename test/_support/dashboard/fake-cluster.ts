import type { ClusterHistory, HistoryCount, HistoryReport } from '../../../src/metrics/history-report.js';
import type {
  ClientReport,
  ClusterNode,
  ClusterReport,
  DepartedNode,
  HealthReport,
  LatencyReport,
  MemberEvent,
  NodeEvent,
  NodeReport,
  NodeView,
} from '../../../src/metrics/node-report.js';

const BOUNDS_S = [25e-6, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 0.1, 1, 10];
const PAGE_BYTES = 65_536;

export type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/** An invented node, whose counts grow with every tick. */
export class FakeNode {
  state: 'up' | 'unreachable' = 'up';
  error = 'connect ECONNREFUSED 10.0.0.7:40123';
  health: HealthReport = { status: 'ok', reasons: [] };
  events: NodeEvent[] = [];
  /** Fields that replace those of its report. */
  overrides: Partial<NodeReport> = {};
  incarnation = 1_700_000_000_000;
  /** Seconds of load so far. */
  ticks = 0;
  readonly #sums = new Map<string, number[]>();

  constructor(
    readonly nodeId: string,
    readonly weight: number,
    readonly hasDisk = true,
  ) {}

  /** Whether it is of a version that keeps its figures. */
  get keepsHistory(): boolean {
    return this.state === 'up' && !('latency' in this.overrides);
  }

  /** Restarts the node: all counts begin at 0 again. */
  restart(): void {
    this.ticks = 0;
    this.incarnation++;
  }

  log(event: Omit<NodeEvent, 'id' | 'fields'> & { fields?: NodeEvent['fields'] }): void {
    this.events = [...this.events, { fields: {}, ...event, id: (this.events.at(-1)?.id ?? 0) + 1 }];
  }

  report(members: number): NodeReport {
    const load = this.#sum('load', (t) => this.weight * (900 + 400 * Math.sin(t / 17) + 250 * Math.sin(t / 5)));
    const local = Math.round(load * 0.5);
    const remote = Math.round(this.#sum('remote', (t) => this.weight * (300 + 120 * Math.sin(t / 23))));
    const disk = this.hasDisk ? Math.round(load * 0.08) : 0;
    const misses = Math.round(this.#sum('misses', (t) => this.weight * (90 + 60 * Math.cos(t / 31))));
    const pages = Math.round(this.#sum('pages', (t) => this.weight * (260 + 140 * Math.cos(t / 11))));
    const found = local + remote + disk;
    return {
      node_id: this.nodeId,
      version: '0.6.0',
      incarnation: this.incarnation,
      uptime_s: this.ticks + 8_000,
      vnodes: 160,
      is_meta: this.weight === 1,
      masters: ['10.0.0.7:31990'],
      protocols: ['tcp'],
      control_endpoint: '10.0.0.7:40123',
      data_endpoint: '10.0.0.7:40124',
      data_protocol: 'tcp',
      transport: { wanted: 'rdma', reason: 'no active RDMA device on this host' },
      metrics_endpoint: '127.0.0.1:31998',
      members,
      health: this.health,
      directory: { keys: 40_000 + found },
      pool: {
        entries: 50_000,
        used_bytes: Math.round(2 ** 32 * (0.62 + 0.2 * Math.sin(this.ticks / 60))),
        capacity_bytes: 2 ** 32,
        quarantined_bytes: 0,
        evictions: Math.round(pages * 0.7),
      },
      disk: this.hasDisk
        ? {
            entries: 700_000,
            used_bytes: Math.round(1e11 * Math.min(1, 0.3 + this.ticks / 900)),
            capacity_bytes: 1e11,
            queue_bytes: 4e6,
            skipped_pages: 0,
            corrupt_pages: 0,
            evictions: 0,
            write_errors: 0,
          }
        : null,
      rss_bytes: 5.1e9,
      events: this.events,
      reads: { local, remote, disk, object: 0, misses },
      read_bytes: { local: local * PAGE_BYTES, remote: remote * PAGE_BYTES, disk: disk * PAGE_BYTES, object: 0 },
      writes: { pages, bytes: pages * PAGE_BYTES },
      lookups: { asked: found + 2 * misses, found },
      latency: {
        bounds_s: BOUNDS_S,
        read: {
          local: latency(local / 40, 2),
          remote: latency(remote / 40, 5),
          disk: latency(disk / 40, 7),
          object: latency(0, 1),
        },
        write: latency(pages / 40, 4),
      },
      checksum_failures: 0,
      stale_reads: Math.round(this.ticks / 40),
      skipped_writes: 0,
      event_loop_delay: { p50_s: 0.01, p99_s: 0.02 * this.weight, max_s: 0.03 },
      recent: {
        window_s: 30,
        read_p50_s: 3e-4 * this.weight,
        read_p99_s: 2.4e-3 * this.weight,
        read_bytes_per_s: 9e7 * this.weight,
        written_bytes_per_s: 1.7e7 * this.weight,
        evictions_per_s: 180 * this.weight,
        lookups: { asked: 40_000, found: Math.round(31_000 * Math.min(1, this.weight)) },
        page_lifetime_s: 50_000 / (180 * this.weight),
      },
      member_events: [],
      ...this.overrides,
    };
  }

  /** Figures of a node so far, in steps of `stepS`, in a cluster of `members`. */
  history(stepS: number, members = 0): HistoryReport {
    const ticks = this.ticks;
    const count = Math.min(150, Math.floor(ticks / stepS));
    const reports = Array.from({ length: count + 1 }, (_, i) => {
      this.ticks = ticks - (count - i) * stepS;
      return this.report(1);
    });
    this.ticks = ticks;
    const between = (of: (report: NodeReport) => number) =>
      reports.slice(1).map((report, i) => of(report) - of(reports[i] as NodeReport));
    const last = reports.at(-1) as NodeReport;
    const calls = ({ latency: { read } }: NodeReport, i: number): number =>
      [read.local, read.remote, read.disk].reduce((sum, { buckets }) => sum + (buckets[i] ?? 0), 0);
    const buckets = last.latency.bounds_s.concat(0).map((_, i) => i);
    const of = COUNTS_OF;
    const names = Object.keys(of) as HistoryCount[];
    const gauge = (value: (report: NodeReport) => number) => reports.slice(1).map(value);
    return {
      node_id: this.nodeId,
      incarnation: this.incarnation,
      from_age_ms: count * stepS * 1_000,
      ages_ms: Array.from({ length: count }, (_, i) => (count - 1 - i) * stepS * 1_000),
      counts: Object.fromEntries(names.map((name) => [name, between(of[name])])),
      gauges: {
        pool_pages: gauge(({ pool }) => pool.entries),
        pool_used_bytes: gauge(({ pool }) => pool.used_bytes),
        pool_capacity_bytes: gauge(({ pool }) => pool.capacity_bytes),
        disk_used_bytes: gauge(({ disk }) => disk?.used_bytes ?? 0),
        disk_capacity_bytes: gauge(({ disk }) => disk?.capacity_bytes ?? 0),
        loop_p99_s: gauge(({ event_loop_delay }) => event_loop_delay.p99_s),
        members: gauge(() => members),
      },
      read_latency: {
        bounds_s: last.latency.bounds_s,
        buckets: Object.fromEntries(buckets.map((i) => [String(i), between((report) => calls(report, i))])),
      },
      totals: {
        counts: Object.fromEntries(names.map((name) => [name, of[name](last)])),
        read_buckets: buckets.map((i) => calls(last, i)),
      },
    };
  }

  /** The sum over all ticks so far; what was summed up before is kept. */
  #sum(name: string, of: (tick: number) => number): number {
    const sums = this.#sums.get(name) ?? [0];
    this.#sums.set(name, sums);
    for (let t = sums.length - 1; t < this.ticks; t++) sums.push((sums[t] as number) + of(t));
    return sums[this.ticks] as number;
  }
}

/** An invented client. */
export function fakeClient(name: string, more: Partial<ClientReport> = {}): ClientReport {
  return {
    name,
    pid: 4711,
    mode: 'direct',
    requests: 12_345,
    errors: 0,
    in_flight: 3,
    lookups: 2000,
    found: 1500,
    hits: 930,
    misses: 70,
    pages_written: 500,
    read_bytes: 930 * PAGE_BYTES,
    written_bytes: 500 * PAGE_BYTES,
    mapped_bytes: 2 ** 36,
    ...more,
  };
}

/** An invented cluster, as one of its nodes sees it. */
export class FakeCluster implements NodeView {
  readonly nodes: FakeNode[];
  /** Undefined: nodes of a version that does not tell. */
  departed: DepartedNode[] | undefined = [];
  memberEvents: MemberEvent[] = [];
  /** Seconds between two reports. */
  stepS = 1;
  /** Wall clock of the answering node. */
  timeMs = 1_760_000_000_000;

  constructor(nodes: readonly FakeNode[]) {
    this.nodes = [...nodes];
  }

  health(): HealthReport {
    return this.nodes[0]?.health ?? { status: 'ok', reasons: [] };
  }

  async report(): Promise<NodeReport> {
    return this.nodes[0]!.report(this.nodes.length);
  }

  /** Answers after turning the time of all nodes. */
  async cluster(): Promise<ClusterReport> {
    this.timeMs += this.stepS * 1_000;
    for (const node of this.nodes) if (node.state === 'up') node.ticks += this.stepS;
    return this.now();
  }

  /** What the nodes have kept: each tick an interval of the length of a step, at most 5 minutes of them. */
  async history(stepS: number): Promise<ClusterHistory> {
    const nodes = this.nodes.filter((node) => node.keepsHistory).map((node) => node.history(stepS, this.nodes.length));
    return { node_id: this.nodes[0]?.nodeId ?? '', time_ms: this.timeMs, step_s: stepS, nodes };
  }

  /** Takes a node out of the cluster, with a good-bye or without. */
  lose(nodeId: string, how: DepartedNode['how']): void {
    const index = this.nodes.findIndex((node) => node.nodeId === nodeId);
    const [{ incarnation }] = this.nodes.splice(index, 1) as [FakeNode];
    const gone = { node_id: nodeId, incarnation, time_ms: this.timeMs };
    this.departed = [{ ...gone, how, control_endpoint: '10.0.0.7:40123' }, ...(this.departed ?? [])];
    this.memberEvents = [...this.memberEvents, { ...gone, change: how }];
  }

  now(): ClusterReport {
    const weights = this.nodes.reduce((sum, { weight }) => sum + weight, 0);
    return {
      node_id: this.nodes[0]?.nodeId ?? '',
      time_ms: this.timeMs,
      heartbeat_interval_s: 2,
      member_ttl_s: 6,
      departed: this.departed,
      member_events: this.memberEvents,
      nodes: this.nodes.map((node): ClusterNode => {
        const member = {
          node_id: node.nodeId,
          control_endpoint: '10.0.0.7:40123',
          ring_share: node.weight / weights,
        };
        return node.state === 'up'
          ? { ...member, state: 'up', report: node.report(this.nodes.length) }
          : { ...member, state: 'unreachable', error: node.error };
      }),
    };
  }
}

/** The fields of a report that a history counts. */
const COUNTS_OF: Readonly<Record<HistoryCount, (report: NodeReport) => number>> = {
  local: ({ reads }) => reads.local,
  remote: ({ reads }) => reads.remote,
  disk: ({ reads }) => reads.disk,
  misses: ({ reads }) => reads.misses,
  local_bytes: ({ read_bytes }) => read_bytes.local,
  remote_bytes: ({ read_bytes }) => read_bytes.remote,
  disk_bytes: ({ read_bytes }) => read_bytes.disk,
  writes: ({ writes }) => writes.pages,
  written_bytes: ({ writes }) => writes.bytes,
  asked: ({ lookups }) => lookups.asked,
  found: ({ lookups }) => lookups.found,
  evictions: ({ pool }) => pool.evictions,
};

/** Calls around one bucket, most of them in it. */
function latency(calls: number, around: number): LatencyReport {
  const parts = BOUNDS_S.map((_, i) => Math.round(calls * 0.6 ** (Math.abs(i - around) * 2)));
  const buckets = [...parts, 0];
  return { count: buckets.reduce((sum, count) => sum + count, 0), sum_s: calls / 1000, buckets };
}
