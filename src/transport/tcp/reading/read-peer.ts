import { pauseAfter } from '../../../base/concurrency/backoff.js';
import { formatEndpoint } from '../../../base/environment/network.js';
import type { SparseLog } from '../../../base/environment/sparse-log.js';
import { AnswerTimes } from '../../../net/answer-times.js';
import { ReadConnection, type ReadConnectionParts } from './read-connection.js';
import type { ReadBatch, ReadRequest } from './read-request.js';

/** What all connections to the peer have, and what the peer has itself. */
export interface ReadPeerParts
  extends Pick<ReadConnectionParts, 'endpoint' | 'staging' | 'counters' | 'limits' | 'env' | 'authFailures'> {
  /** The log of what peers can cause, of all of them. */
  readonly lines: SparseLog;
  /** Called when the peer begins or ends to be reachable. */
  readonly onTurned: (isReachable: boolean) => void;
}

/**
 * `reachable`: it answers, or was never tried. `suspected`: silent for longer than it usually takes, on a connection
 * that is still open. `unreachable`: there is no connection.
 */
export type PeerState = 'reachable' | 'suspected' | 'unreachable';

/** Shortest time between two log records that one peer is not reached. */
const UNREACHABLE_LOG_INTERVAL_MS = 10_000;

/**
 * One peer that pages are read from: a connection, opened when it is needed, and whether the peer is reachable. Reads,
 * lookups and reports all ask this one state.
 *
 *     reachable    -- silent for longer than usual ----->  suspected      any byte: reachable
 *     reachable    -- an attempt to connect fails ------>  unreachable
 *     suspected    -- the connection ends -------------->  unreachable    a connection opens: reachable
 *
 * Reads of a peer that is not reachable end at once, so that another node can be asked. It is found again without them:
 * while suspected by its own late answer, while unreachable by attempts to connect in the background, whose pauses are
 * at most a second. They end when nobody reads from the peer for long; then the next read tries it, as it does a second
 * after the peer has answered in another protocol or refused the secret. A working connection that ends is no reason to
 * doubt a peer: the next read opens another.
 */
export class ReadPeer {
  readonly #parts: ReadPeerParts;
  readonly #times = new AnswerTimes();
  #connection: ReadConnection | undefined;
  #state: PeerState = 'reachable';
  /** Time since which the peer is not reachable. */
  #sinceMs = 0;
  /** Failed attempts in a row, whether the last one failed by silence, and the time of the next one. */
  #failures = 0;
  #wasLate = false;
  /** Whether it is tried in the background: not if it has answered as no peer of this cluster does. */
  #isLookedFor = true;
  #retryAtMs = 0;
  #cancelRetry: (() => void) | undefined;
  #lastAskedMs = 0;
  #loggedMs = Number.NEGATIVE_INFINITY;
  #isLogged = false;
  #wasConnected = false;
  #isClosed = false;

  constructor(parts: ReadPeerParts) {
    this.#parts = parts;
  }

  get state(): PeerState {
    return this.#state;
  }

  get isConnected(): boolean {
    return this.#connection !== undefined;
  }

  /** Sends requests; they end false at once if the peer is not reachable. */
  submit(requests: readonly ReadRequest[]): void {
    this.#lastAskedMs = this.#parts.env.clock.nowMs();
    const connection = this.#usable();
    for (const request of requests) {
      if (connection === undefined) this.#parts.counters.failedOps += request.failRest();
      else connection.submit(request);
    }
  }

  /** Aborts the requests of a batch; see `ReadConnection.abort`. */
  abort(batch: ReadBatch): void {
    this.#connection?.abort(batch);
  }

  /** Closes the connection at once; pending operations end false, and the peer is not tried any more. */
  close(): void {
    this.#isClosed = true;
    this.#cancelRetry?.();
    this.#connection?.close('the transport is closed');
  }

  #usable(): ReadConnection | undefined {
    if (this.#isClosed) return undefined;
    if (this.#state === 'reachable') return this.#connection ?? this.#connect();
    // Whoever comes when a peer that refuses connections is due to be tried waits for the outcome, which comes at once.
    // One that is silent is only looked for in the background.
    const isDue = this.#connection === undefined && this.#parts.env.clock.nowMs() >= this.#retryAtMs;
    return isDue && !this.#wasLate ? this.#connect() : undefined;
  }

  #connect(): ReadConnection {
    this.#cancelRetry?.();
    this.#cancelRetry = undefined;
    if (this.#wasConnected) this.#parts.counters.reconnects++;
    this.#wasConnected = true;
    const connection = new ReadConnection({
      ...this.#parts,
      times: this.#times,
      onAnswering: () => this.#answers(),
      onOverdue: () => this.#turn('suspected', 'silent for longer than usual'),
      onClose: (isAtFault, reason) => {
        this.#connection = undefined;
        this.#closed(connection, isAtFault, reason);
      },
      onMoved: (requests) => this.submit(requests),
    });
    this.#connection = connection;
    return connection;
  }

  #closed({ hasAnswered, wasLate, wasForeign }: ReadConnection, isAtFault: boolean, reason: string): void {
    if (this.#isClosed) return;
    const { env, limits, lines } = this.#parts;
    if (isAtFault) lines.log('info', 'data connection failed', { peer: this.#name, reason }, this.#name);
    else if (this.#state === 'reachable') return;
    // It may have been restarted.
    if (this.#state === 'reachable' && hasAnswered && !wasLate && !wasForeign) return;
    this.#turn('unreachable', reason);
    this.#wasLate = wasLate;
    this.#isLookedFor = !wasForeign;
    const maxMs = Math.max(limits.retryAfterMs, limits.retryMaxMs);
    const pauseMs = wasForeign ? maxMs : pauseAfter(++this.#failures, { minMs: limits.retryAfterMs, maxMs });
    this.#retryAtMs = env.clock.nowMs() + pauseMs;
    this.#cancelRetry = env.clock.after(pauseMs, () => this.#retry());
  }

  #retry(): void {
    const { env, limits } = this.#parts;
    this.#cancelRetry = undefined;
    const isWanted = env.clock.nowMs() - this.#lastAskedMs < limits.probedMaxMs;
    if (isWanted && this.#isLookedFor) this.#connect().probe();
    else this.#turn('reachable', 'the next read tries it');
  }

  #answers(): void {
    this.#failures = 0;
    this.#turn('reachable', 'it answers');
  }

  /** Goes over to a state; the log names the peer when it begins not to be reachable, and when that ends. */
  #turn(state: PeerState, reason: string): void {
    const { clock, log } = this.#parts.env;
    const before = this.#state;
    this.#state = state;
    if (before === state) return;
    const nowMs = clock.nowMs();
    if (before === 'reachable' || state === 'reachable') this.#parts.onTurned(state === 'reachable');
    if (before === 'reachable') {
      this.#sinceMs = nowMs;
      this.#parts.counters.unreachablePeers++;
    }
    if (state !== 'reachable') {
      if (this.#isLogged || nowMs - this.#loggedMs < UNREACHABLE_LOG_INTERVAL_MS) return;
      this.#isLogged = true;
      this.#loggedMs = nowMs;
      log.log('warn', 'peer unreachable: its pages are misses until it answers', { peer: this.#name, reason });
    } else if (this.#isLogged) {
      this.#isLogged = false;
      const afterS = Math.round(nowMs - this.#sinceMs) / 1000;
      log.log('warn', 'peer no longer held for unreachable', { peer: this.#name, after_s: afterS, reason });
    }
  }

  get #name(): string {
    return formatEndpoint(this.#parts.endpoint);
  }

  /** Throws `InvariantError` unless its connection is consistent. */
  verify(): void {
    this.#connection?.verify();
  }
}
