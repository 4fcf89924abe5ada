import { assert, assertAtMost } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import { FORMER_RINGS_MAX_COUNT, SHARD_UPKEEP_INTERVAL_MS } from '../../base/limits.js';
import type { OwnerRing } from '../../directory/owners/owners.js';
import { pruneShard } from '../../directory/prune.js';
import type { DirectoryShard } from '../../directory/shard/shard.js';

/** Keys that a sweep checks before it lets other work run. */
export const SWEEP_SLICE_KEYS = 4096;

export interface ShardUpkeepOptions {
  readonly shard: DirectoryShard;
  readonly nodeId: string;
  readonly replicas: number;
  /** Time after which every node uses a new ring, and no node asks a former owner any more. */
  readonly pruneDelayMs: number;
  readonly clock: Clock;
}

/** Frees, in small steps, what a shard keeps for nodes that have left and for keys that it no longer owns. */
export class ShardUpkeep {
  readonly #options: ShardUpkeepOptions;
  #ring: OwnerRing | undefined;
  /** Rings that were replaced within the delay, the oldest first. */
  #former: { readonly ring: OwnerRing; readonly untilMs: number }[] = [];
  #cancelPrune: (() => void) | undefined;
  #cancelTurn: (() => void) | undefined;
  /** Whether a walk for entries that other nodes' notes make void is in progress. */
  #isDropping = false;
  #stopped = false;

  constructor(options: ShardUpkeepOptions) {
    this.#options = options;
  }

  /**
   * Follows a change of owners. A key is dropped when this node has not owned it for the delay: until then its new
   * owner may not know it, and others ask this node. Keys are checked when the delay has passed since the first change
   * after the last check, so that nodes that come and go all the time do not postpone it forever.
   */
  ownersChanged(ring: OwnerRing): void {
    const { clock, pruneDelayMs } = this.#options;
    if (this.#ring !== undefined) this.#former.push({ ring: this.#ring, untilMs: clock.nowMs() + pruneDelayMs });
    if (this.#former.length > FORMER_RINGS_MAX_COUNT) this.#former.splice(1, 1);
    this.#ring = ring;
    void this.#sweep(ring);
    this.pruneLater();
  }

  /** The rings that the upkeep may still use. */
  rings(): OwnerRing[] {
    return this.#ring === undefined ? [] : [this.#ring, ...this.#formerRings()];
  }

  /**
   * Starts periodic checks for void entries: those that nodes have renounced, and late statements of nodes that had
   * left.
   */
  start(): void {
    const { shard, clock } = this.#options;
    this.#cancelTurn = clock.after(SHARD_UPKEEP_INTERVAL_MS, async () => {
      shard.dropStrangers();
      if (this.#ring !== undefined) void this.#sweep(this.#ring);
      for (const _ of shard.voidLocations.dropRenounced(SWEEP_SLICE_KEYS)) {
        await clock.yield();
        if (this.#stopped) return;
      }
      this.start();
    });
  }

  /** Called when the shard has received notes of another node. */
  noted(): void {
    if (!this.#isDropping) void this.#dropNoted();
  }

  stop(): void {
    this.#stopped = true;
    this.#ring = undefined;
    this.#former = [];
    this.#cancelPrune?.();
    this.#cancelTurn?.();
  }

  async #dropNoted(): Promise<void> {
    const { shard, clock } = this.#options;
    this.#isDropping = true;
    // Entries noted later in this turn are found by the same walk.
    await clock.yield();
    for (const _ of shard.voidLocations.dropNoted(SWEEP_SLICE_KEYS)) {
      await clock.yield();
      if (this.#stopped) return;
    }
    this.#isDropping = false;
  }

  async #sweep(ring: OwnerRing): Promise<void> {
    const { shard, clock } = this.#options;
    while (this.#ring === ring && shard.sweep(SWEEP_SLICE_KEYS)) await clock.yield();
  }

  async #prune(): Promise<void> {
    const { shard, nodeId, replicas, clock } = this.#options;
    const rings = { ring: () => this.#ring, formerRings: () => this.#formerRings() };
    const isLast = this.#formerRings().length === 0;
    await pruneShard(shard, { nodeId, replicas, ...rings }, clock);
    // Keys kept for a former ring are dropped at a later check.
    if (!isLast) this.pruneLater();
  }

  /** Checks all keys after the delay, because this node may have been told of some that it does not own. */
  pruneLater(): void {
    if (this.#stopped) return;
    const { clock, pruneDelayMs } = this.#options;
    this.#cancelPrune ??= clock.after(pruneDelayMs, () => {
      this.#cancelPrune = undefined;
      void this.#prune();
    });
  }

  #formerRings(): OwnerRing[] {
    const nowMs = this.#options.clock.nowMs();
    this.#former = this.#former.filter(({ untilMs }) => untilMs > nowMs);
    return this.#former.map(({ ring }) => ring);
  }

  /** Throws `InvariantError` unless the former rings are within their limit, and the next check is due. */
  verify(): void {
    assertAtMost('shard upkeep: former rings', this.#former.length, FORMER_RINGS_MAX_COUNT);
    assert(this.#stopped || this.#cancelTurn !== undefined, 'shard upkeep: no turn is due');
  }
}
