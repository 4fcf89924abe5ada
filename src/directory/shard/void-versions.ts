import { REMOVALS_GENERATIONS_COUNT, REMOVALS_MARGIN_MS, REMOVALS_MAX_KEYS } from '../../base/limits.js';
import { NodeStarts } from './node-starts.js';
import { Removals } from './removals.js';

/** Options of {@link VoidVersions}. */
export interface VoidVersionsOptions {
  /** Keys of a generation of {@link Removals}; default REMOVALS_MAX_KEYS. */
  readonly removalsMaxKeys?: number | undefined;
  /** Monotonic clock; default: time stands still. */
  readonly nowMs?: (() => number) | undefined;
}

/**
 * Which contents a shard does not accept: versions below which the pages of keys are void, and those below which only
 * copies of them are, for it may learn of a copy after its original was cleared. It also knows what it has forgotten.
 */
export class VoidVersions {
  readonly #all: Removals;
  readonly #copies: Removals;
  readonly #starts = new NodeStarts();
  readonly #nowMs: () => number;

  constructor({ removalsMaxKeys = REMOVALS_MAX_KEYS, nowMs = () => 0 }: VoidVersionsOptions = {}) {
    const options = { generations: REMOVALS_GENERATIONS_COUNT, nowMs };
    this.#all = new Removals(removalsMaxKeys, options);
    this.#copies = new Removals(removalsMaxKeys, options);
    this.#nowMs = nowMs;
  }

  /** Notes that contents of the key older than this version are void. */
  note(key: string, version: number): void {
    this.#all.note(key, version);
  }

  /** Notes that copies of the key's page older than this version are void. */
  noteCopies(key: string, version: number): void {
    this.#copies.note(key, version);
  }

  /** Whether a page of this version is void, as far as is remembered. */
  isVoid(key: string, version: number, isCopy: boolean): boolean {
    return this.#all.isVoid(key, version) || (isCopy && this.#copies.isVoid(key, version));
  }

  /**
   * Whether a page of this version may have become void since that start of its node was lost, without this shard remembering it. `start`: see
   * `digestOfStart`.
   */
  isForgotten(version: number, isCopy: boolean, start: number): boolean {
    // A node may have been gone for a while before others noticed.
    const sinceMs = Math.min(this.#starts.lostMs(start), this.#nowMs()) - REMOVALS_MARGIN_MS;
    return version < this.#all.forgottenAfter(sinceMs) || (isCopy && version < this.#copies.forgottenAfter(sinceMs));
  }

  /** Notes that a start of a node is a member. */
  startJoined(nodeId: string, incarnation: number): void {
    this.#starts.joined(nodeId, incarnation);
  }

  /** Notes that a start of a node is not a member any more. */
  startLost(nodeId: string, incarnation: number): void {
    this.#starts.lost(nodeId, incarnation, this.#nowMs());
  }

  /** Called when this node was away itself: it may have missed what became void meanwhile. */
  forgetStarts(): void {
    this.#starts.clear();
  }

  verify(): void {
    this.#all.verify();
    this.#copies.verify();
    this.#starts.verify();
  }
}
