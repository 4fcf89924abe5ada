import { REMOVALS_GENERATIONS_COUNT, REMOVALS_MARGIN_MS, REMOVALS_MAX_KEYS } from '../../base/limits.js';
import type { LocationNode } from '../messages/location-columns.js';
import type { NoteColumns } from '../messages/note-columns.js';
import { digestOfStart, NodeStarts } from './node-starts.js';
import { type NoteVisitor, Removals } from './removals.js';

/** A node states its pages to a newly met node within this time. */
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
 * Versions below which the pages of keys are void, so that a shard does not accept them. Also knows what it has
 * forgotten.
 */
export class VoidVersions {
  readonly #all: Removals;
  readonly #starts = new NodeStarts();
  readonly #nowMs: () => number;
  readonly #unnoticedMs: number;
  #takenCount = 0;
  #appliedCount = 0;

  constructor(given: VoidVersionsOptions = {}) {
    const { removalsMaxKeys = REMOVALS_MAX_KEYS, unnoticedMs = REMOVALS_MARGIN_MS, nowMs = () => 0 } = given;
    const options = { keepsPartitions: true, generations: REMOVALS_GENERATIONS_COUNT, nowMs };
    this.#all = new Removals(removalsMaxKeys, options);
    this.#nowMs = nowMs;
    this.#unnoticedMs = unnoticedMs;
  }

  /** Notes that contents of the key older than this version are void. */
  note(key: string, version: number): void {
    this.#all.note(key, version);
  }

  /** Visits all notes; see {@link Removals.eachNote}. */
  eachNote(visit: NoteVisitor): Generator<void, void> {
    return this.#all.eachNote(visit);
  }

  /** The newest version ever noted, even if it has been forgotten since; 0: nothing was noted. */
  get newest(): number {
    return this.#all.newest;
  }

  /** Takes over another node's notes. Locations that they make void may stay listed, see {@link isTaking}. */
  take(notes: NoteColumns): void {
    this.#takenCount += this.#all.take(notes);
  }

  /** Number of notes taken so far that were not known before. */
  get takenCount(): number {
    return this.#takenCount;
  }

  /** Whether locations that are void by other nodes' notes may still be listed. */
  get isTaking(): boolean {
    return this.#takenCount > this.#appliedCount;
  }

  /** Reports that none of the first `takenCount` taken notes makes a listed location void any more. */
  applied(takenCount: number): void {
    this.#appliedCount = takenCount;
  }

  /** The version below which pages of the key are void, if it is later than `version`; else 0. */
  laterThan(key: string, version: number): number {
    return this.#all.laterThan(key, version);
  }

  /** Whether a page of this version is void, as far as is remembered. */
  isVoid(key: string, version: number): boolean {
    return this.#all.isVoid(key, version);
  }

  /**
   * Whether a page of this version may have become void while its node was away, without this shard remembering it. The
   * absence began when `formerStart` was lost, see `digestOfStart`, or, without it, when this start of the node was
   * lost before it came back.
   */
  isForgotten(version: number, { nodeId, incarnation }: LocationNode, formerStart?: number): boolean {
    if (!this.#all.hasForgotten) return false;
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
    return version < this.#all.forgottenAfter(sinceMs);
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
  }

  verify(): void {
    this.#all.verify();
    this.#starts.verify();
  }
}
