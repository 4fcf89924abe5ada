import type { Clock } from '../base/environment/clock.js';
import { type OwnerRing, ownersOf } from './owners/owners.js';
import type { DirectoryShard } from './shard/shard.js';

const SLICE_KEYS = 512;

export interface Owned {
  readonly nodeId: string;
  readonly replicas: number;
  /** Returns the current ring; called for each slice. Undefined ends the pruning. */
  ring(): OwnerRing | undefined;
  /** Former rings by which other nodes may still ask this node; default: none. */
  formerRings?(): readonly OwnerRing[];
}

/**
 * Forgets the keys that `nodeId` owns neither by the current ring nor by a former ring that still counts, because no
 * node asks it for them. Call it some time after owners have changed, when every node uses the new ring. Yields to
 * other work between slices. Returns the number of forgotten keys, 0 if the node is not on the ring.
 */
export async function pruneShard(shard: DirectoryShard, owned: Owned, clock: Pick<Clock, 'yield'>): Promise<number> {
  let forgotten = 0;
  let slice: string[] = [];
  for (const key of shard.keys()) {
    slice.push(key);
    if (slice.length < SLICE_KEYS) continue;
    forgotten += forgetForeign(shard, owned, slice);
    slice = [];
    await clock.yield();
  }
  return forgotten + forgetForeign(shard, owned, slice);
}

function forgetForeign(shard: DirectoryShard, owned: Owned, keys: readonly string[]): number {
  const ring = owned.ring();
  const own = ring?.nodes.indexOf(owned.nodeId) ?? -1;
  if (ring === undefined || own < 0) return 0;
  let foreign = keys;
  for (const one of [ring, ...(owned.formerRings?.() ?? [])]) foreign = foreignBy(one, foreign, owned);
  shard.forget(foreign);
  return foreign.length;
}

function foreignBy(ring: OwnerRing, keys: readonly string[], { nodeId, replicas }: Owned): readonly string[] {
  const own = ring.nodes.indexOf(nodeId);
  if (own < 0 || keys.length === 0) return keys;
  const owners = ownersOf(ring, keys, replicas);
  return keys.filter((_, i) => !owners.subarray(i * replicas, (i + 1) * replicas).includes(own));
}
