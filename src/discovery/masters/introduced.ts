import type { MasterLink } from './master-link.js';

/**
 * Asks all masters that answer which of their members do not go by a list with this start of the node yet, and waits
 * until all members do, at most `waitMs`. Returns the ids of `members` for which no master has said so. Never rejects.
 */
export async function unawareOf(
  links: Iterable<MasterLink>,
  members: () => Iterable<string>,
  waitMs: number,
): Promise<string[]> {
  const aware = new Set<string>();
  const left = (): string[] => [...members()].filter((nodeId) => !aware.has(nodeId));
  await new Promise<void>((resolve) => {
    const ask = async (link: MasterLink): Promise<void> => {
      const unaware = await link.unaware(waitMs);
      for (const nodeId of link.view?.members.keys() ?? []) if (!unaware.has(nodeId)) aware.add(nodeId);
      if (left().length === 0) resolve();
    };
    const asked = [...links].filter(({ hasView }) => hasView).map(ask);
    void Promise.allSettled(asked).then(() => resolve());
  });
  return left();
}
