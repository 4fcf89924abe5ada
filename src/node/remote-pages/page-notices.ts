import type { Clock } from '../../base/environment/clock.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import type { RequestHint } from '../../core/index.js';
import { hintNumber } from '../../core/pool/request-terms.js';
import { asFields, type Fields, keyFields, readBytes, readKeys } from '../../directory/messages/wire.js';
import { eachRequestOf } from '../../directory/owners/owners.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import { ReadReports, type ReportedRead } from './read-reports.js';

/** Bytes of one count in `read_counts`: u32 little endian. */
const COUNT_BYTES = 4;

/** Handles notices from other nodes about this node's pages. */
export interface PageNoticeHandler {
  /** Called with pages that another node has read, in this order, because an owner does not see one-sided reads. */
  touch(reads: readonly ReportedRead[]): void;
  /** Called with pages that the directory listed but this node could not serve. */
  restate(keys: readonly string[]): Promise<void>;
}

export interface PageNoticesParts {
  readonly rpc: RpcClient;
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  readonly env: { readonly clock: Clock; readonly metrics: MetricsSink };
}

/**
 * Tells the owners of pages the results of reads (NOTICES.md beside this file), and handles the same notices from
 * others. Best effort: nobody waits for a notice. At most one notice of failed reads is in flight to an owner; further
 * ones are dropped meanwhile, so that an owner in trouble is not flooded with them.
 */
export class PageNotices {
  readonly #rpc: RpcClient;
  readonly #endpointOf: (nodeId: string) => Endpoint | undefined;
  readonly #reports: ReadReports;
  /** Owners to which a notice of failed reads is in flight. */
  readonly #underWay = new Set<string>();
  #defer: (add: () => void) => void = (add) => add();

  constructor({ rpc, endpointOf, env }: PageNoticesParts) {
    this.#rpc = rpc;
    this.#endpointOf = endpointOf;
    const { clock, metrics } = env;
    this.#reports = new ReadReports({ send: (nodeId, reads) => this.#report(nodeId, reads), clock, metrics });
  }

  handle(server: RpcServer, handler: PageNoticeHandler): void {
    // The keys are copied because the handler keeps them.
    server.handle('pool.touch', (params) => handler.touch(readsOf(asFields(params))));
    server.handle('pool.restate', (params) => handler.restate(readKeys(asFields(params), true)));
  }

  /**
   * Reports pages of an owner that one call has read, in this order. The owner is told soon, so that its eviction
   * policy knows about the use.
   */
  touched(nodeId: string, keys: readonly string[], hint: RequestHint = 0): void {
    this.#defer(() => this.#reports.add(nodeId, { keys, hint }));
  }

  /**
   * Has `defer` decide when a read begins to wait for its report: when it calls what it is given. For loads whose
   * requests come without the pauses that they have in practice, and which have a time of their own.
   */
  deferReads(defer: (add: () => void) => void): void {
    this.#defer = defer;
  }

  /** Reports all reads that wait to be reported. Resolves when the owners know of them, or cannot be told. */
  async tellReads(): Promise<void> {
    await this.#reports.tellAll();
  }

  /** Tells an owner that its pages could not be read where the directory said. */
  unreadable(nodeId: string, keys: readonly string[]): void {
    if (this.#underWay.has(nodeId)) return;
    this.#underWay.add(nodeId);
    // The next failed read of its pages sends another notice.
    this.#restate(nodeId, keys)
      .catch(() => {})
      .finally(() => this.#underWay.delete(nodeId));
  }

  /** Throws `InvariantError` unless the accounting of its parts holds. */
  verify(): void {
    this.#reports.verify();
  }

  /** Stops reporting: reads not reported yet are dropped. */
  close(): void {
    this.#reports.close();
  }

  async #restate(nodeId: string, keys: readonly string[]): Promise<void> {
    await eachRequestOf(keys, (request) =>
      this.#call(nodeId, 'pool.restate', keyFields(request.map((i) => keys[i] as string))),
    );
  }

  async #report(nodeId: string, reads: readonly ReportedRead[]): Promise<void> {
    const keys: string[] = [];
    const counts = Buffer.allocUnsafe(COUNT_BYTES * reads.length);
    const hints = Buffer.allocUnsafe(reads.length);
    for (const [i, read] of reads.entries()) {
      for (const key of read.keys) keys.push(key);
      counts.writeUInt32LE(read.keys.length, COUNT_BYTES * i);
      hints[i] = hintNumber(read.hint);
    }
    await this.#call(nodeId, 'pool.touch', { ...keyFields(keys), read_counts: counts, read_hints: hints });
  }

  async #call(nodeId: string, method: string, params: Readonly<Record<string, unknown>>): Promise<void> {
    const endpoint = this.#endpointOf(nodeId);
    if (endpoint === undefined) throw new ProtocolError(`node ${nodeId} is not a member of the cluster`);
    await this.#rpc.call(endpoint, method, params);
  }
}

function readsOf(fields: Fields): ReportedRead[] {
  const keys = readKeys(fields, true);
  const counts = readBytes(fields, 'read_counts');
  const hints = readBytes(fields, 'read_hints');
  if (counts.length !== COUNT_BYTES * hints.length) throw notReads(keys);
  const view = new DataView(counts.buffer, counts.byteOffset, counts.length);
  const reads = new Array<ReportedRead>(hints.length);
  let end = 0;
  for (let i = 0; i < hints.length; i++) {
    const start = end;
    end += view.getUint32(COUNT_BYTES * i, true);
    if (end === start || end > keys.length) throw notReads(keys);
    reads[i] = { keys: keys.slice(start, end), hint: knownHint(hints[i] as number) };
  }
  if (end !== keys.length) throw notReads(keys);
  return reads;
}

/** Treats a hint from a later version, which this version does not know, as none. */
function knownHint(hint: number): RequestHint {
  return hint <= 3 ? (hint as RequestHint) : 0;
}

function notReads({ length }: readonly string[]): ProtocolError {
  return new ProtocolError(`read_counts and read_hints must be of reads of one key or more, ${length} keys in all`);
}
