import { assert } from '../../base/assert.js';
import type { HostRegion } from '../../memory/host-region.js';
import { ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ } from '../../native/addon/contract.js';
import type { EngineChannel } from '../../native/engine/engine-channel.js';

interface MemoryRegion {
  readonly handle: number;
  readonly region: HostRegion;
  /** First address of the range, and the one after the last. */
  readonly start: number;
  readonly end: number;
  /** Stops watching for the end of the region. */
  readonly unwatch: () => void;
}

/** Memory that peers may read by RDMA, by rkey, until it is deregistered or its region is freed. */
export class MemoryRegions {
  readonly #channel: EngineChannel;
  readonly #byRkey = new Map<number, MemoryRegion>();
  /** Memory that devices may still use although it is deregistered or its region freed. */
  readonly #held = new Set<readonly Uint8Array[]>();

  constructor(channel: EngineChannel) {
    this.#channel = channel;
  }

  /**
   * Registers memory and returns its lkey. Throws `RdmaError` when the memory cannot be registered, and `ClosedError`.
   */
  add(region: HostRegion, start: number, length: number, rkey: number): number {
    const access = ACCESS_REMOTE_READ | ACCESS_LOCAL_WRITE;
    const { handle, lkey } = this.#channel.registerMr(start, length, rkey, access);
    const unwatch = region.onFree(() => void this.remove(rkey));
    this.#byRkey.set(rkey, { handle, region, start, end: start + length, unwatch });
    return lkey;
  }

  /** Deregisters the memory. Resolves when no device uses it any more, and at once when the rkey is unknown. */
  async remove(rkey: number): Promise<void> {
    const registered = this.#byRkey.get(rkey);
    if (registered === undefined) return;
    this.#byRkey.delete(rkey);
    registered.unwatch();
    const memory = registered.region.segments;
    this.#held.add(memory);
    await this.#channel.deregisterMr(registered.handle);
    this.#held.delete(memory);
  }

  /** Whether one registered range holds this one: then reads may land there without a registration of their own. */
  covers(start: number, length: number): boolean {
    for (const registered of this.#byRkey.values()) {
      if (start >= registered.start && start + length <= registered.end) return true;
    }
    return false;
  }

  /** Forgets everything; the channel must be closed, which releases it. */
  close(): void {
    for (const { unwatch } of this.#byRkey.values()) unwatch();
    this.#byRkey.clear();
  }

  /** Throws `InvariantError` unless every registered range lies in a live region. */
  verify(): void {
    for (const [rkey, { region, start, end }] of this.#byRkey) {
      const isWithin = region.isLive && start >= region.start && end <= region.start + region.length;
      assert(isWithin, () => `RDMA memory regions: rkey ${rkey}, from ${start} to ${end}, is in no live region`);
    }
  }
}
