import type { RequestHint } from '../../core/index.js';

/** A part that follows what happens to the pages of a node; each of its methods is told of one kind of event. */
export interface PageFollower {
  /** Pages have been set here; the directory has not been told yet. */
  set?(keys: readonly string[]): void;
  /** Pages have been set here, and the directory has them. */
  stated?(keys: readonly string[]): void;
  /** Other nodes have read pages of this one. */
  touched?(keys: readonly string[], hint: RequestHint): void;
  /** Pages have been read from another node, in this order. */
  readRemotely?(nodeId: string, keys: readonly string[], hint: RequestHint): void;
  /** The pool or the disk has dropped pages by itself, or a page that was damaged. */
  evicted?(keys: readonly string[]): void;
  /** Pages may have left the pool. */
  gone?(keys: readonly string[]): void;
  /** Pages are deleted everywhere. */
  deleted?(keys: readonly string[]): void;
  /** Pages have come, moved or gone here, and the directory has been told. */
  changed?(keys: readonly string[]): void;
}

/**
 * What happens to the pages of one node, told to all parts that follow it, at once and in one order: that in which they
 * are given to {@link follow}, which the node does in one place. An error of a follower goes to who tells.
 */
export class PageFeed implements PageFollower {
  #followers: readonly PageFollower[] = [];

  /** Tells these parts from now on, after those that follow already. */
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

  readRemotely(nodeId: string, keys: readonly string[], hint: RequestHint): void {
    for (const follower of this.#followers) follower.readRemotely?.(nodeId, keys, hint);
  }

  /** What the pool or the disk has dropped may have left the pool, too. */
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
