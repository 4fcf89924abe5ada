import { unlessAborted } from '../base/concurrency/cancellation.js';
import type { DirectoryClient } from '../directory/client.js';
import type { DataLocation } from '../types.js';
import { indicesWhere } from './call/indices.js';
import type { PageStatements } from './page-statements.js';

export interface LocatingParts {
  readonly statements: Pick<PageStatements, 'locationsOf'>;
  readonly directory: Pick<DirectoryClient, 'get'>;
}

/**
 * One location for each key: on this node, else as the directory says; null: neither has it, or the signal was aborted
 * before the answer.
 */
export async function locatePages(
  keys: readonly string[],
  { statements, directory }: LocatingParts,
  signal: AbortSignal | undefined,
): Promise<(DataLocation | null)[]> {
  const locations = statements.locationsOf(keys);
  const unknown = indicesWhere(locations, (location) => location === null);
  if (unknown.length === 0 || signal?.aborted) return locations;
  const found = await unlessAborted(directory.get(unknown.map((i) => keys[i] as string)), signal);
  unknown.forEach((i, j) => {
    locations[i] = found?.[j] ?? null;
  });
  return locations;
}
