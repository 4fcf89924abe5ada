import { assertAtMost } from '../../base/assert.js';
import { MEMBERS_MAX_COUNT } from '../../base/limits.js';

/**
 * Owners that may know of something that this node has announced. When there are more than a cluster can have members,
 * the earliest are forgotten: they have left the cluster, because every member is told anew and renounced to again and
 * again.
 */
export class ToldOwners {
  /** Owner -> generation of the last statement sent to it since it last learned that earlier ones are void. */
  readonly #generations = new Map<string, number>();

  /** Records that the owner was sent a statement of this generation, whether or not it has answered. */
  told(ownerId: string, generation: number): void {
    this.#generations.set(ownerId, generation);
    if (this.#generations.size <= MEMBERS_MAX_COUNT) return;
    const [first] = this.#generations.keys();
    this.#generations.delete(first as string);
  }

  /** Records that the owner has accepted that all statements up to this generation are void. */
  renounced(ownerId: string, generation: number): void {
    if ((this.#generations.get(ownerId) ?? 0) <= generation) this.#generations.delete(ownerId);
  }

  has(ownerId: string): boolean {
    return this.#generations.has(ownerId);
  }

  /** Throws `InvariantError` unless the number of owners is within its limit. */
  verify(): void {
    assertAtMost('told owners', this.#generations.size, MEMBERS_MAX_COUNT);
  }
}
