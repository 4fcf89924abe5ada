import type { MetricsSink } from '../../base/environment/metrics-sink.js';
import type { Tier } from '../../types.js';

/** Why a page could not be read where the directory listed it. */
export type Trouble = 'void' | 'expired' | 'unreadable' | 'late' | 'owner_gone' | 'unreachable' | 'not_promoted';

/** Failures within one call, by page index and by node. Most calls have none, and create none of these tables. */
export class ReadTroubles {
  #pages: Map<number, Trouble> | undefined;
  /**
   * Nodes that could not be reached or are no longer members. They are not tried again, so that each costs the call
   * only one deadline.
   */
  #dead: Set<string> | undefined;
  /** Nodes that failed to bring pages from their disks; they are not asked for that again. */
  #disks: Set<string> | undefined;
  /** All nodes on which a page was missed for any reason; other nodes are preferred. */
  #nodes: Set<string> | undefined;

  /** Whether every page was found where the directory listed it. */
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

  /** Nodes on which a page has been missed so far. */
  nodes(): ReadonlySet<string> {
    return new Set(this.#nodes);
  }

  /** Whether further attempts of the call for a page on this node and tier are pointless. */
  isGivenUp(nodeId: string, tier: Tier): boolean {
    return this.isDead(nodeId) || (tier === 'disk' && this.#disks?.has(nodeId) === true);
  }

  /** Counts the pages that were not where the directory listed them, by the last reason of each. */
  count(metrics: MetricsSink): void {
    if (this.#pages === undefined) return;
    for (const reason of this.#pages.values()) metrics.count('meshcache_stale_reads_total', 1, { reason });
  }
}
