import { assert } from '../../base/assert.js';
import type { HostRegion } from '../../memory/host-region.js';
import { ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ } from '../../native/addon/contract.js';
import type { EngineChannel } from '../../native/engine/engine-channel.js';

interface Publication {
  readonly handle: number;
  readonly region: HostRegion;
  /** First address of the range, and the one after the last. */
  readonly start: number;
  readonly end: number;
  /** Stops watching for the end of the region. */
  readonly unwatch: () => void;
}

/** Memory that peers may read by RDMA, by rkey, until it is deregistered or its region is freed. */
export class Publications {
  readonly #channel: EngineChannel;
  readonly #byRkey = new Map<number, Publication>();
  /** Memory that devices may still use after it was deregistered or its region was freed. */
  readonly #held = new Set<readonly Uint8Array[]>();

  constructor(channel: EngineChannel) {
    this.#channel = channel;
  }

  /** Registers memory and returns its lkey. Throws `RdmaError` if it cannot be registered, and `ClosedError`. */
  add(region: HostRegion, start: number, length: number, rkey: number): number {
    const access = ACCESS_REMOTE_READ | ACCESS_LOCAL_WRITE;
    const { handle, lkey } = this.#channel.registerMr(start, length, rkey, access);
    const unwatch = region.onFree(() => void this.remove(rkey));
    this.#byRkey.set(rkey, { handle, region, start, end: start + length, unwatch });
    return lkey;
  }

  /** Deregisters memory; resolves when no device uses it any more, at once if it is not registered. */
  async remove(rkey: number): Promise<void> {
    const publication = this.#byRkey.get(rkey);
    if (publication === undefined) return;
    this.#byRkey.delete(rkey);
    publication.unwatch();
    const memory = publication.region.segments;
    this.#held.add(memory);
    await this.#channel.deregisterMr(publication.handle);
    this.#held.delete(memory);
  }

  /** Whether the range is within published memory, so that reads may land there. */
  covers(start: number, length: number): boolean {
    for (const published of this.#byRkey.values()) {
      if (start >= published.start && start + length <= published.end) return true;
    }
    return false;
  }

  /** Forgets everything; the channel must be closed, which releases it. */
  close(): void {
    for (const { unwatch } of this.#byRkey.values()) unwatch();
    this.#byRkey.clear();
  }

  /** Throws `InvariantError` unless all published memory is in live regions. */
  verify(): void {
    for (const [rkey, { region, start, end }] of this.#byRkey) {
      const isWithin = region.isLive && start >= region.start && end <= region.start + region.length;
      assert(isWithin, () => `RDMA publications: rkey ${rkey}, from ${start} to ${end}, is in no live region`);
    }
  }
}
