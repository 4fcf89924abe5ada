import type { Clock } from '../../base/environment/clock.js';
import { LocatedPages } from '../../directory/messages/located-pages.js';
import { addTo } from '../../directory/owners/owners.js';
import type { DataLocation } from '../../types.js';
import type { CallerPage } from '../call/caller-page.js';
import type { MemoryReads, MemoryReadsCall, MemoryReadsParts } from './memory-reads.js';
import { PromotedReading, type PromotedReadingParts } from './promoted-reading.js';
import { ReadTroubles } from './read-troubles.js';
import { RemoteOutcome } from './remote-outcome.js';

/** Asks other nodes to promote pages from their disks into their pools. */
export type Promotions = Pick<PromotedReadingParts, 'ask' | 'release'>;

export interface DiskReadsParts extends Pick<MemoryReadsParts, 'endpointOf'> {
  readonly memory: MemoryReads;
  readonly promotions: Promotions;
  readonly isClosed: () => boolean;
  readonly clock: Clock;
}

/** Reads pages that other nodes have on their disks, after they have brought them into their memory. */
export class DiskReads {
  readonly #parts: DiskReadsParts;

  constructor(parts: DiskReadsParts) {
    this.#parts = parts;
  }

  /**
   * One promise for each node that is asked, and one for the pages of nodes that are not: those do not live, or have
   * failed to bring such pages before.
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
      const isGone = this.#parts.endpointOf(node) === undefined;
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
    const { promotions, memory, clock, isClosed } = this.#parts;
    const { keys, troubles, signal } = call;
    // A promoted page that its owner does not keep for this reader is requested again, so that only the final result
    // counts.
    const promoted: MemoryReadsCall = { ...call, troubles: new ReadTroubles() };
    const outcome = new RemoteOutcome();
    const locations = new Map<number, DataLocation>();
    const reading = new PromotedReading(
      nodeId,
      indices.map((index) => keys[index] as string),
      {
        ask: (owner, some) => promotions.ask(owner, some),
        release: (owner, some) => promotions.release(owner, some),
        read: async (entries) => {
          const pairs = entries.map(({ index: j, location }) => [indices[j] as number, location] as const);
          const inMemory = pairs.filter(([, { tier }]) => tier === 'memory');
          const part = await memory.read(LocatedPages.of(inMemory), promoted);
          const isRead = new Set(part.reads.flatMap(({ indices: read }) => read));
          for (const read of part.reads) outcome.reads.push(read);
          for (const { index, location } of part.missed) if (location !== undefined) locations.set(index, location);
          return pairs.map(([index]) => isRead.has(index));
        },
        isEnded: () => isClosed() || signal?.aborted === true,
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
