import { type Environment, systemEnvironment } from '../base/environment.js';
import { ArgumentError } from '../base/errors.js';
import { DIRECTORY_KEY_MAX_BYTES, DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT } from '../base/limits.js';
import type { Endpoint } from '../base/network.js';
import { RpcClient } from '../rpc/client.js';
import type { DataLocation } from '../types.js';
import { decodeKeys, encodeKeys } from './key-column.js';
import { LocationColumns } from './location-columns.js';
import { inParallel, NO_OWNER, type OwnerRing, requestsOf } from './owners.js';
import type { DirectoryShard } from './shard.js';
import { asFields, DirectoryMethod, keyFields, locationFields, readFlags, readLocations } from './wire.js';

export type ResolveControl = (nodeId: string) => Endpoint | undefined;

export interface DirectoryClientOptions {
  /** The own node: its shard is asked without a socket, its own locations are useful to it only when there are no others. */
  readonly nodeId?: string;
  /** The own node's start: goes into its locations that have none. Default 0. */
  readonly incarnation?: number;
  /** Used, not closed, by this client. Default: one of its own, which `close` closes. */
  readonly rpc?: RpcClient;
  /** The own node's shard. */
  readonly localShard?: DirectoryShard;
  readonly env?: Environment;
  /** Deadline of one request; default RPC_CALL_TIMEOUT_MS. */
  readonly timeoutMs?: number;
}

/** Locations given at once, or asked for batch by batch just before each is sent; null: nothing to announce. */
export type LocationSource =
  | readonly (DataLocation | null)[]
  | ((keys: readonly string[]) => readonly (DataLocation | null)[]);

/** Identities that one client remembers having stated locations for: its own, in tests a few more. */
const IDENTITIES_MAX_COUNT = 64;

/**
 * Asks and tells the shards of a key's owners: one request an owner and batch. A shard that does not answer is a miss or
 * false, never an exception; only wrong arguments throw (`ArgumentError`), before anything is sent.
 *
 * The client owns the node's statement counter: every `put`, `announce` and `delete` is ordered by it, so that a delete
 * that arrives late leaves what was put after it.
 */
export class DirectoryClient {
  readonly #resolveControl: ResolveControl;
  readonly #replicas: number;
  readonly #rpc: RpcClient;
  readonly #ownsRpc: boolean;
  readonly #nodeId: string;
  readonly #incarnation: number;
  readonly #localShard: DirectoryShard | undefined;
  readonly #timeoutMs: number | undefined;
  /** Node id -> incarnation of what was put: whose locations `delete` removes. */
  readonly #identities = new Map<string, number>();
  #ring: OwnerRing;
  #generation = 0;

  constructor(ring: OwnerRing, resolveControl: ResolveControl, replicas: number, options: DirectoryClientOptions = {}) {
    if (!Number.isSafeInteger(replicas) || replicas < 1)
      throw new ArgumentError(`replicas must be 1 or more: ${replicas}`);
    this.#ring = ring;
    this.#resolveControl = resolveControl;
    this.#replicas = replicas;
    this.#ownsRpc = options.rpc === undefined;
    this.#rpc = options.rpc ?? new RpcClient({ env: options.env ?? systemEnvironment() });
    this.#nodeId = options.nodeId ?? '';
    this.#incarnation = options.incarnation ?? 0;
    this.#localShard = options.localShard;
    this.#timeoutMs = options.timeoutMs;
    if (options.nodeId !== undefined && options.incarnation !== undefined) {
      this.#identities.set(options.nodeId, options.incarnation);
    }
  }

  /** Calls from now on go by this ring. It may also be changed in place. */
  setRing(ring: OwnerRing): void {
    this.#ring = ring;
  }

  /**
   * States where pages are; those without a generation get the next one. True: at least one owner has taken it. In the
   * order of the entries.
   */
  async put(entries: ReadonlyMap<string, DataLocation> | Readonly<Record<string, DataLocation>>): Promise<boolean[]> {
    const pairs = entries instanceof Map ? [...entries] : Object.entries(entries as Record<string, DataLocation>);
    const keys = pairs.map(([key]) => key);
    const locations = pairs.map(([, location]) => location);
    this.#check(keys);
    const columns = this.#state(locations);
    const results = new Array<boolean>(keys.length).fill(false);
    const groups = [...this.#allOwners(keys)].map(async ([ownerId, indices]) => {
      await inParallel(requestsOf(keys, indices), DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT, async (request) => {
        const taken = await this.#putTo(ownerId, pick(keys, request), columns.pick(request));
        request.forEach((i, j) => {
          if (taken?.[j] === 1) results[i] = true;
        });
      });
    });
    await Promise.all(groups);
    return results;
  }

  /** A live location of each key; null: none known, or its owners do not answer. */
  async get(keys: readonly string[]): Promise<(DataLocation | null)[]> {
    const results = new Array<DataLocation | null>(keys.length).fill(null);
    await this.#ask(keys, async (ownerId, request) => {
      const found = await this.#getFrom(ownerId, pick(keys, request));
      if (found === undefined) return request;
      return request.filter((i, j) => {
        results[i] = found.locationAt(j);
        return results[i] === null;
      });
    });
    return results;
  }

  /** Whether a live location of each key is known; false also when its owners do not answer. */
  async exists(keys: readonly string[]): Promise<boolean[]> {
    const results = new Array<boolean>(keys.length).fill(false);
    await this.#ask(keys, async (ownerId, request) => {
      const found = await this.#existsAt(ownerId, pick(keys, request));
      if (found === undefined) return request;
      return request.filter((i, j) => {
        results[i] = found[j] === 1;
        return !results[i];
      });
    });
    return results;
  }

  /**
   * Drops what this client's node has stated about the keys up to now, or up to `generation`; what it states later stays.
   * An owner that does not answer keeps it: readers then find out by the page's key of access or its checksum.
   */
  async delete(keys: readonly string[], generation = this.#generation): Promise<void> {
    this.#check(keys);
    const identities = [...this.#identities];
    const groups = [...this.#allOwners(keys)].map(async ([ownerId, indices]) => {
      await inParallel(requestsOf(keys, indices), DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT, async (request) => {
        const picked = pick(keys, request);
        await Promise.all(
          identities.map(([nodeId, incarnation]) =>
            this.#deleteAt(ownerId, picked, { nodeId, incarnation, generation }),
          ),
        );
      });
    });
    await Promise.all(groups);
  }

  /**
   * States locations to one owner, one batch after the other. A function as `locations` is asked for each batch just before
   * it is sent, so that what was dropped meanwhile is not announced. False: the owner did not take all of it (ends at the
   * first batch that fails).
   */
  async announce(ownerId: string, keys: readonly string[], locations: LocationSource): Promise<boolean> {
    this.#check(keys);
    const all = keys.map((_, i) => i);
    let complete = true;
    for (const request of requestsOf(keys, all)) {
      const asked = pick(keys, request);
      const found = typeof locations === 'function' ? locations(asked) : pick(locations, request);
      const present = asked.map((_, j) => j).filter((j) => (found[j] ?? null) !== null);
      if (present.length === 0) continue;
      const batch = pick(found, present) as DataLocation[];
      const taken = await this.#putTo(ownerId, pick(asked, present), this.#state(batch));
      if (taken === undefined) return false;
      if (taken.includes(0)) complete = false;
    }
    return complete;
  }

  /** Closes the connections, unless they belong to an RPC client that was handed in. Idempotent. */
  async close(): Promise<void> {
    if (this.#ownsRpc) await this.#rpc.close();
  }

  #check(keys: readonly string[]): void {
    for (const key of keys) {
      if (typeof key !== 'string') throw new ArgumentError(`a key must be text, got ${typeof key}`);
      if (key.length * 3 <= DIRECTORY_KEY_MAX_BYTES) continue;
      const bytes = Buffer.byteLength(key);
      if (bytes > DIRECTORY_KEY_MAX_BYTES) {
        throw new ArgumentError(`a key of ${bytes} bytes, at most ${DIRECTORY_KEY_MAX_BYTES} are allowed`);
      }
    }
  }

  /** The locations as statements of now: with the counter's next value. Remembers whose they are. */
  #state(locations: readonly DataLocation[]): LocationColumns {
    const generation = this.#generation + 1;
    const incarnation = this.#incarnation;
    const columns = LocationColumns.of(locations, { nodeId: this.#nodeId, incarnation, generation });
    this.#generation = columns.generation.reduce((highest, value) => Math.max(highest, value), generation);
    for (const node of columns.nodes) {
      if (this.#identities.size < IDENTITIES_MAX_COUNT || this.#identities.has(node.nodeId)) {
        this.#identities.set(node.nodeId, node.incarnation);
      }
    }
    return columns;
  }

  /** For every owner, whatever its rank, the indices of its keys. */
  #allOwners(keys: readonly string[]): Map<string, number[]> {
    const { nodes } = this.#ring;
    const owners = this.#ring.getNodesBatch(keys, this.#replicas);
    const groups = new Map<string, number[]>();
    for (let at = 0; at < owners.length; at++) {
      const owner = owners[at] as number;
      if (owner !== NO_OWNER) addTo(groups, nodes[owner] as string, Math.floor(at / this.#replicas));
    }
    return groups;
  }

  /**
   * Asks the own shard where it is an owner (it costs nothing), then the first owners, all at once, then rank by rank the
   * others about what is left. `ask` returns the indices that it has found nothing for.
   */
  async #ask(keys: readonly string[], ask: (ownerId: string, request: number[]) => Promise<number[]>): Promise<void> {
    this.#check(keys);
    const replicas = this.#replicas;
    const { nodes } = this.#ring;
    const owners = this.#ring.getNodesBatch(keys, replicas);
    const own = this.#localShard === undefined ? -1 : nodes.indexOf(this.#nodeId);
    let left = keys.map((_, i) => i);
    for (let rank = own < 0 ? 0 : -1; rank < replicas && left.length > 0; rank++) {
      const groups = new Map<string, number[]>();
      const missing: number[] = [];
      for (const i of left) {
        const row = owners.subarray(i * replicas, (i + 1) * replicas);
        const owner = rank < 0 ? (row.includes(own) ? own : NO_OWNER) : (row[rank] as number);
        if (owner === NO_OWNER || (rank >= 0 && owner === own)) missing.push(i);
        else addTo(groups, nodes[owner] as string, i);
      }
      await Promise.all(
        [...groups].map(async ([ownerId, indices]) => {
          await inParallel(requestsOf(keys, indices), DIRECTORY_REQUESTS_IN_FLIGHT_MAX_COUNT, async (request) => {
            missing.push(...(await ask(ownerId, request)));
          });
        }),
      );
      left = missing;
    }
  }

  async #putTo(ownerId: string, keys: readonly string[], columns: LocationColumns): Promise<Uint8Array | undefined> {
    // The shard keeps its keys: through the column they become strings that hold on to nothing of the caller's.
    if (this.#isLocal(ownerId)) return this.#localShard?.put(decodeKeys(encodeKeys(keys), true), columns);
    return this.#call(ownerId, DirectoryMethod.put, { ...keyFields(keys), ...locationFields(columns) }, (answer) =>
      readFlags(answer, 'taken', keys.length),
    );
  }

  async #getFrom(ownerId: string, keys: readonly string[]): Promise<LocationColumns | undefined> {
    if (this.#isLocal(ownerId)) return this.#localShard?.get(keys, this.#nodeId);
    return this.#call(ownerId, DirectoryMethod.get, { ...keyFields(keys), asker: this.#nodeId }, (answer) =>
      readLocations(answer, keys.length),
    );
  }

  async #existsAt(ownerId: string, keys: readonly string[]): Promise<Uint8Array | undefined> {
    if (this.#isLocal(ownerId)) return this.#localShard?.exists(keys);
    return this.#call(ownerId, DirectoryMethod.exists, keyFields(keys), (answer) =>
      readFlags(answer, 'found', keys.length),
    );
  }

  async #deleteAt(
    ownerId: string,
    keys: readonly string[],
    of: { nodeId: string; incarnation: number; generation: number },
  ): Promise<void> {
    if (this.#isLocal(ownerId)) {
      this.#localShard?.delete(keys, of.nodeId, of.incarnation, of.generation);
      return;
    }
    const { nodeId, incarnation, generation } = of;
    const request = { ...keyFields(keys), node_id: nodeId, incarnation, generation };
    await this.#call(ownerId, DirectoryMethod.delete, request, () => undefined);
  }

  #isLocal(ownerId: string): boolean {
    return this.#localShard !== undefined && ownerId === this.#nodeId;
  }

  /** Undefined: the owner is not reachable, failed, or answered what cannot be right. */
  async #call<T>(
    ownerId: string,
    method: string,
    params: object,
    read: (answer: Readonly<Record<string, unknown>>) => T,
  ): Promise<T | undefined> {
    const endpoint = this.#resolveControl(ownerId);
    if (endpoint === undefined) return undefined;
    const options = this.#timeoutMs === undefined ? {} : { timeoutMs: this.#timeoutMs };
    try {
      return read(asFields(await this.#rpc.call(endpoint, method, params, options)));
    } catch {
      return undefined;
    }
  }
}

function pick<T>(items: readonly T[], indices: readonly number[]): T[] {
  return indices.map((i) => items[i] as T);
}

function addTo(groups: Map<string, number[]>, ownerId: string, index: number): void {
  const group = groups.get(ownerId);
  if (group === undefined) groups.set(ownerId, [index]);
  else group.push(index);
}
