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
import type { ExpectedPages } from '../../store/sessions/session-book.js';
import { type ExpectedRead, type ReadReport, ReadReports, type ReportedRead } from './read-reports.js';

/** Bytes of one count in `read_counts` and `expected_counts`: u32 little endian. */
const COUNT_BYTES = 4;
/** Bytes of one time in `expected_ms`: f64 little endian. */
const TIME_BYTES = 8;

/** Handles notices from other nodes about this node's pages. */
export interface PageNoticeHandler {
  /** Called with pages that another node has read, in this order, because an owner does not see one-sided reads. */
  touch(reads: readonly ReportedRead[]): void;
  /** Called with pages that another node expects to read, in this order. */
  expect(expected: readonly ExpectedPages[]): void;
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
  readonly #clock: Clock;
  /** Owners to which a notice of failed reads is in flight. */
  readonly #underWay = new Set<string>();
  #defer: (add: () => void) => void = (add) => add();

  constructor({ rpc, endpointOf, env }: PageNoticesParts) {
    this.#rpc = rpc;
    this.#endpointOf = endpointOf;
    const { clock, metrics } = env;
    this.#clock = clock;
    this.#reports = new ReadReports({ send: (nodeId, reports) => this.#report(nodeId, reports), clock, metrics });
  }

  handle(server: RpcServer, handler: PageNoticeHandler): void {
    // The keys are copied because the handler keeps them.
    server.handle('pool.touch', (params) => handler.touch(readsOf(asFields(params))));
    server.handle('pool.expect', (params) => handler.expect(expectedOf(asFields(params))));
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

  /**
   * Tells an owner that its pages will be read in so many milliseconds, after all earlier reads; Infinity: never.
   */
  expected(nodeId: string, keys: readonly string[], inMs: number): void {
    this.#reports.add(nodeId, { keys, expectedAtMs: this.#clock.nowMs() + inMs });
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

  async #report(nodeId: string, reports: readonly ReadReport[]): Promise<void> {
    const reads: ReportedRead[] = [];
    const expected: ExpectedRead[] = [];
    for (const report of reports) {
      if ('hint' in report) reads.push(report);
      else expected.push(report);
    }
    if (reads.length > 0) {
      const read_hints = Uint8Array.from(reads, ({ hint }) => hintNumber(hint));
      await this.#call(nodeId, 'pool.touch', { ...keysOf(reads), read_counts: countsOf(reads), read_hints });
    }
    if (expected.length > 0) {
      const expected_ms = this.#timesOf(expected);
      await this.#call(nodeId, 'pool.expect', {
        ...keysOf(expected),
        expected_counts: countsOf(expected),
        expected_ms,
      });
    }
  }

  /** Milliseconds from now, 0 or more. */
  #timesOf(expected: readonly ExpectedRead[]): Buffer {
    const times = Buffer.allocUnsafe(TIME_BYTES * expected.length);
    const nowMs = this.#clock.nowMs();
    for (const [i, { expectedAtMs }] of expected.entries()) {
      times.writeDoubleLE(Math.max(0, expectedAtMs - nowMs), TIME_BYTES * i);
    }
    return times;
  }

  async #call(nodeId: string, method: string, params: Readonly<Record<string, unknown>>): Promise<void> {
    const endpoint = this.#endpointOf(nodeId);
    if (endpoint === undefined) throw new ProtocolError(`node ${nodeId} is not a member of the cluster`);
    await this.#rpc.call(endpoint, method, params);
  }
}

function keysOf(reports: readonly ReadReport[]): ReturnType<typeof keyFields> {
  const all: string[] = [];
  for (const { keys } of reports) for (const key of keys) all.push(key);
  return keyFields(all);
}

function countsOf(reports: readonly ReadReport[]): Buffer {
  const counts = Buffer.allocUnsafe(COUNT_BYTES * reports.length);
  for (const [i, { keys }] of reports.entries()) counts.writeUInt32LE(keys.length, COUNT_BYTES * i);
  return counts;
}

function readsOf(fields: Fields): ReportedRead[] {
  const hints = readBytes(fields, 'read_hints');
  const lists = keyLists(fields, { counts: 'read_counts', others: 'read_hints', count: hints.length });
  return lists.map((keys, i) => ({ keys, hint: knownHint(hints[i] as number) }));
}

function expectedOf(fields: Fields): ExpectedPages[] {
  const times = readBytes(fields, 'expected_ms');
  const view = new DataView(times.buffer, times.byteOffset, times.length);
  const count = times.length / TIME_BYTES;
  const lists = keyLists(fields, { counts: 'expected_counts', others: 'expected_ms', count });
  return lists.map((keys, i) => {
    const inMs = view.getFloat64(TIME_BYTES * i, true);
    if (!(inMs >= 0)) throw new ProtocolError(`expected_ms of ${inMs}; 0 and more, and Infinity, are allowed`);
    return { keys, inMs };
  });
}

/** The keys of a notice in lists of the lengths in the field `counts`, as many as there are of the others. */
function keyLists(
  fields: Fields,
  { counts: name, others, count }: { readonly counts: string; readonly others: string; readonly count: number },
): string[][] {
  const keys = readKeys(fields, true);
  const counts = readBytes(fields, name);
  const view = new DataView(counts.buffer, counts.byteOffset, counts.length);
  const lists: string[][] = [];
  let end = 0;
  if (Number.isInteger(count) && counts.length === COUNT_BYTES * count) {
    for (let i = 0; i < count; i++) {
      const start = end;
      end += view.getUint32(COUNT_BYTES * i, true);
      if (end === start || end > keys.length) break;
      lists.push(keys.slice(start, end));
    }
  }
  if (lists.length === count && end === keys.length) return lists;
  throw new ProtocolError(`${name} and ${others} must be of one key or more each, ${keys.length} keys in all`);
}

/** Treats a hint from a later version, which this version does not know, as none. */
function knownHint(hint: number): RequestHint {
  return hint <= 3 ? (hint as RequestHint) : 0;
}
