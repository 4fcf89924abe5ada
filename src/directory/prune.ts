import type { Clock } from '../base/clock.js';
import type { OwnerRing } from './owners.js';
import type { DirectoryShard } from './shard.js';

const SLICE_KEYS = 4096;

/**
 * Forgets the keys that `nodeId` does not own by this ring (any more): nobody asks it for them. To be called some time after
 * owners have changed, when every node goes by the new ring. Leaves the thread to others between slices; returns the
 * number of keys forgotten, 0 when the node is not on the ring. Ends early when `isCurrent` says that the ring has changed again.
 */
export async function pruneShard(
  shard: DirectoryShard,
  owned: { readonly ring: OwnerRing; readonly nodeId: string; readonly replicas: number },
  clock: Pick<Clock, 'yield'>,
  isCurrent: () => boolean = () => true,
): Promise<number> {
  const { ring, replicas } = owned;
  const own = ring.nodes.indexOf(owned.nodeId);
  if (own < 0) return 0;
  let forgotten = 0;
  let slice: string[] = [];
  const pruneSlice = (): void => {
    const owners = ring.getNodesBatch(slice, replicas);
    const foreign = slice.filter((_, i) => !owners.subarray(i * replicas, (i + 1) * replicas).includes(own));
    shard.forget(foreign);
    forgotten += foreign.length;
    slice = [];
  };
  for (const key of shard.keys()) {
    slice.push(key);
    if (slice.length < SLICE_KEYS) continue;
    pruneSlice();
    await clock.yield();
    if (!isCurrent()) return forgotten;
  }
  if (slice.length > 0 && isCurrent()) pruneSlice();
  return forgotten;
}
