import type { Clock } from '../base/clock.js';
import type { Logger } from '../base/log.js';
import type { DirectoryClient } from '../directory/client.js';
import type { ReadOp, Transport } from '../transport/transport.js';
import type { DataLocation, Tier } from '../types.js';
import type { CallerPage } from './page-store.js';
import { PromotedReading, type PromotedReadingParts } from './promoted-reading.js';

/** Asks other nodes to bring pages from their disks into their pools. */
export type Promotions = Pick<PromotedReadingParts, 'ask' | 'release'>;

export interface RemoteReadsParts {
  readonly directory: Pick<DirectoryClient, 'find'>;
  readonly transport: Transport;
  /** The data endpoint at which a location's owner is read; undefined when the owner is not alive. */
  readonly endpointOf: (location: DataLocation) => string | undefined;
  readonly promotions: Promotions;
  readonly nodeId: string;
  readonly verifyReads: boolean;
  readonly quarantineMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** What became of one page that was found on another node. */
export interface RemoteRead {
  /** In the call's keys. */
  readonly index: number;
  readonly nodeId: string;
  /** Where the directory said that it lies. */
  readonly tier: Tier;
  readonly isRead: boolean;
}

/** Times that a page is looked for in the directory. */
const ROUNDS_MAX_COUNT = 3;

type Found = readonly (readonly [index: number, location: DataLocation])[];

/** Reads pages from the nodes that the directory names, out of their pools; what is on their disks comes there first. */
export class RemoteReads {
  readonly #parts: RemoteReadsParts;
  #closed = false;

  constructor(parts: RemoteReadsParts) {
    this.#parts = parts;
  }

  /**
   * Reads those pages of a call that have these indices, all owners at once. `onOwn` is told, as answers come, what only this node itself is
   * said to have. Resolves with what was found elsewhere. A page that is not where the directory said, for it has gone to its owner's
   * disk meanwhile or another node has it, too, is looked for anew.
   */
  async read(
    keys: readonly string[],
    pages: readonly CallerPage[],
    wanted: readonly number[],
    onOwn: (indices: readonly number[]) => void,
  ): Promise<RemoteRead[]> {
    const last = new Map<number, RemoteRead>();
    let left = wanted;
    for (let round = 0; round < ROUNDS_MAX_COUNT && left.length > 0 && !this.#closed; round++) {
      const reads = await this.#readOnce(keys, pages, left, round === 0 ? onOwn : () => {});
      for (const read of reads) last.set(read.index, read);
      left = reads.filter(({ isRead, tier }) => !isRead && tier === 'memory').map(({ index }) => index);
    }
    return [...last.values()];
  }

  /** Reads under way end as they do; no new ones begin. */
  close(): void {
    this.#closed = true;
  }

  async #readOnce(
    keys: readonly string[],
    pages: readonly CallerPage[],
    wanted: readonly number[],
    onOwn: (indices: readonly number[]) => void,
  ): Promise<RemoteRead[]> {
    const { directory, clock, nodeId } = this.#parts;
    const sinceMs = clock.nowMs();
    const reads: Promise<RemoteRead[]>[] = [];
    await directory.find(
      wanted.map((i) => keys[i] as string),
      (answer) => {
        const found = answer.map(([j, location]) => [wanted[j] as number, location] as const);
        const own = found.filter(([, location]) => location.nodeId === nodeId);
        if (own.length > 0) onOwn(own.map(([index]) => index));
        const elsewhere = found.filter(([, location]) => location.nodeId !== nodeId);
        const inMemory = elsewhere.filter(([, { tier }]) => tier === 'memory');
        const onDisk = elsewhere.filter(([, { tier }]) => tier === 'disk');
        reads.push(this.#readFromMemory(inMemory, pages, sinceMs), ...this.#readFromDisks(onDisk, keys, pages));
      },
    );
    return (await Promise.all(reads)).flat();
  }

  /** One read for each page that has the wanted length and whose owner lives. Since `sinceMs` the locations are known. */
  async #readFromMemory(found: Found, pages: readonly CallerPage[], sinceMs: number): Promise<RemoteRead[]> {
    const { transport, log, clock } = this.#parts;
    const ops: ReadOp[] = [];
    const targets: Omit<RemoteRead, 'isRead'>[] = [];
    for (const [index, location] of found) {
      const op = this.#readOp(location, pages[index] as CallerPage);
      if (op === null) continue;
      ops.push(op);
      targets.push({ index, nodeId: location.nodeId, tier: 'memory' });
    }
    if (ops.length === 0 || this.#closed) return [];
    const read = await transport.batchRead(ops).catch((error: unknown): boolean[] => {
      // The caller's memory was freed under way; other reads of the call go on and are to be waited for.
      log.log('warn', 'pages could not be read', { error: String(error) });
      return [];
    });
    const isInTime = this.#isWithinQuarantine(clock.nowMs() - sinceMs);
    return targets.map((target, k) => ({ ...target, isRead: isInTime && read[k] === true }));
  }

  #readFromDisks(found: Found, keys: readonly string[], pages: readonly CallerPage[]): Promise<RemoteRead[]>[] {
    const byOwner = new Map<string, number[]>();
    for (const [index, location] of found) {
      const isReadable =
        location.length === (pages[index] as CallerPage).length && this.#parts.endpointOf(location) !== undefined;
      if (!isReadable) continue;
      const indices = byOwner.get(location.nodeId);
      if (indices === undefined) byOwner.set(location.nodeId, [index]);
      else indices.push(index);
    }
    return [...byOwner].map(([nodeId, indices]) => this.#readFromDisk(nodeId, indices, keys, pages));
  }

  async #readFromDisk(
    nodeId: string,
    indices: readonly number[],
    keys: readonly string[],
    pages: readonly CallerPage[],
  ): Promise<RemoteRead[]> {
    const { promotions, clock } = this.#parts;
    const reading = new PromotedReading(
      nodeId,
      indices.map((index) => keys[index] as string),
      {
        ask: (owner, some) => promotions.ask(owner, some),
        release: (owner, some) => promotions.release(owner, some),
        read: async (entries) => {
          const located = entries.map(({ index: j, location }) => [indices[j] as number, location] as const);
          const sinceMs = Math.min(...entries.map((entry) => entry.sinceMs));
          const reads = await this.#readFromMemory(located, pages, sinceMs);
          const isRead = new Map(reads.map((read) => [read.index, read.isRead]));
          return located.map(([index]) => isRead.get(index) === true);
        },
        isEnded: () => this.#closed,
        clock,
      },
    );
    const results = await reading.run();
    return indices.map((index, j) => ({ index, nodeId, tier: 'disk', isRead: results[j] === true }));
  }

  #readOp(location: DataLocation, page: CallerPage): ReadOp | null {
    const { verifyReads, endpointOf } = this.#parts;
    if (location.length !== page.length || location.tier !== 'memory') return null;
    const remoteEndpoint = endpointOf(location);
    const [first] = page.ranges;
    if (remoteEndpoint === undefined || first === undefined) return null;
    return {
      remoteEndpoint,
      localAddr: first.addr,
      remoteAddr: location.remoteAddr,
      rkey: location.rkey,
      length: location.length,
      ...(page.ranges.length > 1 ? { scatter: page.ranges } : {}),
      ...(verifyReads ? { checksum: location.checksum } : {}),
    };
  }

  /** Without checksums the quarantine is the guarantee: what took more than half of it is a miss. */
  #isWithinQuarantine(elapsedMs: number): boolean {
    const { verifyReads, quarantineMs } = this.#parts;
    return verifyReads || quarantineMs === 0 || elapsedMs <= quarantineMs / 2;
  }
}
