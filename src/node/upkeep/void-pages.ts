import type { Logger } from '../../base/environment/log.js';
import { keysByOwner, type OwnerRing } from '../../directory/owners/owners.js';
import type { RpcServer } from '../../rpc/server.js';
import { type MemberChange, startedIn } from './member-log.js';
import type { NodeDirectory } from './node-directory.js';
import type { Publications } from './owner-lists.js';
import type { DropReason } from './page-drops.js';

export interface VoidPagesParts {
  readonly nodeId: string;
  readonly replicas: number;
  readonly directory: NodeDirectory;
  readonly pages: Pick<Publications, 'drop' | 'locationsOf' | 'voids'>;
  readonly log: Logger;
}

/**
 * Drops the pages of this node that the cluster has replaced or deleted: when another node says so, and when the directory's answers show it.
 * Tells nodes that join what became void while they were away.
 */
export class VoidPages {
  readonly #parts: VoidPagesParts;

  constructor(parts: VoidPagesParts) {
    this.#parts = parts;
    parts.directory.outdated.listen((keys, versions) => this.#dropOutdated(keys, versions));
    parts.directory.changed.listen((change, ring) => this.#tellJoined(change, ring));
  }

  /** Answers nodes that tell this one to drop pages, or to announce all its pages again. */
  attach(server: RpcServer): void {
    const { directory } = this.#parts;
    directory.drops.handle(
      server,
      (keys, voidBelow, reason) => this.#drop(keys, voidBelow, reason),
      () => directory.announceAll(),
    );
  }

  /** Drops pages. For deleted keys it returns the newest version that this node still has or knows of under any of them, else 0. */
  async #drop(keys: readonly string[], voidBelow: readonly number[], reason: DropReason): Promise<number> {
    const { directory, pages } = this.#parts;
    if (reason === 'deleted') directory.forgetDeleted(keys, voidBelow);
    await pages.drop(keys, voidBelow, {
      isCopy: reason === 'copy',
      isTie: reason === 'tied',
      isDeleted: reason === 'deleted',
    });
    if (reason !== 'deleted') return 0;
    const versions = pages.locationsOf(keys).map((page) => page?.version ?? 0);
    return versions.reduce((newest, version) => Math.max(newest, version), directory.newestKnown(keys));
  }

  #dropOutdated(keys: readonly string[], versions: readonly number[]): void {
    const voidBelow = versions.map((version) => version + 1);
    const { directory, log } = this.#parts;
    const dropped = this.#dropAndRetract(keys, voidBelow).catch((error: unknown) => {
      log.log('error', 'dropping outdated pages failed', { error: String(error) });
    });
    directory.dropping(dropped);
  }

  /** Drops pages, and tells their owners: one that has not heard of the newer page still lists the outdated one. */
  async #dropAndRetract(keys: readonly string[], voidBelow: readonly number[]): Promise<void> {
    const { directory, pages } = this.#parts;
    // The newer content may have the same version, by another node.
    await pages.drop(keys, voidBelow, { isTie: true });
    const left = pages.locationsOf(keys);
    await directory.client.delete(keys.filter((_, i) => (left[i] ?? null) === null));
  }

  /**
   * Tells every start of a node that joins what this node has set and dropped, for the keys that the other one owns now. It may have been away
   * together with others that know nothing newer than what their shards have; it passes it on to the holders of outdated pages. Nor does a
   * location always say so: a computed page of this node hides the named content that it has replaced. A node may have joined from this one's
   * point of view only, which has started while the other was cut off.
   */
  #tellJoined(change: MemberChange, ring: OwnerRing): void {
    const { nodeId: ownId, replicas, directory, pages } = this.#parts;
    const joined = startedIn(change, ownId);
    if (joined.length === 0) return;
    const voids = [...pages.voids()];
    const keysOf = keysByOwner(
      voids.map(([key]) => key),
      [ring],
      replicas,
    );
    for (const nodeId of joined) {
      const drops = (keysOf.get(nodeId) ?? []).map((i) => {
        const [key, voidBelow] = voids[i] as (typeof voids)[number];
        return { key, voidBelow, reason: 'deleted' as const };
      });
      if (drops.length > 0) directory.drops.tell(nodeId, drops);
    }
  }
}
