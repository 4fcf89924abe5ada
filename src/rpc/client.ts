import { assert, assertAtMost } from '../base/assert.js';
import type { CancelSignal } from '../base/concurrency/cancellation.js';
import type { Environment } from '../base/environment/environment.js';
import { type Endpoint, formatEndpoint } from '../base/environment/network.js';
import { AuthError, ClosedError, type ErrorCode, MeshCacheError } from '../base/errors.js';
import { RPC_CALL_TIMEOUT_MS, RPC_RETRY_AFTER_MS } from '../base/limits.js';
import { type AuthFailureReason, AuthFailures } from '../net/auth-failures.js';
import { ClientConnection, type ConnectionEnd } from './client-connection.js';
import { MessageCodec } from './message.js';
import type { RpcService } from './service.js';

/** Options of an {@link RpcClient}. */
export interface RpcClientOptions {
  readonly env: Environment;
  /** Purpose of its calls, which servers of another purpose refuse; also a label of its metrics. Default: `control`. */
  readonly service?: RpcService;
}

/** Options of one call. */
export interface RpcCallOptions {
  /** Deadline of this call in milliseconds; default RPC_CALL_TIMEOUT_MS. */
  readonly timeoutMs?: number;
  /** Aborting rejects the call with ERR_CLOSED and tells the peer. */
  readonly signal?: CancelSignal | undefined;
  /** Tries to connect even if the endpoint was unreachable a moment ago. */
  readonly probe?: boolean;
  /** If false, the process may exit while the call waits (long polls). Default: true. */
  readonly keepAlive?: boolean;
}

/**
 * If a connection attempt takes longer than this to fail, it is repeated only in the background, so that no further
 * call waits for it.
 */
const SLOW_FAILURE_MS = 100;
const OK = { result: 'ok' };
/** Values of the label `result`; any other error code of a peer counts as `refused`. */
const RESULTS: Readonly<Partial<Record<ErrorCode, string>>> = {
  ERR_UNREACHABLE: 'unreachable',
  ERR_TIMEOUT: 'timeout',
  ERR_OVERLOADED: 'overloaded',
  ERR_CLOSED: 'closed',
};

/** Most endpoints whose failures are remembered. */
const FAILURES_MAX_COUNT = 4096;

interface Failure {
  readonly error: MeshCacheError;
  readonly retryAtMs: number;
  readonly wasSlow: boolean;
  /** Whether a call has been rejected because of this failure. */
  isAsked: boolean;
  /** Cancels the next attempt in the background; set only after a slow failure. */
  readonly cancelRetry: (() => void) | undefined;
}

/**
 * Calls methods of `RpcServer`s. Each endpoint has one connection, opened on demand and shared by all calls.
 *
 * An unreachable endpoint costs one deadline. After that, calls to it reject at once, and after RPC_RETRY_AFTER_MS one
 * of them tries again. A silent endpoint is retried in the background as long as calls ask for it, so that the first
 * call after its return succeeds. Idle connections and timers do not keep the process alive; a call in flight does, at
 * most until its deadline.
 */
export class RpcClient {
  readonly #env: Environment;
  readonly #service: RpcService;
  readonly #codec = new MessageCodec();
  readonly #authFailures: AuthFailures;
  readonly #connections = new Map<string, ClientConnection>();
  readonly #failures = new Map<string, Failure>();
  /** Endpoints whose last connection worked and has ended. */
  readonly #broken = new Set<string>();
  #closed = false;

  constructor(options: RpcClientOptions) {
    this.#env = options.env;
    this.#service = options.service ?? 'control';
    this.#authFailures = new AuthFailures('rpc', this.#env);
    this.#env.metrics.setGaugeProvider('meshcache_rpc_connections', () => this.#connections.size, {
      side: 'client',
      service: this.#service,
    });
  }

  /**
   * Calls `method` at `endpoint` and resolves with its result. Rejects with `MeshCacheError`: ERR_UNREACHABLE (no
   * connection, or it ended before the answer), ERR_AUTH (`AuthError`: the two sides do not share a secret),
   * ERR_TIMEOUT, ERR_OVERLOADED, ERR_CLOSED (client closed or call aborted), or the peer's error. Binary fields of the
   * result are views of received bytes: copy them to keep them.
   */
  async call(endpoint: Endpoint, method: string, params: object, options: RpcCallOptions = {}): Promise<unknown> {
    if (this.#closed) throw new ClosedError('the RPC client');
    if (options.signal?.aborted) throw new MeshCacheError('ERR_CLOSED', `${method}: aborted`);
    const { metrics } = this.#env;
    try {
      const answer = await this.#callOnce(endpoint, method, params, options);
      metrics.count('meshcache_rpc_calls_total', 1, OK);
      return answer;
    } catch (error) {
      metrics.count('meshcache_rpc_calls_total', 1, { result: resultOf(error) });
      throw error;
    }
  }

  /** Called when a server has started at an endpoint: that the endpoint was unreachable before does not count any more. */
  started(endpoint: Endpoint): void {
    this.#forget(formatEndpoint(endpoint));
  }

  /** Closes all connections. Calls in flight reject with ERR_CLOSED. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    const error = new ClosedError('the RPC client');
    for (const { cancelRetry } of this.#failures.values()) cancelRetry?.();
    for (const connection of [...this.#connections.values()]) connection.end(error);
  }

  #callOnce(endpoint: Endpoint, method: string, params: object, options: RpcCallOptions): Promise<unknown> {
    const connection = this.#connectionTo(endpoint, options.probe ?? false);
    return connection.call({
      method,
      params,
      timeoutMs: options.timeoutMs ?? RPC_CALL_TIMEOUT_MS,
      signal: options.signal,
      keepAlive: options.keepAlive ?? true,
    });
  }

  #connectionTo(endpoint: Endpoint, probe: boolean): ClientConnection {
    const name = formatEndpoint(endpoint);
    const failure = probe ? undefined : this.#failures.get(name);
    if (failure !== undefined) failure.isAsked = true;
    if (failure !== undefined && failure.retryAtMs > this.#env.clock.nowMs()) throw asNew(failure.error);
    const known = this.#connections.get(name);
    const connection = known ?? this.#connect(endpoint, name);
    if (failure?.wasSlow) throw asNew(failure.error);
    return connection;
  }

  #connect(endpoint: Endpoint, name: string): ClientConnection {
    const owner = {
      ready: () => {
        this.#forget(name);
        if (this.#broken.delete(name)) this.#env.metrics.count('meshcache_rpc_reconnects_total');
      },
      unauthenticated: (reason: AuthFailureReason) => this.#authFailures.record(reason, name),
      ended: (end: ConnectionEnd) => {
        this.#connections.delete(name);
        if (!this.#closed) this.#remember(endpoint, name, end);
      },
    };
    const parts = { endpoint, service: this.#service, env: this.#env, codec: this.#codec, owner };
    const connection = new ClientConnection(parts);
    this.#connections.set(name, connection);
    return connection;
  }

  /**
   * Remembers how a connection ended. A connection that had worked is opened again at the next call, unless its peer
   * had become silent.
   */
  #remember(endpoint: Endpoint, name: string, end: ConnectionEnd): void {
    if (end.wasReady && this.#broken.size < FAILURES_MAX_COUNT) this.#broken.add(name);
    if (end.wasReady && !end.wasSilent) return;
    const nowMs = this.#env.clock.nowMs();
    if (this.#failures.size >= FAILURES_MAX_COUNT) {
      for (const [other, { retryAtMs }] of this.#failures) if (retryAtMs <= nowMs) this.#forget(other);
      if (this.#failures.size >= FAILURES_MAX_COUNT) return;
    }
    const wasSlow = end.wasSilent || end.failedAfterMs >= SLOW_FAILURE_MS;
    const isAsked = this.#failures.get(name)?.isAsked ?? true;
    this.#forget(name);
    const cancelRetry = wasSlow
      ? this.#env.clock.after(RPC_RETRY_AFTER_MS, () => this.#retry(endpoint, name))
      : undefined;
    this.#failures.set(name, {
      error: end.error,
      retryAtMs: nowMs + RPC_RETRY_AFTER_MS,
      wasSlow,
      isAsked,
      cancelRetry,
    });
  }

  #retry(endpoint: Endpoint, name: string): void {
    const failure = this.#failures.get(name);
    if (failure?.isAsked !== true || this.#connections.has(name)) return;
    failure.isAsked = false;
    this.#connect(endpoint, name);
  }

  #forget(name: string): void {
    this.#failures.get(name)?.cancelRetry?.();
    this.#failures.delete(name);
  }

  /**
   * @internal Throws `InvariantError` unless the connections are consistent and the remembered failures are within
   * their limit.
   */
  verify(): void {
    for (const connection of this.#connections.values()) connection.verify();
    assertAtMost('RPC client: failures', this.#failures.size, FAILURES_MAX_COUNT);
    assertAtMost('RPC client: broken connections', this.#broken.size, FAILURES_MAX_COUNT);
    assert(!this.#closed || this.#connections.size === 0, 'RPC client: connections after the end');
  }
}

/** How a call ended, as a label of `meshcache_rpc_calls_total`. */
function resultOf(error: unknown): string {
  return (error instanceof MeshCacheError && RESULTS[error.code]) || 'refused';
}

/** Copies an error, so that each caller gets its own object with its own stack. */
function asNew(error: MeshCacheError): MeshCacheError {
  const options = { retryable: error.retryable, cause: error };
  return error instanceof AuthError
    ? new AuthError(error.message, options)
    : new MeshCacheError(error.code, error.message, options);
}
