import { CLUSTER_SECRET_ALLOWED, ClusterSecrets } from '../base/environment/credentials.js';
import type { Environment } from '../base/environment/environment.js';
import { formatEndpoint, parseEndpoint } from '../base/environment/network.js';
import { ArgumentError, ClosedError, ConfigError, RdmaError } from '../base/errors.js';
import { RDMA_RETRY_AFTER_MS, RDMA_RETRY_MAX_MS, READ_MIN_BYTES_PER_S } from '../base/limits.js';
import { systemEnvironment } from '../system/system-environment.js';
import { ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, type RailOptions, type RdmaEngineOptions } from './addon/contract.js';
import { selectRails } from './devices/rail-selection.js';
import { type RdmaHost, systemRdmaHost, withDevicesReadOnce } from './devices/rdma-devices.js';
import { rdmaSupport } from './devices/rdma-support.js';
import { EngineChannel, type EngineStats, engineOptions } from './engine/engine-channel.js';
import { EventLog } from './engine/engine-event.js';
import { EngineReader } from './engine/engine-reader.js';

/** Device and address of an engine. Omitted options are chosen automatically. */
export interface TransferEngineOptions {
  /** Name of the device. Default: the device of `bindHost`, else the first one with an active port. */
  readonly deviceName?: string;
  /** Names of several devices, over which reads are spread. */
  readonly deviceNames?: readonly string[];
  /** Port of the device. Default: the first active one. */
  readonly ibPort?: number;
  /** Index of the GID. Default: the best one of RoCE v2, in the order IPv4, global IPv6, link-local. */
  readonly gidIndex?: number;
  /** Numeric address of the device to listen on and to advertise; `0.0.0.0` for any. */
  readonly bindHost?: string;
  /** Port to listen on; 0 (default): any free one. */
  readonly bindPort?: number;
  /** Peers must know one of these secrets. The first one is presented; each is accepted. */
  readonly clusterSecret?: string | readonly string[];
  readonly env?: Environment;
  /** @internal For tests. */
  readonly engine?: Partial<RdmaEngineOptions>;
  /** @internal For tests. */
  readonly host?: RdmaHost;
}

/** Registered memory. Peers that present `rkey`, which is random and never reused, may read it; no peer may write. */
export interface MrHandle {
  readonly addr: bigint;
  /** Bytes. */
  readonly length: number;
  readonly lkey: number;
  readonly rkey: number;
}

/** One read of a peer's registered memory into local memory. */
export interface ReadRequest {
  /** `host:port` of the peer's engine; see {@link TransferEngine.localEndpoint}. */
  readonly remoteNode: string;
  /** Address within memory that is registered with this engine. */
  readonly localAddr: bigint;
  readonly remoteAddr: bigint;
  readonly rkey: number;
  /** Bytes. */
  readonly length: number;
}

/**
 * One-sided reads over RDMA, and the memory that peers may read. Addresses are real pointers (with the addon, those of
 * `HostRegion` are).
 *
 * Memory belongs to the caller and must stay allocated from {@link registerMr} until {@link deregisterMr} or {@link
 * close} has resolved. The engine keeps the process alive only while reads are in progress.
 */
export class TransferEngine {
  /** Device of the first rail. */
  readonly deviceName: string;
  readonly queuePairsPerPeer: number;
  /** Reads in flight on one queue pair. */
  readonly queueDepth: number;
  readonly #channel: EngineChannel;
  readonly #reader: EngineReader;
  readonly #env: Environment;
  readonly #endpoint: string;
  readonly #usedRkeys = new Set<number>();
  readonly #byRkey = new Map<number, { readonly start: number; readonly end: number; readonly handle: number }>();
  #isClosing = false;

  /**
   * Starts to listen for peers. Throws `ConfigError` for a device, port, GID or address that does not exist, and
   * `RdmaError` if RDMA cannot be used; its message says which step fails and what to do about it.
   */
  constructor(options: TransferEngineOptions = {}) {
    const { host = systemRdmaHost, env = systemEnvironment() } = options;
    const rails = chooseRails(options, host);
    const { addon } = host.load();
    if (addon === null) throw new RdmaError('the native addon is gone', { device: '', call: 'load', errno: 0 });
    const engine = engineOptions(rails, secretsOf(options.clusterSecret), options.engine);
    const events = new EventLog(env);
    this.#env = env;
    this.#channel = EngineChannel.open({ addon, engine, onEvent: (event) => events.record(event) });
    this.#reader = new EngineReader({
      channel: this.#channel,
      clock: env.clock,
      retryAfterMs: RDMA_RETRY_AFTER_MS,
      retryMaxMs: RDMA_RETRY_MAX_MS,
      stallTimeoutMs: engine.stallTimeoutMs,
      minBytesPerS: READ_MIN_BYTES_PER_S,
    });
    const [rail] = rails;
    const [port] = this.#channel.ports;
    this.deviceName = (rail as RailOptions).deviceName;
    this.queuePairsPerPeer = engine.queuePairsPerPeer;
    this.queueDepth = engine.queueDepth;
    this.#endpoint = formatEndpoint({ host: (rail as RailOptions).address, port: port as number });
  }

  /** Returns the `host:port` at which peers reach this engine. */
  localEndpoint(): string {
    return this.#endpoint;
  }

  /**
   * Registers `length` bytes from `addr` on: peers may read them, and reads may write into them. Throws `ArgumentError`
   * for an invalid range, `RdmaError` if the memory cannot be registered, and `ClosedError`.
   */
  registerMr(addr: bigint, length: number): MrHandle {
    const start = typeof addr === 'bigint' && addr > 0n ? Number(addr) : Number.NaN;
    if (!Number.isSafeInteger(length) || length < 1 || !Number.isSafeInteger(start + length)) {
      throw new ArgumentError(
        `registerMr: addr must be a pointer (bigint) and length at least 1 byte, got ${String(addr)} and ${String(length)}`,
      );
    }
    const rkey = this.#newRkey();
    const { handle, lkey } = this.#channel.registerMr(start, length, rkey, ACCESS_REMOTE_READ | ACCESS_LOCAL_WRITE);
    this.#byRkey.set(rkey, { start, end: start + length, handle });
    return { addr, length, lkey, rkey };
  }

  /**
   * Deregisters memory. Resolves when no peer can read it and no read writes into it. Has no effect if it is not
   * registered.
   */
  async deregisterMr({ rkey }: MrHandle): Promise<void> {
    const registered = this.#byRkey.get(rkey);
    this.#byRkey.delete(rkey);
    if (registered !== undefined) await this.#channel.deregisterMr(registered.handle);
  }

  /**
   * Reads, and resolves with one result per request, in order: true once exactly the requested bytes are at
   * `localAddr`. If a request fails for any reason, its result is false, and nothing writes into its memory afterwards.
   * Rejects with `ArgumentError`, before anything is read, for a malformed request and for local memory that is not
   * registered, and with `ClosedError`.
   */
  async batchRead(requests: readonly ReadRequest[]): Promise<boolean[]> {
    if (this.#isClosing) throw new ClosedError('the transfer engine');
    for (const [index, request] of requests.entries()) this.#check(request, index);
    const batch = this.#reader.batch(requests.length);
    for (const [index, { remoteNode, localAddr, remoteAddr, rkey, length }] of requests.entries()) {
      const from = Number(remoteAddr);
      // No peer can have such memory.
      if (rkey >>> 0 !== rkey || !Number.isSafeInteger(from) || from < 0) continue;
      if (batch.addOp(index, remoteNode, rkey, from) && length > 0) batch.addPiece(Number(localAddr), length);
    }
    return batch.run();
  }

  /** Returns totals since the start, by name; `connections` and `acceptedConnections` are current counts. */
  stats(): EngineStats {
    return this.#channel.stats();
  }

  /** Closes the engine; pending requests end false. Resolves when all memory is released. Idempotent. */
  close(): Promise<void> {
    this.#isClosing = true;
    this.#byRkey.clear();
    return this.#channel.close();
  }

  /** Closes the engine: `await using engine = …`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #check({ localAddr, length }: ReadRequest, index: number): void {
    const start = typeof localAddr === 'bigint' ? Number(localAddr) : Number.NaN;
    if (Number.isSafeInteger(length) && length >= 0) {
      for (const registered of this.#byRkey.values()) {
        if (start >= registered.start && start + length <= registered.end) return;
      }
    }
    throw new ArgumentError(
      `batchRead: request ${index}: ${String(length)} bytes at ${String(localAddr)} are not within memory that is registered with this engine`,
    );
  }

  /** A random rkey that this engine has not given out before. */
  #newRkey(): number {
    for (;;) {
      const rkey = this.#env.random.u32();
      if (rkey === 0 || this.#usedRkeys.has(rkey)) continue;
      this.#usedRkeys.add(rkey);
      return rkey;
    }
  }
}

function secretsOf(clusterSecret: TransferEngineOptions['clusterSecret']): readonly string[] {
  if (clusterSecret === undefined) return [];
  const given: unknown = typeof clusterSecret === 'string' ? [clusterSecret] : clusterSecret;
  const secrets = Array.isArray(given) ? ClusterSecrets.of(given) : undefined;
  if (secrets === undefined) throw new ConfigError(`clusterSecret: allowed is ${CLUSTER_SECRET_ALLOWED}`);
  return secrets.reveal();
}

function chooseRails(options: TransferEngineOptions, host: RdmaHost): readonly RailOptions[] {
  const { deviceName, deviceNames, ibPort, gidIndex, bindHost, bindPort: port = 0 } = options;
  if (bindHost !== undefined && parseEndpoint(formatEndpoint({ host: bindHost, port: 0 })) === undefined) {
    throw new ArgumentError(`TransferEngine: bindHost must be an address, got ${JSON.stringify(bindHost)}`);
  }
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new ArgumentError(`TransferEngine: bindPort must be a whole number of 0 to 65535, got ${String(port)}`);
  }
  const seen = withDevicesReadOnce(host);
  const support = rdmaSupport({ host: seen });
  // A wrong device name is reported first, rather than an inactive port.
  if (!support.usable && support.step !== 'port') throw unusable(support.step, `${support.reason}; ${support.advice}`);
  const selection = selectRails({ deviceName, deviceNames, ibPort, gidIndex, bindHost, port }, seen.devices(), {
    nameOf: (wish) => `TransferEngine: ${wish}`,
    needsBindHost: true,
  });
  if (selection.rails === null) throw unusable('port', selection.reason);
  return selection.rails;
}

function unusable(step: string, reason: string): RdmaError {
  return new RdmaError(`RDMA cannot be used: ${reason}`, { device: '', call: step, errno: 0 });
}
