import { type CancelSignal, unlessAborted } from '../../base/concurrency/cancellation.js';
import { within } from '../../base/environment/clock.js';
import { isExpired } from '../../base/expiry.js';
import {
  DISCARD_WAIT_MAX_MS,
  INLINE_CALL_MAX_BYTES,
  INLINE_PAGE_MAX_BYTES,
  READ_AGAIN_WITHIN_MS,
} from '../../base/limits.js';
import { type Keys, pickKeys } from '../../core/binding/key-batch.js';
import { LocatedPages } from '../../directory/messages/located-pages.js';
import { LocationColumns, ON_DISK } from '../../directory/messages/location-columns.js';
import { addTo } from '../../directory/owners/owners.js';
import type { DataLocation } from '../../types.js';
import type { MissReason, Reasons } from '../call/call-options.js';
import type { CallerPage } from '../call/caller-page.js';
import type { PageStatements } from '../ground/page-statements.js';
import type { StoreGround } from '../ground/store-ground.js';
import { MemoryReads, type MemoryReadsCall, type ReadMemory } from './memory-reads.js';
import { PromotedReading } from './promoted-reading.js';
import { ReadTroubles } from './read-troubles.js';
import { Attempts, isKnownMissing, type MissedRead, RemoteOutcome } from './remote-outcome.js';

/** Collaborators of callers' reads, beside the ground; copies are made without them. */
export interface ReadsOfCallers extends ReadMemory {
  /** Knows which pages are void here. */
  readonly statements: PageStatements;
}

/** Maximum number of times that a page is looked up in the directory. */
const ROUNDS_MAX_COUNT = 3;

/** Receives the progress of a round. */
export interface RoundProgress {
  /** Called at once with pages that were read or have failed, so that a slow node delays only its own pages. */
  tried(part: RemoteOutcome): void;
  /** Called when the directory has returned all known locations: pages for which `isFound` is not 1 are misses. */
  searched(isFound: Uint8Array): void;
}

/** Pages to read from other nodes. */
export interface RemoteRequest {
  /** The keys in encoded form, if the caller has passed them that way. */
  readonly asked?: Keys | undefined;
  readonly keys: readonly string[];
  /** Destinations, one for each key. */
  readonly pages: readonly CallerPage[];
  /** Indices of the wanted pages. */
  readonly wanted: readonly number[];
  /** Called, as answers arrive, with pages that only this node is listed for. */
  readonly onOwn?: ((indices: readonly number[]) => void) | undefined;
  /** A location that the directory has just given for a page, by index; replaces the first lookup. */
  readonly locationOf?: ((index: number) => DataLocation | undefined) | undefined;
  /** Receives progress; there is then only one round. */
  readonly round?: RoundProgress | undefined;
  readonly signal?: CancelSignal | undefined;
  /** Collects the reasons of misses, if the caller wants them. */
  readonly reasons?: Reasons<MissReason> | undefined;
}

/** A request and its state. */
interface Call extends RemoteRequest {
  readonly troubles: ReadTroubles;
}

/** The located pages of a round, grouped by how they are read. */
interface RoundPlan {
  /** Pages that only this node is listed for. */
  readonly own: readonly number[];
  readonly inMemory: LocatedPages;
  readonly onDisk: LocatedPages;
  /** Expired pages, and pages for which this node has set, or was told of, newer content. */
  readonly outdated: readonly MissedRead[];
}

/** Reads pages from the pools of the nodes that the directory names; pages on those nodes' disks are promoted first. */
export class RemoteReads {
  readonly #ground: StoreGround;
  readonly #own: ReadsOfCallers | undefined;
  readonly #memory: MemoryReads;
  readonly #disks: DiskReads;
  #closed = false;

  /** `own`: undefined for copies, which look up every page and also read void ones. */
  constructor(ground: StoreGround, own?: ReadsOfCallers) {
    this.#ground = ground;
    this.#own = own;
    this.#memory = new MemoryReads(ground, own);
    this.#disks = new DiskReads(ground, this.#memory);
  }

  /**
   * Reads the wanted pages from all owners at once and resolves with the results. If a page cannot be read where the
   * directory said, because its owner does not answer or has moved it to its disk, it is looked up again, on other
   * nodes if possible, for at most READ_AGAIN_WITHIN_MS.
   *
   * After an abort nothing more begins, and neither the directory nor promotions are awaited, only reads in progress,
   * as in `Transport.batchRead`. Pages that were not read because of the abort have no result, and count against no
   * node.
   */
  async read(request: RemoteRequest): Promise<RemoteOutcome> {
    const { clock, metrics } = this.#ground;
    const { signal } = request;
    if (request.wanted.length === 0 || this.#isOver(signal)) return new RemoteOutcome();
    const untilMs = clock.nowMs() + READ_AGAIN_WITHIN_MS;
    const troubles = new ReadTroubles();
    const call: Call = { ...request, troubles };
    const first = await this.#readOnce(call, request.wanted, true);
    // Most calls end here.
    if (first.missed.length === 0 && troubles.isEmpty) return first;
    const attempts = new Attempts();
    let left = await this.#afterRound(call, attempts, first, new Set());
    const rounds = request.round === undefined ? ROUNDS_MAX_COUNT : 1;
    for (let round = 1; round < rounds && left.length > 0 && !this.#isOver(signal); round++) {
      if (clock.nowMs() >= untilMs) break;
      const before = troubles.nodes();
      left = await this.#afterRound(call, attempts, await this.#readOnce(call, left, false), before);
    }
    // Reads cut short by the closing of the store say nothing about the directory.
    if (!this.#closed) troubles.count(metrics);
    return attempts.outcome();
  }

  /**
   * Processes the results of a round. `before`: nodes on which pages were missed earlier. Returns the indices to look
   * up again.
   */
  async #afterRound(
    { keys, troubles, signal }: Call,
    attempts: Attempts,
    { reads, missed: tried }: Pick<RemoteOutcome, 'reads' | 'missed'>,
    before: ReadonlySet<string>,
  ): Promise<number[]> {
    const missed = signal?.aborted ? tried.filter(isKnownMissing) : tried;
    attempts.add({ reads, missed });
    await this.#discardStale(keys, missed, signal);
    for (const { nodeId } of missed) troubles.noteNode(nodeId);
    // If a node that failed before is named again, no other node has the page.
    const isOver = ({ nodeId, tier }: MissedRead) => before.has(nodeId) && troubles.isGivenUp(nodeId, tier);
    return missed.filter((miss) => !isOver(miss)).map(({ index }) => index);
  }

  /**
   * Reports stale locations to the owners that named them, before those are asked again. Locations that failed for
   * other reasons may still be right.
   */
  async #discardStale(
    keys: readonly string[],
    missed: readonly MissedRead[],
    signal: CancelSignal | undefined,
  ): Promise<void> {
    const gone = missed.filter((miss) => miss.location !== undefined && isKnownMissing(miss));
    if (gone.length === 0 || this.#isOver(signal)) return;
    const told = this.#ground.directory.discard(
      gone.map(({ index }) => keys[index] as string),
      gone.map(({ location }) => location as DataLocation),
    );
    // An owner that does not answer must not delay the read: the failed node is avoided anyway.
    await unlessAborted(within(this.#ground.clock, DISCARD_WAIT_MAX_MS, told), signal);
  }

  /** Stops: reads in progress finish, no new ones begin. */
  close(): void {
    this.#closed = true;
    this.#memory.close();
  }

  /** Looks up these pages, and reads each one as soon as it is found. */
  async #readOnce(call: Call, wanted: readonly number[], isFirst: boolean): Promise<RemoteOutcome> {
    const { keys, round: progress, signal } = call;
    const reads: Promise<RemoteOutcome>[] = [];
    const isFound = progress === undefined ? undefined : new Uint8Array(keys.length);
    const onFound = (located: LocatedPages): void => {
      if (isFound !== undefined) for (const index of located.indices) isFound[index] = 1;
      this.#readFound(located, call, isFirst, reads);
    };
    const known = isFirst ? this.#knownAmong(call, wanted) : undefined;
    const unknown = known === undefined ? wanted : without(wanted, known.indices);
    if (known !== undefined) onFound(known);
    try {
      const searching = this.#search(call, unknown, (located) => {
        // No read may begin after the abort: it would write into memory that belongs to the caller again.
        if (signal?.aborted) return;
        this.#own?.knownLocations.note(keys, located);
        onFound(located);
      });
      await unlessAborted(searching, signal);
      if (isFound !== undefined) progress?.searched(isFound);
    } finally {
      // The reads are awaited even if the lookup fails, because they may write into the pages until they end.
      if (reads.length > 1) await Promise.allSettled(reads);
      else await reads[0]?.catch(() => {});
    }
    if (reads.length === 1) return reads[0] as Promise<RemoteOutcome>;
    const outcome = new RemoteOutcome();
    for (const part of await Promise.all(reads)) outcome.addAll(part);
    return outcome;
  }

  /** Asks the directory for the pages with these indices. */
  #search(call: Call, unknown: readonly number[], onFound: (located: LocatedPages) => void): Promise<void> {
    if (unknown.length === 0) return Promise.resolve();
    const { keys, asked = keys, troubles } = call;
    const unreachable = this.#ground.cluster.unreachableNodes();
    const avoided = troubles.isEmpty ? unreachable : [...new Set([...troubles.nodes(), ...unreachable])];
    const options = { avoided, room: roomFor(call.pages, unknown) };
    if (unknown.length === keys.length) return this.#ground.directory.find(asked, onFound, options);
    return this.#ground.directory.find(
      pickKeys(asked, unknown),
      ({ indices, rows, columns }) => {
        const own = indices.map((j) => unknown[j] as number);
        onFound(new LocatedPages(own, rows, columns));
      },
      options,
    );
  }

  /** Starts to read pages from the nodes that the directory names. */
  #readFound(located: LocatedPages, call: Call, isFirst: boolean, reads: Promise<RemoteOutcome>[]): void {
    const { round: progress } = call;
    const { own, inMemory, onDisk, outdated } = this.#plan(located, call);
    if (own.length > 0 && isFirst) call.onOwn?.(own);
    const add = (read: Promise<RemoteOutcome>): void => {
      reads.push(progress === undefined ? read : told(read, progress));
    };
    if (outdated.length > 0) {
      const outcome = new RemoteOutcome();
      outcome.missed.push(...outdated);
      add(Promise.resolve(outcome));
    }
    const { arrived, rest } = this.#memory.take(inMemory, call);
    if (arrived.reads.length > 0) add(Promise.resolve(arrived));
    // All pages are one read, unless the caller wants each node's pages as soon as they arrive.
    const parts = progress === undefined ? [rest] : byNode(rest);
    for (const part of parts) if (part.count > 0) add(this.#memory.read(part, call));
    if (onDisk.count > 0) for (const read of this.#disks.read(onDisk, call)) add(read);
  }

  /** Groups pages by how they are read. */
  #plan(located: LocatedPages, { keys, troubles }: Call): RoundPlan {
    const { cluster } = this.#ground;
    const { nodeId: ownId } = cluster;
    const { columns, rows, indices } = located;
    const own: number[] = [];
    const inMemory: number[] = [];
    const onDisk: number[] = [];
    const outdated: MissedRead[] = [];
    for (let k = 0; k < rows.length; k++) {
      const row = rows[k] as number;
      const index = indices[k] as number;
      const { nodeId } = located.nodeAt(k);
      const version = columns.version[row] as number;
      const isOnDisk = ((columns.flags[row] as number) & ON_DISK) !== 0;
      const key = keys[index] as string;
      if (nodeId === ownId) {
        own.push(index);
        continue;
      }
      if (this.#isExpired(columns, row)) {
        troubles.note(index, 'expired');
        // The directory need not be told: its own clock knows that the page has expired.
        outdated.push({ index, nodeId, tier: isOnDisk ? 'disk' : 'memory', isVoid: true });
        continue;
      }
      const setBy = columns.setBy[row] as number;
      const below = version === 0 ? 0 : (this.#own?.statements.voidBelow(key, version, setBy) ?? 0);
      if (below === 0) {
        (isOnDisk ? onDisk : inMemory).push(k);
        continue;
      }
      troubles.note(index, 'void');
      cluster.drops.dropFrom(nodeId, key, below);
      const tier = isOnDisk ? 'disk' : 'memory';
      outdated.push({ index, nodeId, tier, location: located.locationAt(k), isVoid: true });
    }
    const isAllInMemory = inMemory.length === rows.length;
    return {
      own,
      inMemory: isAllInMemory ? located : located.pick(inMemory),
      onDisk: onDisk.length === 0 ? NONE : located.pick(onDisk),
      outdated,
    };
  }

  /**
   * Whether a location is expired, or comes from a clock too far ahead. It is judged at a time no earlier than when the
   * page was set, however far this node's clock is behind.
   */
  #isExpired({ expires, version }: LocationColumns, row: number): boolean {
    const { versions } = this.#ground;
    if (versions.isAhead(version[row] as number, expires[row] as number)) return true;
    if (expires[row] === 0) return false;
    versions.see(version[row] as number);
    return isExpired(expires[row] as number, versions.now());
  }

  /**
   * Reusable locations of the wanted pages, except those on this node, for which the directory may know better by now.
   */
  #knownAmong({ keys, pages, locationOf }: Call, wanted: readonly number[]): LocatedPages | undefined {
    const knownLocations = this.#own?.knownLocations;
    if (locationOf !== undefined) {
      const pairs = wanted.flatMap((index) => {
        const location = locationOf(index);
        return location === undefined ? [] : [[index, location] as const];
      });
      if (pairs.length > 0) return this.#usable(LocatedPages.of(pairs), pages);
    }
    if (knownLocations === undefined || knownLocations.isEmpty) return undefined;
    const indices: number[] = [];
    let known: LocationColumns | undefined;
    for (const index of wanted) {
      const found = knownLocations.get(keys[index] as string);
      if (found === undefined) continue;
      known ??= new LocationColumns(wanted.length);
      known.copy(indices.length, found.columns, found.row);
      indices.push(index);
    }
    if (known === undefined) return undefined;
    const rows = indices.map((_, row) => row);
    return this.#usable(new LocatedPages(indices, rows, known), pages);
  }

  /**
   * The known locations that can be read. A different length means a different page, and after a restart of the node
   * the directory knows better.
   */
  #usable(known: LocatedPages, pages: readonly CallerPage[]): LocatedPages | undefined {
    const { cluster } = this.#ground;
    const { columns, rows, indices } = known;
    const isNodeUsable = columns.nodes.map(
      (node) => node.nodeId !== cluster.nodeId && cluster.dataEndpointOf(node) !== undefined,
    );
    const positions: number[] = [];
    for (let k = 0; k < rows.length; k++) {
      const row = rows[k] as number;
      if (isNodeUsable[columns.node[row] as number] !== true) continue;
      if (columns.length[row] === pages[indices[k] as number]?.length) positions.push(k);
    }
    if (positions.length === 0) return undefined;
    return positions.length === rows.length ? known : known.pick(positions);
  }

  #isOver(signal: CancelSignal | undefined): boolean {
    return this.#closed || signal?.aborted === true;
  }
}

const NONE = new LocatedPages([], [], new LocationColumns(0));

/** Bytes of wanted pages that are to come with their locations: of short ones, unless a call wants many. */
function roomFor(pages: readonly CallerPage[], wanted: readonly number[]): number {
  let bytes = 0;
  for (const i of wanted) {
    const { length } = pages[i] as CallerPage;
    if (length <= INLINE_PAGE_MAX_BYTES) bytes += length;
  }
  return bytes > INLINE_CALL_MAX_BYTES ? 0 : bytes;
}

async function told(read: Promise<RemoteOutcome>, progress: RoundProgress): Promise<RemoteOutcome> {
  const part = await read;
  progress.tried(part);
  return part;
}

function without(wanted: readonly number[], found: readonly number[]): readonly number[] {
  if (found.length === wanted.length) return [];
  const indices = new Set(found);
  return wanted.filter((index) => !indices.has(index));
}

/** Splits located pages by node. */
function byNode(located: LocatedPages): readonly LocatedPages[] {
  const { columns, rows } = located;
  const groups = new Map<string, number[]>();
  const first = columns.node[rows[0] as number];
  if (rows.every((row) => columns.node[row] === first)) return [located];
  for (let k = 0; k < rows.length; k++) {
    addTo(groups, located.nodeAt(k).nodeId, k);
  }
  return Array.from(groups.values(), (positions) => located.pick(positions));
}

/** Reads pages from other nodes' disks, after those nodes have brought them into their memory. */
class DiskReads {
  readonly #ground: StoreGround;
  readonly #memory: MemoryReads;

  constructor(ground: StoreGround, memory: MemoryReads) {
    this.#ground = ground;
    this.#memory = memory;
  }

  /**
   * One promise for each node that is asked, and one for the pages of nodes that are not asked because they are dead or
   * have failed to bring such pages before.
   */
  read(located: LocatedPages, { pages, troubles, ...call }: MemoryReadsCall): Promise<RemoteOutcome>[] {
    const byOwner = new Map<string, number[]>();
    const skipped = new RemoteOutcome();
    for (let k = 0; k < located.count; k++) {
      const index = located.indices[k] as number;
      const node = located.nodeAt(k);
      const { nodeId } = node;
      if (located.columns.length[located.rows[k] as number] !== (pages[index] as CallerPage).length) {
        call.reasons?.note(index, 'other_size');
        continue;
      }
      const isGone = this.#ground.cluster.dataEndpointOf(node) === undefined;
      if (isGone) {
        troubles.note(index, 'owner_gone');
        troubles.noteDead(nodeId);
        call.reasons?.note(index, 'unreachable');
      }
      if (isGone || troubles.isGivenUp(nodeId, 'disk')) skipped.missed.push({ index, nodeId, tier: 'disk' });
      else addTo(byOwner, nodeId, index);
    }
    const reads = [...byOwner].map(([nodeId, indices]) => this.#readOf(nodeId, indices, { ...call, pages, troubles }));
    return [Promise.resolve(skipped), ...reads];
  }

  /** Reads the pages of one node. */
  async #readOf(nodeId: string, indices: readonly number[], call: MemoryReadsCall): Promise<RemoteOutcome> {
    const { cluster, clock } = this.#ground;
    const { holders } = cluster;
    const memory = this.#memory;
    const { keys, troubles, signal } = call;
    // If the owner does not keep a promoted page for this reader, the page is requested again, so only the final result
    // counts.
    const promoted: MemoryReadsCall = { ...call, troubles: new ReadTroubles() };
    const outcome = new RemoteOutcome();
    const locations = new Map<number, DataLocation>();
    const reading = new PromotedReading(
      nodeId,
      indices.map((index) => keys[index] as string),
      {
        ask: async (owner, some) => {
          const outcomes = await holders.ask(owner, { why: 'promotion', keys: some, pages: [] });
          return outcomes ?? some.map(() => 'absent');
        },
        release: (owner, some) => holders.release(owner, some),
        read: async (entries) => {
          const pairs = entries.map(({ index: j, location }) => [indices[j] as number, location] as const);
          const inMemory = pairs.filter(([, { tier }]) => tier === 'memory');
          const part = await memory.read(LocatedPages.of(inMemory), promoted);
          const isRead = new Set(part.reads.flatMap(({ indices: read }) => read));
          for (const read of part.reads) outcome.reads.push(read);
          for (const { index, location } of part.missed) if (location !== undefined) locations.set(index, location);
          return pairs.map(([index]) => isRead.has(index));
        },
        isEnded: () => memory.isClosed || signal?.aborted === true,
        signal,
        clock,
      },
    );
    const results = await reading.run();
    indices.forEach((index, j) => {
      if (results[j] === true) return;
      const location = locations.get(index);
      outcome.missed.push({ index, nodeId, tier: 'disk', ...(location ? { location } : {}) });
      if (signal?.aborted === true) return;
      const trouble = promoted.troubles.of(index);
      troubles.note(index, trouble ?? 'not_promoted');
      if (trouble === undefined) call.reasons?.note(index, 'unreadable');
      troubles.noteDisk(nodeId);
    });
    return outcome;
  }
}
