import type { Clock } from '../base/clock.js';
import { REMOVALS_TURN_MS, SHARD_UPKEEP_INTERVAL_MS } from '../base/limits.js';
import type { OwnerRing } from '../directory/owners.js';
import { pruneShard } from '../directory/prune.js';
import type { DirectoryShard } from '../directory/shard.js';

const SWEEP_SLICE_KEYS = 4096;

export interface ShardUpkeepOptions {
  readonly shard: DirectoryShard;
  readonly nodeId: string;
  readonly replicas: number;
  /** After so long every node goes by a new ring, and nobody asks a former owner any more. */
  readonly pruneDelayMs: number;
  readonly clock: Clock;
}

/** Gives back, in small steps, what a shard holds of nodes that have left and of keys that it does not own any more. */
export class ShardUpkeep {
  readonly #options: ShardUpkeepOptions;
  #ring: OwnerRing | undefined;
  #cancelPrune: (() => void) | undefined;
  #cancelTurn: (() => void) | undefined;
  #removalsTurnMs: number;
  #stopped = false;

  constructor(options: ShardUpkeepOptions) {
    this.#options = options;
    this.#removalsTurnMs = options.clock.nowMs();
  }

  /**
   * Keys that are not owned any more go when the delay has passed since the first change that was not followed by that, by
   * the ring of then: nodes that come and go all the time must not put it off for ever.
   */
  ownersChanged(ring: OwnerRing): void {
    const { clock, pruneDelayMs } = this.#options;
    this.#ring = ring;
    void this.#sweep(ring);
    this.#cancelPrune ??= clock.after(pruneDelayMs, () => {
      this.#cancelPrune = undefined;
      void this.#prune();
    });
  }

  /** The rings that this may still ask. */
  rings(): OwnerRing[] {
    return this.#ring === undefined ? [] : [this.#ring];
  }

  /** From now on looks now and then for what is void: what nodes have renounced, and last words of those that had gone. */
  start(): void {
    const { shard, clock } = this.#options;
    this.#cancelTurn = clock.after(SHARD_UPKEEP_INTERVAL_MS, async () => {
      shard.dropStrangers();
      if (clock.nowMs() - this.#removalsTurnMs >= REMOVALS_TURN_MS) {
        shard.turnRemovals();
        this.#removalsTurnMs = clock.nowMs();
      }
      if (this.#ring !== undefined) void this.#sweep(this.#ring);
      for (const _ of shard.dropVoid(SWEEP_SLICE_KEYS)) {
        await clock.yield();
        if (this.#stopped) return;
      }
      this.start();
    });
  }

  stop(): void {
    this.#stopped = true;
    this.#ring = undefined;
    this.#cancelPrune?.();
    this.#cancelTurn?.();
  }

  async #sweep(ring: OwnerRing): Promise<void> {
    const { shard, clock } = this.#options;
    while (this.#ring === ring && shard.sweep(SWEEP_SLICE_KEYS)) await clock.yield();
  }

  async #prune(): Promise<void> {
    const { shard, nodeId, replicas, clock } = this.#options;
    await pruneShard(shard, { nodeId, replicas, ring: () => this.#ring }, clock);
  }
}
