import { assert, assertAtMost } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import { OP_STATUS, type OpStatusName } from '../addon/contract.js';

export interface PeerBackoffOptions {
  readonly clock: Clock;
  /** Pause after the first failure in a row; doubles with each further one. */
  readonly retryAfterMs: number;
  readonly retryMaxMs: number;
}

interface Trouble {
  /** In a row. */
  failures: number;
  /** Not tried before this time of the clock; 0: at once. */
  retryAtMs: number;
  /** When it was last in trouble. */
  lastMs: number;
}

/** Peers in trouble that are remembered; one whose pause is over is forgotten for a new one. */
const TROUBLED_MAX_COUNT = 4096;

/** What a result tells about its peer. Others (the caller's mistake, closing) tell nothing. */
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
 * Which peers are to be skipped because they could not be read from, and until when. A connection that
 * was lost for the first time is no reason: a peer that was started again is found at once.
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

  /** Whether it has failed and not been read from since. */
  isTroubled(peer: string): boolean {
    return (this.#troubles.get(peer)?.retryAtMs ?? 0) > 0;
  }

  /** Takes in how the operations of a batch that was started at `startedMs` have ended: indices into `OP_STATUS`. */
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
    // Batches that were under way together fail together: that is one failure.
    if (known !== undefined && startedMs < known.lastMs) return;
    if (known === undefined) this.#makeRoom(nowMs);
    const trouble = known ?? { failures: 0, retryAtMs: 0, lastMs: 0 };
    this.#troubles.set(peer, trouble);
    trouble.lastMs = nowMs;
    if (verdict === 'lost' && known === undefined) return;
    trouble.retryAtMs = nowMs + Math.min(retryAfterMs * 2 ** trouble.failures, Math.max(retryAfterMs, retryMaxMs));
    trouble.failures++;
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

  /** Throws `InvariantError` unless no more peers in trouble are remembered than may be, and each was in trouble. */
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
