import { assertAtMost } from '../../base/assert.js';
import { MEMBERS_MAX_COUNT } from '../../base/limits.js';

/**
 * Owners that may know of something that the own node has stated. Those that were told first are forgotten when there are more than a cluster
 * has members: they have gone, for all others are renounced to, and told anew, again and again.
 */
export class ToldOwners {
  /** Owner -> the last statement that it was sent, since it was told last that all before are void. */
  readonly #generations = new Map<string, number>();

  /** It was sent a statement of that generation, whether it has answered or not. */
  told(ownerId: string, generation: number): void {
    this.#generations.set(ownerId, generation);
    if (this.#generations.size <= MEMBERS_MAX_COUNT) return;
    const [first] = this.#generations.keys();
    this.#generations.delete(first as string);
  }

  /** It has taken that all up to that generation is void. */
  renounced(ownerId: string, generation: number): void {
    if ((this.#generations.get(ownerId) ?? 0) <= generation) this.#generations.delete(ownerId);
  }

  has(ownerId: string): boolean {
    return this.#generations.has(ownerId);
  }

  /** Throws `InvariantError` unless there are no more than may be. */
  verify(): void {
    assertAtMost('told owners', this.#generations.size, MEMBERS_MAX_COUNT);
  }
}
