import type { Clock } from '../../base/environment/clock.js';
import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { Endpoint } from '../../base/environment/network.js';
import { ProtocolError } from '../../base/errors.js';
import { DIRECTORY_REQUEST_MAX_KEYS } from '../../base/limits.js';
import type { RequestHint } from '../../core/index.js';
import { hintNumber } from '../../core/pool/request-hints.js';
import type { RpcClient } from '../../rpc/client.js';
import type { RpcServer } from '../../rpc/server.js';
import { ReadReports, type ReportedRead } from './read-reports.js';

/** Handles notices of other nodes about pages of this one. */
export interface PageNoticeHandler {
  /** Called with pages that another node has read, in this order: the owner does not see one-sided reads itself. */
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
 * Tells the owners of pages what became of reads (NOTICES.md beside this file), and answers the same notices of others. Best effort: nobody
 * waits for a notice. One notice of failed reads is on its way to an owner at a time; further ones are dropped meanwhile, so that an owner in
 * trouble is not flooded with them.
 */
export class PageNotices {
  readonly #rpc: RpcClient;
  readonly #endpointOf: (nodeId: string) => Endpoint | undefined;
  readonly #reports: ReadReports;
  /** Owners to which a notice of failed reads is on its way. */
  readonly #underWay = new Set<string>();

  constructor({ rpc, endpointOf, env }: PageNoticesParts) {
    this.#rpc = rpc;
    this.#endpointOf = endpointOf;
    const { clock, metrics } = env;
    this.#reports = new ReadReports({ send: (nodeId, reads) => this.#report(nodeId, reads), clock, metrics });
  }

  handle(server: RpcServer, handler: PageNoticeHandler): void {
    server.handle('pool.touch', (params) => handler.touch(readsOf(params)));
    server.handle('pool.restate', (params) => handler.restate(keysOf(params)));
  }

  /** Reports pages of an owner that one call has read, in this order. The owner is told soon, so that its eviction keeps them. */
  touched(nodeId: string, keys: readonly string[], hint: RequestHint = 0): void {
    this.#reports.add(nodeId, { keys, hint });
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

  /** Ends reporting: reads that have not been reported yet are dropped. */
  close(): void {
    this.#reports.close();
  }

  async #restate(nodeId: string, keys: readonly string[]): Promise<void> {
    for (let first = 0; first < keys.length; first += DIRECTORY_REQUEST_MAX_KEYS) {
      await this.#call(nodeId, 'pool.restate', { keys: keys.slice(first, first + DIRECTORY_REQUEST_MAX_KEYS) });
    }
  }

  async #report(nodeId: string, reads: readonly ReportedRead[]): Promise<void> {
    await this.#call(nodeId, 'pool.touch', {
      keys: reads.flatMap(({ keys }) => keys),
      reads: reads.map(({ keys, hint }) => [keys.length, hintNumber(hint)]),
    });
  }

  async #call(nodeId: string, method: string, params: Readonly<Record<string, unknown>>): Promise<void> {
    const endpoint = this.#endpointOf(nodeId);
    if (endpoint === undefined) throw new ProtocolError(`node ${nodeId} is not a member of the cluster`);
    await this.#rpc.call(endpoint, method, params);
  }
}

function keysOf(params: unknown): string[] {
  const keys = (params as { keys?: unknown } | null)?.keys;
  const isKeys = Array.isArray(keys) && keys.length <= DIRECTORY_REQUEST_MAX_KEYS;
  if (isKeys && keys.every((key) => typeof key === 'string')) return keys;
  throw new ProtocolError(`keys must be an array of at most ${DIRECTORY_REQUEST_MAX_KEYS} strings`);
}

/** Decodes the reads of a request. Without `reads`, all keys belong to one read. */
function readsOf(params: unknown): ReportedRead[] {
  const keys = keysOf(params);
  const { reads } = params as { reads?: unknown };
  if (reads === undefined) return [{ keys, hint: 0 }];
  if (!Array.isArray(reads) || reads.length > keys.length) throw notReads(keys);
  let end = 0;
  const decoded = reads.map((read: unknown): ReportedRead => {
    const [count, hint] = Array.isArray(read) ? (read as unknown[]) : [];
    const isCount = Number.isSafeInteger(count) && (count as number) > 0;
    if (!isCount || !Number.isSafeInteger(hint) || (hint as number) < 0) throw notReads(keys);
    const start = end;
    end += count as number;
    return { keys: keys.slice(start, end), hint: knownHint(hint as number) };
  });
  if (end !== keys.length) throw notReads(keys);
  return decoded;
}

/** A hint of a later version, which this one does not know, counts as none. */
function knownHint(hint: number): RequestHint {
  return hint <= 3 ? (hint as RequestHint) : 0;
}

function notReads({ length }: readonly string[]): ProtocolError {
  return new ProtocolError(
    `reads must be an array of [count, hint], whole numbers, whose counts add up to the ${length} keys`,
  );
}
