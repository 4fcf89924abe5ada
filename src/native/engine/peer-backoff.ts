import { assert, assertAtMost } from '../../base/assert.js';
import { pauseAfter } from '../../base/concurrency/backoff.js';
import type { Clock } from '../../base/environment/clock.js';
import { OP_STATUS, type OpStatusName } from '../addon/contract.js';

interface PeerBackoffOptions {
  readonly clock: Clock;
  /** Pause after the first failure; it doubles with each further failure in a row. */
  readonly retryAfterMs: number;
  readonly retryMaxMs: number;
}

interface Trouble {
  /** Consecutive failures. */
  failures: number;
  /** Earliest time of the next attempt; 0 if the peer may be tried at once. */
  retryAtMs: number;
  /** Time of the last failure. */
  lastMs: number;
}

/** Most failing peers that are remembered. A new one replaces one whose pause is over. */
const TROUBLED_MAX_COUNT = 4096;

/** What each status says about the peer. Other statuses (mistakes of the caller, closing) say nothing. */
const VERDICTS: Readonly<Partial<Record<OpStatusName, 'well' | 'lost' | 'failed'>>> = {
  ok: 'well',
  refused: 'well',
  remote_access: 'well',
  checksum: 'well',
  stale: 'well',
  connection_lost: 'lost',
  unreachable: 'failed',
  rejected: 'failed',
  timeout: 'failed',
  device_error: 'failed',
};
const BY_INDEX = OP_STATUS.map((name) => VERDICTS[name]);

/**
 * Decides which peers are skipped after failures, and until when. A single lost connection is no reason to skip a peer,
 * so that a restarted peer is found at once.
 */
export class PeerBackoff {
  readonly #options: PeerBackoffOptions;
  readonly #troubles = new Map<string, Trouble>();

  constructor(options: PeerBackoffOptions) {
    this.#options = options;
  }

  isSkipped(peer: string): boolean {
    const trouble = this.#troubles.get(peer);
    return trouble !== undefined && this.#options.clock.nowMs() < trouble.retryAtMs;
  }

  /** Whether the last read from the peer failed. */
  isTroubled(peer: string): boolean {
    return (this.#troubles.get(peer)?.retryAtMs ?? 0) > 0;
  }

  /** Records the results (indices into `OP_STATUS`) of a batch that was started at `startedMs`. */
  ended(peer: string, startedMs: number, statuses: Iterable<number>): void {
    let verdict: 'well' | 'lost' | 'failed' | undefined;
    for (const status of statuses) {
      const one = BY_INDEX[status];
      if (one === 'failed' || verdict === undefined || (one === 'lost' && verdict === 'well')) verdict = one ?? verdict;
      if (verdict === 'failed') break;
    }
    if (verdict === 'well') this.#troubles.delete(peer);
    else if (verdict !== undefined) this.#troubled(peer, startedMs, verdict);
  }

  #troubled(peer: string, startedMs: number, verdict: 'lost' | 'failed'): void {
    const { clock, retryAfterMs, retryMaxMs } = this.#options;
    const nowMs = clock.nowMs();
    const known = this.#troubles.get(peer);
    // Batches that were in progress at the same time fail together and count as one failure.
    if (known !== undefined && startedMs < known.lastMs) return;
    if (known === undefined) this.#makeRoom(nowMs);
    const trouble = known ?? { failures: 0, retryAtMs: 0, lastMs: 0 };
    this.#troubles.set(peer, trouble);
    trouble.lastMs = nowMs;
    if (verdict === 'lost' && known === undefined) return;
    const limits = { minMs: retryAfterMs, maxMs: Math.max(retryAfterMs, retryMaxMs) };
    trouble.retryAtMs = nowMs + pauseAfter(++trouble.failures, limits);
  }

  #makeRoom(nowMs: number): void {
    if (this.#troubles.size < TROUBLED_MAX_COUNT) return;
    for (const [peer, { retryAtMs }] of this.#troubles) {
      if (nowMs < retryAtMs) continue;
      this.#troubles.delete(peer);
      return;
    }
    this.#troubles.delete(this.#troubles.keys().next().value as string);
  }

  /** Throws `InvariantError` if more failing peers are remembered than allowed, or one that did not fail. */
  verify(): void {
    assertAtMost('peer backoff: peers', this.#troubles.size, TROUBLED_MAX_COUNT);
    for (const [peer, { failures, retryAtMs }] of this.#troubles) {
      assert(
        failures > 0 === retryAtMs > 0,
        () => `peer backoff: ${peer} has failed ${failures} times, is tried at ${retryAtMs}`,
      );
    }
  }
}
