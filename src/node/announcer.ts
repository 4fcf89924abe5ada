import type { Environment } from '../base/environment.js';
import { DIRECTORY_REQUEST_MAX_KEYS } from '../base/limits.js';
import type { DirectoryClient } from '../directory/client.js';
import { gainedKeysByOwner, type OwnerView } from '../directory/reannounce.js';
import type { DataLocation } from '../types.js';

/** The pages that this node has published and must be found. */
export interface Publications {
  keys(): readonly string[];
  /** Locations of those that are still there, in order; null for the others. */
  locationsOf(keys: readonly string[]): (DataLocation | null)[];
  /** Other nodes have read these. */
  touch(keys: readonly string[]): void;
}

/**
 * Tells new directory owners what they have to know of this node's pages.
 *
 * Invariant: owners of `#announced` have been told of every page that was there then; pages
 * published since are put to the owners of the time by the store. One pass runs at a time; a change
 * in the meantime starts another pass from where the last one ended.
 */
export class Announcer {
  readonly #directory: DirectoryClient;
  readonly #replicas: number;
  readonly #env: Environment;
  #publications: Publications | undefined;
  #announced: OwnerView;
  #current: OwnerView;
  #pass: Promise<void> | undefined;
  #stopped = false;

  constructor(options: { directory: DirectoryClient; replicas: number; initial: OwnerView; env: Environment }) {
    this.#directory = options.directory;
    this.#replicas = options.replicas;
    this.#env = options.env;
    this.#announced = options.initial;
    this.#current = options.initial;
  }

  announceFrom(publications: Publications): void {
    this.#publications = publications;
  }

  ownersChanged(view: OwnerView): void {
    this.#current = view;
    this.#pass ??= this.#announceChanges().finally(() => {
      this.#pass = undefined;
    });
  }

  /** Resolves when nothing is being announced any more. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#pass;
  }

  async #announceChanges(): Promise<void> {
    while (this.#announced !== this.#current && !this.#stopped) {
      const target = this.#current;
      const keys = this.#publications?.keys() ?? [];
      const gained = gainedKeysByOwner(this.#announced, target, this.#replicas, keys);
      for (const [owner, ownerKeys] of gained) await this.#announceTo(owner, ownerKeys);
      this.#announced = target;
    }
  }

  async #announceTo(owner: string, keys: readonly string[]): Promise<void> {
    for (let first = 0; first < keys.length && !this.#stopped; first += DIRECTORY_REQUEST_MAX_KEYS) {
      const batch = keys.slice(first, first + DIRECTORY_REQUEST_MAX_KEYS);
      const locations = this.#publications?.locationsOf(batch) ?? [];
      const entries = new Map<string, DataLocation>();
      batch.forEach((key, i) => {
        const location = locations[i];
        if (location) entries.set(key, location);
      });
      await this.#directory.announce(owner, entries);
      this.#env.metrics.count('meshcache_reannounced_keys_total', entries.size);
      await this.#env.clock.yield();
    }
  }
}
