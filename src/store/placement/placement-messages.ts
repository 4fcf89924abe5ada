import type { EntryKind } from '../../types.js';

/** A page that its node wants to be placed on a storage node. */
export interface PageToPlace {
  readonly key: string;
  /** Length in bytes. */
  readonly length: number;
  /** CRC-32 of the page. */
  readonly checksum: number;
  /** See `PageOrigin`. */
  readonly version: number;
  readonly kind: EntryKind;
  readonly expires: number;
}

/** A request to take pages; `placer` is the id of the node that has set them. */
export interface PlacementRequest {
  readonly placer: string;
  readonly pages: readonly PageToPlace[];
}

/** What a storage node says of each page that it was asked to take. The numbers are those of the wire. */
export const PlacementOutcome = {
  /** The page could not be read, or found no room. */
  unread: 0,
  /** The storage node has the page, and the directory knows. */
  placed: 1,
  tooLarge: 2,
  /** The storage node knows of a newer content. */
  outdated: 3,
  /** The storage node does not take pages now. */
  busy: 4,
} as const;
