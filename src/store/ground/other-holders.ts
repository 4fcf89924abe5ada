import type { DataLocation } from '../../types.js';

/**
 * Why a node asks another one to hold pages; these are the words of the wire. `promotion`: the other node has them on
 * its disk, and is to bring them into its pool, where the asker reads them. `handover`: the asker is being drained, and
 * others have read them in its pool. `placement`: the other node is a storage node, and keeps them for the asker. What
 * is different for each is in `holding/hold-rules.ts`; the metric of copied pages has the reason as a label.
 */
export const ASKED_REASONS = ['promotion', 'handover', 'placement'] as const;

export type AskedReason = (typeof ASKED_REASONS)[number];

/**
 * Pages that another node is to hold. `pages`: where the asker has the page of each key, and with which content; none
 * for `promotion`.
 */
export interface AskedPages {
  readonly why: AskedReason;
  readonly keys: readonly string[];
  readonly pages: readonly DataLocation[];
}

/** A request of another node; `asker` is its id. */
export interface HoldRequest extends AskedPages {
  readonly asker: string;
}

/**
 * What became of a page that a node was asked to hold. A location: it is in the node's pool, and stays there for the
 * asker. `held`: the node has it. `absent`: it could not be read, or found no room. `later`: it is on the node's disk,
 * and there is no room or has been no time yet. `outdated`: the node has a newer content. `too_large`: it does not fit.
 * `busy`: the node takes no
 * pages now, or none for this reason, or has failed.
 */
export type HoldOutcome = DataLocation | 'held' | 'absent' | 'later' | 'outdated' | 'too_large' | 'busy';

/** The other nodes, which may be asked to hold pages. */
export interface OtherHolders {
  /**
   * Asks a node to hold pages: one outcome for each key; undefined: it cannot be reached, fails or gives an invalid
   * answer, or takes longer than `timeoutMs`. Never rejects. The keys must fit in one request of their reason, by count
   * and by bytes.
   */
  ask(
    nodeId: string,
    asked: AskedPages,
    options?: { readonly timeoutMs?: number },
  ): Promise<readonly HoldOutcome[] | undefined>;
  /**
   * Tells a node that promoted pages have been read. Best effort: the lease of them ends by itself, too. The caller
   * does not wait for it.
   */
  release(nodeId: string, keys: readonly string[]): void;
}
