import { unlessAborted } from '../base/concurrency/abort.js';
import { type Clock, within } from '../base/environment/clock.js';
import type { Logger } from '../base/environment/log.js';
import type { MetricsSink } from '../base/environment/metrics-sink.js';
import { DIRECTORY_AVOIDED_MAX_COUNT, DISCARD_WAIT_MAX_MS, READ_AGAIN_WITHIN_MS } from '../base/limits.js';
import type { DirectoryClient } from '../directory/client.js';
import { addTo } from '../directory/owners.js';
import type { ReadOp, Transport } from '../transport/contract/transport.js';
import type { DataLocation, Tier } from '../types.js';
import { ImageReads } from './image-reads.js';
import type { KnownLocations } from './known-locations.js';
import type { CallerPage } from './page-store.js';
import { PromotedReading, type PromotedReadingParts } from './promoted-reading.js';

/** Asks other nodes to bring pages from their disks into their pools. */
export type Promotions = Pick<PromotedReadingParts, 'ask' | 'release'>;

export interface RemoteReadsParts {
  readonly directory: Pick<DirectoryClient, 'find' | 'discard'>;
  readonly transport: Transport;
  /** The data endpoint at which a location's owner is read; undefined when the owner is not alive. */
  readonly endpointOf: (location: DataLocation) => string | undefined;
  readonly promotions: Promotions;
  /** For a location of this version that is not to be read: what is older than the result is void. Else 0. Default: all are read. */
  readonly voidBelow?: (key: string, version: number) => number;
  /** Told of such a location's node, which still has what is void. */
  readonly onVoid?: (nodeId: string, key: string, voidBelow: number) => void;
  readonly nodeId: string;
  /** Answers of the directory that can be used again. Default: none. */
  readonly knownLocations?: KnownLocations | undefined;
  readonly verifyReads: boolean;
  readonly quarantineMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: MetricsSink;
}

/** What became of one page that was found on another node. */
export interface RemoteRead {
  /** In the call's keys. */
  readonly index: number;
  readonly nodeId: string;
  /** Where the directory said that it lies. */
  readonly tier: Tier;
  readonly isRead: boolean;
  /** Of what was read. */
  readonly location?: DataLocation;
  /** Its node has answered that it is not there. */
  readonly isGone?: boolean;
  /** It was not tried: this node knows of something newer. */
  readonly isVoid?: boolean;
}

/** Why a page could not be read where the directory said that it was. */
type Staleness = 'void' | 'unreadable' | 'late' | 'owner_gone' | 'unreachable' | 'not_promoted';

/** Pages of one call, by their indices, that have not been where the directory said. */
type StalePages = Map<number, Staleness>;

/** Times that a page is looked for in the directory. */
const ROUNDS_MAX_COUNT = 3;

type Found = readonly (readonly [index: number, location: DataLocation])[];

interface Call {
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
  readonly stale: StalePages;
  readonly failed: FailedNodes;
  readonly signal: AbortSignal | undefined;
  /** Nothing has failed yet. */
  readonly isFirstRound: boolean;
  readonly locationOf: RemoteReadOptions['locationOf'];
  readonly progress: RoundProgress | undefined;
}

/** What is told of a round while it is under way. */
export interface RoundProgress {
  /** The page has been read, or could not be: nodes that are slow hold up only their own pages. */
  onTried(read: RemoteRead): void;
  /** The directory has named all that it knows of: pages without a location are misses. */
  onSearched(found: ReadonlySet<number>): void;
}

export interface RemoteReadOptions {
  /** Told, as answers come, what only this node itself is said to have. */
  readonly onOwn?: (indices: readonly number[]) => void;
  /** Where the directory has just said that a page is, by its index; it is not asked at first. */
  readonly locationOf?: ((index: number) => DataLocation | undefined) | undefined;
  /** There is one round, and its progress is told. */
  readonly round?: RoundProgress | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Nodes that have failed within one call. */
interface FailedNodes {
  /** Could not be reached, or are no members any more: not tried again, so that each costs the call one deadline. */
  readonly dead: Set<string>;
  /** Did not bring pages from their disks: not asked for that again. */
  readonly disks: Set<string>;
  /** All, for whatever reason; others are preferred. */
  readonly all: Set<string>;
}

/** Reads pages from the nodes that the directory names, out of their pools; what is on their disks comes there first. */
export class RemoteReads {
  readonly #parts: RemoteReadsParts;
  #closed = false;

  constructor(parts: RemoteReadsParts) {
    this.#parts = parts;
  }

  /**
   * Reads those pages of a call that have these indices, all owners at once. Resolves with what was found elsewhere: of a page that was tried on several nodes one result each. A page that could not
   * be read where the directory said, for its owner does not answer or it has gone to its owner's disk meanwhile, is looked for anew: on
   * other nodes that have it, too, if there are any; not when that has taken longer than READ_AGAIN_WITHIN_MS.
   *
   * After an abort of the signal nothing more is begun, and neither the directory nor promotions are waited for: only reads under way, as
   * `Transport.batchRead` does. What the abort has kept from being read has no result, and is held against nobody.
   */
  async read(
    keys: readonly string[],
    pages: readonly CallerPage[],
    wanted: readonly number[],
    { onOwn = () => {}, locationOf, round: progress, signal }: RemoteReadOptions = {},
  ): Promise<RemoteRead[]> {
    const { clock } = this.#parts;
    const untilMs = clock.nowMs() + READ_AGAIN_WITHIN_MS;
    const last = new Map<number, RemoteRead>();
    const earlier: RemoteRead[] = [];
    const stale: StalePages = new Map();
    const failed: FailedNodes = { dead: new Set(), disks: new Set(), all: new Set() };
    let left = wanted;
    const rounds = progress === undefined ? ROUNDS_MAX_COUNT : 1;
    for (let round = 0; round < rounds && left.length > 0 && !this.#isOver(signal); round++) {
      if (round > 0 && clock.nowMs() >= untilMs) break;
      const before = new Set(failed.all);
      const call = {
        keys,
        pages,
        stale,
        failed,
        signal,
        isFirstRound: round === 0,
        locationOf,
        progress,
      };
      const tried = await this.#readOnce(call, left, round === 0 ? onOwn : () => {});
      const reads = signal?.aborted ? tried.filter((read) => read.isRead || isKnown(read)) : tried;
      for (const read of reads) {
        const previous = last.get(read.index);
        if (previous !== undefined && previous.nodeId !== read.nodeId) earlier.push(previous);
        last.set(read.index, read);
      }
      const missed = reads.filter(({ isRead }) => !isRead);
      await this.#discardStale(keys, missed, signal);
      for (const { nodeId } of missed) failed.all.add(nodeId);
      // Who is named although it had failed already is the only one that has the page.
      const isOver = ({ nodeId, tier }: RemoteRead) => before.has(nodeId) && isGivenUp(failed, nodeId, tier);
      left = missed.filter((read) => !isOver(read)).map(({ index }) => index);
    }
    if (stale.size > 0) this.#count(stale);
    return [...earlier, ...last.values()];
  }

  /** Whoever named these locations is told, before it is asked again. What failed for another reason may be where it was said to be. */
  async #discardStale(
    keys: readonly string[],
    missed: readonly RemoteRead[],
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const gone = missed.filter((read) => read.location !== undefined && isKnown(read));
    if (gone.length === 0 || this.#isOver(signal)) return;
    const told = this.#parts.directory.discard(
      gone.map(({ index }) => keys[index] as string),
      gone.map(({ location }) => location as DataLocation),
    );
    // An owner that does not answer must not hold up the read: the node that has failed is avoided anyway.
    await unlessAborted(within(this.#parts.clock, DISCARD_WAIT_MAX_MS, told), signal);
  }

  /** Reads under way end as they do; no new ones begin. */
  close(): void {
    this.#closed = true;
  }

  /** Reads that the end of the store has cut short say nothing about the directory. */
  #count(stale: StalePages): void {
    if (this.#closed) return;
    for (const reason of stale.values()) this.#parts.metrics.count('meshcache_stale_reads_total', 1, { reason });
  }

  async #readOnce(
    call: Call,
    wanted: readonly number[],
    onOwn: (indices: readonly number[]) => void,
  ): Promise<RemoteRead[]> {
    const reads: Promise<RemoteRead[]>[] = [];
    const known = call.isFirstRound ? knownAmong(this.#parts, call, wanted) : [];
    const unknown = known.length === 0 ? wanted : without(wanted, known);
    const found = new Set(known.map(([index]) => index));
    if (known.length > 0) reads.push(...this.#readFound(known, call));
    const searching = this.#search(call, unknown, (located) => {
      for (const [index] of located) found.add(index);
      const own = located.filter(([, location]) => location.nodeId === this.#parts.nodeId);
      if (own.length > 0) onOwn(own.map(([index]) => index));
      const others = located.filter(([, location]) => location.nodeId !== this.#parts.nodeId);
      reads.push(...this.#readFound(others, call));
    });
    try {
      await unlessAborted(searching, call.signal);
      call.progress?.onSearched(found);
    } finally {
      // They may write into the pages until then, whatever becomes of the lookup.
      await Promise.allSettled(reads);
    }
    return (await Promise.all(reads)).flat();
  }

  /** Asks the directory about the pages with these indices. */
  async #search(call: Call, unknown: readonly number[], onFound: (found: Found) => void): Promise<void> {
    const { directory, knownLocations } = this.#parts;
    if (unknown.length === 0) return;
    const keys = unknown.map((i) => call.keys[i] as string);
    const avoided = [...call.failed.all].slice(0, DIRECTORY_AVOIDED_MAX_COUNT);
    const onAnswer = (answer: Found): void => {
      // Nobody waits for reads that begin after the abort: they would write into memory that is the caller's again.
      if (call.signal?.aborted) return;
      for (const [j, location] of answer) knownLocations?.note(keys[j] as string, location);
      onFound(answer.map(([j, location]) => [unknown[j] as number, location] as const));
    };
    await directory.find(keys, onAnswer, avoided);
  }

  /** Reads what other nodes are said to have. */
  #readFound(found: Found, call: Call): Promise<RemoteRead[]>[] {
    const { progress } = call;
    const [elsewhere, outdated] = this.#withoutVoid(found, call);
    const inMemory = elsewhere.filter(([, { tier }]) => tier === 'memory');
    const onDisk = elsewhere.filter(([, { tier }]) => tier === 'disk');
    // One read for all of them, unless the pages of each node are to be told of as soon as they are here.
    const parts = progress === undefined ? [inMemory] : byOwner(inMemory);
    const fromMemory = Array.from(parts, (some) => this.#readFromMemory(some, call));
    const reads = [Promise.resolve([...outdated]), ...fromMemory, ...this.#readFromDisks(onDisk, call)];
    if (progress === undefined) return reads;
    return reads.map(async (part) => {
      const results = await part;
      for (const read of results) progress.onTried(read);
      return results;
    });
  }

  /** What is to be read, and what is not: this node has set, or was told of, something newer. */
  #withoutVoid(found: Found, { keys, stale }: Call): [Found, RemoteRead[]] {
    const { voidBelow, onVoid } = this.#parts;
    if (voidBelow === undefined) return [found, []];
    const isVoid: RemoteRead[] = [];
    const valid = found.filter(([index, location]) => {
      const key = keys[index] as string;
      const { nodeId, tier, version } = location;
      const below = version === 0 ? 0 : voidBelow(key, version);
      if (below === 0) return true;
      stale.set(index, 'void');
      onVoid?.(nodeId, key, below);
      isVoid.push({ index, nodeId, tier, isRead: false, location, isVoid: true });
      return false;
    });
    return [valid, isVoid];
  }

  /** One read for each page that has the wanted length and whose owner lives. */
  async #readFromMemory(located: Found, { keys, pages, stale, failed, signal }: Call): Promise<RemoteRead[]> {
    const { transport, log, clock, verifyReads: isVerified } = this.#parts;
    const images = new ImageReads({ isVerified, maxCount: located.length });
    const targets: Found[number][] = [];
    const skipped: RemoteRead[] = [];
    for (const [index, location] of located) {
      const { nodeId } = location;
      const page = pages[index] as CallerPage;
      if (location.length !== page.length || location.tier !== 'memory' || page.ranges.length === 0) continue;
      const endpoint = this.#parts.endpointOf(location);
      if (endpoint === undefined || failed.dead.has(nodeId)) {
        stale.set(index, endpoint === undefined ? 'owner_gone' : 'unreachable');
        failed.dead.add(nodeId);
        skipped.push({ index, nodeId, tier: 'memory', isRead: false });
        continue;
      }
      images.add(endpoint, location, page);
      targets.push([index, location]);
    }
    const { ops } = images;
    if (ops.length === 0 || this.#isOver(signal)) {
      images.release();
      return skipped;
    }
    const sinceMs = clock.nowMs();
    const gone = new Uint8Array(ops.length);
    const read = await transport.batchRead(ops, gone, signal).catch((error: unknown): boolean[] => {
      // The caller's memory was freed under way; other reads of the call go on and are to be waited for.
      log.log('warn', 'pages could not be read', { error: String(error) });
      return [];
    });
    const isInTime = this.#isWithinQuarantine(clock.nowMs() - sinceMs);
    const reads = targets.map(([index, location], k): RemoteRead => {
      const { nodeId } = location;
      const isRead = isInTime && read[k] === true;
      if (isRead) {
        images.finish(k);
      } else {
        this.#parts.knownLocations?.forget(keys[index] as string);
        if (!signal?.aborted || gone[k] === 1) stale.set(index, this.#failure(ops[k] as ReadOp, read[k] === true));
      }
      if (stale.get(index) === 'unreachable' && !isRead) failed.dead.add(nodeId);
      return { index, nodeId, tier: 'memory', isRead, location, ...(gone[k] === 1 ? { isGone: true } : {}) };
    });
    images.release();
    return [...skipped, ...reads];
  }

  /** Why an operation has not brought its page. */
  #failure({ remoteEndpoint }: ReadOp, isLate: boolean): Staleness {
    if (isLate) return 'late';
    return this.#parts.transport.isReachable(remoteEndpoint) ? 'unreadable' : 'unreachable';
  }

  #readFromDisks(found: Found, call: Call): Promise<RemoteRead[]>[] {
    const { stale, failed } = call;
    const byOwner = new Map<string, number[]>();
    const skipped: RemoteRead[] = [];
    for (const [index, location] of found) {
      const { nodeId } = location;
      if (location.length !== (call.pages[index] as CallerPage).length) continue;
      const isGone = this.#parts.endpointOf(location) === undefined;
      if (isGone) {
        stale.set(index, 'owner_gone');
        failed.dead.add(nodeId);
      }
      if (isGone || isGivenUp(failed, nodeId, 'disk')) {
        skipped.push({ index, nodeId, tier: 'disk', isRead: false });
        continue;
      }
      addTo(byOwner, nodeId, index);
    }
    const reads = [...byOwner].map(([nodeId, indices]) => this.#readFromDisk(nodeId, indices, call));
    return [Promise.resolve(skipped), ...reads];
  }

  async #readFromDisk(nodeId: string, indices: readonly number[], call: Call): Promise<RemoteRead[]> {
    const { promotions, clock } = this.#parts;
    const { keys, pages, stale, failed, signal } = call;
    // What its owner does not keep there for this reader is asked for again; only the end counts.
    const promoted: Call = {
      keys,
      pages,
      stale: new Map(),
      failed: { dead: new Set(), disks: new Set(), all: new Set() },
      signal,
      isFirstRound: false,
      locationOf: undefined,
      progress: undefined,
    };
    const promotedLocations = new Map<number, DataLocation>();
    const reading = new PromotedReading(
      nodeId,
      indices.map((index) => keys[index] as string),
      {
        ask: (owner, some) => promotions.ask(owner, some),
        release: (owner, some) => promotions.release(owner, some),
        read: async (entries) => {
          const located = entries.map(({ index: j, location }) => [indices[j] as number, location] as const);
          const reads = await this.#readFromMemory(located, promoted);
          for (const { index, location } of reads) if (location !== undefined) promotedLocations.set(index, location);
          const isRead = new Map(reads.map((read) => [read.index, read.isRead]));
          return located.map(([index]) => isRead.get(index) === true);
        },
        isEnded: () => this.#isOver(signal),
        signal,
        clock,
      },
    );
    const results = await reading.run();
    indices.forEach((index, j) => {
      if (results[j] === true || signal?.aborted) return;
      stale.set(index, promoted.stale.get(index) ?? 'not_promoted');
      failed.disks.add(nodeId);
    });
    return indices.map((index, j): RemoteRead => {
      const location = promotedLocations.get(index);
      return { index, nodeId, tier: 'disk', isRead: results[j] === true, ...(location ? { location } : {}) };
    });
  }

  #isOver(signal: AbortSignal | undefined): boolean {
    return this.#closed || signal?.aborted === true;
  }

  /** Without checksums nothing but the quarantine keeps the bytes of a page that is freed during its read: what took more than half of it is a miss. */
  #isWithinQuarantine(elapsedMs: number): boolean {
    const { verifyReads, quarantineMs } = this.#parts;
    return verifyReads || quarantineMs === 0 || elapsedMs <= quarantineMs / 2;
  }
}

/** What the directory has answered of these a moment ago; of the own node's pages it may know more now. */
function knownAmong(
  { knownLocations, nodeId, endpointOf }: RemoteReadsParts,
  { keys, pages, locationOf }: Call,
  wanted: readonly number[],
): (readonly [number, DataLocation])[] {
  if (locationOf === undefined && knownLocations?.isEmpty !== false) return [];
  return wanted.flatMap((index) => {
    const location = locationOf?.(index) ?? knownLocations?.get(keys[index] as string);
    // Another length is another page; and of a node that was started again since then the directory knows more.
    const isUsable =
      location !== undefined &&
      location.nodeId !== nodeId &&
      location.length === pages[index]?.length &&
      endpointOf(location) !== undefined;
    return isUsable ? [[index, location] as const] : [];
  });
}

function without(wanted: readonly number[], found: Found): number[] {
  const indices = new Set(found.map(([index]) => index));
  return wanted.filter((index) => !indices.has(index));
}

function byOwner(found: Found): Iterable<Found> {
  const groups = new Map<string, Found[number][]>();
  for (const each of found) addTo(groups, each[1].nodeId, each);
  return groups.values();
}

/** Whether a page is known not to be where the directory said. */
function isKnown({ isGone, isVoid }: RemoteRead): boolean {
  return isGone === true || isVoid === true;
}

/** Whether a page of this node there is not worth another attempt of the call. */
function isGivenUp({ dead, disks }: FailedNodes, nodeId: string, tier: Tier): boolean {
  return dead.has(nodeId) || (tier === 'disk' && disks.has(nodeId));
}
