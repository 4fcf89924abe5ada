import {
  DISCOVERY_CHANGE_GAP_MAX_PER_MEMBER_MS,
  DISCOVERY_CHANGE_GAP_MS,
  DISCOVERY_CHANGE_GAP_PER_MEMBER_MS,
} from '../base/limits.js';

/**
 * When a changed membership is acted on: at once after a quiet time, and ever more rarely while changes go on, down to a limit that
 * grows with the members. A master that spreads them costs every member a pass over all, a node that takes them a pass and a new
 * ring: n nodes that come one after the other would cost each of them the square of n. So what a storm costs grows with its length in
 * these gaps instead.
 */
export class ChangeGap {
  #actedMs = Number.NEGATIVE_INFINITY;
  /** What the last change that was planned had to keep from what was done before it. */
  #gapMs = 0;

  /** Something has changed and nothing is planned: how long until it is acted on; 0: now. */
  plan(nowMs: number, members: number): number {
    const minMs = DISCOVERY_CHANGE_GAP_MS + members * DISCOVERY_CHANGE_GAP_PER_MEMBER_MS;
    const maxMs = DISCOVERY_CHANGE_GAP_MS + members * DISCOVERY_CHANGE_GAP_MAX_PER_MEMBER_MS;
    const isQuiet = nowMs - this.#actedMs > 2 * this.#gapMs;
    this.#gapMs = isQuiet ? minMs : Math.min(maxMs, Math.max(minMs, 2 * this.#gapMs));
    return Math.max(0, this.#actedMs + this.#gapMs - nowMs);
  }

  /** It has been acted on. */
  acted(nowMs: number): void {
    this.#actedMs = nowMs;
  }
}
