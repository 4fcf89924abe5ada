import { firstGroup } from '../base/concurrency/shares.js';
import type { Clock } from '../base/environment/clock.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { DIRECTORY_AVOIDED_MAX_COUNT } from '../base/limits.js';
import { type Keys, pickKeys, sliceKeys, stringsOf } from '../core/binding/key-batch.js';
import { DISTANCES, type Distances } from '../net/distance.js';
import type { DataLocation } from '../types.js';
import { LocatedPages } from './messages/located-pages.js';
import type { LocationColumns } from './messages/location-columns.js';
import { countAsked, countLookups } from './owners/directory-metrics.js';
import { checkKeys, eachSlice } from './owners/key-lists.js';
import type { KnownRings } from './owners/known-rings.js';
import type { OwnerChannels } from './owners/owner-channels.js';
import { type AskOwner, OwnerSearch, ownersToAsk, type ProbableHolders } from './owners/owner-search.js';
import { batchOf, ownersOf } from './owners/owners.js';

export interface LookupsParts {
  readonly replicas: number;
  readonly rings: KnownRings;
  readonly channels: OwnerChannels;
  /** Node whose shard is asked without a socket; undefined: there is none. */
  readonly ownNode: string | undefined;
  /** How far owners are from this node. */
  readonly distances: () => Distances;
  /** Which nodes probably have pages; undefined: not known. */
  readonly map: ProbablePages | undefined;
  /** Deadline of one request in milliseconds; undefined: RPC_CALL_TIMEOUT_MS. */
  readonly timeoutMs: number | undefined;
  readonly clock: Clock;
  readonly metrics: MetricsSink;
}

/** How pages are looked up. */
export interface FindOptions {
  /** Nodes whose pages are named only if there are no others. */
  readonly avoided?: readonly string[];
  /** Bytes of small pages that may come with their locations, from each node that is asked. Default: 0. */
  readonly room?: number;
}

/** How it is found out whether pages exist. */
export interface ExistsOptions {
  /** Nodes whose pages do not count. */
  readonly avoided?: readonly string[];
  /** How old the answer may be, in milliseconds. Default: 0, as it is now. */
  readonly maxAgeMs?: number | undefined;
}

/** What a map says of a page. */
export const ABSENT = 0;
export const PRESENT = 1;
export const UNSURE = 2;

/** A map of which nodes probably have which pages. */
export interface ProbablePages {
  /** For each key a node that probably has its page, and can say where; empty: none is known. */
  holdersOf(keys: Keys): ProbableHolders;
  /**
   * For each key whether a node has the page, as of at most `maxAgeMs` ago: ABSENT, PRESENT, or UNSURE if only `avoided`
   * nodes are known to have it. Undefined: the map does not say how it was then.
   */
  presence(keys: Keys, maxAgeMs: number, avoided: readonly string[]): Uint8Array | undefined;
}

/** Keys to ask a node about, their indices among all keys, and whether it is asked for its own pages only. */
interface AskedKeys {
  readonly keys: Keys;
  readonly indices: readonly number[];
  readonly isOwn: boolean;
}

/** Asks a node about keys; returns the indices of those that it knows nothing of. See {@link OwnerSearch}. */
type AskBatch = (nodeId: string, asked: AskedKeys) => Promise<readonly number[]>;

/** Asks the owners of keys where their pages are. An owner that does not answer counts as one that knows nothing. */
export class Lookups {
  readonly #parts: LookupsParts;

  constructor(parts: LookupsParts) {
    this.#parts = parts;
  }

  /** A live location of each key; null: no location is known, or the key's owners do not answer. */
  async get(keys: readonly string[]): Promise<(DataLocation | null)[]> {
    const results = new Array<DataLocation | null>(keys.length).fill(null);
    await this.find(keys, (found) => {
      for (const [i, location] of found) results[i] = location;
    });
    return results;
  }

  /**
   * Hands out the locations that {@link get} would return, as each owner answers. Locations in the own shard come at
   * once, so that their pages can be read while other owners are being asked. Each key comes once, or never if no
   * location is found. Locations on `avoided` nodes come only if no other node has the page. Owners are told of the
   * first DIRECTORY_AVOIDED_MAX_COUNT of these nodes; the others are filtered here.
   */
  async find(
    keys: Keys,
    onFound: (found: LocatedPages) => void,
    { avoided = [], room = 0 }: FindOptions = {},
  ): Promise<void> {
    const lastResort = new Map<number, DataLocation>();
    let foundCount = await this.#findBut({ avoided, room }, keys, onFound, lastResort);
    foundCount += lastResort.size;
    if (lastResort.size > 0) onFound(LocatedPages.of([...lastResort]));
    countLookups(this.#parts.metrics, stringsOf(keys).length, foundCount);
  }

  /**
   * Hands out the locations on nodes that are not avoided, see {@link find}, and returns their number. Adds the other
   * locations to `lastResort`.
   */
  async #findBut(
    { avoided, room }: Required<FindOptions>,
    keys: Keys,
    onFound: (found: LocatedPages) => void,
    lastResort: Map<number, DataLocation>,
  ): Promise<number> {
    let foundCount = 0;
    const told = avoided.slice(0, DIRECTORY_AVOIDED_MAX_COUNT);
    const holdersOf = (batch: Keys): ProbableHolders => {
      const holders = this.#parts.map?.holdersOf(batch) ?? [];
      if (avoided.length === 0) return holders;
      return holders.map((id) => (id === undefined || avoided.includes(id) ? undefined : id));
    };
    const ask: AskBatch = async (nodeId, { keys: asked, indices: request, isOwn }) => {
      const answer = await this.#parts.channels.to(nodeId).get({ keys: asked, avoided: told, room, isOwn });
      if (answer === undefined) return request;
      const { columns, from } = answer;
      const indices: number[] = [];
      const rows: number[] = [];
      const missing: number[] = [];
      for (let j = 0; j < request.length; j++) {
        const i = request[j] as number;
        const row = from + j;
        if (!columns.has(row)) {
          missing.push(i);
        } else if (avoided.length > 0 && avoided.includes(nodeIdAt(columns, row) as string)) {
          keepLater(lastResort, i, columns.locationAt(row) as DataLocation);
          // This location is a last resort: the next owner may know of another node.
          missing.push(i);
        } else {
          indices.push(i);
          rows.push(row);
        }
      }
      if (rows.length === 0) return missing;
      if (lastResort.size > 0) for (const i of indices) lastResort.delete(i);
      foundCount += rows.length;
      onFound(new LocatedPages(indices, rows, columns));
      return missing;
    };
    await this.#ask(keys, inTwo(ask, this.#parts.ownNode), holdersOf);
    return foundCount;
  }

  /**
   * Returns for each key whether a live location is known on a node that is not avoided; false also if its owners do
   * not answer.
   */
  async exists(keys: Keys, { avoided = [], maxAgeMs = 0 }: ExistsOptions = {}): Promise<boolean[]> {
    const presence = maxAgeMs > 0 ? this.#parts.map?.presence(keys, maxAgeMs, avoided) : undefined;
    const results =
      presence === undefined
        ? new Array<boolean>(stringsOf(keys).length).fill(false)
        : Array.from(presence, (answer) => answer === PRESENT);
    const unsure: number[] = [];
    for (let i = 0; i < results.length; i++) if (presence === undefined || presence[i] === UNSURE) unsure.push(i);
    if (unsure.length > 0) {
      const found = await this.#existsNow(pickKeys(keys, unsure), avoided);
      for (const [j, i] of unsure.entries()) results[i] = found[j] === true;
    }
    countLookups(
      this.#parts.metrics,
      results.length,
      results.reduce((count, isFound) => count + Number(isFound), 0),
    );
    return results;
  }

  async #existsNow(keys: Keys, avoided: readonly string[]): Promise<boolean[]> {
    const results = new Array<boolean>(stringsOf(keys).length).fill(false);
    if (avoided.length > 0) {
      const note = ({ indices }: LocatedPages): void => {
        for (const i of indices) results[i] = true;
      };
      await this.#findBut({ avoided, room: 0 }, keys, note, new Map());
      return results;
    }
    await this.#ask(keys, async (ownerId, { keys: asked, indices: request }) => {
      const found = await this.#parts.channels.to(ownerId).exists(asked);
      if (found === undefined) return request;
      return request.filter((i, j) => {
        results[i] = found[j] === 1;
        return !results[i];
      });
    });
    return results;
  }

  /** For each key, the owner that is asked first, as an index into the current ring's nodes. */
  firstAsked(keys: readonly string[]): Uint32Array {
    const { rings, replicas } = this.#parts;
    const distances = this.#distances();
    if (distances === undefined) return ownersOf(rings.current, keys, 1);
    return ownersToAsk(rings.current, keys, replicas, distances).filter((_, at) => at % replicas === 0);
  }

  /**
   * How far owners are from this node; undefined: owners are asked in the order of the ring. That order also holds
   * while owners change, because an owner of a lower rank may then know only what was true when it was an owner before,
   * or not know yet what the first one knows.
   */
  #distances(): Distances {
    const { rings, distances } = this.#parts;
    return rings.former.length > 0 ? undefined : distances();
  }

  /**
   * Searches slice by slice, see {@link OwnerSearch}. `ask` gets keys and their indices among all keys, and returns the
   * indices of those that the owner knows nothing of. `holdersOf`: nodes that are asked before the owners.
   */
  async #ask(keys: Keys, ask: AskBatch, holdersOf: (keys: Keys) => ProbableHolders = () => []): Promise<void> {
    checkKeys(stringsOf(keys));
    await eachSlice(keys, this.#parts.clock, (slice, start) => {
      const batch = batchOf(slice);
      const farOf = this.#parts.distances();
      const askOne: AskOwner = (nodeId, request, isOwn) => {
        if (farOf !== undefined) countAsked(this.#parts.metrics, DISTANCES[farOf(nodeId)], request.length);
        const picked = pickKeys(batch, request);
        if (start === 0) return ask(nodeId, { keys: picked, indices: request, isOwn });
        const asked = ask(nodeId, { keys: picked, indices: request.map((i) => start + i), isOwn });
        return asked.then((missing) => missing.map((i) => i - start));
      };
      const order = { distances: this.#distances(), holders: holdersOf(batch) };
      return new OwnerSearch(this.#parts, batch, order, askOne).run();
    });
  }
}

/**
 * Asks another node about many keys in two requests: what the first one finds is read while the node answers the second
 * one. The own shard answers at once.
 */
function inTwo(ask: AskBatch, ownNode: string | undefined): AskBatch {
  return async (nodeId, asked) => {
    const { keys, indices, isOwn } = asked;
    const count = indices.length;
    const first = firstGroup(count, count);
    if (first === count || nodeId === ownNode) return ask(nodeId, asked);
    const part = (start: number, end: number): Promise<readonly number[]> =>
      ask(nodeId, { keys: sliceKeys(keys, start, end), indices: indices.slice(start, end), isOwn });
    return (await Promise.all([part(0, first), part(first, count)])).flat();
  };
}

function nodeIdAt({ node, nodes }: LocationColumns, row: number): string | undefined {
  return nodes[node[row] as number]?.nodeId;
}

/** Keeps a location. Of two statements of one node, the later one stays: an owner may have missed it. */
function keepLater(kept: Map<number, DataLocation>, i: number, location: DataLocation): void {
  const before = kept.get(i);
  if (before?.nodeId !== location.nodeId || before.generation < location.generation) kept.set(i, location);
}
