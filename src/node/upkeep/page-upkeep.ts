import type { Environment } from '../../base/environment/environment.js';
import { keysByOwner } from '../../directory/owners/owners.js';
import type { Publications } from './announcer.js';
import { AntiEntropy } from './anti-entropy.js';
import type { NodeDirectory } from './node-directory.js';
import { OwedStatements } from './owed-statements.js';

export interface PageUpkeepParts {
  readonly replicas: number;
  readonly directory: NodeDirectory;
  readonly pages: Publications;
  readonly env: Environment;
}

/** Keeps directory owners informed of this node's pages: announces to new owners, repeats what owners have missed, and restates everything at a low rate. */
export class PageUpkeep {
  readonly #parts: PageUpkeepParts;
  readonly #antiEntropy: AntiEntropy;
  readonly #owed: OwedStatements;

  constructor(parts: PageUpkeepParts) {
    const { replicas, directory, pages, env } = parts;
    this.#parts = parts;
    const antiEntropy = new AntiEntropy({ directory: directory.client, publications: pages, replicas, env });
    const owed = new OwedStatements({
      directory: directory.client,
      locationsOf: (keys) => pages.locationsOf(keys),
      ownersOf: (keys) => keysByOwner(keys, directory.client.rings().slice(0, 1), replicas),
      isMember: (nodeId) => directory.isMember(nodeId),
      restateAll: (ownerId) => antiEntropy.restateTo(ownerId),
      env,
    });
    directory.owed.listen((ownerId, keys, withCopies) => owed.owe(ownerId, keys, withCopies));
    directory.changed.listen(() => owed.membersChanged());
    this.#antiEntropy = antiEntropy;
    this.#owed = owed;
  }

  /** Begins the work, when the node has joined. Pages that the disk has kept from an earlier start are announced to all owners. */
  start(): void {
    const { directory, pages } = this.#parts;
    directory.startAnnouncing(pages);
    this.#antiEntropy.start();
    if (!pages.isEmpty) directory.announceAll();
  }

  /** Ends all work: from now on no page is asked for, and nothing is sent. */
  stop(): void {
    this.#owed.stop();
    this.#antiEntropy.stop();
  }

  /** Throws `InvariantError` unless the owed statements are within their limits. */
  verify(): void {
    this.#owed.verify();
  }
}
