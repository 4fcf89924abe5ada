import { constants } from 'node:os';
import { assert, assertEqual } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import { ClosedError, type RdmaError } from '../../base/errors.js';
import { RDMA_DESTINATION_WINDOW_BYTES, RDMA_LOG_INTERVAL_MS, READ_RETRY_AFTER_MS } from '../../base/limits.js';
import type { HostRegion } from '../../memory/host-region.js';
import { ACCESS_LOCAL_WRITE } from '../../native/addon/contract.js';
import type { EngineChannel } from '../../native/engine/engine-channel.js';

export interface DestinationsOptions {
  readonly channel: EngineChannel;
  readonly clock: Clock;
  /** Memory could not be registered: reads into it end false. At most once in {@link RDMA_LOG_INTERVAL_MS}. */
  onFailure(error: Error): void;
}

/** What the system answers when a process may not lock more memory. */
const { ENOMEM } = constants.errno;

/** A registered part of a region: number i is its bytes from i * RDMA_DESTINATION_WINDOW_BYTES on. */
interface Window {
  readonly destination: Destination;
  readonly number: number;
  readonly length: number;
  readonly handle: number;
  /** Batches under way that read into it. */
  users: number;
}

interface Destination {
  readonly windows: Map<number, Window>;
  /** Takes back the wish to hear when the region is freed. */
  readonly unwatch: () => void;
  /** No more of it is registered before this time of the clock, after a failure. */
  retryAtMs: number;
}

/**
 * Memory that reads land in, registered with the engine when it is first read into and until its region is freed; for
 * writing by the own devices only, no peer sees it.
 *
 * Registering locks the memory, which takes its time on this thread. So of a large region only those windows are
 * registered that are used; a range that crosses windows has to be given to the engine in pieces. Where a process may
 * not lock more, the windows that were used the longest ago make room.
 */
export class Destinations {
  readonly #options: DestinationsOptions;
  readonly #byRegion = new Map<HostRegion, Destination>();
  /** Least recently used first. */
  readonly #windows = new Set<Window>();
  /** Memory that devices may still write to although its region is freed. */
  readonly #held = new Set<readonly Uint8Array[]>();
  /** What the last registration failed for that other memory can make room for. */
  #shortage: { readonly destination: Destination; readonly length: number; readonly error: Error } | undefined;
  /** Failures are not told before this time of the clock. */
  #tellAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: DestinationsOptions) {
    this.#options = options;
  }

  /** What one batch reads into: it stays registered until `release()`. */
  use(): DestinationUse {
    return new DestinationUse(this);
  }

  /** The window with that number of a live region; undefined when it cannot be registered now. */
  window(region: HostRegion, number: number): Window | undefined {
    const destination = this.#byRegion.get(region) ?? this.#watch(region);
    const window = destination.windows.get(number) ?? this.#register(region, destination, number);
    if (window !== undefined) {
      this.#windows.delete(window);
      this.#windows.add(window);
    }
    return window;
  }

  /**
   * Right after a window could not be registered for want of memory that may be locked: gives up as much that no
   * batch uses. True when it resolves: another try is worth it.
   */
  async makeRoom(): Promise<boolean> {
    const shortage = this.#shortage;
    this.#shortage = undefined;
    if (shortage === undefined) return false;
    const released: Promise<void>[] = [];
    let bytes = 0;
    for (const window of this.#windows) {
      if (bytes >= shortage.length) break;
      if (window.users > 0) continue;
      this.#windows.delete(window);
      window.destination.windows.delete(window.number);
      released.push(this.#options.channel.deregisterMr(window.handle));
      bytes += window.length;
    }
    if (released.length === 0) this.#failed(shortage.destination, shortage.error);
    await Promise.all(released);
    return released.length > 0;
  }

  /** Forgets everything; the channel must be closed, which releases it. */
  close(): void {
    for (const { unwatch } of this.#byRegion.values()) unwatch();
    this.#byRegion.clear();
    this.#windows.clear();
  }

  #watch(region: HostRegion): Destination {
    const unwatch = region.onFree(() => this.#freed(region));
    const destination = { windows: new Map<number, Window>(), unwatch, retryAtMs: Number.NEGATIVE_INFINITY };
    this.#byRegion.set(region, destination);
    return destination;
  }

  #register(region: HostRegion, destination: Destination, number: number): Window | undefined {
    const { channel, clock } = this.#options;
    if (clock.nowMs() < destination.retryAtMs) return undefined;
    const offset = number * RDMA_DESTINATION_WINDOW_BYTES;
    const length = Math.min(RDMA_DESTINATION_WINDOW_BYTES, region.length - offset);
    try {
      const { handle } = channel.registerMr(region.start + offset, length, 0, ACCESS_LOCAL_WRITE);
      const window = { destination, number, length, handle, users: 0 };
      destination.windows.set(number, window);
      return window;
    } catch (error) {
      if ((error as Partial<RdmaError>).errno === ENOMEM)
        this.#shortage = { destination, length, error: error as Error };
      else if (!(error instanceof ClosedError)) this.#failed(destination, error as Error);
      return undefined;
    }
  }

  #failed(destination: Destination, error: Error): void {
    const { clock, onFailure } = this.#options;
    const nowMs = clock.nowMs();
    destination.retryAtMs = nowMs + READ_RETRY_AFTER_MS;
    if (nowMs < this.#tellAtMs) return;
    this.#tellAtMs = nowMs + RDMA_LOG_INTERVAL_MS;
    onFailure(error);
  }

  #freed(region: HostRegion): void {
    const destination = this.#byRegion.get(region);
    if (destination === undefined) return;
    this.#byRegion.delete(region);
    const memory = region.segments;
    this.#held.add(memory);
    const windows = [...destination.windows.values()];
    for (const window of windows) this.#windows.delete(window);
    const released = windows.map(({ handle }) => this.#options.channel.deregisterMr(handle));
    Promise.all(released).then(() => this.#held.delete(memory));
  }

  /** Throws `InvariantError` unless the windows in the order of their use are those of the regions, each once, with no less than no users. */
  verify(): void {
    let count = 0;
    for (const [region, { windows }] of this.#byRegion) {
      for (const [number, window] of windows) {
        count++;
        const name = (): string => `RDMA destinations: window ${number} of the region at ${region.start}`;
        assert(window.number === number, () => `${name()} is kept as ${window.number}`);
        assert(this.#windows.has(window), () => `${name()} is not in the order of use`);
        assert(window.users >= 0, () => `${name()} has ${window.users} users`);
      }
    }
    assertEqual('RDMA destinations: windows', this.#windows.size, count);
  }
}

/** The hold of one batch on the windows that it reads into. */
export class DestinationUse {
  readonly #destinations: Destinations;
  readonly #windows = new Set<Window>();

  constructor(destinations: Destinations) {
    this.#destinations = destinations;
  }

  /** Whether `length` bytes (at least 1) from `start` on, which lie in the live `region`, can be read into as things are. */
  add(region: HostRegion, start: number, length: number): boolean {
    const last = windowOf(region, start + length - 1);
    for (let number = windowOf(region, start); number <= last; number++) {
      const window = this.#destinations.window(region, number);
      if (window === undefined) return false;
      if (this.#windows.has(window)) continue;
      this.#windows.add(window);
      window.users++;
    }
    return true;
  }

  release(): void {
    for (const window of this.#windows) window.users--;
    this.#windows.clear();
  }
}

/** Bytes from `start` on until a window of the region ends. */
export function windowRestBytes(region: HostRegion, start: number): number {
  return RDMA_DESTINATION_WINDOW_BYTES - ((start - region.start) % RDMA_DESTINATION_WINDOW_BYTES);
}

function windowOf(region: HostRegion, addr: number): number {
  return Math.floor((addr - region.start) / RDMA_DESTINATION_WINDOW_BYTES);
}
