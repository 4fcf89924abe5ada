import type { DataLocation } from '../../types.js';

/**
 * Why a node asks another one to hold pages; the words are part of the protocol. `promotion`: the other node has them
 * on its disk and should bring them into its pool, where the asker reads them. `handover`: the asker is draining, and
 * others have read the pages in its pool. `placement`: the other node is a storage node and keeps them for the asker.
 * The rules for each reason are in `holding/hold-rules.ts`; the metric of copied pages has the reason as a label.
 */
export const ASKED_REASONS = ['promotion', 'handover', 'placement'] as const;

export type AskedReason = (typeof ASKED_REASONS)[number];

/**
 * Pages that another node is asked to hold. `pages`: for each key, the asker's location and content of the page; empty
 * for `promotion`.
 */
export interface AskedPages {
  readonly why: AskedReason;
  readonly keys: readonly string[];
  readonly pages: readonly DataLocation[];
}

/** A request from another node; `asker` is its id. */
export interface HoldRequest extends AskedPages {
  readonly asker: string;
}

/**
 * Result for a page that a node was asked to hold. A location: the page is in the node's pool and stays there for the
 * asker. `held`: the node has it. `absent`: it could not be read, or found no room. `later`: it is on the node's disk,
 * but there was no room or no time yet. `outdated`: the node has newer content. `too_large`: it does not fit. `busy`:
 * the node accepts no pages now, or none for this reason, or has failed.
 */
export type HoldOutcome = DataLocation | 'held' | 'absent' | 'later' | 'outdated' | 'too_large' | 'busy';

/** Access to other nodes that may be asked to hold pages. */
export interface OtherHolders {
  /**
   * Asks a node to hold pages; one outcome for each key. Undefined: the node cannot be reached, fails, gives an invalid
   * answer, or takes longer than `timeoutMs`. Never rejects. The keys must fit in one request of their reason, by count
   * and by bytes.
   */
  ask(
    nodeId: string,
    asked: AskedPages,
    options?: { readonly timeoutMs?: number },
  ): Promise<readonly HoldOutcome[] | undefined>;
  /** Tells a node that promoted pages have been read. Best effort, not awaited: their lease also ends by itself. */
  release(nodeId: string, keys: readonly string[]): void;
}
