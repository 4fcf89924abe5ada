import { seededRandom } from '../../base/environment/random.js';
import type { PlacementRequest } from '../../core/index.js';

/** Parts (0 to 1) of the callers that tell when pages are over, and of those that tell it wrongly. */
export interface OverTold {
  readonly overTold: number;
  readonly toldWrong: number;
}

/**
 * Adds to a share of the requests which pages are over with them: those that their session goes on without, and all of
 * a session that ends. Pages that several sessions have used are never over. A part of the callers take their session
 * for ended at a request with which it is not, and so do not tell it when it is.
 *
 * In a trace without sessions, a conversation ends with a request whose last two pages are not asked for later. Its
 * first page, which all conversations may share, is never over.
 */
export function withOverTold<T extends PlacementRequest>(
  requests: readonly T[],
  { overTold, toldWrong }: OverTold,
): T[] {
  if (overTold === 0) return [...requests];
  const random = seededRandom(2);
  const share = () => random.u32() / 2 ** 32;
  const lastUses = new Map<number, number>();
  const lastRequests = new Map<unknown, number>();
  for (const [i, { hashIds, session }] of requests.entries()) {
    for (const id of hashIds) lastUses.set(id, i);
    if (session !== undefined) lastRequests.set(session, i);
  }
  const book = new OverBook();
  return requests.map((request, i) => {
    const { hashIds, session } = request;
    const left = book.note(request);
    const lastPages = hashIds.slice(Math.max(1, hashIds.length - 2));
    const isEnd =
      session === undefined ? lastPages.every((id) => lastUses.get(id) === i) : lastRequests.get(session) === i;
    const [isTold, isWrong] = [share() < overTold, share() < toldWrong];
    const ended = isEnd !== isWrong ? book.pagesOf(request) : [];
    return isTold && left.length + ended.length > 0 ? { ...request, overIds: [...left, ...ended] } : request;
  });
}

/** The pages of each session so far. */
class OverBook {
  readonly #pages = new Map<unknown, Set<number>>();
  /** The page that followed each page in the latest request of the session that had it. */
  readonly #next = new Map<unknown, Map<number, number>>();
  /** The session of each page; null: several. */
  readonly #sessionOf = new Map<number, unknown>();

  /** Notes a request; returns the pages that its session goes on without. */
  note({ session, hashIds }: PlacementRequest): number[] {
    if (session === undefined) return [];
    const pages = this.#pages.get(session) ?? new Set();
    const next = this.#next.get(session) ?? new Map<number, number>();
    this.#pages.set(session, pages);
    this.#next.set(session, next);
    const left: number[] = [];
    for (const [i, id] of hashIds.entries()) {
      pages.add(id);
      const known = this.#sessionOf.get(id);
      this.#sessionOf.set(id, known === undefined || known === session ? session : null);
      const following = hashIds[i + 1];
      if (following === undefined) continue;
      const before = next.get(id);
      if (before !== following) for (let at = before; at !== undefined; at = next.get(at)) left.push(at);
      next.set(id, following);
    }
    return this.#ownOf(session, left);
  }

  /** The pages that are over when the conversation of the request ends. */
  pagesOf({ session, hashIds }: PlacementRequest): number[] {
    if (session === undefined) return hashIds.slice(1);
    return this.#ownOf(session, [...(this.#pages.get(session) ?? [])]);
  }

  #ownOf(session: unknown, ids: readonly number[]): number[] {
    return ids.filter((id) => this.#sessionOf.get(id) === session);
  }
}
