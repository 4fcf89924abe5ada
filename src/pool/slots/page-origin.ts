import { laterExpiry } from '../../base/expiry.js';
import type { EntryKind } from '../../types.js';

/** When a page was set, by which node, and as which kind of entry. */
export interface PageOrigin {
  /** Version: a time of the cluster's hybrid clock; 0: unknown, and never compared. */
  readonly version: number;
  readonly kind: EntryKind;
  /** Time of the hybrid clock at which the page expires, so that nobody finds it any more; 0: never. */
  readonly expires: number;
  /**
   * Origin of the node that has set the content of a copy (see `originOf`), also for a copy of a copy; 0: set on this
   * node.
   */
  readonly setBy: number;
}

/** Selects pages: all, all copies, or copies of pages that the node with this origin has set. */
export type PagesOf = 'all' | 'copies' | number;

/** Whether a page is selected by `of`. */
export function isOf({ setBy }: PageOrigin, of: PagesOf): boolean {
  return of === 'all' || (of === 'copies' ? setBy !== 0 : setBy === of);
}

/** Origin of pages that are never compared. */
export const NO_ORIGIN: PageOrigin = { version: 0, kind: 'computed', expires: 0, setBy: 0 };

/** Whether an existing page can stand for a new one of the same length, whatever their bytes: both are computed. */
export function isAsGood(here: PageOrigin, origin: PageOrigin): boolean {
  return here.kind === 'computed' && origin.kind === 'computed' && here.version > 0 && origin.version > 0;
}

/**
 * Origin of new bytes that replace a page of this node. Where the node has a named page, computed ones are named too:
 * they are newer than the named content, and nothing older may stay beside them.
 */
export function instead(page: PageOrigin | null, origin: PageOrigin): PageOrigin {
  return page?.kind === 'named' && origin.kind === 'computed' ? { ...origin, kind: 'named' } : origin;
}

/**
 * Origin of an existing page that is set again with the same bytes: no longer a copy, and named if either set was. A
 * named set determines the expiry; a computed one keeps the later expiry.
 */
export function again(page: PageOrigin, origin: PageOrigin): PageOrigin {
  const isNewer = origin.version > page.version && !isAsGood(page, origin);
  const setExpires = isNewer ? origin.expires : page.expires;
  return {
    version: isNewer ? origin.version : page.version,
    kind: origin.kind === 'named' ? 'named' : page.kind,
    expires: origin.kind === 'named' ? setExpires : laterExpiry(page.expires, origin.expires),
    setBy: origin.setBy === 0 ? 0 : page.setBy,
  };
}
