import { assert } from '../../base/assert.js';
import { PartitionedRing } from '../../core/ring/partitions.js';
import type { OwnerRing } from '../../directory/owners/owners.js';

/** A user of rings; names the rings that it may still use. */
export interface RingUser {
  rings(): readonly OwnerRing[];
}

/**
 * Creates and owns a node's rings, one per change of members, and frees rings that have no user any more: their points
 * are in WASM memory, which the garbage collector does not see.
 */
export class OwnerRings {
  readonly #vnodes: number;
  readonly #live = new Set<PartitionedRing>();
  /** Node ids of the latest ring, in its order. */
  #nodeIds: readonly string[] = [];

  constructor(vnodes: number) {
    this.#vnodes = vnodes;
  }

  /** Number of rings that have not been freed. */
  get count(): number {
    return this.#live.size;
  }

  make(nodeIds: readonly string[], zones?: ReadonlyMap<string, string>): PartitionedRing {
    const ring = new PartitionedRing(this.#vnodes);
    ring.setNodes(nodeIds, zones);
    this.#live.add(ring);
    this.#nodeIds = ring.nodes;
    return ring;
  }

  /**
   * Creates the next ring: of the nodes in `changed`, it has those for which `isWanted` is true; all others are as
   * before. `zones`: the zones of all nodes; undefined: none.
   */
  next(
    changed: readonly string[],
    isWanted: (nodeId: string) => boolean,
    zones?: ReadonlyMap<string, string>,
  ): PartitionedRing {
    const others = new Set(changed);
    const kept = this.#nodeIds.filter((nodeId) => !others.has(nodeId));
    return this.make(kept.concat(changed.filter(isWanted)), zones);
  }

  /** Frees every ring that none of these users needs. */
  keepFor(users: readonly RingUser[]): void {
    const used = new Set<OwnerRing>(users.flatMap((user) => user.rings()));
    for (const ring of this.#live) {
      if (used.has(ring)) continue;
      ring.free();
      this.#live.delete(ring);
    }
  }

  /** Throws `InvariantError` if one of these users needs a ring that was made here and has been freed. */
  verify(users: readonly RingUser[]): void {
    for (const ring of users.flatMap((user) => user.rings())) {
      assert(!(ring instanceof PartitionedRing) || this.#live.has(ring), 'owner rings: one that is used was freed');
    }
  }
}
