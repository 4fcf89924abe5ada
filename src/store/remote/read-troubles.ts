import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { Tier } from '../../types.js';

/** Why a page could not be read where the directory said that it was. */
export type Trouble = 'void' | 'unreadable' | 'late' | 'owner_gone' | 'unreachable' | 'not_promoted';

/** What has gone wrong within one call: with its pages, by their indices, and with nodes. Most calls have none, and make none of these tables. */
export class ReadTroubles {
  #pages: Map<number, Trouble> | undefined;
  /** Could not be reached, or are no members any more: not tried again, so that each costs the call one deadline. */
  #dead: Set<string> | undefined;
  /** Did not bring pages from their disks: not asked for that again. */
  #disks: Set<string> | undefined;
  /** All nodes that a page was missed on, for whatever reason; others are preferred. */
  #nodes: Set<string> | undefined;

  /** Every page has been where the directory said. */
  get isEmpty(): boolean {
    return this.#pages === undefined && this.#nodes === undefined;
  }

  note(index: number, trouble: Trouble): void {
    this.#pages ??= new Map();
    this.#pages.set(index, trouble);
  }

  of(index: number): Trouble | undefined {
    return this.#pages?.get(index);
  }

  noteDead(nodeId: string): void {
    this.#dead ??= new Set();
    this.#dead.add(nodeId);
  }

  isDead(nodeId: string): boolean {
    return this.#dead?.has(nodeId) === true;
  }

  noteDisk(nodeId: string): void {
    this.#disks ??= new Set();
    this.#disks.add(nodeId);
  }

  noteNode(nodeId: string): void {
    this.#nodes ??= new Set();
    this.#nodes.add(nodeId);
  }

  /** Nodes that a page was missed on, as of now. */
  nodes(): ReadonlySet<string> {
    return new Set(this.#nodes);
  }

  /** Whether a page of this node there is not worth another attempt of the call. */
  isGivenUp(nodeId: string, tier: Tier): boolean {
    return this.isDead(nodeId) || (tier === 'disk' && this.#disks?.has(nodeId) === true);
  }

  /** Counts the pages that were not where the directory said, by the last reason of each. */
  count(metrics: MetricsSink): void {
    if (this.#pages === undefined) return;
    for (const reason of this.#pages.values()) metrics.count('meshcache_stale_reads_total', 1, { reason });
  }
}
