import type { Environment } from '../../base/environment/environment.js';
import { ArgumentError } from '../../base/errors.js';
import {
  DRAIN_TIMEOUT_MAX_MS,
  DRAIN_TIMEOUT_MS,
  HANDOVERS_IN_FLIGHT_MAX_COUNT,
  HOLD_CALL_TIMEOUT_MS,
  HOLD_REQUEST_MAX_KEYS,
} from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import { slicesOf } from '../../store/call/key-steps.js';
import type { OtherHolders } from '../../store/ground/other-holders.js';
import type { PageStatements } from '../../store/ground/page-statements.js';
import { HOLD_RULES } from '../../store/holding/hold-rules.js';

/** The call that drains a node; DRAIN.md beside this file describes its fields. */
export const DRAIN_METHOD = 'node.drain';

/** States of a draining node, in order. */
export const DRAIN_STATES = ['serving', 'handing_over', 'writing', 'leaving', 'drained'] as const;

/** How far a node has come in leaving the cluster. */
export type DrainState = (typeof DRAIN_STATES)[number];

/** The progress of a draining node. */
export interface DrainProgress {
  readonly node_id: string;
  readonly state: DrainState;
  /** Pages of this node that other nodes have read recently. */
  readonly wanted_pages: number;
  /** Wanted pages that other nodes have taken into their pools. */
  readonly handed_pages: number;
  /** Wanted pages that no other node has taken. */
  readonly left_pages: number;
  /** Bytes that wait for the disk tier. */
  readonly disk_queue_bytes: number;
}

export interface DrainParts {
  readonly nodeId: string;
  /** Keys of the pages that other nodes want, the most wanted first. */
  readonly wantedKeys: () => readonly string[];
  readonly statements: Pick<PageStatements, 'locationsOf' | 'tiersOf'>;
  readonly otherNodes: () => readonly string[];
  /** Ids of the storage nodes, which are asked first. */
  readonly storageNodes: () => readonly string[];
  /** Pages that wait to be placed on storage nodes. */
  readonly unplacedPages: () => number;
  /** Longest time after which other nodes report their reads. */
  readonly reportsLateMs: number;
  readonly holders: Pick<OtherHolders, 'ask'>;
  readonly stopPublishing: () => void;
  readonly diskQueueBytes: () => number;
  /** Tells the other nodes that this one leaves. */
  readonly leave: () => Promise<void>;
  /** Time for which the node goes on serving after leaving, for readers that have not heard of it yet. */
  readonly lingerMs: number;
  readonly env: Pick<Environment, 'clock' | 'log'>;
}

const POLL_MS = 20;

/**
 * Takes a node out of its cluster so that other nodes keep the pages that they have recently read from it. The node
 * stops publishing, asks other nodes to copy the pages that they want, waits until its disk is written, leaves, and
 * serves for a while longer. The program then decides what to do with the node.
 */
export class Drain {
  /** Resolves when the node has left; only after {@link start}. */
  readonly drained: Promise<void>;
  readonly #parts: DrainParts;
  #resolve: () => void = () => {};
  #state: DrainState = 'serving';
  #wantedPages = 0;
  #handedPages = 0;
  #leftPages = 0;
  #run: Promise<void> | undefined;
  #isClosed = false;
  #endPause: () => void = () => {};

  constructor(parts: DrainParts) {
    this.#parts = parts;
    this.drained = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  get isDraining(): boolean {
    return this.#state !== 'serving';
  }

  progress(): DrainProgress {
    return {
      node_id: this.#parts.nodeId,
      state: this.#state,
      wanted_pages: this.#wantedPages,
      handed_pages: this.#handedPages,
      left_pages: this.#leftPages,
      disk_queue_bytes: this.#parts.diskQueueBytes(),
    };
  }

  /**
   * Starts draining the node, unless it is already draining, and returns the progress. After `timeoutMs` the node
   * leaves with the pages handed over by then.
   */
  start(timeoutMs = DRAIN_TIMEOUT_MS): DrainProgress {
    if (!this.isDraining && !this.#isClosed) {
      this.#state = 'handing_over';
      this.#run = this.#drain(timeoutMs);
    }
    return this.progress();
  }

  /** Cuts a drain in progress short. Resolves when it has ended, including its current request to another node. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#endPause();
    await this.#run;
  }

  /** Drains the node, which leaves even if handing over its pages fails. Never rejects. */
  async #drain(timeoutMs: number): Promise<void> {
    const { nodeId, leave, lingerMs, env } = this.#parts;
    const untilMs = env.clock.nowMs() + timeoutMs;
    env.log.log('info', 'draining: this node stops publishing', { node_id: nodeId });
    try {
      await this.#handOffUntil(untilMs);
    } catch (error) {
      env.log.log('error', 'draining failed: this node leaves with what it has handed over', { error: String(error) });
    }
    this.#state = 'leaving';
    try {
      await leave();
    } catch (error) {
      env.log.log('error', 'telling the other nodes that this one leaves failed', { error: String(error) });
    }
    await this.#pause(lingerMs);
    this.#state = 'drained';
    const { wanted_pages, handed_pages, left_pages } = this.progress();
    env.log.log('info', 'drained: this node has left the cluster', { wanted_pages, handed_pages, left_pages });
    this.#resolve();
  }

  /** Hands the wanted pages over to other nodes, and waits until the disk is written. */
  async #handOffUntil(untilMs: number): Promise<void> {
    const { stopPublishing, diskQueueBytes } = this.#parts;
    stopPublishing();
    await this.#handOver(untilMs);
    while (this.#parts.unplacedPages() > 0 && this.#leftMs(untilMs) > 0) await this.#pause(POLL_MS);
    this.#state = 'writing';
    while (diskQueueBytes() > 0 && this.#leftMs(untilMs) > 0) await this.#pause(POLL_MS);
  }

  async #handOver(untilMs: number): Promise<void> {
    const { wantedKeys, otherNodes, reportsLateMs } = this.#parts;
    if (otherNodes().length > 0) await this.#pause(Math.max(0, Math.min(reportsLateMs, this.#leftMs(untilMs))));
    const requests = this.#requests(wantedKeys());
    this.#wantedPages = requests.reduce((sum, request) => sum + request.length, 0);
    this.#leftPages = this.#wantedPages;
    let next = 0;
    const handOverInTurn = async (): Promise<void> => {
      for (let i = next++; i < requests.length && this.#leftMs(untilMs) > 0; i = next++) {
        await this.#handOverOnce(requests[i] as readonly string[], i, untilMs);
      }
    };
    await Promise.all(Array.from({ length: HANDOVERS_IN_FLIGHT_MAX_COUNT }, handOverInTurn));
  }

  /**
   * Hands over the pages of one request: nodes take turns, and pages that a node does not take are offered to the next
   * one.
   */
  async #handOverOnce(request: readonly string[], turn: number, untilMs: number): Promise<void> {
    let left = request;
    for (const attempt of [0, 1]) {
      const others = this.#othersOf(turn);
      const timeoutMs = Math.min(this.#leftMs(untilMs), HOLD_CALL_TIMEOUT_MS);
      if (attempt >= others.length || left.length === 0 || timeoutMs <= 0) return;
      const held = await this.#ask(others[attempt] as string, left, timeoutMs);
      this.#handedPages += held.size;
      this.#leftPages -= held.size;
      left = left.filter((key) => !held.has(key));
    }
  }

  /**
   * Asks a node to hold those pages that are still here; returns the keys of the pages that it then has. It reads them
   * without asking the directory, so pages that no directory owner has accepted are left out.
   */
  async #ask(nodeId: string, keys: readonly string[], timeoutMs: number): Promise<Set<string>> {
    const { statements, holders } = this.#parts;
    const [tiers, located] = [statements.tiersOf(keys), statements.locationsOf(keys)];
    const offered = keys.flatMap((key, i) => {
      const page = located[i] ?? null;
      return page === null || tiers[i] === null ? [] : [{ key, page }];
    });
    if (offered.length === 0) return new Set();
    const asked = {
      why: 'handover',
      keys: offered.map(({ key }) => key),
      pages: offered.map(({ page }) => page),
    } as const;
    const outcomes = await holders.ask(nodeId, asked, { timeoutMs });
    return new Set(asked.keys.filter((_, i) => outcomes?.[i] === 'held'));
  }

  /** Groups the keys of pages that this node has into requests of limited size. */
  #requests(keys: readonly string[]): string[][] {
    const located = this.#parts.statements.locationsOf(keys);
    const pages = keys.flatMap((key, i) => {
      const length = located[i]?.length;
      return length === undefined ? [] : [{ key, length }];
    });
    const limits = { maxBytes: HOLD_RULES.handover.requestTargetBytes, maxCount: HOLD_REQUEST_MAX_KEYS };
    const slices = [...slicesOf(pages, limits)];
    return slices.map(({ start, end }) => pages.slice(start, end).map(({ key }) => key));
  }

  /** The nodes to ask in this turn: a storage node first, if there is one. */
  #othersOf(turn: number): string[] {
    const others = this.#parts.otherNodes();
    const storage = this.#parts.storageNodes();
    const first = storage.length === 0 ? [] : [storage[turn % storage.length] as string];
    const rotated = others.map((_, i) => others[(turn + i) % others.length] as string);
    return [...first, ...rotated.filter((nodeId) => !first.includes(nodeId))];
  }

  #leftMs(untilMs: number): number {
    return this.#isClosed ? 0 : untilMs - this.#parts.env.clock.nowMs();
  }

  async #pause(ms: number): Promise<void> {
    if (this.#isClosed) return;
    await new Promise<void>((resolve) => {
      const cancel = this.#parts.env.clock.after(ms, resolve, { keepAlive: true });
      this.#endPause = () => {
        cancel();
        resolve();
      };
    });
  }
}

/** Checks the `timeout_ms` of a request. Throws `ArgumentError`. */
export function drainTimeoutMs(value: unknown): number {
  if (value === undefined || value === null) return DRAIN_TIMEOUT_MS;
  if (typeof value === 'number' && value >= 0 && value <= DRAIN_TIMEOUT_MAX_MS) return value;
  throw new ArgumentError(`${DRAIN_METHOD}: timeout_ms must be 0 to ${DRAIN_TIMEOUT_MAX_MS}, got ${shown(value)}`);
}
