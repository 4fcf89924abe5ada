import { assert, assertAtMost } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import { parseEndpoint } from '../../base/environment/network.js';
import { OP_STATUS, type OpStatusName } from '../addon/contract.js';
import type { EngineChannel } from './engine-channel.js';
import { OpBatch, type OpChecks } from './op-batch.js';
import { PeerBackoff } from './peer-backoff.js';

export interface EngineReaderOptions {
  readonly channel: EngineChannel;
  readonly clock: Clock;
  /** Pause after a peer could not be reached; doubles. */
  readonly retryAfterMs: number;
  readonly retryMaxMs: number;
  /** A batch may take this and a second for every `minBytesPerS` that are under way. */
  readonly stallTimeoutMs: number;
  readonly minBytesPerS: number;
  /** An operation has ended otherwise than `ok`. */
  onFailure?(status: OpStatusName): void;
}

const OK = OP_STATUS.indexOf('ok');
/** The peer has answered, and what was asked for is not there. */
const GONE: ReadonlySet<OpStatusName> = new Set(['refused', 'checksum', 'stale']);
const IS_GONE = OP_STATUS.map((name) => GONE.has(name));
/** Numbers of peers that are remembered here; the engine knows all of them. */
const PEERS_MAX_COUNT = 4096;
/** No peer has that memory registered: asking for it only shows whether the peer answers. */
const PROBE_RKEY = 0;

/** Reads from peers by their endpoints: leaves those alone that cannot be reached, and gives each batch its deadline. */
export class EngineReader {
  /** Operations that were not handed to the engine: of peers that are skipped, and of what is no endpoint. */
  skippedOps = 0;
  readonly options: EngineReaderOptions;
  readonly backoff: PeerBackoff;
  readonly #peers = new Map<string, number>();
  readonly #probing = new Set<string>();
  #inFlightBytes = 0;

  constructor(options: EngineReaderOptions) {
    this.options = options;
    this.backoff = new PeerBackoff(options);
  }

  /** A batch of `opCount` operations of a caller, all of which end false unless they are added and succeed. */
  batch(opCount: number): ReaderBatch {
    return new ReaderBatch(this, opCount);
  }

  /**
   * Whether a peer answered when it was last tried, or has not been tried. One that did not is tried again in the
   * background, when its pause is over.
   */
  isReachable(endpoint: string): boolean {
    if (!this.backoff.isTroubled(endpoint)) return true;
    if (!this.backoff.isSkipped(endpoint)) this.#probe(endpoint);
    return false;
  }

  /** The engine's number for a peer; undefined for what is no endpoint. */
  peerNumber(endpoint: string): number | undefined {
    const known = this.#peers.get(endpoint);
    if (known !== undefined) return known;
    const address = typeof endpoint === 'string' ? parseEndpoint(endpoint) : undefined;
    if (address === undefined || address.port === 0) return undefined;
    if (this.#peers.size >= PEERS_MAX_COUNT) this.#peers.clear();
    const number = this.options.channel.peer(address.host, address.port);
    this.#peers.set(endpoint, number);
    return number;
  }

  /** One status for each operation; undefined when the channel is closed. */
  async submit(batch: OpBatch): Promise<Uint8Array | undefined> {
    const { channel, stallTimeoutMs, minBytesPerS } = this.options;
    const { totalBytes } = batch;
    this.#inFlightBytes += totalBytes;
    const timeoutMs = Math.ceil(stallTimeoutMs + (this.#inFlightBytes / minBytesPerS) * 1000);
    try {
      return await channel.submit(batch, timeoutMs);
    } finally {
      this.#inFlightBytes -= totalBytes;
    }
  }

  #probe(endpoint: string): void {
    const number = this.peerNumber(endpoint);
    if (number === undefined || this.#probing.has(endpoint)) return;
    this.#probing.add(endpoint);
    const batch = new OpBatch();
    batch.addOp(number, PROBE_RKEY, 0);
    const startedMs = this.options.clock.nowMs();
    this.submit(batch).then((statuses) => {
      this.#probing.delete(endpoint);
      if (statuses !== undefined) this.backoff.ended(endpoint, startedMs, statuses);
    });
  }

  /** Throws `InvariantError` unless what is in flight is no less than nothing, and no more peers are remembered than may be. */
  verify(): void {
    assert(this.#inFlightBytes >= 0, () => `engine reader: ${this.#inFlightBytes} bytes are in flight`);
    assertAtMost('engine reader: peers', this.#peers.size, PEERS_MAX_COUNT);
    this.backoff.verify();
  }
}

/** Operations of one call, and what becomes of them. Used once. */
export class ReaderBatch {
  readonly results: boolean[];
  readonly #reader: EngineReader;
  readonly #ops = new OpBatch();
  /** By operation of the engine: its index in `results`. */
  readonly #indices: number[] = [];
  /** Runs of operations of the same peer: endpoint, and where it ends. */
  readonly #runPeers: string[] = [];
  readonly #runEnds: number[] = [];
  #lastPeer = '';
  #lastNumber: number | undefined;

  constructor(reader: EngineReader, opCount: number) {
    this.#reader = reader;
    this.results = new Array<boolean>(opCount).fill(false);
  }

  /**
   * Adds the operation that ends `results[index]`; its pieces follow by {@link addPiece}. False, and it stays
   * false: the peer is being skipped, or is no endpoint.
   */
  addOp(index: number, endpoint: string, rkey: number, remoteAddr: number, checks?: OpChecks): boolean {
    if (endpoint !== this.#lastPeer) this.#turnTo(endpoint);
    if (this.#lastNumber === undefined) {
      this.#reader.skippedOps++;
      return false;
    }
    this.#ops.addOp(this.#lastNumber, rkey, remoteAddr, checks);
    this.#indices.push(index);
    this.#runEnds[this.#runEnds.length - 1] = this.#indices.length;
    return true;
  }

  /** Local registered memory that takes the next bytes of the operation added last. */
  addPiece(addr: number, length: number): void {
    this.#ops.addPiece(addr, length);
  }

  /** Resolves when `results` are final: no device writes into any of the memory any more. Never rejects. `gone`: see `Transport.batchRead`. */
  async run(gone?: Uint8Array): Promise<boolean[]> {
    if (this.#indices.length === 0) return this.results;
    const { clock, onFailure } = this.#reader.options;
    const startedMs = clock.nowMs();
    const statuses = await this.#reader.submit(this.#ops);
    if (statuses === undefined) {
      this.#reader.skippedOps += this.#indices.length;
      return this.results;
    }
    for (let op = 0; op < this.#indices.length; op++) {
      const status = statuses[op] as number;
      const index = this.#indices[op] as number;
      if (status === OK) this.results[index] = true;
      else onFailure?.(OP_STATUS[status] as OpStatusName);
      if (IS_GONE[status] === true && gone !== undefined) gone[index] = 1;
    }
    this.#tellPeers(startedMs, statuses);
    return this.results;
  }

  #turnTo(endpoint: string): void {
    const reader = this.#reader;
    this.#lastPeer = endpoint;
    this.#lastNumber = reader.backoff.isSkipped(endpoint) ? undefined : reader.peerNumber(endpoint);
    if (this.#lastNumber === undefined) return;
    this.#runPeers.push(endpoint);
    this.#runEnds.push(this.#indices.length);
  }

  /** Runs of a peer are taken together: what is well in one does not make up for what has failed in another. */
  #tellPeers(startedMs: number, statuses: Uint8Array): void {
    const byPeer = new Map<string, number[]>();
    let from = 0;
    for (const [run, peer] of this.#runPeers.entries()) {
      const end = this.#runEnds[run] as number;
      const seen = byPeer.get(peer) ?? [];
      byPeer.set(peer, seen);
      for (; from < end; from++) {
        const status = statuses[from] as number;
        if (!seen.includes(status)) seen.push(status);
      }
    }
    for (const [peer, seen] of byPeer) this.#reader.backoff.ended(peer, startedMs, seen);
  }
}
