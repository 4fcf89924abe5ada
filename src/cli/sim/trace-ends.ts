import type { PlacementRequest } from '../../core/index.js';

/**
 * The requests with the hint `closed` at the ends of conversations: at this share of the ends, evenly spread, as if the
 * callers knew that the conversation is over. A conversation goes on when a later request has its last page, or its
 * last but one where the last was not full.
 */
export function withEndsTold(requests: readonly PlacementRequest[], share: number): PlacementRequest[] {
  const lastUses = new Map<number, number>();
  for (const [i, { hashIds }] of requests.entries()) for (const id of hashIds) lastUses.set(id, i);
  let ends = 0;
  return requests.map((request, i) => {
    // All conversations may share the first page, which is a system prompt.
    const lastPages = request.hashIds.slice(Math.max(1, request.hashIds.length - 2));
    const isEnd = lastPages.every((id) => lastUses.get(id) === i);
    if (!isEnd) return request;
    const isTold = Math.floor((ends + 1) * share) > Math.floor(ends * share);
    ends++;
    return isTold ? { ...request, hint: 'closed' } : request;
  });
}
