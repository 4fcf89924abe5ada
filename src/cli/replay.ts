import { Command, Option } from 'commander';
import { POOL_MIN_BYTES } from '../base/limits.js';
import { formatSize } from '../base/sizes.js';
import { type CommandContext, CommandFailure } from '../command/context.js';
import {
  checkNeeds,
  type DiskSize,
  decimalNumber,
  diskSize,
  jsonOption,
  type PoolSize,
  pageBytes,
  policyOption,
  poolSize,
  wholeNumber,
} from '../command/options.js';
import { formatCount } from '../command/table.js';
import { type EvictionPolicy, WRITE_POLICIES, type WritePolicy } from '../config.js';
import { defaultCore, PLACEMENT_ROUTINGS, type PlacementRouting } from '../core/index.js';
import { placementSettings } from '../core/placement/placement-options.js';
import { placementRouter } from '../core/placement/placement-routing.js';
import { type DiskSizes, diskSizeFor } from '../disk/disk-store.js';
import { commandPoolBytes, ownMemory } from '../system/memory-limit.js';
import { Cluster, NodeFolders } from './cluster/cluster.js';
import { type LoadRequest, type LoadResult, runLoad } from './load/load.js';
import { formatLoadReport, type LoadReport, loadReport, printLoadReport } from './load/load-report.js';
import { type TraceRequest, traceKey } from './load/trace.js';
import {
  addAgentOptions,
  type GivenAgentOptions,
  reportDelayOption,
  TRACE_ARGUMENT,
  traceRequests,
  withAgentFlags,
} from './load/trace-requests.js';

/** Size of an unbounded pool relative to its pages, which allows for space that the allocator loses. */
const UNBOUNDED_SLACK = 1.05;
const UNBOUNDED_SLACK_BYTES = 16 * 2 ** 20;
const MEMORY_SHARE = 0.9;

interface ReplayOptions extends GivenAgentOptions {
  readonly nodes: number;
  readonly pageBytes: number;
  /** Pool size of each node. */
  readonly pool: PoolSize;
  /** Disk size of each node; undefined: no disk tier. */
  readonly disk?: DiskSize;
  /** Parent folder of the disks during the run; undefined: the system's temporary folder. */
  readonly diskPath?: string;
  /** Additional node processes that keep the pages of the others and get no requests. */
  readonly storageNodes: number;
  /** Pool size of each storage node. */
  readonly storagePool: PoolSize;
  /** Where nodes keep pages if there are storage nodes. */
  readonly writePolicy: WritePolicy;
  readonly policy: EvictionPolicy;
  readonly routing: PlacementRouting;
  /** With routing by prefix, the number of first pages that decide. */
  readonly routingPages: number;
  /** Milliseconds of the trace until owners hear of reads by other nodes; Infinity: they never do. */
  readonly reportDelayMs: number;
  /** Milliseconds of quarantine; undefined: the configuration's default. */
  readonly quarantineMs?: number;
  /** Number of requests from the trace's start; undefined: all. */
  readonly requests?: number;
  readonly concurrency: number;
}

export interface ReplayResult extends LoadReport {
  readonly trace: string;
  readonly pool_bytes: number;
  readonly storage_nodes: number;
  /** Pool of each storage node; 0 without any. */
  readonly storage_pool_bytes: number;
  readonly write_policy: WritePolicy;
  /** Disk bytes of each node; 0: no disk tier. */
  readonly disk_bytes: number;
  /**
   * Capacity in pages of all storage nodes' pools together; without storage nodes, of all disks, or else of all pools.
   * Null: unbounded.
   */
  readonly exact_lru_pages: number | null;
  /** Hit rate of one exact LRU cache with that many pages. */
  readonly exact_lru_hit_rate: number;
  readonly policy: EvictionPolicy;
  readonly routing: PlacementRouting;
  readonly concurrency: number;
}

/** Replays a trace against a cluster of processes on this machine. */
async function runReplay(trace: string, options: ReplayOptions, context: CommandContext): Promise<ReplayResult> {
  const progress = context.progress();
  const capacityPages = exactLruPages(options);
  const size = await traceSize(trace, options, capacityPages);
  const poolBytes = resolvePoolBytes(options.pool, size.uniquePages, options.pageBytes);
  const storageBytes = resolvePoolBytes(options.storagePool, size.uniquePages, options.pageBytes);
  checkMemory({ poolBytes, storageBytes }, size.uniquePages, options);
  const disk = resolveDisk(options);
  const folders = disk && (await NodeFolders.create(options.diskPath, disk.maxBytes * options.nodes));
  let cluster: Cluster | undefined;
  try {
    progress.update(`starting ${options.nodes + options.storageNodes} nodes`);
    cluster = await Cluster.start({
      nodes: options.nodes + options.storageNodes,
      pageBytes: options.pageBytes,
      components: 1,
      config: nodeConfig(poolBytes, options),
      nodeConfig: (index) =>
        index < options.nodes
          ? ((disk && folders?.config(index, disk)) ?? {})
          : { role: 'storage', write_policy: 'local', global_segment_size: storageBytes },
      isLogShown: process.env.MESHCACHE_LOG !== undefined,
      signal: context.signal,
    });
    const load: LoadResult = await runLoad(cluster.agents.slice(0, options.nodes), loadRequests(trace, options), {
      concurrency: options.concurrency,
      reportDelayMs: options.reportDelayMs,
      clock: context.clock,
      signal: context.signal,
      onProgress: (counts) => {
        const rate = counts.asked === 0 ? 0 : counts.prefixHits / counts.asked;
        const done = `${formatCount(counts.requests)} of ${formatCount(size.requests)} requests`;
        progress.update(`${done}, prefix hit rate ${rate.toFixed(3)}, ${counts.wrongBytes} bytes wrong`);
      },
    });
    const statuses = await Promise.all(cluster.agents.map((agent) => agent.status()));
    const report = loadReport(load, { statuses, pageBytes: options.pageBytes });
    return {
      ...report,
      trace,
      pool_bytes: poolBytes,
      storage_nodes: options.storageNodes,
      storage_pool_bytes: options.storageNodes === 0 ? 0 : storageBytes,
      write_policy: writePolicyOf(options),
      disk_bytes: disk?.maxBytes ?? 0,
      exact_lru_pages: Number.isFinite(capacityPages) ? capacityPages : null,
      exact_lru_hit_rate: size.exactLruHitRate,
      policy: options.policy,
      routing: options.routing,
      concurrency: options.concurrency,
    };
  } finally {
    progress.end();
    await cluster?.close();
    await folders?.remove();
  }
}

export function replayCommand(context: CommandContext): Command {
  const command = new Command('replay')
    .description('replay a trace against a cluster of real processes on this machine')
    .argument('<trace>', TRACE_ARGUMENT)
    .option('--nodes <count>', 'node processes', wholeNumber(1, 64), 3)
    .addOption(
      new Option('--routing <name>', 'how requests find a node').choices(PLACEMENT_ROUTINGS).default('round-robin'),
    )
    .option('--routing-pages <count>', 'number of first pages that decide routing by prefix', wholeNumber(1, 1e6), 2)
    .option('--page-bytes <size>', 'bytes of a page; one page for each hash id', pageBytes, 64 * 2 ** 10)
    .addOption(
      new Option('--pool <size>', 'pool of each node: 4gb, 10000p (pages), or unbounded')
        .argParser(poolSize)
        .default({ kind: 'bytes', bytes: commandPoolBytes() }, '4gb, or all memory'),
    )
    .addOption(policyOption())
    .addOption(reportDelayOption())
    .option(
      '--quarantine-ms <ms>',
      'time before an evicted range is used again (default: 1000)',
      decimalNumber(0, 3_600_000, 'milliseconds'),
    )
    .option('--requests <count>', "number of requests from the trace's start (default: all)", wholeNumber(1, 1e9))
    .option('--concurrency <count>', 'requests in progress in the whole cluster', wholeNumber(1, 64), 1)
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache replay trace.jsonl --nodes 3 --page-bytes 64kb --pool 1gb
  meshcache replay trace.jsonl --nodes 1 --page-bytes 4kb --pool 10000p --quarantine-ms 0
  meshcache replay trace.jsonl --nodes 1 --page-bytes 4kb --pool unbounded --json
  meshcache replay trace.jsonl --nodes 1 --page-bytes 4kb --pool 2000p --disk 30000p --quarantine-ms 0
  meshcache replay agents.jsonl --sessions 32 --users 32 --routing session --page-bytes 4kb --pool 2000p
  meshcache replay trace.jsonl --nodes 3 --page-bytes 64kb --pool 64mb --storage-nodes 2 --storage-pool 1gb

Recorded agent sessions are known by their first line, which has "conversation". Their requests come in the order of
the closed loop of sim trace, without pauses.
Each request looks up its longest prefix, reads it, checks every byte and sets the rest; what was set is on its
disk, and on storage nodes, before a node's next request. Ends with status 1 when a byte was wrong.`,
    )
    .action(async (trace: string, given: ReplayOptions & { json: boolean }) => {
      const options = withAgentFlags(given, command);
      checkNeeds(command, { diskPath: ['disk'], storagePool: ['storageNodes'], writePolicy: ['storageNodes'] });
      const result = await runReplay(trace, options, context);
      printLoadReport(context, result, { json: options.json, asText: formatReplay });
    });
  return addAgentOptions(addTierOptions(command));
}

/** Adds the options for disks and storage nodes. */
function addTierOptions(command: Command): Command {
  return command
    .option('--disk <size>', 'disk tier of each node: 100gb, 30000p (pages); without it there is none', diskSize)
    .option(
      '--disk-path <folder>',
      "where the disks lie for the time of the run (default: the system's folder for temporary files)",
    )
    .option(
      '--storage-nodes <count>',
      'further node processes that take the pages of the others',
      wholeNumber(0, 64),
      0,
    )
    .addOption(
      new Option('--storage-pool <size>', 'pool of each storage node: 4gb, 10000p (pages), or unbounded')
        .argParser(poolSize)
        .default({ kind: 'bytes', bytes: commandPoolBytes() }, '4gb, or all memory'),
    )
    .addOption(
      new Option('--write-policy <policy>', 'where nodes keep pages if there are storage nodes')
        .choices(WRITE_POLICIES)
        .default('storage'),
    );
}

function formatReplay(result: ReplayResult): string {
  const rate = result.prefix_hit_rate.toFixed(4);
  const { storage_nodes: storage, storage_pool_bytes: storageBytes, write_policy: write } = result;
  const disks =
    result.disk_bytes === 0 ? '' : ` and ${result.nodes - storage} disks of ${formatSize(result.disk_bytes)}`;
  const placed = storage === 0 ? '' : ` and ${storage} storage nodes of ${formatSize(storageBytes)} (${write})`;
  const pools = `${result.nodes - storage} pools of ${formatSize(result.pool_bytes)}, ${result.policy}${disks}${placed}`;
  const room = result.exact_lru_pages === null ? 'room for all pages' : `${formatCount(result.exact_lru_pages)} pages`;
  const exact = `prefix hit rate ${result.exact_lru_hit_rate.toFixed(4)} of one exact LRU with ${room}`;
  return `${formatLoadReport(result)}\n\nprefix hit rate ${rate} with ${pools}\n${exact}`;
}

function nodeConfig(poolBytes: number, options: ReplayOptions): Record<string, unknown> {
  return {
    global_segment_size: poolBytes,
    eviction_policy: options.policy,
    metrics_enabled: false,
    write_policy: writePolicyOf(options),
    ...(options.quarantineMs === undefined ? {} : { reuse_quarantine_ms: options.quarantineMs }),
  };
}

/** The requests with the nodes that `sim trace` would choose. */
async function* loadRequests(trace: string, options: ReplayOptions): AsyncGenerator<LoadRequest> {
  const { nodes, routing, routingPages } = options;
  const router = placementRouter(
    placementSettings({ nodes, routing, routingPages, poolBytes: 1, pageBytes: 1 }),
    defaultCore(),
  );
  let atMs = 0;
  try {
    for await (const { timestampMs, hashIds, session } of firstRequests(trace, options)) {
      atMs = Math.max(atMs, timestampMs);
      const target = router.route({ keys: hashIds.map(String), session });
      yield { keys: hashIds.map(traceKey), target, conversation: session, atMs };
    }
  } finally {
    router.free();
  }
}

async function* firstRequests(trace: string, options: ReplayOptions): AsyncGenerator<TraceRequest> {
  let left = options.requests ?? Number.POSITIVE_INFINITY;
  for await (const request of traceRequests(trace, options)) {
    if (left-- <= 0) return;
    yield request;
  }
}

/** Reads the whole trace, so that even a mistake in its last line is found before any node starts. */
async function traceSize(
  trace: string,
  options: ReplayOptions,
  capacityPages: number,
): Promise<{ readonly requests: number; readonly uniquePages: number; readonly exactLruHitRate: number }> {
  const lru = new ExactLru(capacityPages);
  let requests = 0;
  for await (const request of firstRequests(trace, options)) {
    requests++;
    lru.request(request.hashIds);
  }
  if (requests === 0) throw new CommandFailure(`the trace ${trace} has no requests`);
  return { requests, uniquePages: lru.uniquePages, exactLruHitRate: Number(lru.prefixHitRate.toFixed(4)) };
}

function writePolicyOf({ storageNodes, writePolicy }: ReplayOptions): WritePolicy {
  return storageNodes === 0 ? 'local' : writePolicy;
}

function resolvePoolBytes(pool: PoolSize, uniquePages: number, pageBytes: number): number {
  if (pool.kind === 'bytes') return pool.bytes;
  if (pool.kind === 'pages') return Math.max(POOL_MIN_BYTES, pool.pages * pageBytes);
  return Math.ceil(uniquePages * pageBytes * UNBOUNDED_SLACK) + UNBOUNDED_SLACK_BYTES;
}

function resolveDisk({ disk, pageBytes }: ReplayOptions): DiskSizes | undefined {
  if (disk === undefined) return undefined;
  return disk.kind === 'bytes' ? { maxBytes: disk.bytes } : diskSizeFor(disk.pages, pageBytes);
}

/** Capacity of the exact LRU cache; see {@link ReplayResult.exact_lru_pages}. */
function exactLruPages({ nodes, pool, disk, storageNodes, storagePool, pageBytes }: ReplayOptions): number {
  if (storageNodes > 0) return pagesIn(storagePool, storageNodes, pageBytes);
  return pagesIn(disk ?? pool, nodes, pageBytes);
}

function pagesIn(size: PoolSize | DiskSize, nodes: number, pageBytes: number): number {
  if (size.kind === 'unbounded') return Number.POSITIVE_INFINITY;
  return nodes * (size.kind === 'pages' ? size.pages : Math.floor(size.bytes / pageBytes));
}

/**
 * Checks that memory suffices. Pools take memory as pages come in: at most their sizes, in practice about one copy of
 * each page.
 */
function checkMemory(
  { poolBytes, storageBytes }: { readonly poolBytes: number; readonly storageBytes: number },
  uniquePages: number,
  options: ReplayOptions,
): void {
  const neededBytes = Math.min(
    poolBytes * options.nodes + storageBytes * options.storageNodes,
    uniquePages * options.pageBytes,
  );
  const { freeBytes } = ownMemory();
  if (neededBytes <= freeBytes * MEMORY_SHARE) return;
  throw new CommandFailure(
    `the pools will hold ${formatSize(neededBytes)} and ${formatSize(freeBytes)} of memory are free: ` +
      'choose a smaller --page-bytes or --pool, or fewer --requests',
  );
}

/** Id of the list's sentinel; 0 is never the id of a page. */
const END = 0;

/**
 * The reference of a replay: prefix hits of a cache with exact least-recently-used eviction. The pages of a request are
 * used in order, and missing ones are added.
 */
export class ExactLru {
  readonly #capacityPages: number;
  /** Ids of pages, assigned from 1 on when a page first occurs, and never reused. */
  readonly #idOf = new Map<number, number>();
  /**
   * Neighbours in the order of use, by id. END has the most recently used page as its older neighbour, and the least
   * recently used one as its newer neighbour.
   */
  #older: Int32Array<ArrayBuffer> = new Int32Array(1024);
  #newer: Int32Array<ArrayBuffer> = new Int32Array(1024);
  #isHere: Uint8Array<ArrayBuffer> = new Uint8Array(1024);
  #size = 0;
  #prefixHits = 0;
  #asked = 0;

  /** `capacityPages`: Infinity if no page is ever evicted. */
  constructor(capacityPages: number) {
    this.#capacityPages = capacityPages;
  }

  /** Share of all requested pages that were found before their request's first miss. */
  get prefixHitRate(): number {
    return this.#asked === 0 ? 0 : this.#prefixHits / this.#asked;
  }

  /** Number of distinct pages requested so far. */
  get uniquePages(): number {
    return this.#idOf.size;
  }

  request(pages: readonly number[]): void {
    const ids = pages.map((page) => this.#id(page));
    const firstMiss = ids.findIndex((id) => this.#isHere[id] === 0);
    this.#prefixHits += firstMiss < 0 ? ids.length : firstMiss;
    this.#asked += ids.length;
    for (const id of ids) this.#use(id);
  }

  #id(page: number): number {
    const known = this.#idOf.get(page);
    if (known !== undefined) return known;
    const id = this.#idOf.size + 1;
    this.#idOf.set(page, id);
    if (id === this.#isHere.length) this.#grow();
    return id;
  }

  #use(id: number): void {
    if (this.#isHere[id] === 1) this.#unlink(id);
    else this.#size++;
    this.#isHere[id] = 1;
    const newest = this.#older[END] as number;
    this.#older[id] = newest;
    this.#newer[id] = END;
    this.#newer[newest] = id;
    this.#older[END] = id;
    if (this.#size <= this.#capacityPages) return;
    const oldest = this.#newer[END] as number;
    this.#unlink(oldest);
    this.#isHere[oldest] = 0;
    this.#size--;
  }

  #unlink(id: number): void {
    const [older, newer] = [this.#older[id] as number, this.#newer[id] as number];
    this.#newer[older] = newer;
    this.#older[newer] = older;
  }

  #grow(): void {
    const length = this.#isHere.length * 2;
    const larger = <T extends Int32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>>(array: T, copy: T): T => {
      copy.set(array);
      return copy;
    };
    this.#older = larger(this.#older, new Int32Array(length));
    this.#newer = larger(this.#newer, new Int32Array(length));
    this.#isHere = larger(this.#isHere, new Uint8Array(length));
  }
}
