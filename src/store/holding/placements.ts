import { assert, assertAtMost, assertEqual, reduced } from '../../base/assert.js';
import { jittered, pauseAfter } from '../../base/concurrency/backoff.js';
import type { Environment } from '../../base/environment/environment.js';
import { laterExpiry } from '../../base/expiry.js';
import {
  HOLD_CALL_TIMEOUT_MS,
  HOLD_REQUEST_MAX_KEYS,
  PLACEMENT_HELD_BESIDE_DISK_POOL_FRACTION,
  PLACEMENT_HELD_POOL_FRACTION,
  PLACEMENT_IN_FLIGHT_MAX_COUNT,
  PLACEMENT_REST_FACTOR,
  PLACEMENT_REST_MAX_MS,
  PLACEMENT_RETRY_MAX_MS,
  PLACEMENT_RETRY_MIN_MS,
  PLACEMENT_SEARCH_INTERVAL_MS,
  PLACEMENT_UNREAD_RETRY_MS,
  PLACEMENTS_WAITING_MAX_CHARACTERS,
  PLACEMENTS_WAITING_MAX_COUNT,
} from '../../base/limits.js';
import type { WritePolicy } from '../../base/settings/write-policies.js';
import type { PageLease, PublishedPage, PublishedPool } from '../../pool/published-pool.js';
import type { HoldOutcome, OtherHolders } from '../ground/other-holders.js';
import type { PageStatements } from '../ground/page-statements.js';
import { HOLD_RULES } from './hold-rules.js';
import {
  endLane,
  laneOf,
  type PlacedPage,
  type PlacementFailure,
  type PlacementLane,
  type PlacementStats,
  type SentPage,
} from './placement-lane.js';
import { orderOf, type StorageNode } from './storage-nodes.js';

const BACKOFF = { minMs: PLACEMENT_RETRY_MIN_MS, maxMs: PLACEMENT_RETRY_MAX_MS };

export interface PlacementsParts {
  readonly pool: Pick<
    PublishedPool,
    'capacity' | 'hasBatch' | 'keysInSlices' | 'lease' | 'peekBatch' | 'setPriority' | 'unlease'
  >;
  /** The write policy of the namespace of a key. */
  readonly policyOf: (key: string) => WritePolicy;
  /** Whether a disk tier holds pages of the pool, too. */
  readonly hasDisk: boolean;
  /** The live storage nodes, except this one. */
  readonly storageNodes: () => readonly StorageNode[];
  readonly statements: Pick<PageStatements, 'locationsOf' | 'tiersOf'>;
  readonly holders: Pick<OtherHolders, 'ask'>;
  readonly env: Pick<Environment, 'clock' | 'log' | 'metrics' | 'random'>;
}

/**
 * Places pages that were set on this node on storage nodes, in the background. Setting a page does not wait for it: the
 * page is already in this node's pool and in the directory.
 *
 * Each page goes to the first storage node in its order (see `orderOf`) that accepts pages now. A node that does not
 * answer or refuses is left alone for a while, and the next node in the order is asked. If there is none, or if too
 * many pages wait, pages stay in this pool alone; when there is room again, those still there are searched for.
 *
 * With the policy `storage`, placed pages get the priority `low`: they are evicted before all pages that are not
 * placed. Pages that storage nodes are reading are leased against eviction, at most a part of the pool
 * (PLACEMENT_HELD_POOL_FRACTION) or one page.
 *
 * Accounting: a key waits in one lane, or is in `#inFlight`, or neither; `#placed` has only pages that the pool may
 * still have, `#placedBytes` is the sum of their lengths, and `#heldBytes` that of the pages in flight.
 */
export class Placements {
  readonly #parts: PlacementsParts;
  readonly #heldMaxBytes: number;
  readonly #lanes = new Map<string, PlacementLane>();
  readonly #placed = new Map<string, PlacedPage>();
  #placedBytes = 0;
  readonly #totals = { placedPages: 0, placedBytes: 0, failedPages: 0 };
  readonly #inFlight = new Set<string>();
  #heldBytes = 0;
  #waitingCount = 0;
  #waitingCharacters = 0;
  /** Whether pages were left out that a search would find. */
  #hasLeftOut = false;
  /** When pages were last set. */
  #setAtMs = Number.NEGATIVE_INFINITY;
  #searchedAtMs = Number.NEGATIVE_INFINITY;
  #isSearching = false;
  #cancelSearch: (() => void) | undefined;
  /** Cancels the timer for the search for pages that storage nodes could not take; undefined: there are none. */
  #cancelUnread: (() => void) | undefined;
  #isClosed = false;

  constructor(parts: PlacementsParts) {
    this.#parts = parts;
    const fraction = parts.hasDisk ? PLACEMENT_HELD_BESIDE_DISK_POOL_FRACTION : PLACEMENT_HELD_POOL_FRACTION;
    this.#heldMaxBytes = parts.pool.capacity * fraction;
  }

  stats(): PlacementStats {
    return {
      ...this.#totals,
      unplacedPages: this.#waitingCount + this.#inFlight.size,
      inFlightPages: this.#inFlight.size,
      poolPlacedPages: this.#placed.size,
      poolPlacedBytes: this.#placedBytes,
    };
  }

  /** Called when pages have been set here and are in the directory: they are placed as their policies say. */
  set(keys: readonly string[]): void {
    if (this.#isClosed) return;
    const { pool, policyOf } = this.#parts;
    const wanted = keys.filter((key) => policyOf(key) !== 'local');
    if (wanted.length === 0) return;
    this.#setAtMs = this.#parts.env.clock.nowMs();
    const pages = pool.peekBatch(wanted);
    const again: string[] = [];
    wanted.forEach((key, i) => {
      const page = pages[i] ?? null;
      if (page === null || page.setBy !== 0) return;
      if (isOf(this.#placed.get(key), page)) again.push(key);
      else this.#enqueue(key, page, []);
    });
    this.#lower(again);
    this.#pumpAll();
  }

  /** Called when pages, possibly these, have left the pool. */
  gone(keys: readonly string[]): void {
    if (this.#placed.size === 0 && this.#waitingCount === 0) return;
    const known = keys.filter((key) => this.#placed.has(key) || this.#laneWith(key) !== undefined);
    if (known.length === 0 || this.#isClosed) return;
    const isHere = this.#parts.pool.hasBatch(known);
    let evicted = 0;
    known.forEach((key, i) => {
      if (isHere[i] === 1) return;
      this.#unplace(key);
      if (this.#unqueue(key)) evicted++;
    });
    this.#failed('evicted', evicted);
  }

  /** Follows a change of members. Pages placed on a node that is gone are placed again. */
  membersChanged(): void {
    if (this.#isClosed) return;
    const { pool, storageNodes } = this.#parts;
    const nodes = new Map(storageNodes().map((node) => [node.nodeId, node]));
    const left: string[] = [];
    for (const [nodeId, lane] of this.#lanes) {
      if (nodes.get(nodeId)?.incarnation === lane.node.incarnation) continue;
      this.#lanes.delete(nodeId);
      endLane(lane);
      for (const key of lane.waiting.keys()) this.#forgetWaiting(key);
      this.#hasLeftOut = true;
    }
    for (const node of nodes.values()) {
      if (this.#lanes.has(node.nodeId)) continue;
      this.#lanes.set(node.nodeId, laneOf(node));
      this.#hasLeftOut = true;
    }
    for (const [key, { node }] of this.#placed) {
      if (nodes.get(node.nodeId)?.incarnation === node.incarnation) continue;
      this.#unplace(key);
      left.push(key);
    }
    if (left.length > 0) pool.setPriority(left, 'normal');
    this.#searchSoon();
  }

  /** Stops: nothing more is placed. */
  close(): void {
    this.#isClosed = true;
    this.#cancelSearch?.();
    this.#cancelUnread?.();
    for (const lane of this.#lanes.values()) endLane(lane);
  }

  /** Puts a page into the lane of the first node that accepts pages, except those in `tried`. */
  #enqueue(key: string, { length }: PublishedPage, tried: readonly string[]): void {
    this.#unplace(key);
    if (this.#inFlight.has(key)) return;
    this.#unqueue(key);
    const lane = this.#laneFor(key, length, tried);
    if (typeof lane === 'string') {
      if (lane === 'unread') this.#searchLater();
      else if (lane !== 'too_large') this.#hasLeftOut = true;
      this.#failed(lane, 1);
      return;
    }
    lane.waiting.set(key, tried);
    this.#waitingCount++;
    this.#waitingCharacters += key.length;
  }

  /** The lane of the first node that accepts pages, except those in `tried`; else why there is none. */
  #laneFor(key: string, length: number, tried: readonly string[]): PlacementLane | PlacementFailure {
    if (this.#lanes.size === 0) return 'no_node';
    if (this.#isFull(key)) return 'queue_full';
    const large = [...this.#lanes.values()].filter(({ node }) => length <= node.poolBytes);
    if (large.length === 0) return 'too_large';
    const open = large.filter(({ cancelRetry, node }) => cancelRetry === undefined && !tried.includes(node.nodeId));
    const [first] = orderOf(
      key,
      open.map(({ node }) => node),
    );
    if (first === undefined) return tried.length > 0 ? 'unread' : 'unreachable';
    return this.#lanes.get(first.nodeId) as PlacementLane;
  }

  #isFull(key: string): boolean {
    const isLong = this.#waitingCharacters + key.length > PLACEMENTS_WAITING_MAX_CHARACTERS;
    return isLong || this.#waitingCount >= PLACEMENTS_WAITING_MAX_COUNT;
  }

  #laneWith(key: string): PlacementLane | undefined {
    for (const lane of this.#lanes.values()) if (lane.waiting.has(key)) return lane;
    return undefined;
  }

  /** Ends the wait of a page; false if it was not waiting. */
  #unqueue(key: string): boolean {
    const lane = this.#laneWith(key);
    if (lane === undefined) return false;
    lane.waiting.delete(key);
    this.#forgetWaiting(key);
    return true;
  }

  #forgetWaiting(key: string): void {
    this.#waitingCount = reduced('placements: waiting count', this.#waitingCount, 1);
    this.#waitingCharacters = reduced('placements: waiting characters', this.#waitingCharacters, key.length);
  }

  #pumpAll(): void {
    for (const lane of this.#lanes.values()) this.#pump(lane);
  }

  /** Sends waiting pages to a node, as many requests as may be in flight. */
  #pump(lane: PlacementLane): void {
    while (!this.#isClosed && lane.cancelRetry === undefined && lane.waiting.size > 0) {
      if (lane.inFlight >= PLACEMENT_IN_FLIGHT_MAX_COUNT || lane.cancelRest !== undefined) return;
      const before = lane.waiting.size;
      const leases = this.#nextLeases(lane);
      if (leases.length > 0) void this.#send(lane, leases);
      else if (lane.waiting.size === before) return;
    }
  }

  /**
   * Takes the first pages of a lane, as many as may be leased; none if there is no room for leases now, or no page is
   * left.
   */
  #nextLeases(lane: PlacementLane): SentPage[] {
    const { pool } = this.#parts;
    const keys: string[] = [];
    for (const key of lane.waiting.keys()) if (keys.push(key) >= HOLD_REQUEST_MAX_KEYS) break;
    const pages = pool.peekBatch(keys);
    const tiers = this.#parts.statements.tiersOf(keys);
    const chosen: string[] = [];
    const tried: (readonly string[])[] = [];
    let bytes = 0;
    for (const [i, key] of keys.entries()) {
      const page = pages[i] ?? null;
      const length = page?.length ?? 0;
      if (bytes > 0 && bytes + length > HOLD_RULES.placement.requestTargetBytes) break;
      if (page !== null && this.#heldBytes + bytes > 0 && this.#heldBytes + bytes + length > this.#heldMaxBytes) break;
      const nodes = lane.waiting.get(key) ?? [];
      lane.waiting.delete(key);
      this.#forgetWaiting(key);
      if (page === null || page.setBy !== 0) continue;
      // The storage node reads the page here without asking the directory, so a directory owner must have accepted it.
      if (tiers[i] !== 'memory') {
        this.#hasLeftOut = true;
        continue;
      }
      chosen.push(key);
      tried.push(nodes);
      bytes += length;
    }
    const leases = pool.lease(chosen);
    return leases.flatMap((lease, i) => {
      if (lease === null) return [];
      this.#heldBytes += lease.page.length;
      this.#inFlight.add(lease.key);
      return [{ lease, tried: tried[i] as readonly string[] }];
    });
  }

  async #send(lane: PlacementLane, sent: readonly SentPage[]): Promise<void> {
    const { pool, statements, holders } = this.#parts;
    const keys = sent.map(({ lease }) => lease.key);
    // The pages are leased, so each has a location. While the store closes they have none, and the request is refused.
    const pages = statements.locationsOf(keys).filter((location) => location !== null);
    lane.inFlight++;
    const sentAtMs = this.#parts.env.clock.nowMs();
    const asking = holders.ask(
      lane.node.nodeId,
      { why: 'placement', keys, pages },
      { timeoutMs: HOLD_CALL_TIMEOUT_MS },
    );
    const outcomes = await asking;
    lane.inFlight--;
    for (const { lease } of sent) {
      this.#heldBytes = reduced('placements: held bytes', this.#heldBytes, lease.page.length);
      this.#inFlight.delete(lease.key);
    }
    if (this.#isClosed) return;
    if (this.#setAtMs > sentAtMs) this.#rest(lane, sentAtMs);
    pool.unlease(sent.map(({ lease }) => lease));
    if (outcomes === undefined) this.#failed('unreachable', sent.length);
    const refused = outcomes?.filter((outcome) => outcome === 'busy').length ?? 0;
    this.#failed('refused', refused);
    if (outcomes === undefined || refused > 0) this.#pause(lane);
    else lane.failures = 0;
    const now = pool.peekBatch(keys);
    const lowered: string[] = [];
    sent.forEach(({ lease, tried }, i) => {
      const outcome = outcomes?.[i];
      const page = now[i] ?? null;
      if (outcome === 'held' && this.#confirm(lane, lease, page)) lowered.push(lease.key);
      if (outcome !== 'held') this.#retry({ lease, tried }, { page, outcome }, lane);
      // The page was set again while it was in flight.
      else if (page !== null && page.setBy === 0 && !this.#placed.has(lease.key)) this.#enqueue(lease.key, page, []);
    });
    this.#lower(lowered);
    this.#pumpAll();
    this.#searchSoon();
  }

  /** Counts a page that a storage node has; true if it is the page that is in this pool now. */
  #confirm({ node }: PlacementLane, { key, page }: PageLease, now: PublishedPage | null): boolean {
    const { metrics } = this.#parts.env;
    const { length, version, expires } = page;
    metrics.count('meshcache_placed_pages_total');
    metrics.count('meshcache_placed_bytes_total', length);
    this.#totals.placedPages++;
    this.#totals.placedBytes += length;
    const isOn = this.#lanes.get(node.nodeId)?.node.incarnation === node.incarnation;
    if (now === null || now.setBy !== 0 || !isOn || !isOf({ node, version, length, expires }, now)) return false;
    this.#unplace(key);
    this.#placed.set(key, { node, version, length, expires });
    this.#placedBytes += length;
    return true;
  }

  /** Sends a page that was not placed to another node, if that may help. */
  #retry(
    { lease: { key }, tried }: SentPage,
    { page, outcome }: { readonly page: PublishedPage | null; readonly outcome: HoldOutcome | undefined },
    { node }: PlacementLane,
  ): void {
    const isGone = page === null || page.setBy !== 0;
    if (isGone) this.#failed('evicted', 1);
    else if (outcome === 'too_large') this.#failed('too_large', 1);
    else if (outcome === 'outdated') this.#failed('outdated', 1);
    else this.#enqueue(key, page, outcome === 'absent' ? [...tried, node.nodeId] : tried);
  }

  /** Delays the next request to a node while pages are being set, because sets come first. */
  #rest(lane: PlacementLane, sentAtMs: number): void {
    const { clock } = this.#parts.env;
    if (lane.cancelRest !== undefined || this.#lanes.get(lane.node.nodeId) !== lane) return;
    const restMs = Math.min(PLACEMENT_REST_FACTOR * (clock.nowMs() - sentAtMs), PLACEMENT_REST_MAX_MS);
    lane.cancelRest = clock.after(restMs, () => {
      lane.cancelRest = undefined;
      this.#pump(lane);
    });
  }

  /** Leaves a node alone for a while; its waiting pages go to other nodes. */
  #pause(lane: PlacementLane): void {
    if (lane.cancelRetry !== undefined || this.#lanes.get(lane.node.nodeId) !== lane) return;
    const { clock, random, log } = this.#parts.env;
    if (lane.failures++ === 0)
      log.log('warn', 'storage node takes no pages; others are asked', { node_id: lane.node.nodeId });
    lane.cancelRetry = clock.after(jittered(pauseAfter(lane.failures, BACKOFF), random), () => {
      lane.cancelRetry = undefined;
      this.#searchSoon();
    });
    const waiting = [...lane.waiting];
    lane.waiting.clear();
    const pages = this.#parts.pool.peekBatch(waiting.map(([key]) => key));
    waiting.forEach(([key, tried], i) => {
      this.#forgetWaiting(key);
      const page = pages[i] ?? null;
      if (page !== null && page.setBy === 0) this.#enqueue(key, page, tried);
    });
  }

  #unplace(key: string): void {
    this.#placedBytes = reduced('placements: placed bytes', this.#placedBytes, this.#placed.get(key)?.length ?? 0);
    this.#placed.delete(key);
  }

  /** Lets placed pages be evicted before others, if their policy says so. */
  #lower(keys: readonly string[]): void {
    const lowered = keys.filter((key) => this.#parts.policyOf(key) === 'storage');
    if (lowered.length > 0) this.#parts.pool.setPriority(lowered, 'low');
  }

  #failed(reason: PlacementFailure, count: number): void {
    if (count === 0) return;
    this.#totals.failedPages += count;
    this.#parts.env.metrics.count('meshcache_placement_failures_total', count, { reason });
  }

  /** Schedules a search of the pool for pages that were left out, once there is room for them. */
  #searchSoon(): void {
    if (!this.#hasLeftOut || this.#isSearching || this.#isClosed || this.#cancelSearch !== undefined) return;
    const isOpen = [...this.#lanes.values()].some(({ cancelRetry }) => cancelRetry === undefined);
    if (!isOpen || this.#waitingCount > PLACEMENTS_WAITING_MAX_COUNT / 2) return;
    const { clock } = this.#parts.env;
    const waitMs = Math.max(0, this.#searchedAtMs + PLACEMENT_SEARCH_INTERVAL_MS - clock.nowMs());
    this.#cancelSearch = clock.after(waitMs, () => {
      this.#cancelSearch = undefined;
      this.#search().catch((error: unknown) => {
        this.#parts.env.log.log('error', 'searching for pages to place failed', { error: String(error) });
      });
    });
  }

  /**
   * Schedules a later search for pages that storage nodes could not read or had no room for, because that may have
   * changed by then.
   */
  #searchLater(): void {
    this.#cancelUnread ??= this.#parts.env.clock.after(PLACEMENT_UNREAD_RETRY_MS, () => {
      this.#cancelUnread = undefined;
      this.#hasLeftOut = true;
      this.#searchSoon();
    });
  }

  async #search(): Promise<void> {
    const { pool, policyOf, env } = this.#parts;
    this.#isSearching = true;
    this.#hasLeftOut = false;
    this.#searchedAtMs = env.clock.nowMs();
    try {
      for (const keys of pool.keysInSlices()) {
        const wanted = keys.filter(
          (key) => policyOf(key) !== 'local' && !this.#placed.has(key) && !this.#isUnderWay(key),
        );
        const pages = pool.peekBatch(wanted);
        for (const [i, key] of wanted.entries()) {
          const page = pages[i] ?? null;
          if (page === null || page.setBy !== 0) continue;
          if (this.#isFull(key)) {
            this.#hasLeftOut = true;
            return;
          }
          this.#enqueue(key, page, []);
        }
        this.#pumpAll();
        await env.clock.yield();
        if (this.#isClosed) return;
      }
    } finally {
      this.#isSearching = false;
    }
  }

  #isUnderWay(key: string): boolean {
    return this.#inFlight.has(key) || this.#laneWith(key) !== undefined;
  }

  /** Throws `InvariantError` unless the accounting of this class holds. */
  verify(): void {
    const waiting = new Set<string>();
    for (const lane of this.#lanes.values()) {
      assertAtMost(`placements: requests to ${lane.node.nodeId}`, lane.inFlight, PLACEMENT_IN_FLIGHT_MAX_COUNT);
      for (const key of lane.waiting.keys()) {
        assert(!waiting.has(key) && !this.#inFlight.has(key), () => `placements: ${JSON.stringify(key)} waits twice`);
        waiting.add(key);
      }
      assert(
        lane.cancelRetry === undefined || lane.waiting.size === 0,
        () => `placements: ${lane.waiting.size} wait for ${lane.node.nodeId}, which is left alone`,
      );
    }
    assertEqual('placements: pages that wait', this.#waitingCount, waiting.size);
    assertAtMost('placements: pages that wait', waiting.size, PLACEMENTS_WAITING_MAX_COUNT);
    let characters = 0;
    for (const key of waiting) characters += key.length;
    assertEqual('placements: characters', this.#waitingCharacters, characters);
    let bytes = 0;
    for (const { length } of this.#placed.values()) bytes += length;
    assertEqual('placements: bytes', this.#placedBytes, bytes);
    if (this.#inFlight.size > 1) assertAtMost('placements: bytes in flight', this.#heldBytes, this.#heldMaxBytes);
  }
}

/** Whether the placed page is the one that the pool has now, and lives as long. */
function isOf(placed: PlacedPage | undefined, page: PublishedPage): boolean {
  if (placed === undefined || placed.length !== page.length) return false;
  if (page.kind === 'computed') return laterExpiry(placed.expires, page.expires) === placed.expires;
  return placed.version === page.version;
}
