import {
  DISCOVERY_SPREAD_GAP_MAX_PER_MEMBER_MS,
  DISCOVERY_SPREAD_GAP_MS,
  DISCOVERY_SPREAD_GAP_PER_MEMBER_MS,
} from '../base/limits.js';

/**
 * When a changed membership may be spread: at once after a quiet time, and ever more rarely while changes go on, down to a limit that
 * grows with the members. Every change that is spread costs every member a pass over all of them and a new ring: n nodes that come
 * one after the other would cost the square of n each. So the passes of a storm grow with its length in these gaps instead.
 */
export class SpreadGap {
  #spreadMs = Number.NEGATIVE_INFINITY;
  /** What the last change that was planned had to keep from the spread before it. */
  #gapMs = 0;

  /** Something has changed since the last spread: how long until the next one; 0: now. */
  plan(nowMs: number, members: number): number {
    const minMs = DISCOVERY_SPREAD_GAP_MS + members * DISCOVERY_SPREAD_GAP_PER_MEMBER_MS;
    const maxMs = DISCOVERY_SPREAD_GAP_MS + members * DISCOVERY_SPREAD_GAP_MAX_PER_MEMBER_MS;
    const isQuiet = nowMs - this.#spreadMs > 2 * this.#gapMs;
    this.#gapMs = isQuiet ? minMs : Math.min(maxMs, Math.max(minMs, 2 * this.#gapMs));
    return Math.max(0, this.#spreadMs + this.#gapMs - nowMs);
  }

  /** The members have been spread. */
  spread(nowMs: number): void {
    this.#spreadMs = nowMs;
  }
}
