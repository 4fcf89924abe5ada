import type { Clock } from '../../base/environment/clock.js';

/** The id of this node, and the start of it that is running. */
export class NodeIdentity {
  readonly nodeId: string;
  readonly #clock: Clock;
  #incarnation: number;
  #startedMs: number;

  constructor(nodeId: string, clock: Clock) {
    this.nodeId = nodeId;
    this.#clock = clock;
    this.#incarnation = Math.floor(clock.wallMs());
    this.#startedMs = clock.nowMs();
  }

  /** Wall-clock milliseconds of this start. A later start has a higher number. */
  get incarnation(): number {
    return this.#incarnation;
  }

  /** Milliseconds since this start. */
  get uptimeMs(): number {
    return this.#clock.nowMs() - this.#startedMs;
  }

  /** Makes the running node count as a later start of itself. */
  renew(): void {
    this.#incarnation = Math.max(Math.floor(this.#clock.wallMs()), this.#incarnation + 1);
    this.#startedMs = this.#clock.nowMs();
  }
}
