import { assertAtMost, assertEqual } from '../../../base/assert.js';
import type { Environment } from '../../../base/environment/environment.js';
import { type Endpoint, parseEndpoint } from '../../../base/environment/network.js';
import { AuthFailures } from '../../../net/auth-failures.js';
import type { TcpLimits } from '../protocol/limits.js';
import { STAGING_BYTES } from './landing.js';
import { ReadConnection } from './read-connection.js';
import type { ReadCounters } from './read-counters.js';
import type { ReadBatch, ReadRequest } from './read-request.js';

interface Peer {
  connection: ReadConnection | undefined;
  /** Time before which the peer is not tried. */
  retryAtMs: number;
  /** Whether the peer failed by silence; then the next connection is a probe, which is used only once it is open. */
  isProbed: boolean;
}

/**
 * One connection to each peer, opened when it is needed; unusable peers are skipped for a while. A peer that failed by silence costs
 * one deadline: afterwards it is probed in the background and skipped until it answers.
 */
export class ReadPeers {
  readonly #counters: ReadCounters;
  readonly #limits: TcpLimits;
  readonly #env: Environment;
  readonly #authFailures: AuthFailures;
  /** Staging buffer of all connections; undefined before the first one. */
  #staging: Uint8Array | undefined;
  readonly #peers = new Map<string, Peer>();

  constructor(counters: ReadCounters, limits: TcpLimits, env: Environment) {
    this.#counters = counters;
    this.#limits = limits;
    this.#env = env;
    this.#authFailures = new AuthFailures('data', env);
  }

  /** Sends requests to a peer. They end false at once if the peer is skipped or the endpoint is invalid. */
  submit(endpointText: string, requests: readonly ReadRequest[]): void {
    const connection = this.#connectionTo(endpointText);
    for (const request of requests) {
      if (connection === undefined) this.#counters.failedOps += request.failRest();
      else connection.submit(request);
    }
  }

  /** Aborts the requests of a batch to a peer; see `ReadConnection.abort`. */
  abort(endpointText: string, batch: ReadBatch): void {
    this.#peers.get(endpointText)?.connection?.abort(batch);
  }

  /** Whether the peer failed recently and is not tried now. */
  isSkipped(endpointText: string): boolean {
    const peer = this.#peers.get(endpointText);
    if (peer === undefined) return false;
    if (peer.connection !== undefined) return usable(peer) === undefined;
    return this.#env.clock.nowMs() < peer.retryAtMs;
  }

  /** Closes every connection at once; pending operations end false. */
  close(): void {
    for (const { connection } of [...this.#peers.values()]) connection?.close('the transport is closed');
    this.#peers.clear();
  }

  /** The connection to use now; undefined if the peer is skipped or the endpoint is invalid. */
  #connectionTo(endpointText: string): ReadConnection | undefined {
    const known = this.#peers.get(endpointText);
    if (known?.connection !== undefined) return usable(known);
    if (known !== undefined && this.#env.clock.nowMs() < known.retryAtMs) return undefined;
    const endpoint = parseEndpoint(endpointText);
    if (endpoint === undefined || endpoint.port === 0) return undefined;
    if (known === undefined && !this.#makeRoom()) return undefined;
    const peer: Peer = known ?? { connection: undefined, retryAtMs: 0, isProbed: false };
    if (known !== undefined) this.#counters.reconnects++;
    this.#peers.set(endpointText, peer);
    peer.connection = this.#connect(endpointText, endpoint, peer);
    return usable(peer);
  }

  #connect(endpointText: string, endpoint: Endpoint, peer: Peer): ReadConnection {
    const { clock, log } = this.#env;
    this.#staging ??= new Uint8Array(STAGING_BYTES);
    return new ReadConnection({
      endpoint,
      staging: this.#staging,
      counters: this.#counters,
      limits: this.#limits,
      env: this.#env,
      authFailures: this.#authFailures,
      onClose: (isAtFault, reason) => {
        peer.isProbed = peer.connection?.wasLate ?? false;
        peer.connection = undefined;
        if (!isAtFault) return;
        peer.retryAtMs = clock.nowMs() + this.#limits.retryAfterMs;
        log.log('info', 'data connection failed', { peer: endpointText, reason });
      },
      onMoved: (requests) => this.submit(endpointText, requests),
    });
  }

  /** Forgets a peer without a connection if there are too many peers. False: all have one. */
  #makeRoom(): boolean {
    if (this.#peers.size < this.#limits.connectionsMaxCount) return true;
    for (const [endpoint, peer] of this.#peers) {
      if (peer.connection !== undefined) continue;
      this.#peers.delete(endpoint);
      return true;
    }
    return false;
  }

  /** Throws `InvariantError` unless its connections are counted, within their limit, and each is consistent. */
  verify(): void {
    let connections = 0;
    for (const { connection } of this.#peers.values()) {
      connection?.verify();
      connections += Number(connection !== undefined);
    }
    assertEqual('read peers: connections', this.#counters.connections, connections);
    assertAtMost('read peers', this.#peers.size, this.#limits.connectionsMaxCount);
  }
}

function usable({ connection, isProbed }: Peer): ReadConnection | undefined {
  return isProbed && !connection?.isOpen ? undefined : connection;
}
