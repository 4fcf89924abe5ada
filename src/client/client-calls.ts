import { type CancelSignal, pause, unlessAborted, untilAny } from '../base/concurrency/cancellation.js';
import { within } from '../base/environment/clock.js';
import { SparseLog } from '../base/environment/sparse-log.js';
import { ArgumentError, ClosedError } from '../base/errors.js';
import { CLIENT_ANSWER_GRACE_MS, CLIENT_POOL_NAME_MAX_BYTES } from '../base/limits.js';
import { shown } from '../base/shown.js';
import { TEXT_MAX_BYTES } from '../clients/wire/body.js';
import { encodeLookups } from '../clients/wire/lookup-messages.js';
import { Capability, RequestType, Status, type ToldFlags } from '../clients/wire/messages.js';
import type { SetFlags } from '../clients/wire/request-flags.js';
import { checkKey } from '../core/binding/key-encoder.js';
import { hintNumber } from '../core/pool/request-terms.js';
import type { HostRegion } from '../memory/host-region.js';
import { type CallLimits, endedBy } from '../store/call/call-options.js';
import type { RequestParts } from '../store/call/request-calls.js';
import type { PageOptions } from '../store/namespace/namespace-pages.js';
import type { Attachment } from './attachment.js';
import type { NodeLink } from './node-link.js';

/** Bytes of a request in addition to keys and their lengths: the name of the pool, flags, counts. */
const FIXED_BYTES = CLIENT_POOL_NAME_MAX_BYTES + 64;
/** Bytes for the length of a key and the length of its page. */
const LENGTHS_BYTES = 6;

/** Keys that travel in one request, beginning with the key of index `start`. */
interface KeySlice {
  readonly start: number;
  readonly keys: string[];
}

/** Throws `ArgumentError` for keys and pools that cannot be encoded, or that the node would refuse. */
export function checkClientKeys(keys: readonly string[], pool: string): void {
  if (!pool.isWellFormed() || Buffer.byteLength(pool) > CLIENT_POOL_NAME_MAX_BYTES) {
    throw new ArgumentError(
      `the name of a pool must be well-formed text of at most ${CLIENT_POOL_NAME_MAX_BYTES} bytes, got ${shown(pool)}`,
    );
  }
  for (const [i, key] of keys.entries()) checkKey(key, TEXT_MAX_BYTES, i);
}

/** An upper bound of a key's bytes: UTF-8 needs at most three bytes for a UTF-16 unit. */
export function keyBytesAtMost(key: string): number {
  return LENGTHS_BYTES + 3 * key.length;
}

/** Splits keys into slices that each fit into one request body. */
export function* keySlices(
  keys: readonly string[],
  {
    maxCount,
    maxBytes,
    besideKeyBytes = 0,
  }: { readonly maxCount: number; readonly maxBytes: number; readonly besideKeyBytes?: number },
): Iterable<KeySlice> {
  let start = 0;
  let bytes = FIXED_BYTES;
  for (const [i, key] of keys.entries()) {
    const keyBytes = keyBytesAtMost(key) + besideKeyBytes;
    if (i > start && (i - start >= maxCount || bytes + keyBytes > maxBytes)) {
      yield { start, keys: keys.slice(start, i) };
      start = i;
      bytes = FIXED_BYTES;
    }
    bytes += keyBytes;
  }
  if (start < keys.length) yield { start, keys: keys.slice(start) };
}

/**
 * Whether the client reports the outcome of its lookups, so that the node must not count its requests as lookups. Nodes
 * of earlier versions count neither.
 */
export function isLookupStated(link: NodeLink | undefined): boolean {
  return link !== undefined && (link.hello.capabilities & Capability.lookups) !== 0;
}

/**
 * Counts the lookups of a program that is attached to a node, and reports them to the node. The node cannot count them
 * itself: a lookup may take several requests, in several pools, or get no answer, so only the program knows its
 * outcome.
 */
export class ClientLookups {
  readonly #attachment: Attachment;
  #asked = 0;
  #found = 0;
  /** Lookups that have not been reported to the node yet. */
  #untold = { asked: 0, found: 0 };

  constructor(attachment: Attachment) {
    this.#attachment = attachment;
  }

  /** Number of pages that were looked up. */
  get asked(): number {
    return this.#asked;
  }

  /** Number of pages that lookups found, counted in each lookup up to the first miss. */
  get found(): number {
    return this.#found;
  }

  count(asked: number, found: number): void {
    this.#asked += asked;
    this.#found += found;
    this.#untold = { asked: this.#untold.asked + asked, found: this.#untold.found + found };
    this.tell();
  }

  /** Reports the counts that the node does not have yet, if a node is attached. */
  tell(): void {
    const { link } = this.#attachment;
    if (link === undefined || !isLookupStated(link) || this.#untold.asked === 0) return;
    if (link.tell(RequestType.lookups, encodeLookups(this.#untold))) this.#untold = { asked: 0, found: 0 };
  }
}

/** One call and the time by which it must end. */
export interface Call {
  readonly link: NodeLink;
  readonly askedMs: number;
  readonly untilMs: number;
  readonly signal: CancelSignal | undefined;
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

/** A request about keys whose answer has a flag for each key. */
export interface SliceRequest {
  readonly type: RequestType;
  readonly bodyOf: (keys: string[]) => Buffer;
  /** Bytes of an answer before its flags. */
  readonly headBytes: number;
}

/** Runs the calls of a client: limits their time and sends their requests. */
export class ClientCalls {
  /** Longest time of a whole call, in milliseconds. */
  readonly timeoutMs: number;
  readonly #attachment: Attachment;
  readonly #lines: SparseLog;

  constructor(attachment: Attachment, timeoutMs: number) {
    this.#attachment = attachment;
    this.timeoutMs = timeoutMs;
    this.#lines = new SparseLog(attachment.env);
  }

  /**
   * Begins a call. Returns undefined if no node is attached or the call is already aborted. Throws `ArgumentError` and
   * `ClosedError`.
   */
  begin(keys: readonly string[] = [], { pool, signal, timeoutMs }: PageOptions = { pool: '' }): Call | undefined {
    const attachment = this.#attachment;
    const { env } = attachment;
    if (attachment.isClosed) throw new ClosedError('the client');
    checkClientKeys(keys, pool);
    const { link } = attachment;
    if (link === undefined || signal?.aborted === true) return undefined;
    const askedMs = env.clock.nowMs();
    return { link, askedMs, untilMs: askedMs + (timeoutMs ?? this.timeoutMs), signal };
  }

  /** Waits for a time, which keeps no process alive; false if the signal was aborted or the client closed before. */
  wait(ms: number, signal: CancelSignal | undefined): Promise<boolean> {
    const { closed, env } = this.#attachment;
    return untilAny([closed, signal], async (ends) => {
      await pause(env.clock, ms, ends);
      return !ends.aborted;
    });
  }

  /** Returns why a call did not move its pages, as far as the client knows. */
  reasonOf(
    call: Call | undefined,
    { signal }: CallLimits,
  ): 'closed' | 'timed_out' | 'aborted' | 'unreachable' | 'unknown' {
    const attachment = this.#attachment;
    const { env } = attachment;
    if (attachment.isClosed) return 'closed';
    const end = endedBy(signal);
    if (end !== undefined) return end;
    if (call !== undefined && env.clock.nowMs() >= call.untilMs) return 'timed_out';
    return call === undefined || attachment.link !== call.link ? 'unreachable' : 'unknown';
  }

  /** Splits keys into slices that each fit into one request; yields none if no node is attached. */
  slices(call: Call | undefined, keys: readonly string[], maxCount?: number): Iterable<KeySlice> {
    if (call === undefined) return [];
    const { requestMaxKeys, bodyMaxBytes } = call.link.hello;
    return keySlices(keys, { maxCount: Math.min(requestMaxKeys, maxCount ?? requestMaxKeys), maxBytes: bodyMaxBytes });
  }

  /**
   * Asks about keys, slice by slice. The result is true for each key whose flag is set in the answers, after
   * `headBytes`.
   */
  async inSlices(
    call: Call | undefined,
    keys: readonly string[],
    { type, bodyOf, headBytes }: SliceRequest,
  ): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    for (const { start, keys: some } of this.slices(call, keys)) {
      const answer = await this.ask(call, type, bodyOf(some));
      if (answer?.length === headBytes + some.length) takeFlags(results, start, answer.subarray(headBytes));
    }
    return results;
  }

  /**
   * Sends a request. Resolves with the body of the answer, or with null if no good answer came in time. If the node
   * moves pages in this program's memory for the request (`touched`), the promise resolves only when the node can no
   * longer touch that memory, however long that takes. If the node refuses to be charged for memory that has never been
   * touched, this touches it and asks once more. Throws `ArgumentError` when the node reports a mistake of the caller.
   */
  async ask(
    call: Call | undefined,
    type: RequestType,
    body: Buffer,
    touched: readonly DirectPage[] = [],
    isAgain = false,
  ): Promise<Buffer | null> {
    if (call === undefined) return null;
    const attachment = this.#attachment;
    const { env } = attachment;
    const leftMs = call.untilMs - env.clock.nowMs();
    if (leftMs <= 0 || call.signal?.aborted === true) return null;
    const { id, answer } = call.link.request(type, body, leftMs, call.askedMs);
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

  /** Logs a denied request: unlike other misses, a missing permission needs action. */
  #denied(reason: string): void {
    this.#lines.log('warn', 'the node has denied a request, which counts as a miss', { reason }, reason);
  }
}

/** Sets the results from `start` on as the flags of an answer say. */
export function takeFlags(results: boolean[], start: number, flags: Uint8Array): void {
  for (const [i, flag] of flags.entries()) results[start + i] = flag === 1;
}

/**
 * Returns the flags, without a priority if the node does not support priorities, which are only hints. Throws
 * `ArgumentError` if the node does not support expiry, because it would keep the pages forever.
 */
export function flagsFor({ link }: Call, flags: SetFlags): SetFlags {
  const { capabilities, nodeId, packageVersion } = link.hello;
  if (flags.expiresInMs === undefined || (capabilities & Capability.expiry) !== 0) {
    return (capabilities & Capability.priority) !== 0 ? flags : { ...flags, priority: undefined };
  }
  throw new ArgumentError(
    `expiresInMs needs a node whose pages can expire; node ${nodeId} has version ${packageVersion}: update it, or set the pages without`,
  );
}

/** Flags for the next request of a call; empty if the node does not support them. */
export function toldFlags({ link }: Call, parts: RequestParts): ToldFlags {
  if ((link.hello.capabilities & Capability.hints) === 0) return {};
  const { hint, continues = false } = parts.next();
  return { hint: hintNumber(hint), continues };
}
