import type { Environment } from '../../base/environment/environment.js';
import type { NodeDirectory } from './node-directory.js';
import { OwedStatements } from './owed-statements.js';
import type { Publications } from './owner-lists.js';

export interface PageUpkeepParts {
  readonly directory: NodeDirectory;
  readonly pages: Publications;
  readonly env: Environment;
}

/** Keeps directory owners informed of this node's pages: lists them to new owners, and repeats what owners have missed. */
export class PageUpkeep {
  readonly #parts: PageUpkeepParts;
  readonly #owed: OwedStatements;

  constructor(parts: PageUpkeepParts) {
    const { directory, pages, env } = parts;
    this.#parts = parts;
    const owed = new OwedStatements({
      directory: directory.client,
      locationsOf: (keys) => pages.locationsOf(keys),
      isMember: (nodeId) => directory.isMember(nodeId),
      restateAll: (ownerId) => directory.restate(ownerId),
      env,
    });
    directory.owed.listen((ownerId, keys) => owed.owe(ownerId, keys));
    directory.changed.listen(() => owed.membersChanged());
    this.#owed = owed;
  }

  /** Begins the work, when the node has joined. Pages that the disk has kept from an earlier start are announced to all owners. */
  start(): void {
    const { directory, pages } = this.#parts;
    directory.startAnnouncing(pages);
    if (!pages.isEmpty) directory.announceAll();
  }

  /** Ends all work: from now on no page is asked for, and nothing is sent. */
  stop(): void {
    this.#owed.stop();
  }

  /** Throws `InvariantError` unless the owed statements are within their limits. */
  verify(): void {
    this.#owed.verify();
  }
}
