import type { Clock } from '../../base/clock.js';
import { RDMA_DESTINATION_WINDOW_BYTES, RDMA_LOG_INTERVAL_MS } from '../../base/limits.js';
import type { HostRegion } from '../../memory/host-region.js';
import { ACCESS_LOCAL_WRITE } from '../../native/contract.js';
import type { EngineChannel } from '../../native/engine-channel.js';

export interface DestinationsOptions {
  readonly channel: EngineChannel;
  readonly clock: Clock;
  /** Memory could not be registered: reads into it end false. At most once in {@link RDMA_LOG_INTERVAL_MS}. */
  onFailure(error: Error): void;
}

/** Windows of one region that are registered: window i is the bytes from i * RDMA_DESTINATION_WINDOW_BYTES on. */
interface Destination {
  readonly handles: Map<number, number>;
  /** Takes back the wish to hear when the region is freed. */
  readonly unwatch: () => void;
}

/**
 * Memory that reads land in, registered with the engine when it is first read into and until its region is freed; for
 * writing by the own devices only, no peer sees it.
 *
 * Registering locks the memory, which takes its time on this thread. So of a large region only those windows are
 * registered that are used; a range that crosses windows has to be given to the engine in pieces.
 */
export class Destinations {
  readonly #options: DestinationsOptions;
  readonly #byRegion = new Map<HostRegion, Destination>();
  /** Memory that devices may still write to although its region is freed. */
  readonly #held = new Set<readonly Uint8Array[]>();
  /** Nothing is registered before this time of the clock, after a failure. */
  #retryAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: DestinationsOptions) {
    this.#options = options;
  }

  /** Sees to it that `length` bytes (at least 1) from `start` on, which lie in the live `region`, can be read into. False: they cannot. */
  prepare(region: HostRegion, start: number, length: number): boolean {
    const destination = this.#byRegion.get(region) ?? this.#watch(region);
    const last = windowOf(region, start + length - 1);
    for (let window = windowOf(region, start); window <= last; window++) {
      if (!destination.handles.has(window) && !this.#register(region, destination, window)) return false;
    }
    return true;
  }

  /** Forgets everything; the channel must be closed, which releases it. */
  close(): void {
    for (const { unwatch } of this.#byRegion.values()) unwatch();
    this.#byRegion.clear();
  }

  #watch(region: HostRegion): Destination {
    const destination = { handles: new Map<number, number>(), unwatch: region.onFree(() => this.#freed(region)) };
    this.#byRegion.set(region, destination);
    return destination;
  }

  #register(region: HostRegion, destination: Destination, window: number): boolean {
    const { channel, clock, onFailure } = this.#options;
    if (clock.nowMs() < this.#retryAtMs) return false;
    const offset = window * RDMA_DESTINATION_WINDOW_BYTES;
    const bytes = Math.min(RDMA_DESTINATION_WINDOW_BYTES, region.length - offset);
    try {
      const { handle } = channel.registerMr(region.start + offset, bytes, 0, ACCESS_LOCAL_WRITE);
      destination.handles.set(window, handle);
      return true;
    } catch (error) {
      this.#retryAtMs = clock.nowMs() + RDMA_LOG_INTERVAL_MS;
      onFailure(error as Error);
      return false;
    }
  }

  #freed(region: HostRegion): void {
    const destination = this.#byRegion.get(region);
    if (destination === undefined) return;
    this.#byRegion.delete(region);
    const memory = region.segments;
    this.#held.add(memory);
    const released = [...destination.handles.values()].map((handle) => this.#options.channel.deregisterMr(handle));
    Promise.all(released).then(() => this.#held.delete(memory));
  }
}

/** Bytes from `start` on until a window of the region ends. */
export function windowRestBytes(region: HostRegion, start: number): number {
  return RDMA_DESTINATION_WINDOW_BYTES - ((start - region.start) % RDMA_DESTINATION_WINDOW_BYTES);
}

function windowOf(region: HostRegion, addr: number): number {
  return Math.floor((addr - region.start) / RDMA_DESTINATION_WINDOW_BYTES);
}
