import type { Logger } from '../../base/environment/log.js';
import type { RpcServer } from '../../rpc/server.js';
import { unlessOfDisk } from '../../store/ground/page-statements.js';
import type { ClearedDrop } from './clears.js';
import type { NodeDirectory } from './node-directory.js';
import type { Publications } from './owner-lists.js';
import type { DropReason } from './page-drops.js';

export interface VoidPagesParts {
  readonly directory: NodeDirectory;
  readonly pages: Pick<Publications, 'drop' | 'locationsOf'>;
  readonly dropCleared: ClearedDrop;
  readonly log: Logger;
}

/**
 * Drops this node's pages that the cluster has replaced or deleted: when another node says so, and when the directory's
 * answers show it.
 */
export class VoidPages {
  readonly #parts: VoidPagesParts;

  constructor(parts: VoidPagesParts) {
    this.#parts = parts;
    parts.directory.client.outdated.listen((keys, versions) => this.#dropOutdated(keys, versions));
  }

  /** Handles calls about clears, dropping pages, and stating all pages again. */
  attach(server: RpcServer): void {
    const { directory, dropCleared } = this.#parts;
    directory.clears.handle(server, dropCleared);
    directory.drops.handle(
      server,
      (keys, voidBelow, reason) => this.#drop(keys, voidBelow, reason),
      (ownerId) => directory.restate(ownerId),
    );
  }

  /**
   * Drops pages. For deleted keys, resolves with the newest version under any of them that this node still has or knows
   * of, else with 0.
   */
  async #drop(keys: readonly string[], voidBelow: readonly number[], reason: DropReason): Promise<number> {
    const { directory, pages } = this.#parts;
    if (reason === 'deleted') directory.forgetDeleted(keys, voidBelow);
    await pages.drop(keys, voidBelow, {
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

  /**
   * Drops pages and withdraws them from their owners: an owner that has not heard of the newer page still lists the
   * outdated one. If the disk cannot record the removal, the tier has reported it, and nobody finds the pages there
   * while this node runs.
   */
  async #dropAndRetract(keys: readonly string[], voidBelow: readonly number[]): Promise<void> {
    const { directory, pages } = this.#parts;
    // The newer content, from another node, may have the same version.
    await pages.drop(keys, voidBelow, { isTie: true }).catch(unlessOfDisk);
    const left = pages.locationsOf(keys);
    await directory.client.delete(keys.filter((_, i) => (left[i] ?? null) === null));
  }
}
