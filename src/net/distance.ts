/**
 * How far two nodes are from each other, the nearest first: on one host, in one zone, or in different ones. A node
 * without a zone is in no zone.
 */
export const DISTANCES = ['host', 'zone', 'other'] as const;

/** An index of `DISTANCES`: the lower, the nearer. */
export type Distance = 0 | 1 | 2;

export const SAME_HOST: Distance = 0;
export const SAME_ZONE: Distance = 1;
export const OTHER_ZONE: Distance = 2;

/**
 * Returns the distance of a node, by id, from this one. Undefined: this node has no zone, and all nodes count as
 * equally far.
 */
export type Distances = ((nodeId: string) => Distance) | undefined;
