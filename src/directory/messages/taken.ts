/** A shard's answer to a location that was put to it. The numbers travel on the wire. */
export const Taken = {
  /** The shard is full, or has a newer statement of the same node. */
  refused: 0,
  taken: 1,
  /** The key has, or had, a newer content: the node must drop its page. */
  outdated: 2,
  /** Another live node has an equally good page, and the statement asked to be left out in that case. */
  held: 3,
  /**
   * Taken, and another content was replaced, by a statement that asked to be left out if the page is held. The node
   * must keep its page.
   */
  replaced: 4,
} as const;
