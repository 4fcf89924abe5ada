import type { Environment } from '../../base/environment/environment.js';
import { ArgumentError } from '../../base/errors.js';
import {
  COPY_CALL_TIMEOUT_MS,
  COPY_REQUEST_MAX_KEYS,
  COPY_REQUEST_TARGET_BYTES,
  DRAIN_TIMEOUT_MAX_MS,
  DRAIN_TIMEOUT_MS,
  HANDOVERS_IN_FLIGHT_MAX_COUNT,
} from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import { slicesOf } from '../../store/page-slices.js';

/** DRAIN.md beside this file has its fields. */
export const DRAIN_METHOD = 'node.drain';

/** In this order. */
export const DRAIN_STATES = ['serving', 'handing_over', 'writing', 'leaving', 'drained'] as const;

/** How far a node is with leaving for good. */
export type DrainState = (typeof DRAIN_STATES)[number];

/** What a node that is drained has done so far. */
export interface DrainProgress {
  readonly node_id: string;
  readonly state: DrainState;
  /** Pages that other nodes have read here lately. */
  readonly wanted_pages: number;
  /** Of these, what other nodes have in their pools now. */
  readonly handed_pages: number;
  /** Of these, what no other node took. */
  readonly left_pages: number;
  /** Bytes that wait to be written to the disk tier. */
  readonly disk_queue_bytes: number;
}

export interface DrainParts {
  readonly nodeId: string;
  /** Keys of the pages that others want, the most wanted first. */
  readonly wantedKeys: () => readonly string[];
  /** Bytes of each page in the own pool or on the own disk; null for those that are not. */
  readonly lengthsOf: (keys: readonly string[]) => readonly (number | null)[];
  readonly otherNodes: () => readonly string[];
  /** Others tell what they have read as much as so long after it. */
  readonly reportsLateMs: number;
  /** Has a node copy pages of this one; 1 for each that it has then, all 0 after `timeoutMs`. */
  readonly handOver: (nodeId: string, keys: readonly string[], timeoutMs: number) => Promise<Uint8Array>;
  readonly stopPublishing: () => void;
  readonly diskQueueBytes: () => number;
  /** Tells the others that this node leaves. */
  readonly leave: () => Promise<void>;
  /** For so long the node goes on serving those that have not heard of it. */
  readonly lingerMs: number;
  readonly env: Pick<Environment, 'clock' | 'log'>;
}

const POLL_MS = 20;

/**
 * Takes a node out of its cluster without others missing anything of it that they have lately read: it publishes nothing
 * any more, has other nodes copy the pages that they want, waits until the disk has what it is to have, leaves, and goes
 * on serving for a while. What then becomes of it is up to whoever owns it.
 */
export class Drain {
  /** Resolves when the node has left: after `start`, never without it. */
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

  /** Begins, unless it has begun, and says how far it is. After `timeoutMs` the node leaves with what has been handed over. */
  start(timeoutMs = DRAIN_TIMEOUT_MS): DrainProgress {
    if (!this.isDraining && !this.#isClosed) {
      this.#state = 'handing_over';
      this.#run = this.#drain(timeoutMs);
    }
    return this.progress();
  }

  /**
   * Nothing is waited for any more: a drain under way ends with what has been done. Resolves when it has ended, with the request to
   * another node that is under way.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#endPause();
    await this.#run;
  }

  /** Never rejects, and leaves whatever fails before. */
  async #drain(timeoutMs: number): Promise<void> {
    const { nodeId, leave, lingerMs, env } = this.#parts;
    const untilMs = env.clock.nowMs() + timeoutMs;
    env.log.log('info', 'this node is drained: it publishes nothing any more', { node_id: nodeId });
    try {
      await this.#handOffUntil(untilMs);
    } catch (error) {
      env.log.log('error', 'draining this node has failed on the way; it leaves as it is', { error: String(error) });
    }
    this.#state = 'leaving';
    try {
      await leave();
    } catch (error) {
      env.log.log('error', 'the others could not be told that this node leaves', { error: String(error) });
    }
    await this.#pause(lingerMs);
    this.#state = 'drained';
    const { wanted_pages, handed_pages, left_pages } = this.progress();
    env.log.log('info', 'this node has left the cluster', { wanted_pages, handed_pages, left_pages });
    this.#resolve();
  }

  /** What this node has goes to other nodes and to the disk. */
  async #handOffUntil(untilMs: number): Promise<void> {
    const { stopPublishing, diskQueueBytes } = this.#parts;
    stopPublishing();
    await this.#handOver(untilMs);
    this.#state = 'writing';
    while (diskQueueBytes() > 0 && this.#leftMs(untilMs) > 0) await this.#pause(POLL_MS);
  }

  async #handOver(untilMs: number): Promise<void> {
    const { wantedKeys, lengthsOf, otherNodes, reportsLateMs } = this.#parts;
    if (otherNodes().length > 0) await this.#pause(Math.max(0, Math.min(reportsLateMs, this.#leftMs(untilMs))));
    const keys = wantedKeys();
    const lengths = lengthsOf(keys);
    const requests = handOverRequests(keys, lengths);
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

  /** Nodes take turns; what one does not take is for the one after it. */
  async #handOverOnce(request: readonly string[], turn: number, untilMs: number): Promise<void> {
    let left = request;
    for (const attempt of [0, 1]) {
      const others = this.#parts.otherNodes();
      const timeoutMs = Math.min(this.#leftMs(untilMs), COPY_CALL_TIMEOUT_MS);
      if (attempt >= others.length || left.length === 0 || timeoutMs <= 0) return;
      const taken = await this.#parts.handOver(others[(turn + attempt) % others.length] as string, left, timeoutMs);
      const count = taken.reduce((sum, flag) => sum + Number(flag === 1), 0);
      this.#handedPages += count;
      this.#leftPages -= count;
      left = left.filter((_, i) => taken[i] !== 1);
    }
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

/** The `timeout_ms` of a request. Throws `ArgumentError`. */
export function drainTimeoutMs(value: unknown): number {
  if (value === undefined || value === null) return DRAIN_TIMEOUT_MS;
  if (typeof value === 'number' && value >= 0 && value <= DRAIN_TIMEOUT_MAX_MS) return value;
  throw new ArgumentError(`${DRAIN_METHOD}: timeout_ms must be 0 to ${DRAIN_TIMEOUT_MAX_MS}, got ${shown(value)}`);
}

/** Keys of pages that are here, in requests of limited size. */
function handOverRequests(keys: readonly string[], lengths: readonly (number | null)[]): string[][] {
  const pages = keys.flatMap((key, i) => {
    const length = lengths[i] ?? null;
    return length === null ? [] : [{ key, length }];
  });
  const limits = { maxBytes: COPY_REQUEST_TARGET_BYTES, maxCount: COPY_REQUEST_MAX_KEYS };
  return [...slicesOf(pages, limits)].map(({ start, end }) => pages.slice(start, end).map(({ key }) => key));
}
