import { assert, assertAtMost, assertEqual } from '../../../base/assert.js';
import { pauseAfter } from '../../../base/concurrency/backoff.js';
import type { Environment } from '../../../base/environment/environment.js';
import { formatEndpoint, parseEndpoint } from '../../../base/environment/network.js';
import { SparseLog } from '../../../base/environment/sparse-log.js';
import { AnswerTimes } from '../../../net/answer-times.js';
import { AuthFailures } from '../../../net/auth-failures.js';
import type { TcpLimits } from '../protocol/limits.js';
import { STAGING_BYTES } from './landing.js';
import { ReadConnection, type ReadConnectionParts } from './read-connection.js';
import type { ReadBatch, ReadCounters, ReadRequest } from './read-request.js';

/** The peers that pages are read from, by their endpoints. */
export class ReadPeers {
  readonly #counters: ReadCounters;
  readonly #limits: TcpLimits;
  readonly #env: Environment;
  readonly #onTurned: (endpointText: string, isReachable: boolean) => void;
  readonly #lines: SparseLog;
  readonly #authFailures: AuthFailures;
  /** Staging buffer of all connections; undefined before the first one. */
  #staging: Uint8Array | undefined;
  readonly #peers = new Map<string, ReadPeer>();
  readonly #unreachable = new Set<string>();

  /** `onTurned` is called when a peer becomes reachable or unreachable. */
  constructor(
    counters: ReadCounters,
    limits: TcpLimits,
    env: Environment,
    onTurned: (endpointText: string, isReachable: boolean) => void = () => {},
  ) {
    this.#counters = counters;
    this.#limits = limits;
    this.#env = env;
    this.#onTurned = onTurned;
    this.#lines = new SparseLog(env);
    this.#authFailures = new AuthFailures('data', env);
  }

  /** Sends requests to a peer. They end false at once if the peer is not reachable or the endpoint is invalid. */
  submit(endpointText: string, requests: readonly ReadRequest[]): void {
    const peer = this.#peers.get(endpointText) ?? this.#add(endpointText);
    if (peer !== undefined) peer.submit(requests);
    else for (const request of requests) this.#counters.add('failedOps', request.failRest());
  }

  /** Aborts the requests of a batch to a peer; see `ReadConnection.abort`. */
  abort(endpointText: string, batch: ReadBatch): void {
    this.#peers.get(endpointText)?.abort(batch);
  }

  /** Whether the peer answered when it was last tried, or was never tried. */
  isReachable(endpointText: string): boolean {
    return !this.#unreachable.has(endpointText);
  }

  /** Endpoints of the peers that are not reachable. */
  get unreachable(): ReadonlySet<string> {
    return this.#unreachable;
  }

  /** Closes every connection at once; pending operations end false. */
  close(): void {
    for (const peer of this.#peers.values()) peer.close();
    this.#peers.clear();
    this.#unreachable.clear();
  }

  #add(endpointText: string): ReadPeer | undefined {
    const endpoint = parseEndpoint(endpointText);
    if (endpoint === undefined || endpoint.port === 0 || !this.#makeRoom()) return undefined;
    this.#staging ??= new Uint8Array(STAGING_BYTES);
    const peer = new ReadPeer({
      endpoint,
      staging: this.#staging,
      counters: this.#counters,
      limits: this.#limits,
      env: this.#env,
      authFailures: this.#authFailures,
      lines: this.#lines,
      onTurned: (isReachable) => {
        if (isReachable) this.#unreachable.delete(endpointText);
        else this.#unreachable.add(endpointText);
        this.#onTurned(endpointText, isReachable);
      },
    });
    this.#peers.set(endpointText, peer);
    return peer;
  }

  /** Forgets a peer without a connection if there are too many peers. Returns false if all have one. */
  #makeRoom(): boolean {
    if (this.#peers.size < this.#limits.connectionsMaxCount) return true;
    for (const [endpoint, peer] of this.#peers) {
      if (peer.isConnected) continue;
      peer.close();
      this.#peers.delete(endpoint);
      if (this.#unreachable.delete(endpoint)) this.#onTurned(endpoint, true);
      return true;
    }
    return false;
  }

  /** Throws `InvariantError` unless its connections are counted, within their limit, and each is consistent. */
  verify(): void {
    let connections = 0;
    for (const [endpoint, peer] of this.#peers) {
      peer.verify();
      const isReachable = peer.state === 'reachable';
      assert(this.#unreachable.has(endpoint) !== isReachable, () => `read peers: ${endpoint} is ${peer.state}`);
      connections += Number(peer.isConnected);
    }
    assertEqual('read peers: connections', this.#counters.value('connections'), connections);
    assertAtMost('read peers', this.#peers.size, this.#limits.connectionsMaxCount);
  }
}

/** Parts that all connections to the peer share, and the peer's own. */
interface ReadPeerParts
  extends Pick<ReadConnectionParts, 'endpoint' | 'staging' | 'counters' | 'limits' | 'env' | 'authFailures'> {
  /** Rate-limited log for events that peers can cause, shared by all peers. */
  readonly lines: SparseLog;
  /** Called when the peer becomes reachable or unreachable. */
  readonly onTurned: (isReachable: boolean) => void;
}

/**
 * State of a peer. `reachable`: it answers, or was never tried. `suspected`: it is silent for longer than usual on a
 * connection that is still open. `unreachable`: there is no connection.
 */
type PeerState = 'reachable' | 'suspected' | 'unreachable';

/** Shortest time between two log records that one peer is not reached. */
const UNREACHABLE_LOG_INTERVAL_MS = 10_000;

/**
 * One peer that pages are read from. It opens a connection when one is needed and tracks whether the peer is reachable.
 * Reads, lookups and reports all use this one state.
 *
 *     reachable    -- silent for longer than usual ----->  suspected      any byte: reachable
 *     reachable    -- an attempt to connect fails ------>  unreachable
 *     suspected    -- the connection ends -------------->  unreachable    a connection opens: reachable
 *
 * Reads from a peer that is not reachable end at once, so that another node can be asked. The peer is found again
 * without them: a suspected peer by its own late answer, an unreachable one by attempts to connect in the background,
 * at most a second apart. The attempts stop when nothing has been read from the peer for long; then the next read tries
 * it. The next read also tries a peer that answered in another protocol or refused the secret, a second later. A
 * working connection that ends is no reason to doubt a peer: the next read opens another.
 */
class ReadPeer {
  readonly #parts: ReadPeerParts;
  readonly #times = new AnswerTimes();
  #connection: ReadConnection | undefined;
  #state: PeerState = 'reachable';
  /** When the peer became unreachable. */
  #sinceMs = 0;
  /** Consecutive failed attempts to connect. */
  #failures = 0;
  /** Whether the last attempt failed because the peer was silent. */
  #wasLate = false;
  /** Whether the peer is retried in the background; false after it answered as no peer of this cluster does. */
  #isLookedFor = true;
  /** When the next attempt is due. */
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
      if (connection === undefined) this.#parts.counters.add('failedOps', request.failRest());
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
    // If a peer that refused connections is due for a retry, this read tries it, because the outcome comes at once. A
    // silent peer is retried only in the background.
    const isDue = this.#connection === undefined && this.#parts.env.clock.nowMs() >= this.#retryAtMs;
    return isDue && !this.#wasLate ? this.#connect() : undefined;
  }

  #connect(): ReadConnection {
    this.#cancelRetry?.();
    this.#cancelRetry = undefined;
    if (this.#wasConnected) this.#parts.counters.add('reconnects', 1);
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
    // A peer that answered before may just have been restarted.
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

  /** Changes the state. The log names the peer when it becomes unreachable and when that ends. */
  #turn(state: PeerState, reason: string): void {
    const { clock, log } = this.#parts.env;
    const before = this.#state;
    this.#state = state;
    if (before === state) return;
    const nowMs = clock.nowMs();
    if (before === 'reachable' || state === 'reachable') this.#parts.onTurned(state === 'reachable');
    if (before === 'reachable') {
      this.#sinceMs = nowMs;
      this.#parts.counters.add('unreachablePeers', 1);
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
