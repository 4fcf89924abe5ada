import { type Keys, stringsOf } from '../../core/binding/key-batch.js';
import { columnOf, decodeKeys } from '../messages/key-column.js';
import type { LocationColumns } from '../messages/location-columns.js';
import type { NoteColumns } from '../messages/note-columns.js';
import type { PutAnswer, PutWish } from '../messages/wire.js';
import type { DirectoryShard } from '../shard/shard.js';
import type { DirectoryOwner, Dropped, FoundLocations, Search } from './owner-channel.js';

export interface OwnShardParts {
  readonly nodeId: string;
  readonly shard: DirectoryShard;
  /** Resolves when the holders of displaced pages have been told; see `DirectoryServerOptions`. */
  readonly displacedTold: (keys: readonly string[]) => Promise<void>;
}

/** The directory shard of this node, which is asked without a socket. */
export class OwnShard implements DirectoryOwner {
  readonly #parts: OwnShardParts;

  constructor(parts: OwnShardParts) {
    this.#parts = parts;
  }

  async get({ keys, avoided }: Search): Promise<FoundLocations> {
    const { shard, nodeId } = this.#parts;
    return { columns: shard.get(stringsOf(keys), nodeId, avoided), from: 0 };
  }

  async exists(keys: Keys): Promise<Uint8Array> {
    return this.#parts.shard.exists(stringsOf(keys));
  }

  async put(keys: Keys, columns: LocationColumns, wish: PutWish = {}): Promise<PutAnswer> {
    const { shard, displacedTold } = this.#parts;
    // The shard keeps its keys: the key column turns them into strings that share no memory with the caller's.
    const own = decodeKeys(columnOf(keys), true);
    const taken = shard.put(own, columns, wish);
    await displacedTold(own);
    return { taken, newestVersion: shard.newestVersion };
  }

  async delete(keys: Keys, dropped: Dropped): Promise<boolean> {
    this.#parts.shard.delete(stringsOf(keys), dropped);
    return true;
  }

  async renounce({ nodeId, incarnation, generation }: Dropped): Promise<boolean> {
    this.#parts.shard.renounce(nodeId, incarnation, generation);
    return true;
  }

  async note(notes: NoteColumns): Promise<boolean> {
    this.#parts.shard.takeNotes(notes);
    return true;
  }

  async discard(keys: Keys, columns: LocationColumns): Promise<void> {
    this.#parts.shard.discard(stringsOf(keys), columns);
  }

  isReachable(): boolean {
    return true;
  }
}
