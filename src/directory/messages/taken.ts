/** What a shard says of a location that it has been told; the numbers travel. */
export const Taken = {
  /** The shard is full, or has a newer statement of the same node. */
  refused: 0,
  taken: 1,
  /** There is, or was, a newer content of the key: the page is to be dropped. */
  outdated: 2,
  /** Another live node has a page that does as well, and the statement asked to be left out then. */
  held: 3,
} as const;
