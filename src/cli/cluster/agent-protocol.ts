/** IPC messages between the program that started a local cluster and the node processes. */

/** Setup of a node process. */
export interface AgentSetup {
  /** Configuration mapping of the node, snake_case keys. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly pageBytes: number;
  /** Pieces of a page in the process's own host buffer: 2 for K and V. */
  readonly components: 1 | 2;
}

export type AgentCommand =
  | { readonly kind: 'start'; readonly id: number; readonly setup: AgentSetup }
  /** Answers when the node sees `count` members. */
  | { readonly kind: 'await-members'; readonly id: number; readonly count: number }
  /**
   * Executes requests one after the other; each is a list of page keys. With `atMs`, their time in a trace, other nodes
   * hear of the reads of their pages by `tell-reads` only.
   */
  | {
      readonly kind: 'run';
      readonly id: number;
      readonly requests: readonly (readonly string[])[];
      readonly atMs?: number | undefined;
    }
  /** Tells other nodes of the reads of requests up to this time of the trace. */
  | { readonly kind: 'tell-reads'; readonly id: number; readonly untilMs: number }
  | { readonly kind: 'status'; readonly id: number }
  /** Makes the process outlive the program that started it, and repeat `load` until SIGTERM. */
  | { readonly kind: 'keep'; readonly id: number; readonly load: KeptLoad }
  | { readonly kind: 'close'; readonly id: number };

/** Requests that a kept process executes in order, over and over. */
export interface KeptLoad {
  /** The page keys of each request. Empty: no load. */
  readonly requests: readonly (readonly string[])[];
  /** Pause after each request, in milliseconds. */
  readonly pauseMs: number;
}

export interface AgentStarted {
  readonly nodeId: string;
  readonly pid: number;
  /** `host:port` of the node's metrics server; empty if it has none. */
  readonly metricsEndpoint: string;
  /** Whether discovery runs in this node. */
  readonly isMeta: boolean;
  /** Transport of this node's reads: `rdma` or `tcp`. */
  readonly protocol: string;
  /** `as configured`, or why the node does not use the transport that it was configured for. */
  readonly transportReason: string;
}

export interface AgentStatus {
  readonly poolEntries: number;
  readonly poolUsedBytes: number;
  readonly poolCapacityBytes: number;
  readonly evictions: number;
  readonly checksumFailures: number;
  readonly rssBytes: number;
  /** Pages read, by where they were found. */
  readonly hits: { readonly local: number; readonly remote: number; readonly disk: number };
  readonly disk: AgentDisk | null;
}

/** The disk tier of a node that has one; counts are in pages. */
export interface AgentDisk {
  readonly entries: number;
  readonly usedBytes: number;
  readonly capacityBytes: number;
  readonly evictions: number;
  /** Pages not written because the queue was full or an earlier write had failed. */
  readonly skippedPages: number;
  readonly corruptPages: number;
  readonly writeErrors: number;
  /** Pages read from the device, for this node and for others. */
  readonly readPages: number;
}

/** Results of a run of requests; counts are in pages unless their names say otherwise. */
export interface RunCounts {
  requests: number;
  asked: number;
  /** Pages read before a request's first miss. */
  prefixHits: number;
  localHits: number;
  remoteHits: number;
  diskHits: number;
  set: number;
  /** Pages that could not be set because they were too large or nothing could be evicted for them. */
  setFailures: number;
  /** Requests whose prefix ended at a page that the lookup reported but the read did not deliver. */
  staleMisses: number;
  readBytes: number;
  setBytes: number;
  wrongBytes: number;
  /** Microseconds in the store's lookup calls; like `readUs` and `setUs`, without generating and checking pages. */
  lookupUs: number;
  readUs: number;
  setUs: number;
}

export interface RunResult {
  readonly counts: RunCounts;
  /** Latencies of `batchGetV1` calls (up to 128 pages) in microseconds. */
  readonly readLatenciesUs: Float64Array;
  /** Latencies of `batchExists` calls in microseconds. */
  readonly lookupLatenciesUs: Float64Array;
}

export type AgentReply =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly error: { readonly message: string; readonly stack?: string } };

export function noCounts(): RunCounts {
  return {
    requests: 0,
    asked: 0,
    prefixHits: 0,
    localHits: 0,
    remoteHits: 0,
    diskHits: 0,
    set: 0,
    setFailures: 0,
    staleMisses: 0,
    readBytes: 0,
    setBytes: 0,
    wrongBytes: 0,
    lookupUs: 0,
    readUs: 0,
    setUs: 0,
  };
}

/** Adds every count of `more` to `total`. */
export function addCounts(total: RunCounts, more: Readonly<RunCounts>): void {
  for (const name of Object.keys(total) as (keyof RunCounts)[]) total[name] += more[name];
}
