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

/** What an owner does when other nodes tell it of its pages. */
export interface PageNoticeHandler {
  /** They were read, in this order: a one-sided read goes unnoticed otherwise. */
  touch(reads: readonly ReportedRead[]): void;
  /** The directory led there, and they could not be read. */
  restate(keys: readonly string[]): Promise<void>;
}

export interface PageNoticesParts {
  readonly rpc: RpcClient;
  readonly endpointOf: (nodeId: string) => Endpoint | undefined;
  readonly env: { readonly clock: Clock; readonly metrics: MetricsSink };
}

/**
 * Short notices between nodes about pages (NOTICES.md): best effort, nobody waits for them. Of failures one
 * notice is on its way to an owner at a time, further ones are dropped meanwhile, so that no failure
 * of an owner is made worse by telling it so.
 */
export class PageNotices {
  readonly #rpc: RpcClient;
  readonly #endpointOf: (nodeId: string) => Endpoint | undefined;
  readonly #reports: ReadReports;
  /** Owners that are being told of failures. */
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

  /** Pages of an owner were read by one call, in this order. The owner is told soon, so that it keeps them. */
  touched(nodeId: string, keys: readonly string[], hint: RequestHint = 0): void {
    this.#reports.add(nodeId, { keys, hint });
  }

  /** Tells an owner that its pages could not be read where the directory said. */
  unreadable(nodeId: string, keys: readonly string[]): void {
    if (this.#underWay.has(nodeId)) return;
    this.#underWay.add(nodeId);
    // It will be told again when its pages are read again.
    this.#restate(nodeId, keys)
      .catch(() => {})
      .finally(() => this.#underWay.delete(nodeId));
  }

  /** Throws `InvariantError` unless the accounting of its parts holds. */
  verify(): void {
    this.#reports.verify();
  }

  /** What owners have not been told of reads yet is dropped. */
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
    if (endpoint === undefined) throw new ProtocolError(`node ${nodeId} is no member`);
    await this.#rpc.call(endpoint, method, params);
  }
}

function keysOf(params: unknown): string[] {
  const keys = (params as { keys?: unknown } | null)?.keys;
  const isKeys = Array.isArray(keys) && keys.length <= DIRECTORY_REQUEST_MAX_KEYS;
  if (isKeys && keys.every((key) => typeof key === 'string')) return keys;
  throw new ProtocolError(`keys must be an array of at most ${DIRECTORY_REQUEST_MAX_KEYS} strings`);
}

/** Without `reads`, all keys are of one read. */
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

/** Later versions may have more hints: unknown here, such a one tells nothing. */
function knownHint(hint: number): RequestHint {
  return hint <= 3 ? (hint as RequestHint) : 0;
}

function notReads({ length }: readonly string[]): ProtocolError {
  return new ProtocolError(`reads must be an array of [keys, hint], whole numbers, for ${length} keys in all`);
}
