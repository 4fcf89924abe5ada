/**
 * The date of a cluster as one of its masters knows it: the median of the dates of its members, the master's own node
 * among them. So one wrong date, also the master's, changes nothing in a cluster of three and more; of two nodes the
 * one that runs the master is right. All dates are given as what they are ahead of one monotonic clock; `others` are in
 * ascending order.
 */
export function clusterDate(own: number, others: readonly number[]): number {
  const isLater = others.findIndex((date) => date >= own);
  const place = isLater < 0 ? others.length : isLater;
  const at = (i: number): number => (i === place ? own : (others[i < place ? i : i - 1] as number));
  const [low, high] = [at(others.length >> 1), at((others.length + 1) >> 1)];
  // Two are in the middle of an even number: the one that is nearer to the master's own counts.
  return own - low <= high - own ? low : high;
}
