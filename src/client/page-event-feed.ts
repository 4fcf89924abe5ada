import { jittered, pauseAfter } from '../base/concurrency/backoff.js';
import { onAbort, unlessAborted } from '../base/concurrency/cancellation.js';
import { within } from '../base/environment/clock.js';
import { ArgumentError, AuthError, MeshCacheError } from '../base/errors.js';
import {
  CLIENT_EVENTS_POOLS_MAX_COUNT,
  CLIENT_EVENTS_WAIT_MS,
  CLIENT_RECONNECT_MAX_MS,
  CLIENT_RECONNECT_MIN_MS,
} from '../base/limits.js';
import { shown } from '../base/shown.js';
import { decodeEventsAnswer, type EventsAnswer, encodeEvents } from '../clients/wire/events.js';
import { Capability, RequestType, Status } from '../clients/wire/messages.js';
import { checkBasicOptions } from '../store/call/call-options.js';
import type { FollowOptions, PageChange, PageEvent } from '../store/events/page-events.js';
import { checkClientKeys } from './client-calls.js';
import { type ClientIdentity, NodeLink } from './node-link.js';

const BACKOFF = { minMs: CLIENT_RECONNECT_MIN_MS, maxMs: CLIENT_RECONNECT_MAX_MS };

/** What happened to a page of the client's namespace; `key` is the program's own key. */
export interface ClientPageChange extends PageChange {
  /** Name of the page's pool, as given in the call. */
  readonly pool: string;
}

/** A part of the page events of a client's namespace; `PageEvent` explains each kind. */
export type ClientPageEvent = PageEvent<ClientPageChange>;

/** Where a stream of page events begins, when it ends, and which pools it covers. */
export interface ClientFollowOptions extends FollowOptions {
  /** Pools of the namespace, at most 16. Default: the main one, `kv`. */
  readonly pools?: readonly string[];
}

const OPTION_NAMES: ReadonlySet<string> = new Set(['after', 'signal', 'pools']);
/** Time after the deadline of a request until a silent node counts as lost. */
const SILENCE_MS = 3_000;
/** The longest position that a caller may give. */
const POSITION_MAX_BYTES = 256;

/**
 * Streams page events to one reader. It has its own connection, because a request that waits for a change must not
 * delay others.
 */
export class PageEventFeed {
  readonly #identity: ClientIdentity;
  readonly #pools: readonly string[];
  readonly #signal: AbortSignal;
  /** Position from which a new connection can resume; empty if there is none. */
  #after: string;
  #failures = 0;
  #lastReason = '';

  /** Throws `ArgumentError`. `closed` is aborted when the client is closed. */
  constructor(identity: ClientIdentity, closed: AbortSignal, options: ClientFollowOptions) {
    checkBasicOptions('pageEvents', options, OPTION_NAMES);
    const { after = '', signal, pools = ['kv'] } = options;
    if (typeof after !== 'string' || Buffer.byteLength(after) > POSITION_MAX_BYTES) {
      throw new ArgumentError(`pageEvents: after must be the position of an event, got ${shown(after)}`);
    }
    if (!Array.isArray(pools) || pools.length < 1 || pools.length > CLIENT_EVENTS_POOLS_MAX_COUNT) {
      throw new ArgumentError(
        `pageEvents: pools must be 1 to ${CLIENT_EVENTS_POOLS_MAX_COUNT} names of pools, got ${shown(pools)}`,
      );
    }
    for (const pool of pools) checkClientKeys([], pool);
    this.#identity = identity;
    this.#after = after;
    this.#pools = [...pools];
    this.#signal = signal === undefined ? closed : AbortSignal.any([signal, closed]);
  }

  /**
   * Yields the events until the signal is aborted or the client is closed. Throws `ERR_REMOTE` for a node without page
   * events, and `ERR_AUTH` without the right to read.
   */
  async *events(): AsyncGenerator<ClientPageEvent, void> {
    while (!this.#signal.aborted) {
      const link = await this.#connect();
      if (link === undefined) {
        await this.#pause();
        continue;
      }
      const stop = this.#signal.aborted ? () => {} : onAbort(this.#signal, () => link.close('the stream has ended'));
      try {
        yield* this.#eventsOf(link);
      } finally {
        stop();
        link.close('the stream has ended');
      }
      await this.#pause();
    }
  }

  /** Yields events until the connection is lost. */
  async *#eventsOf(link: NodeLink): AsyncGenerator<ClientPageEvent, void> {
    let position = this.#after;
    for (;;) {
      const answer = await this.#ask(link, position);
      if (answer === undefined) return;
      this.#failures = 0;
      position = answer.position;
      const { kind, atMs } = answer;
      // A list that was cut off cannot be resumed on another connection.
      if (kind === 'reset') this.#after = '';
      else if (kind === 'complete' || kind === 'changed' || (kind === 'nothing' && this.#after !== ''))
        this.#after = position;
      const changes = answer.changes.map(({ pool, key, tier }) => ({ key, pool: this.#pools[pool] as string, tier }));
      if (kind === 'reset') yield { kind };
      else if (kind === 'complete') yield { kind, position };
      else if (kind === 'changed') yield { kind, position, atMs, changes };
      else if (kind === 'listed' && changes.length > 0) yield { kind, changes };
    }
  }

  /** Asks for one event. Resolves with undefined if the node does not answer or the stream is to end. */
  async #ask(link: NodeLink, position: string): Promise<EventsAnswer | undefined> {
    const { clock } = this.#identity.env;
    const body = encodeEvents({ position, pools: this.#pools });
    const { answer } = link.request(RequestType.events, body, CLIENT_EVENTS_WAIT_MS);
    const inTime = within(clock, CLIENT_EVENTS_WAIT_MS + SILENCE_MS, answer);
    if ((await unlessAborted(inTime, this.#signal)) !== true) return undefined;
    const given = await answer;
    if (given?.status === Status.ok) return decodeEventsAnswer(given.body, this.#pools.length);
    if (given?.status === Status.badRequest) throw new ArgumentError(given.body.toString());
    if (given?.status === Status.denied) throw new AuthError(given.body.toString(), { retryable: true });
    return undefined;
  }

  async #connect(): Promise<NodeLink | undefined> {
    const { path, tokens, name, namespace, env } = this.#identity;
    let link: NodeLink;
    try {
      link = await NodeLink.open({ path, tokens, name, namespace, env, onClosed: () => {} });
    } catch (error) {
      const reason = (error as Error).message;
      if (reason !== this.#lastReason) env.log.log('warn', 'no page events, trying again', { socket: path, reason });
      this.#lastReason = reason;
      return undefined;
    }
    this.#lastReason = '';
    const { capabilities, nodeId, packageVersion } = link.hello;
    if ((capabilities & Capability.events) !== 0) return link;
    link.close('the node has no page events');
    throw new MeshCacheError(
      'ERR_REMOTE',
      `pageEvents: node ${nodeId} has version ${packageVersion}, which has no page events for clients; update the node`,
    );
  }

  /** Waits before the next connection; the pause grows until an event arrives. */
  async #pause(): Promise<void> {
    const { clock, random } = this.#identity.env;
    const delayMs = jittered(pauseAfter(++this.#failures, BACKOFF), random);
    let cancel = (): void => {};
    const over = new Promise<void>((resolve) => {
      cancel = clock.after(delayMs, resolve, { keepAlive: true });
    });
    await unlessAborted(over, this.#signal);
    cancel();
  }
}
