import { assert, assertAtMost, assertEqual } from '../../../base/assert.js';
import type { Environment } from '../../../base/environment/environment.js';
import { parseEndpoint } from '../../../base/environment/network.js';
import { SparseLog } from '../../../base/environment/sparse-log.js';
import { AuthFailures } from '../../../net/auth-failures.js';
import type { TcpLimits } from '../protocol/limits.js';
import { STAGING_BYTES } from './landing.js';
import type { ReadCounters } from './read-counters.js';
import { ReadPeer } from './read-peer.js';
import type { ReadBatch, ReadRequest } from './read-request.js';

/** The peers that pages are read from, by their endpoints. */
export class ReadPeers {
  readonly #counters: ReadCounters;
  readonly #limits: TcpLimits;
  readonly #env: Environment;
  readonly #lines: SparseLog;
  readonly #authFailures: AuthFailures;
  /** Staging buffer of all connections; undefined before the first one. */
  #staging: Uint8Array | undefined;
  readonly #peers = new Map<string, ReadPeer>();
  readonly #unreachable = new Set<string>();

  constructor(counters: ReadCounters, limits: TcpLimits, env: Environment) {
    this.#counters = counters;
    this.#limits = limits;
    this.#env = env;
    this.#lines = new SparseLog(env);
    this.#authFailures = new AuthFailures('data', env);
  }

  /** Sends requests to a peer. They end false at once if the peer is not reachable or the endpoint is invalid. */
  submit(endpointText: string, requests: readonly ReadRequest[]): void {
    const peer = this.#peers.get(endpointText) ?? this.#add(endpointText);
    if (peer !== undefined) peer.submit(requests);
    else for (const request of requests) this.#counters.failedOps += request.failRest();
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
      },
    });
    this.#peers.set(endpointText, peer);
    return peer;
  }

  /** Forgets a peer without a connection if there are too many peers. False: all have one. */
  #makeRoom(): boolean {
    if (this.#peers.size < this.#limits.connectionsMaxCount) return true;
    for (const [endpoint, peer] of this.#peers) {
      if (peer.isConnected) continue;
      peer.close();
      this.#peers.delete(endpoint);
      this.#unreachable.delete(endpoint);
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
    assertEqual('read peers: connections', this.#counters.connections, connections);
    assertAtMost('read peers', this.#peers.size, this.#limits.connectionsMaxCount);
  }
}
