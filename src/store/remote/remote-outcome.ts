import type { LocatedPages } from '../../directory/messages/located-pages.js';
import type { LocationColumns } from '../../directory/messages/location-columns.js';
import type { DataLocation, Tier } from '../../types.js';

/**
 * Pages of a call that one node has served: page `indices[k]` of the call came from the location at `rows[k]` of the
 * columns.
 */
export interface NodeReads {
  readonly nodeId: string;
  readonly indices: number[];
  readonly rows: number[];
  readonly columns: LocationColumns;
}

/** A page that was not read where the directory listed it. */
export interface MissedRead {
  /** Index of the page in the call's keys. */
  readonly index: number;
  readonly nodeId: string;
  /** Tier in which the directory listed the page. */
  readonly tier: Tier;
  /** The location that was tried; undefined: none, because its node is not alive or does not answer. */
  readonly location?: DataLocation;
  /** Whether the node has answered that the page is not there. */
  readonly isGone?: boolean;
  /** Whether the page was not tried because this node knows newer content, or knows that the page has expired. */
  readonly isVoid?: boolean;
}

/** Whether a page is known not to be where the directory listed it. */
export function isKnownMissing({ isGone, isVoid }: MissedRead): boolean {
  return isGone === true || isVoid === true;
}

/** Results for the pages of a call, or of a part of it, that other nodes have. */
export class RemoteOutcome {
  readonly reads: NodeReads[] = [];
  readonly missed: MissedRead[] = [];

  /** Adds the page at position `k`, which has been read. */
  addRead(located: LocatedPages, k: number): void {
    this.#add(located.nodeAt(k).nodeId, located.indices[k] as number, located.rows[k] as number, located.columns);
  }

  /** Adds page `k` of `reads` under another index. */
  addReadAs(index: number, { nodeId, rows, columns }: NodeReads, k: number): void {
    this.#add(nodeId, index, rows[k] as number, columns);
  }

  addAll({ reads, missed }: RemoteOutcome): void {
    for (const each of reads) this.reads.push(each);
    for (const each of missed) this.missed.push(each);
  }

  #add(nodeId: string, index: number, row: number, columns: LocationColumns): void {
    const last = this.reads.at(-1);
    if (last !== undefined && last.nodeId === nodeId && last.columns === columns) {
      last.indices.push(index);
      last.rows.push(row);
    } else {
      this.reads.push({ nodeId, indices: [index], rows: [row], columns });
    }
  }
}

/** The indices of the pages that each node has served, in ascending order, whatever the order of answers. */
export function indicesByNode(reads: readonly NodeReads[]): Iterable<readonly [nodeId: string, indices: number[]]> {
  const byNode = new Map<string, number[]>();
  for (const { nodeId, indices } of reads) {
    const before = byNode.get(nodeId);
    if (before === undefined) byNode.set(nodeId, [...indices]);
    else byNode.set(nodeId, [...before, ...indices]);
  }
  for (const indices of byNode.values()) indices.sort((a, b) => a - b);
  return byNode;
}

/**
 * The combined outcome of several attempts: all pages that were read, and for each page every node on which it was
 * missed. A second attempt on the same node replaces the first.
 */
export class Attempts {
  readonly #all = new RemoteOutcome();
  /** The last attempt for each index, if it was a miss. */
  readonly #last = new Map<number, MissedRead>();

  add({ reads, missed }: Pick<RemoteOutcome, 'reads' | 'missed'>): void {
    for (const read of reads) {
      this.#all.reads.push(read);
      if (this.#last.size > 0) for (const index of read.indices) this.#follow(index, read.nodeId);
    }
    for (const miss of missed) {
      this.#follow(miss.index, miss.nodeId);
      this.#last.set(miss.index, miss);
    }
  }

  outcome(): RemoteOutcome {
    for (const miss of this.#last.values()) this.#all.missed.push(miss);
    this.#last.clear();
    return this.#all;
  }

  #follow(index: number, nodeId: string): void {
    const before = this.#last.get(index);
    if (before === undefined) return;
    this.#last.delete(index);
    if (before.nodeId !== nodeId) this.#all.missed.push(before);
  }
}
