import { assert } from '../../base/assert.js';
import { ConsistentHashRing } from '../../core/index.js';
import type { OwnerRing } from '../../directory/owners.js';

/** Whoever asks rings: those that it may ask from now on, without being given them again. */
export interface RingUser {
  rings(): readonly OwnerRing[];
}

/**
 * Makes and owns a node's rings, one for each change of its members, and frees those that nobody uses any more: their points
 * are WASM memory, which the garbage collector does not see.
 */
export class OwnerRings {
  readonly #vnodes: number;
  readonly #live = new Set<ConsistentHashRing>();
  /** Of the last one, in its order. */
  #nodeIds: readonly string[] = [];

  constructor(vnodes: number) {
    this.#vnodes = vnodes;
  }

  /** Rings that are not freed. */
  get count(): number {
    return this.#live.size;
  }

  make(nodeIds: readonly string[]): ConsistentHashRing {
    const ring = new ConsistentHashRing(this.#vnodes);
    ring.setNodes(nodeIds);
    this.#live.add(ring);
    this.#nodeIds = ring.nodes;
    return ring;
  }

  /** With the nodes of the last one, but for those of `changed` that are not wanted any more, and with those that are now. */
  next(changed: readonly string[], isWanted: (nodeId: string) => boolean): ConsistentHashRing {
    const others = new Set(changed);
    const kept = this.#nodeIds.filter((nodeId) => !others.has(nodeId));
    return this.make(kept.concat(changed.filter(isWanted)));
  }

  /** Frees every ring that none of these uses. */
  keepFor(users: readonly RingUser[]): void {
    const used = new Set<OwnerRing>(users.flatMap((user) => user.rings()));
    for (const ring of this.#live) {
      if (used.has(ring)) continue;
      ring.free();
      this.#live.delete(ring);
    }
  }

  /** Throws `InvariantError` unless every ring that one of these uses, and that was made here, is not freed. */
  verify(users: readonly RingUser[]): void {
    for (const ring of users.flatMap((user) => user.rings())) {
      assert(!(ring instanceof ConsistentHashRing) || this.#live.has(ring), 'owner rings: one that is used was freed');
    }
  }
}
