import type * as CoreApi from '../../../src/core/index.js';

/** The entry `meshcache/core`, however it was loaded: this file must run in a browser as it is. */
type Api = typeof CoreApi;

/** A sequence of numbers that follows from the seed alone. */
export function sequence(seed: number): (below: number) => number {
  let state = (Math.imul(seed, 2654435761) + 1) >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/**
 * Conversations that all begin with one page, grow by some pages every turn and come in any order. Some requests leave
 * out the last pages of their conversation, as a last page that is not full has another id.
 */
export function conversations(seed: number, requests: number): CoreApi.PlacementRequest[] {
  const next = sequence(seed);
  const histories: number[][] = [];
  let id = 1;
  let timestampMs = 0;
  return Array.from({ length: requests }, () => {
    timestampMs += next(3) * 1500;
    const isNew = histories.length === 0 || next(3) === 0;
    const history = isNew ? [0] : (histories[next(histories.length)] as number[]);
    if (isNew) histories.push(history);
    else if (next(2) === 0 && history.length > 2) history.pop();
    for (let added = 1 + next(40); added > 0; added--) history.push(id++);
    return { timestampMs, hashIds: [...history] };
  });
}

/** Counts of clusters of several shapes, each policy and routing. */
export function placements(api: Api, core: CoreApi.Core): unknown[] {
  const trace = conversations(7, 300);
  const results: unknown[] = [];
  for (const policy of api.PLACEMENT_POLICIES) {
    for (const routing of api.PLACEMENT_ROUTINGS) {
      for (const nodes of [1, 3]) {
        const options = { nodes, policy, routing, poolBytes: 400 * 4096, pageBytes: 4096, reportDelayMs: 5000, core };
        const simulation = new api.PlacementSimulation(options);
        for (const request of trace) simulation.request(request);
        simulation.verify();
        results.push({ counts: simulation.counts(), nodes: simulation.nodes(), intervals: simulation.intervals() });
        simulation.free();
      }
    }
  }
  return results;
}
