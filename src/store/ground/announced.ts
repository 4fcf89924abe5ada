/**
 * Why a page that this node has published is not set: no owner has accepted its location, or another writer's content
 * has won.
 */
export type StatementRefusal = 'directory' | 'superseded';

/** Keys of pages that are not set, with the reason. */
export type RefusedKeys = ReadonlyMap<string, StatementRefusal>;

/** Positions of pages by the outcome of their announcement; all other pages are in the directory. */
export interface Announced {
  /** Pages that no owner has accepted. */
  readonly refused: number[];
  /** Pages for which an owner knows a newer content. */
  readonly outdated: number[];
  /** Pages that another node has. */
  readonly held: number[];
}
