import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import type { PublishRequest, RequestOptions } from '../../core/index.js';
import {
  CALLER_MAX,
  CONCURRENT_CALLERS_COUNT,
  hintNumber,
  STORE_CALLERS_COUNT,
} from '../../core/pool/request-terms.js';
import type { MissReason, Reasons, RefusalReason, TimedOptions } from './call-options.js';

/** Number of calls with one hint, and of the pages that they requested or set. */
export interface HintedCalls {
  readonly calls: number;
  readonly pages: number;
}

/** Figures by hint; `other` is hint number 3. */
export type HintFigures = Readonly<Record<'open' | 'closed' | 'other', HintedCalls>>;

/** One bit for each extra caller number, all set; they fit in one number. */
const ALL_FREE = 2 ** CONCURRENT_CALLERS_COUNT - 1;
const HINT_NAMES = [undefined, 'open', 'closed', 'other'] as const;

/** What a call states about its request, and how long it may take. */
export interface CallOptions extends PublishRequest, TimedOptions {
  /** Milliseconds after which written pages expire. Default: they do not expire. */
  readonly expiresInMs?: number | undefined;
  /** Collects the reasons why a read has not read pages. */
  readonly reasons?: Reasons<MissReason> | undefined;
  /** Collects the reasons why a write has not set pages. */
  readonly refusals?: Reasons<RefusalReason> | undefined;
}

/** Checks what a caller states about its request. Throws `ArgumentError`. */
export function checkRequest(method: string, request: RequestOptions): void {
  if (typeof request !== 'object' || request === null) {
    throw new ArgumentError(
      `${method}: request options must be an object, such as { hint: 'closed' }; got ${shown(request)}`,
    );
  }
  const { hint, caller = 0, continues = false } = request;
  try {
    hintNumber(hint);
  } catch (error) {
    throw new ArgumentError(`${method}: ${(error as Error).message}`);
  }
  if (!Number.isSafeInteger(caller) || caller < 0 || caller > CALLER_MAX) {
    throw new ArgumentError(`${method}: caller must be an integer from 0 to ${CALLER_MAX}, got ${shown(caller)}`);
  }
  if (typeof continues !== 'boolean') {
    throw new ArgumentError(`${method}: continues must be true or false, got ${shown(continues)}`);
  }
}

/** The parts of one call for one pool: however a call is split, the pool sees one request, or a part of one. */
export class RequestParts<Request extends RequestOptions = RequestOptions> {
  #next: Request;

  constructor(first: Request) {
    this.#next = first;
  }

  /** The request to pass to the pool with the next part. */
  next(): Request {
    const part = this.#next;
    if (part.continues !== true) this.#next = { ...part, continues: true };
    return part;
  }
}

/** One call of a store's user; it lasts until `end`. */
export interface RequestCall {
  readonly hint: RequestOptions['hint'];
  readonly pool: RequestParts<PublishRequest>;
  /** Has no priority, which applies to memory only. */
  readonly disk: RequestParts;
  /** Ends the call; its requests to pools end, too. Idempotent. */
  end(): void;
}

/**
 * Maps the calls of a store's users to parts of requests. A caller makes one request at a time. A call that starts
 * while its caller has another one in progress becomes a request of its own, so that their parts are not mixed up.
 */
export class RequestCalls {
  readonly #metrics: MetricsSink;
  /** One byte for each caller number; 1: a call is in progress. */
  readonly #busy = new Uint8Array(STORE_CALLERS_COUNT + CONCURRENT_CALLERS_COUNT);
  /** One bit for each caller number from STORE_CALLERS_COUNT on; 1: the number is free. */
  #free = ALL_FREE;
  #inProgress = 0;
  readonly #figures = {
    open: { calls: 0, pages: 0 },
    closed: { calls: 0, pages: 0 },
    other: { calls: 0, pages: 0 },
  };

  constructor(metrics: MetricsSink) {
    this.#metrics = metrics;
  }

  /** Number of callers that have a call in progress. */
  get inProgress(): number {
    return this.#inProgress;
  }

  figures(): HintFigures {
    const { open, closed, other } = this.#figures;
    return { open: { ...open }, closed: { ...closed }, other: { ...other } };
  }

  /**
   * Begins a call for this many pages; its priority applies to the pages that it sets. Throws `ArgumentError` for an
   * invalid hint.
   */
  begin(request: PublishRequest, pages: number): RequestCall {
    this.#count(request, pages);
    const { hint, caller: given = 0, continues } = request;
    const own = given % STORE_CALLERS_COUNT;
    const isConcurrent = continues !== true && this.#busy[own] === 1;
    const caller = isConcurrent ? this.#freeCaller(own) : own;
    const first: { -readonly [Name in keyof RequestOptions]: RequestOptions[Name] } = { caller };
    if (hint !== undefined) first.hint = hint;
    if (isConcurrent) first.continues = false;
    else if (continues !== undefined) first.continues = continues;
    let isUnderWay = this.#busy[caller] === 0;
    if (isUnderWay) this.#setBusy(caller, true);
    const end = (): void => {
      if (isUnderWay) this.#setBusy(caller, false);
      isUnderWay = false;
    };
    const { priority } = request;
    const ofPool: PublishRequest = priority === undefined ? first : { ...first, priority };
    return { hint, pool: new RequestParts(ofPool), disk: new RequestParts(first), end };
  }

  /** The lowest free caller number; `own` when none is free. */
  #freeCaller(own: number): number {
    const lowest = this.#free & -this.#free;
    return lowest === 0 ? own : STORE_CALLERS_COUNT + 31 - Math.clz32(lowest);
  }

  #setBusy(caller: number, isBusy: boolean): void {
    this.#busy[caller] = Number(isBusy);
    this.#inProgress += isBusy ? 1 : -1;
    if (caller >= STORE_CALLERS_COUNT) this.#free ^= 1 << (caller - STORE_CALLERS_COUNT);
  }

  #count({ hint, continues }: RequestOptions, pages: number): void {
    const name = HINT_NAMES[hintNumber(hint)];
    if (name === undefined) return;
    const figures = this.#figures[name];
    figures.pages += pages;
    this.#metrics.count('meshcache_hinted_pages_total', pages, { hint: name });
    if (continues === true) return;
    figures.calls++;
    this.#metrics.count('meshcache_hinted_calls_total', 1, { hint: name });
  }
}
