import { type Clock, within } from '../../base/environment/clock.js';
import type { NodeInfo } from '../../types.js';
import type { MasterLink } from './master-link.js';

/** Milliseconds between two looks for masters that have begun to answer, or do not answer. */
const LOOK_MS = 10;

interface IntroducedParts {
  /** The links to all masters, which may change. */
  readonly links: ReadonlyMap<string, MasterLink>;
  /** The members that this node knows, by id, itself included. */
  readonly members: () => ReadonlyMap<string, NodeInfo>;
  readonly selfId: string;
  readonly clock: Clock;
  /** Whether the node has been stopped, so that nobody waits any more. */
  readonly isOver: () => boolean;
}

/**
 * Asks each master that answers which of its members do not go by a list with this start of the node yet. Resolves when
 * the masters have named each member as one that does, after `waitMs` at the latest, with the ids of the members of
 * which none has said so; none once the node is stopped. A master that has started just now may not know all members:
 * then the outcome of every link is waited for. Never rejects.
 */
export async function unconfirmed(
  { links, members, selfId, clock, isOver }: IntroducedParts,
  waitMs: number,
): Promise<string[]> {
  const confirmed = new Set([selfId]);
  /** The start of the master that each link was asked for. */
  const asked = new Map<MasterLink, string>();
  let hasMature = false;
  const ask = async (link: MasterLink): Promise<void> => {
    asked.set(link, link.masterId);
    const unaware = await link.unaware(waitMs).catch(() => undefined);
    const { view } = link;
    if (unaware === undefined || view === undefined) {
      await new Promise<void>((resolve) => clock.after(LOOK_MS, resolve, { keepAlive: true }));
      asked.delete(link);
      return;
    }
    for (const nodeId of view.members.keys()) if (!unaware.has(nodeId)) confirmed.add(nodeId);
    hasMature ||= view.isMature;
  };
  const unknown = function* (): Generator<string> {
    for (const nodeId of members().keys()) if (!confirmed.has(nodeId)) yield nodeId;
    for (const { view } of links.values()) {
      for (const nodeId of view?.members.keys() ?? []) if (!confirmed.has(nodeId)) yield nodeId;
    }
  };
  const untilMs = clock.nowMs() + waitMs;
  const asks = new Set<Promise<void>>();
  while (!isOver()) {
    for (const link of links.values()) {
      if (!link.hasView || asked.get(link) === link.masterId) continue;
      const asking = ask(link).finally(() => asks.delete(asking));
      asks.add(asking);
    }
    await within(clock, LOOK_MS, Promise.race(asks));
    const isWhole = hasMature || [...links.values()].every(({ hasOutcome }) => hasOutcome);
    // Most looks end at the first member that is unknown.
    if (clock.nowMs() >= untilMs || (isWhole && unknown().next().done === true)) return [...new Set(unknown())];
  }
  return [];
}
