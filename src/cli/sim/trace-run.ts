import { basename } from 'node:path';
import { seededRandom } from '../../base/environment/random.js';
import { SEGMENT_MAX_BYTES } from '../../base/limits.js';
import { type CommandContext, CommandFailure } from '../../command/context.js';
import type { DiskSize as SizeOfPool } from '../../command/options.js';
import { formatCount } from '../../command/table.js';
import {
  type EvictionPolicy,
  PlacementBounds,
  type PlacementCounts,
  type PlacementDiskWrite,
  type PlacementInterval,
  type PlacementRequest,
  type PlacementRouting,
  PlacementSimulation,
} from '../../core/index.js';
import type { TraceRequest } from '../load/trace.js';
import { type GivenAgentOptions, traceRequests } from '../load/trace-requests.js';
import { withOverTold } from './trace-over.js';
import { SessionFigures, type SimTraceSessions } from './trace-sessions.js';

/** Requests between two checks of whether the program must end. */
const TURN_REQUESTS = 500;

export interface SimTraceOptions extends GivenAgentOptions {
  readonly nodes: readonly number[];
  readonly pool: readonly SizeOfPool[];
  readonly pageBytes: number;
  readonly policy: readonly EvictionPolicy[];
  readonly routing: readonly PlacementRouting[];
  readonly routingPages: number;
  /** Milliseconds until owners hear of reads by other nodes; Infinity: they never do. */
  readonly reportDelayMs: number;
  readonly quarantineMs: number;
  /** Share (0 to 1) of conversation ends that callers report with the hint `closed`. */
  readonly endsTold: number;
  /** Share (0 to 1) of requests of which callers tell when the conversation goes on. */
  readonly returnsTold: number;
  /** Share (0 to 1) of requests of which callers tell which pages are never asked for again. */
  readonly overTold: number;
  /** Share (0 to 1) of these requests of which callers tell it wrongly. */
  readonly toldWrong: number;
  /** Pages in the disk tier of each node; undefined: no disk tier. */
  readonly diskPages?: number;
  readonly diskWrite: readonly PlacementDiskWrite[];
  readonly intervalS: number;
  /** Number of requests from the trace's start; undefined: all. */
  readonly requests?: number;
}

/** The result of one simulated cluster. */
export interface SimTraceRun {
  readonly nodes: number;
  /** Pool size of each node in pages. */
  readonly pool_pages: number;
  readonly pool_bytes: number;
  readonly policy: EvictionPolicy;
  /** How requests find a node; null for a single node. */
  readonly routing: PlacementRouting | null;
  /** Which pages the disk tier writes; null without one. */
  readonly disk_write: PlacementDiskWrite | null;
  /** Share of all requested pages that were read before their request's first miss. */
  readonly prefix_hit_rate: number;
  readonly prefix_hits: number;
  readonly hits: { readonly local: number; readonly remote: number; readonly disk: number };
  readonly disk_pages_written: number;
  readonly pages_set: number;
  readonly duplicates: number;
  readonly set_failures: number;
  readonly evictions: number;
  readonly moved_bytes: number;
  /** Requests of the busiest node relative to the mean. */
  readonly busiest_node: number;
  /** Results by session; null for a trace that does not name sessions. */
  readonly sessions: SimTraceSessions | null;
  readonly wall_s: number;
  readonly series: SimTraceSeries;
}

/** Values for each interval of the trace's time that has requests. */
interface SimTraceSeries {
  readonly start_s: readonly number[];
  readonly requests: readonly number[];
  readonly pages_asked: readonly number[];
  readonly prefix_hits: readonly number[];
  readonly remote_hits: readonly number[];
  readonly evictions: readonly number[];
  readonly moved_bytes: readonly number[];
}

/** A hit rate that no policy can exceed with the room of all pools and disks together. */
interface SimTraceBound {
  readonly nodes: number;
  readonly pool_pages: number;
  readonly clairvoyant_hit_rate: number;
}

/** The result, as `--json` prints it; counts without a unit are in pages. */
export interface SimTraceResult {
  readonly trace: string;
  readonly requests: number;
  readonly pages_asked: number;
  readonly unique_pages: number;
  readonly page_bytes: number;
  readonly report_delay_ms: number | null;
  readonly quarantine_ms: number;
  readonly ends_told: number;
  readonly returns_told: number;
  readonly over_told: number;
  readonly told_wrong: number;
  /** Pages in the disk tier of the node; 0: none. */
  readonly disk_pages: number;
  readonly routing_pages: number;
  readonly interval_s: number;
  /** Hit rate with room for everything. */
  readonly unbounded_hit_rate: number;
  readonly bounds: readonly SimTraceBound[];
  readonly runs: readonly SimTraceRun[];
}

/** A request of a trace with what its caller tells. */
type SimRequest = PlacementRequest & Pick<TraceRequest, 'session' | 'nextInMs'>;

type Shape = Pick<SimTraceRun, 'nodes' | 'pool_pages' | 'pool_bytes' | 'policy' | 'routing' | 'disk_write'>;

/** Simulates every combination of nodes, pools, policies and routings on the trace. */
export async function runSimTrace(
  trace: string,
  options: SimTraceOptions,
  context: CommandContext,
): Promise<SimTraceResult> {
  const progress = context.progress();
  try {
    progress.update('reading the trace');
    const asked = await readRequests(trace, options, context);
    const told = withReturnsTold(withEndsTold(asked, options.endsTold), options);
    const requests = withOverTold(told, options);
    const bounds = new PlacementBounds(requests);
    const rate = (hits: number) => (bounds.pagesAsked === 0 ? 0 : rounded(hits / bounds.pagesAsked));
    const shapes = shapesOf(options);
    const runs: SimTraceRun[] = [];
    for (const shape of shapes) {
      progress.update(
        `${runs.length} of ${shapes.length} clusters simulated, ${formatCount(requests.length)} requests`,
      );
      runs.push(await runShape(shape, { requests, options, context, rate }));
    }
    return {
      trace: basename(trace),
      requests: requests.length,
      pages_asked: bounds.pagesAsked,
      unique_pages: bounds.uniquePages,
      page_bytes: options.pageBytes,
      report_delay_ms: Number.isFinite(options.reportDelayMs) ? options.reportDelayMs : null,
      quarantine_ms: options.quarantineMs,
      ends_told: options.endsTold,
      returns_told: options.returnsTold,
      over_told: options.overTold,
      told_wrong: options.toldWrong,
      disk_pages: options.diskPages ?? 0,
      routing_pages: options.routingPages,
      interval_s: options.intervalS,
      unbounded_hit_rate: rate(bounds.unboundedHits()),
      bounds: boundsOf(options, (pages) => rate(bounds.clairvoyantHits(pages))),
      runs,
    };
  } finally {
    progress.end();
  }
}

/** Clusters to simulate. A single node has no routing. */
export function shapesOf(options: SimTraceOptions): Shape[] {
  return options.nodes.flatMap((nodes) =>
    poolsOf(options).flatMap((pool) =>
      (nodes === 1 ? [null] : options.routing).flatMap((routing) =>
        options.policy.flatMap((policy) =>
          (options.diskPages === undefined ? [null] : options.diskWrite).map((disk_write) => {
            return { nodes, ...pool, policy, routing, disk_write };
          }),
        ),
      ),
    ),
  );
}

async function runShape(
  shape: Shape,
  {
    requests,
    options,
    context,
    rate,
  }: {
    readonly requests: readonly SimRequest[];
    readonly options: SimTraceOptions;
    readonly context: CommandContext;
    readonly rate: (hits: number) => number;
  },
): Promise<SimTraceRun> {
  const startedMs = context.clock.nowMs();
  const simulation = new PlacementSimulation({
    nodes: shape.nodes,
    poolBytes: shape.pool_bytes,
    pageBytes: options.pageBytes,
    policy: shape.policy,
    routing: shape.routing ?? 'round-robin',
    routingPages: options.routingPages,
    reportDelayMs: options.reportDelayMs,
    quarantineMs: options.quarantineMs,
    ...(shape.disk_write === null ? {} : { diskPages: options.diskPages, diskWrite: shape.disk_write }),
    segmentBytes: Math.min(SEGMENT_MAX_BYTES, shape.pool_bytes),
    intervalMs: options.intervalS * 1000,
  });
  const figures = new SessionFigures(options.pageBytes);
  try {
    for (const [i, request] of requests.entries()) {
      if (i % TURN_REQUESTS === 0) await turn(context);
      figures.add(request, simulation.request(request));
    }
    const counts = simulation.counts();
    const most = simulation.nodes().reduce((busiest, node) => Math.max(busiest, node.requests), 0);
    return {
      ...shape,
      ...countsOf(counts, rate),
      busiest_node: rounded((most * shape.nodes) / Math.max(1, counts.requests)),
      sessions: figures.result(),
      wall_s: rounded((context.clock.nowMs() - startedMs) / 1000),
      series: seriesOf(simulation.intervals()),
    };
  } finally {
    simulation.free();
  }
}

function countsOf(counts: PlacementCounts, rate: (hits: number) => number) {
  return {
    prefix_hit_rate: rate(counts.prefixHits),
    prefix_hits: counts.prefixHits,
    hits: { local: counts.localHits, remote: counts.remoteHits, disk: counts.diskHits },
    disk_pages_written: counts.diskWrites,
    pages_set: counts.pagesSet,
    duplicates: counts.duplicates,
    set_failures: counts.refused,
    evictions: counts.evictions,
    moved_bytes: counts.movedBytes,
  };
}

function seriesOf(intervals: readonly PlacementInterval[]): SimTraceSeries {
  const firstMs = intervals[0]?.startMs ?? 0;
  return {
    start_s: intervals.map(({ startMs }) => rounded((startMs - firstMs) / 1000)),
    requests: intervals.map(({ requests }) => requests),
    pages_asked: intervals.map(({ pagesAsked }) => pagesAsked),
    prefix_hits: intervals.map(({ prefixHits }) => prefixHits),
    remote_hits: intervals.map(({ remoteHits }) => remoteHits),
    evictions: intervals.map(({ evictions }) => evictions),
    moved_bytes: intervals.map(({ movedBytes }) => movedBytes),
  };
}

function boundsOf(options: SimTraceOptions, hitRate: (pages: number) => number): SimTraceBound[] {
  return options.nodes.flatMap((nodes) =>
    poolsOf(options).map(({ pool_pages }) => {
      return { nodes, pool_pages, clairvoyant_hit_rate: hitRate(nodes * pool_pages + (options.diskPages ?? 0)) };
    }),
  );
}

/** Pool sizes in pages; sizes with room for the same number of pages are merged. */
function poolsOf({ pool, pageBytes }: SimTraceOptions): readonly Pick<Shape, 'pool_pages' | 'pool_bytes'>[] {
  const pools = pool.map((size) => poolOf(size, pageBytes));
  return [...new Map(pools.map((each) => [each.pool_pages, each])).values()];
}

function poolOf(size: SizeOfPool, pageBytes: number): { readonly pool_pages: number; readonly pool_bytes: number } {
  if (size.kind === 'pages') return { pool_pages: size.pages, pool_bytes: size.pages * pageBytes };
  return { pool_pages: Math.floor(size.bytes / pageBytes), pool_bytes: size.bytes };
}

async function readRequests(trace: string, options: SimTraceOptions, context: CommandContext): Promise<TraceRequest[]> {
  const requests: TraceRequest[] = [];
  for await (const request of traceRequests(trace, options)) {
    if (requests.length === options.requests) break;
    if (requests.length % TURN_REQUESTS === 0) context.signal.throwIfAborted();
    requests.push(request);
  }
  if (requests.length === 0) throw new CommandFailure(`the trace ${trace} has no requests`);
  return requests;
}

/** Lets signals be handled; throws after one. */
async function turn({ clock, signal }: CommandContext): Promise<void> {
  await clock.yield();
  signal.throwIfAborted();
}

function rounded(value: number): number {
  return Number(value.toFixed(4));
}

/**
 * The requests, with the hint `closed` added at this share of the conversation ends, evenly spread, as if those callers
 * knew that the conversation is over. A conversation continues if a later request has its last page, or its last but
 * one, because the last may not have been full.
 */
export function withEndsTold(requests: readonly SimRequest[], share: number): SimRequest[] {
  const lastUses = new Map<number, number>();
  for (const [i, { hashIds }] of requests.entries()) for (const id of hashIds) lastUses.set(id, i);
  let ends = 0;
  return requests.map((request, i) => {
    // The first page is a system prompt, which all conversations may share.
    const lastPages = request.hashIds.slice(Math.max(1, request.hashIds.length - 2));
    const isEnd = lastPages.every((id) => lastUses.get(id) === i);
    if (!isEnd) return request;
    const isTold = Math.floor((ends + 1) * share) > Math.floor(ends * share);
    ends++;
    return isTold ? { ...request, hint: 'closed' } : request;
  });
}

/**
 * Adds to a share of the requests when they are continued, or that they never are; a share of these have what belongs
 * to another request. If the trace does not say it, a request is continued when its last full page is asked for again.
 */
export function withReturnsTold(
  requests: readonly SimRequest[],
  { returnsTold, toldWrong }: Pick<SimTraceOptions, 'returnsTold' | 'toldWrong'>,
): SimRequest[] {
  if (returnsTold === 0) return [...requests];
  const random = seededRandom(1);
  const share = () => random.u32() / 2 ** 32;
  const nextUses = new Map<number, number>();
  const returns = new Array<number>(requests.length);
  for (let i = requests.length - 1; i >= 0; i--) {
    const { timestampMs, hashIds, nextInMs } = requests[i] as SimRequest;
    const nextUse = nextUses.get(hashIds.at(-2) ?? (hashIds[0] as number)) ?? Number.POSITIVE_INFINITY;
    returns[i] = nextInMs ?? nextUse - timestampMs;
    for (const id of hashIds) nextUses.set(id, timestampMs);
  }
  return requests.map((request, i) => {
    if (share() >= returnsTold) return request;
    const of = share() < toldWrong ? random.u32() % requests.length : i;
    return { ...request, returnsInMs: returns[of] };
  });
}
