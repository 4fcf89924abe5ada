import type { RequestHint } from '../../core/index.js';
import type { LeavingPage } from '../../pool/page-batch.js';

/** Follows what happens to the pages of a node; each method receives one kind of event. */
export interface PageFollower {
  /** Pages were set here; the directory has not been told yet. */
  set?(keys: readonly string[]): void;
  /** Pages were set here, and the directory has them. */
  stated?(keys: readonly string[]): void;
  /** Other nodes have read pages of this one. */
  touched?(keys: readonly string[], hint: RequestHint): void;
  /** Programs of this node have read pages of its pool. */
  readHere?(keys: readonly string[]): void;
  /** This node has read pages from another node, in this order. */
  readRemotely?(nodeId: string, keys: readonly string[], hint: RequestHint): void;
  /** The pool evicts a page. Followers must not call the pool, and must not throw. */
  leaving?(page: LeavingPage): void;
  /** The pool or the disk has dropped pages on its own, or dropped a damaged page. */
  evicted?(keys: readonly string[]): void;
  /** Pages may have left the pool. */
  gone?(keys: readonly string[]): void;
  /** Pages are deleted everywhere. */
  deleted?(keys: readonly string[]): void;
  /** Pages were added, moved or removed here, and the directory has been told. */
  changed?(keys: readonly string[]): void;
}

/**
 * Passes on what happens to the pages of one node to all followers, at once and in the order in which they were given
 * to {@link follow}; the node does that in one place. An error of a follower is thrown to the caller.
 */
export class PageFeed implements PageFollower {
  #followers: readonly PageFollower[] = [];

  /** Adds followers after the existing ones. */
  follow(...followers: readonly (PageFollower | null | undefined)[]): void {
    this.#followers = [...this.#followers, ...followers.filter((each) => each != null)];
  }

  set(keys: readonly string[]): void {
    for (const follower of this.#followers) follower.set?.(keys);
  }

  stated(keys: readonly string[]): void {
    for (const follower of this.#followers) follower.stated?.(keys);
  }

  touched(keys: readonly string[], hint: RequestHint): void {
    for (const follower of this.#followers) follower.touched?.(keys, hint);
  }

  readHere(keys: readonly string[]): void {
    for (const follower of this.#followers) follower.readHere?.(keys);
  }

  readRemotely(nodeId: string, keys: readonly string[], hint: RequestHint): void {
    for (const follower of this.#followers) follower.readRemotely?.(nodeId, keys, hint);
  }

  leaving(page: LeavingPage): void {
    for (const follower of this.#followers) follower.leaving?.(page);
  }

  /** Pages that the pool or the disk has dropped may also have left the pool. */
  evicted(keys: readonly string[]): void {
    for (const follower of this.#followers) follower.evicted?.(keys);
    this.gone(keys);
  }

  gone(keys: readonly string[]): void {
    for (const follower of this.#followers) follower.gone?.(keys);
  }

  deleted(keys: readonly string[]): void {
    for (const follower of this.#followers) follower.deleted?.(keys);
  }

  changed(keys: readonly string[]): void {
    for (const follower of this.#followers) follower.changed?.(keys);
  }
}
