import { addTo } from '../../directory/owners/owners.js';

/** Keys of pages, grouped by the nodes that have them, in the order in which they were added. */
export class KeysByOwner {
  readonly #keys = new Map<string, string[]>();

  add(nodeId: string, key: string): void {
    addTo(this.#keys, nodeId, key);
  }

  forEach(use: (nodeId: string, keys: string[]) => void): void {
    for (const [nodeId, keys] of this.#keys) use(nodeId, keys);
  }
}
