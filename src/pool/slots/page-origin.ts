import { laterExpiry } from '../../base/expiry.js';
import type { EntryKind } from '../../types.js';

/** When a page was set, and as which kind of entry. */
export interface PageOrigin {
  /** Time of the cluster's hybrid clock; 0: not known, and not compared. */
  readonly version: number;
  readonly kind: EntryKind;
  /** Time of the hybrid clock from which on the page is expired, so that nobody finds it; 0: never. */
  readonly expires: number;
  /**
   * The origin of the node that has set the content of a copy (see `originOf`), also of a copy of a copy; 0: it was set
   * on this node.
   */
  readonly setBy: number;
}

/** Which pages are meant: all, all copies, or the copies of what the node with this origin has set. */
export type PagesOf = 'all' | 'copies' | number;

/** Whether a page is among those that are meant. */
export function isOf({ setBy }: PageOrigin, of: PagesOf): boolean {
  return of === 'all' || (of === 'copies' ? setBy !== 0 : setBy === of);
}

/** Origin of pages that are never compared. */
export const NO_ORIGIN: PageOrigin = { version: 0, kind: 'computed', expires: 0, setBy: 0 };

/**
 * Whether an existing page can stand for one of the same length that is being set, whatever their bytes: both are
 * computed.
 */
export function isAsGood(here: PageOrigin, origin: PageOrigin): boolean {
  return here.kind === 'computed' && origin.kind === 'computed' && here.version > 0 && origin.version > 0;
}

/**
 * Origin of an existing page that is set again with the same bytes: no longer a copy, and named if it was or is named.
 * A named set gives its own expiry; a computed one leaves the later expiry.
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
