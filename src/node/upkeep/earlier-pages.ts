import type { DiskStore } from '../../disk/disk-store.js';
import type { NodeRuntime } from '../runtime/node-runtime.js';

/**
 * What lies on a disk since before this start, and may have been overwritten or deleted while the node was away. The versions of what is
 * set from now on are later, also when the date was set back since.
 *
 * The function that is returned tells whether all other nodes have said what they know of it: they have announced their pages to this
 * node, and have answered the announcement of its own. A node that has found no discovery master does not know them.
 */
export function earlierPages(
  runtime: Pick<NodeRuntime, 'drops' | 'members' | 'versions' | 'waitForDirectory'>,
  disk: Pick<DiskStore, 'info' | 'newestVersion'> | null,
): () => boolean {
  if (disk === null || disk.info().entries === 0) return () => true;
  runtime.versions.see(disk.newestVersion);
  let isFilled = false;
  void runtime.waitForDirectory().then((isComplete) => {
    isFilled = isComplete;
  });
  return () => isFilled && (runtime.members().size === 1 || runtime.drops.isAnnounced);
}
