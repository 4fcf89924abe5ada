import type { HybridClock } from '../../base/concurrency/hybrid-clock.js';
import type { Clock } from '../../base/environment/clock.js';
import type { Environment } from '../../base/environment/environment.js';
import type { Endpoint } from '../../base/environment/network.js';
import { type Keys, stringsOf } from '../../core/binding/key-batch.js';
import { RpcClient } from '../../rpc/client.js';
import { columnOf, decodeKeys } from '../messages/key-column.js';
import type { LocationColumns } from '../messages/location-columns.js';
import type { NoteColumns } from '../messages/note-columns.js';
import { Taken } from '../messages/taken.js';
import type { PutAnswer, PutWish } from '../messages/wire.js';
import type { DirectoryShard } from '../shard/shard.js';
import { type DirectoryOwner, type Dropped, type FoundLocations, OwnerChannel, type Search } from './owner-channel.js';

interface OwnShardParts {
  readonly nodeId: string;
  readonly shard: DirectoryShard;
  /** Resolves when the holders of displaced pages have been told; see `DirectoryServerOptions`. */
  readonly displacedTold: (keys: readonly string[]) => Promise<void>;
  readonly clock: Clock;
}

/** Address of a node's control port; undefined while it is not known. */
export type ResolveControl = (nodeId: string) => Endpoint | undefined;

export interface OwnerChannelsOptions {
  readonly nodeId: string;
  /** The shard of this node; undefined: all owners are other nodes. */
  readonly localShard: DirectoryShard | undefined;
  /**
   * Resolves when the holders of pages that the own shard has displaced have been told; see `DirectoryServerOptions`.
   */
  readonly displacedTold: (keys: readonly string[]) => Promise<void>;
  readonly resolveControl: ResolveControl;
  /** RPC client that is used and not closed; undefined: a new one. */
  readonly rpc: RpcClient | undefined;
  readonly env: Environment;
  readonly timeoutMs: number | undefined;
  /** Clock that observes the versions that shards know of. */
  readonly versions: HybridClock;
}

/** From this many channels on, idle channels to nodes that have left are dropped. */
const PRUNED_FROM_COUNT = 64;

/** The directory owners that a client asks: one channel each, this node's own shard among them. */
export class OwnerChannels {
  readonly #options: OwnerChannelsOptions;
  readonly #rpc: RpcClient;
  readonly #own: OwnShard | undefined;
  readonly #channels = new Map<string, OwnerChannel>();
  #pruneAtCount = PRUNED_FROM_COUNT;

  constructor(options: OwnerChannelsOptions) {
    this.#options = options;
    this.#rpc = options.rpc ?? new RpcClient({ env: options.env });
    const { nodeId, localShard: shard, displacedTold, env } = options;
    this.#own = shard && new OwnShard({ nodeId, shard, displacedTold, clock: env.clock });
  }

  to(ownerId: string): DirectoryOwner {
    if (this.#own !== undefined && ownerId === this.#options.nodeId) return this.#own;
    return this.#channels.get(ownerId) ?? this.#add(ownerId);
  }

  /**
   * Puts locations, see {@link DirectoryOwner}, and observes the versions that the owner knows of. A page whose version
   * is too far ahead by this node's clock is `outdated` whatever the owner says, because the owner's clock may be
   * behind.
   */
  async put(ownerId: string, keys: Keys, columns: LocationColumns, wish: PutWish): Promise<PutAnswer | undefined> {
    const answer = await this.to(ownerId).put(keys, columns, wish);
    if (answer === undefined) return undefined;
    const { versions } = this.#options;
    versions.see(answer.newestVersion);
    for (let i = 0; i < columns.count; i++) {
      if (versions.isAhead(columns.version[i] as number, columns.expires[i])) answer.taken[i] = Taken.outdated;
    }
    return answer;
  }

  /** Closes the connections, unless the RPC client was passed in. Idempotent. */
  async close(): Promise<void> {
    if (this.#options.rpc === undefined) await this.#rpc.close();
  }

  #add(ownerId: string): OwnerChannel {
    if (this.#channels.size >= this.#pruneAtCount) this.#prune();
    const { nodeId, resolveControl, timeoutMs, env } = this.#options;
    const channel = new OwnerChannel({
      nodeId,
      resolveControl: () => resolveControl(ownerId),
      rpc: this.#rpc,
      timeoutMs,
      clock: env.clock,
      metrics: env.metrics,
    });
    this.#channels.set(ownerId, channel);
    return channel;
  }

  #prune(): void {
    for (const [ownerId, channel] of this.#channels) {
      if (channel.isIdle && !channel.isReachable()) this.#channels.delete(ownerId);
    }
    this.#pruneAtCount = Math.max(PRUNED_FROM_COUNT, 2 * this.#channels.size);
  }

  /** Throws `InvariantError` unless each queue is consistent. */
  verify(): void {
    for (const channel of this.#channels.values()) channel.verify();
  }
}

/** The directory shard of this node, which is asked without a socket. */
class OwnShard implements DirectoryOwner {
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
    await this.#othersAsked();
    // The shard keeps its keys: the key column turns them into strings that share no memory with the caller's.
    const own = decodeKeys(columnOf(keys), true);
    const taken = shard.put(own, columns, wish);
    await displacedTold(own);
    return { taken, newestVersion: shard.newestVersion };
  }

  async delete(keys: Keys, dropped: Dropped): Promise<boolean> {
    await this.#othersAsked();
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

  /**
   * Resolves when the requests of this turn to other owners have been sent, so that all owners work at the same time.
   * Requests are queued until their caller pauses, and written when the first task after that begins.
   */
  #othersAsked(): Promise<void> {
    const { clock } = this.#parts;
    return new Promise((resolve) => clock.soon(() => clock.soon(resolve)));
  }
}
