import { assert, assertAtMost, reduced } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import { parseEndpoint } from '../../base/environment/network.js';
import { Gone } from '../../base/gone.js';
import { OP_STATUS, type OpStatusName } from '../addon/contract.js';
import { type EngineChannel, OpBatch, type OpChecks } from './engine-channel.js';
import { PeerBackoff } from './peer-backoff.js';

interface EngineReaderOptions {
  readonly channel: EngineChannel;
  readonly clock: Clock;
  /** First pause after a peer could not be reached; the pause doubles with each failure. */
  readonly retryAfterMs: number;
  readonly retryMaxMs: number;
  /** Time that a batch may take, plus one second for every `minBytesPerS` in progress. */
  readonly stallTimeoutMs: number;
  readonly minBytesPerS: number;
  /** Called when an operation has ended with a status other than `ok`. */
  onFailure?(status: OpStatusName): void;
}

const OK = OP_STATUS.indexOf('ok');
/** Statuses that mean that the peer answered but does not have the page. */
const GONE: Readonly<Partial<Record<OpStatusName, number>>> = {
  refused: Gone.freed,
  stale: Gone.freed,
  checksum: Gone.damaged,
};
const GONE_BY_STATUS = OP_STATUS.map((name) => GONE[name] ?? Gone.no);
/** Most peers whose numbers are cached here; the engine remembers all of them. */
const PEERS_MAX_COUNT = 4096;
/** An rkey that no peer has. A read with it only shows whether the peer answers. */
const PROBE_RKEY = 0;

/** Reads from peers by their endpoints. Skips peers that cannot be reached, and gives each batch a deadline. */
export class EngineReader {
  /** Operations that were not submitted, because the peer is skipped or the endpoint is invalid. */
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

  /** Creates a batch of `opCount` operations of a caller. All end false unless they are added and succeed. */
  batch(opCount: number): ReaderBatch {
    return new ReaderBatch(this, opCount);
  }

  /**
   * Whether the peer answered the last attempt, or was never tried. A peer that did not answer is retried in the
   * background when its pause is over.
   */
  isReachable(endpoint: string): boolean {
    if (!this.backoff.isTroubled(endpoint)) return true;
    if (!this.backoff.isSkipped(endpoint)) this.#probe(endpoint);
    return false;
  }

  /** Returns the engine's number for a peer; undefined if the endpoint is invalid. */
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

  /** Submits a batch and resolves with one status for each operation; undefined if the channel is closed. */
  async submit(batch: OpBatch): Promise<Uint8Array | undefined> {
    const { channel, stallTimeoutMs, minBytesPerS } = this.options;
    const { totalBytes } = batch;
    this.#inFlightBytes += totalBytes;
    const timeoutMs = Math.ceil(stallTimeoutMs + (this.#inFlightBytes / minBytesPerS) * 1000);
    try {
      return await channel.submit(batch, timeoutMs);
    } finally {
      this.#inFlightBytes = reduced('engine reader: in flight bytes', this.#inFlightBytes, totalBytes);
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

  /**
   * Throws `InvariantError` if counts of operations in flight are negative or more peers are remembered than allowed.
   */
  verify(): void {
    assert(this.#inFlightBytes >= 0, () => `engine reader: ${this.#inFlightBytes} bytes are in flight`);
    assertAtMost('engine reader: peers', this.#peers.size, PEERS_MAX_COUNT);
    this.backoff.verify();
  }
}

/** The operations of one call and their results. Used once. */
export class ReaderBatch {
  readonly results: boolean[];
  readonly #reader: EngineReader;
  readonly #ops = new OpBatch();
  /** Index in `results` of each operation of the engine. */
  readonly #indices: number[] = [];
  /** Endpoints of consecutive operations of the same peer. */
  readonly #runPeers: string[] = [];
  readonly #runEnds: number[] = [];
  #lastPeer = '';
  #lastNumber: number | undefined;

  constructor(reader: EngineReader, opCount: number) {
    this.#reader = reader;
    this.results = new Array<boolean>(opCount).fill(false);
  }

  /**
   * Adds the operation for `results[index]`; its pieces follow by {@link addPiece}. If the peer is skipped or the
   * endpoint is invalid, returns false, and the result is false, too.
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

  /** Adds local registered memory for the next bytes of the operation added last. */
  addPiece(addr: number, length: number): void {
    this.#ops.addPiece(addr, length);
  }

  /**
   * Runs the batch. Resolves when no device writes into its memory any more; never rejects. For `gone` see
   * `Transport.batchRead`.
   */
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
      if (gone !== undefined) gone[index] = GONE_BY_STATUS[status] as number;
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

  /**
   * Reports the results to the backoff, all runs of one peer together, so that a success in one run cannot hide a
   * failure in another.
   */
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
