import type { EntryKind } from '../types.js';

/** When and as what a page was set. */
export interface PageOrigin {
  /** By the hybrid clock of the cluster; 0: not known, and not compared. */
  readonly version: number;
  readonly kind: EntryKind;
  /** It was copied from another node, not set on this one. */
  readonly isCopy: boolean;
}

/** Of pages that nobody compares. */
export const NO_ORIGIN: PageOrigin = { version: 0, kind: 'computed', isCopy: false };

/** Whether a page that is here does for one that is being set, of the same length, whatever their bytes: both are computed. */
export function isAsGood(here: PageOrigin, origin: PageOrigin): boolean {
  return here.kind === 'computed' && origin.kind === 'computed' && here.version > 0 && origin.version > 0;
}

/** What a page that is here has become by being set again with the same bytes: its own at least, named if it was or is. */
export function again(page: PageOrigin, origin: PageOrigin): PageOrigin {
  const isNewer = origin.version > page.version && !isAsGood(page, origin);
  return {
    version: isNewer ? origin.version : page.version,
    kind: origin.kind === 'named' ? 'named' : page.kind,
    isCopy: page.isCopy && origin.isCopy,
  };
}
