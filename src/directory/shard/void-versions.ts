import { REMOVALS_GENERATIONS_COUNT, REMOVALS_MARGIN_MS, REMOVALS_MAX_KEYS } from '../../base/limits.js';
import type { LocationNode } from '../messages/location-columns.js';
import { digestOfStart, NodeStarts } from './node-starts.js';
import { Removals } from './removals.js';

/** A node states its pages to one that it meets within this time. */
const MET_LATELY_MS = 600_000;

/** Options of {@link VoidVersions}. */
export interface VoidVersionsOptions {
  /** Keys of a generation of removals; default REMOVALS_MAX_KEYS. */
  readonly removalsMaxKeys?: number | undefined;
  /** How long a node may have been gone before others notice; default REMOVALS_MARGIN_MS. */
  readonly unnoticedMs?: number | undefined;
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
  readonly #unnoticedMs: number;

  constructor(given: VoidVersionsOptions = {}) {
    const { removalsMaxKeys = REMOVALS_MAX_KEYS, unnoticedMs = REMOVALS_MARGIN_MS, nowMs = () => 0 } = given;
    const options = { generations: REMOVALS_GENERATIONS_COUNT, nowMs };
    this.#all = new Removals(removalsMaxKeys, options);
    this.#copies = new Removals(removalsMaxKeys, options);
    this.#nowMs = nowMs;
    this.#unnoticedMs = unnoticedMs;
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
   * Whether a page of this version may have become void while its node was away, without this shard remembering it: since that former start of it was
   * lost, see `digestOfStart`; or else since this start of it was, which has come back.
   */
  isForgotten(version: number, isCopy: boolean, { nodeId, incarnation }: LocationNode, formerStart?: number): boolean {
    if (!this.#all.hasForgotten && !(isCopy && this.#copies.hasForgotten)) return false;
    const nowMs = this.#nowMs();
    const start = digestOfStart(nodeId, incarnation);
    const known = this.#starts.get(formerStart ?? start);
    // Nothing is known of a page that was set before the two nodes met.
    const hasJustMet = formerStart === start && nowMs - (known?.joinedMs ?? nowMs) < MET_LATELY_MS;
    const isUnknown = formerStart !== undefined && (known === undefined || hasJustMet);
    const lostMs = isUnknown ? Number.NEGATIVE_INFINITY : (known?.lostMs ?? Number.POSITIVE_INFINITY);
    // A start that was never lost here has been told of every removal.
    if ((formerStart ?? start) === start && lostMs === Number.POSITIVE_INFINITY) return false;
    const sinceMs = Math.min(lostMs, nowMs) - this.#unnoticedMs;
    return version < this.#all.forgottenAfter(sinceMs) || (isCopy && version < this.#copies.forgottenAfter(sinceMs));
  }

  /** Notes that a start of a node is a member. */
  startJoined(nodeId: string, incarnation: number): void {
    this.#starts.joined(nodeId, incarnation, this.#nowMs());
  }

  /** Notes that a start of a node is not a member any more. */
  startLost(nodeId: string, incarnation: number): void {
    this.#starts.lost(nodeId, incarnation, this.#nowMs());
  }

  /** Notes that a start has stated all its pages again. */
  startRestated(nodeId: string, incarnation: number): void {
    this.#starts.restated(nodeId, incarnation);
  }

  /** Forgets all versions. */
  clear(): void {
    this.#all.clear();
    this.#copies.clear();
  }

  verify(): void {
    this.#all.verify();
    this.#copies.verify();
    this.#starts.verify();
  }
}
