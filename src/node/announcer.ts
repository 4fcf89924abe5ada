import type { Environment } from '../base/environment.js';
import type { DirectoryClient } from '../directory/client.js';
import { NO_OWNER } from '../directory/owners.js';
import { gainedKeysInSlices, type RingView } from '../directory/reannounce.js';
import type { DataLocation } from '../types.js';

/** The owners before there were any. */
const NOBODY: RingView = { ring: { nodes: [], getNodesBatch: noOwners }, incarnations: new Map() };

/** The pages that this node has published and that must be found. */
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
  #announced: RingView;
  #current: RingView;
  #pass: Promise<void> | undefined;
  #stopped = false;

  constructor(options: { directory: DirectoryClient; replicas: number; initial: RingView; env: Environment }) {
    this.#directory = options.directory;
    this.#replicas = options.replicas;
    this.#env = options.env;
    this.#announced = options.initial;
    this.#current = options.initial;
  }

  announceFrom(publications: Publications): void {
    this.#publications = publications;
  }

  ownersChanged(view: RingView): void {
    this.#current = view;
    this.#start();
  }

  /** Starts from nothing: the owners may have dropped what they had been told. */
  announceAll(): void {
    this.#announced = NOBODY;
    this.#start();
  }

  /** Resolves when nothing is being announced any more. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#pass;
  }

  #start(): void {
    this.#pass ??= this.#announceChanges()
      .catch((error: unknown) => {
        this.#env.log.log('error', 'announcing pages to their new owners failed', { error: String(error) });
      })
      .finally(() => {
        this.#pass = undefined;
      });
  }

  async #announceChanges(): Promise<void> {
    while (this.#announced !== this.#current && !this.#stopped) {
      const [origin, target] = [this.#announced, this.#current];
      const keys = this.#publications?.keys() ?? [];
      for (const gained of gainedKeysInSlices(origin, target, this.#replicas, keys)) {
        await Promise.all([...gained].map(([ownerId, ownerKeys]) => this.#announceTo(ownerId, ownerKeys)));
        await this.#env.clock.yield();
        if (this.#stopped) return;
      }
      if (this.#announced === origin) this.#announced = target;
    }
  }

  async #announceTo(ownerId: string, keys: readonly string[]): Promise<void> {
    const publications = this.#publications;
    if (publications === undefined) return;
    const isComplete = await this.#directory.announce(ownerId, keys, (some) => publications.locationsOf(some));
    this.#env.metrics.count('meshcache_reannounced_keys_total', keys.length);
    if (isComplete || this.#stopped) return;
    this.#env.log.log('warn', 'a directory owner has not taken all pages that were announced to it', {
      owner: ownerId,
      keys: keys.length,
    });
  }
}

function noOwners(keys: readonly string[], n: number): Uint32Array {
  return new Uint32Array(keys.length * n).fill(NO_OWNER);
}
