import { unlessAborted } from '../base/concurrency/cancellation.js';
import { within } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import { SparseLog } from '../base/environment/sparse-log.js';
import { ArgumentError, ClosedError } from '../base/errors.js';
import { CLIENT_ANSWER_GRACE_MS } from '../base/limits.js';
import { type RequestType, Status } from '../clients/wire/messages.js';
import type { HostRegion } from '../memory/host-region.js';
import { endedBy, type WaitOptions } from '../store/call/call-options.js';
import type { PageOptions } from '../store/namespace/namespace-pages.js';
import type { Attachment } from './attachment.js';
import { checkClientKeys, type KeySlice, keySlices } from './client-keys.js';
import type { NodeLink } from './node-link.js';

export interface ClientCallsParts {
  readonly attachment: Attachment;
  /** Milliseconds for a whole call. */
  readonly timeoutMs: number;
  readonly env: Environment;
}

/** One call and its remaining time. */
export interface Call {
  readonly link: NodeLink;
  readonly askedMs: number;
  readonly untilMs: number;
  readonly signal: AbortSignal | undefined;
}

/** A page in memory that the node has registered; `index` is its position in the call. */
export interface DirectPage {
  readonly index: number;
  readonly pieces: readonly Piece[];
}

/** A piece of a page in registered memory. */
export interface Piece {
  readonly region: HostRegion;
  readonly regionId: number;
  readonly offset: number;
  readonly length: number;
}

/** Calls of a client: how long they may take, and the requests that they send. */
export class ClientCalls {
  readonly #parts: ClientCallsParts;
  readonly #lines: SparseLog;

  constructor(parts: ClientCallsParts) {
    this.#parts = parts;
    this.#lines = new SparseLog(parts.env);
  }

  /**
   * Begins a call. Undefined if there is no node, or the call was aborted before. Throws `ArgumentError` and
   * `ClosedError`.
   */
  begin(keys: readonly string[] = [], { pool, signal, timeoutMs }: PageOptions = { pool: '' }): Call | undefined {
    const { attachment, env } = this.#parts;
    if (attachment.isClosed) throw new ClosedError('the client');
    checkClientKeys(keys, pool);
    const { link } = attachment;
    if (link === undefined || signal?.aborted === true) return undefined;
    const askedMs = env.clock.nowMs();
    return { link, askedMs, untilMs: askedMs + (timeoutMs ?? this.#parts.timeoutMs), signal };
  }

  /** Why a call has not moved pages, as far as this side knows. */
  reasonOf(
    call: Call | undefined,
    { signal }: WaitOptions,
  ): 'closed' | 'timed_out' | 'aborted' | 'unreachable' | 'unknown' {
    const { attachment, env } = this.#parts;
    if (attachment.isClosed) return 'closed';
    const end = endedBy(signal);
    if (end !== undefined) return end;
    if (call !== undefined && env.clock.nowMs() >= call.untilMs) return 'timed_out';
    return call === undefined || attachment.link !== call.link ? 'unreachable' : 'unknown';
  }

  /** Slices of keys that each fit into one request; none without a node. */
  slices(call: Call | undefined, keys: readonly string[], maxCount?: number): Iterable<KeySlice> {
    if (call === undefined) return [];
    const { requestMaxKeys, bodyMaxBytes } = call.link.hello;
    return keySlices(keys, { maxCount: Math.min(requestMaxKeys, maxCount ?? requestMaxKeys), maxBytes: bodyMaxBytes });
  }

  /**
   * Sends a request and resolves with the body of the answer, or with null if no good answer came in time. `touched`
   * are the pages that the node moves for it: the promise then resolves only when the node cannot touch their memory
   * any more, however long that takes. If the node does not pay for memory that nobody has touched, this touches it and
   * asks again. Throws `ArgumentError` when the node reports a mistake of the caller.
   */
  async ask(
    call: Call | undefined,
    type: RequestType,
    body: Buffer,
    touched: readonly DirectPage[] = [],
    isAgain = false,
  ): Promise<Buffer | null> {
    if (call === undefined) return null;
    const { env, attachment } = this.#parts;
    const leftMs = call.untilMs - env.clock.nowMs();
    if (leftMs <= 0 || call.signal?.aborted === true) return null;
    const asked = call.link.request(type, body, leftMs, call.askedMs);
    if (asked === undefined) return null;
    const { id, answer } = asked;
    const inTime = within(env.clock, leftMs + CLIENT_ANSWER_GRACE_MS, answer);
    const isAnswered = (await unlessAborted(inTime, call.signal)) === true;
    if (!isAnswered) {
      call.link.cancel(id);
      if (touched.length === 0) return null;
    }
    const given = await answer;
    if (given === null) {
      if (touched.length > 0) await attachment.fenced(call.link);
      return null;
    }
    if (given.status === Status.ok) return given.body;
    if (given.status === Status.badRequest) throw new ArgumentError(given.body.toString());
    if (given.status === Status.absent && !isAgain) {
      for (const { pieces } of touched) for (const { region, offset, length } of pieces) region.touch(offset, length);
      return this.ask(call, type, body, touched, true);
    }
    if (given.status === Status.denied) this.#denied(given.body.toString());
    if (given.status === Status.noRegion || given.status === Status.regionGone) {
      const regions = new Set(touched.flatMap(({ pieces }) => pieces.map(({ region }) => region)));
      for (const region of regions) attachment.forgetRegion(region);
    }
    return null;
  }

  /** A right that this client has not is no miss like others: it is said. */
  #denied(reason: string): void {
    this.#lines.log('warn', 'the node has denied a request, which counts as a miss', { reason }, reason);
  }
}
