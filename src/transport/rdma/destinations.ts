import { constants } from 'node:os';
import { assert, assertEqual } from '../../base/assert.js';
import type { Clock } from '../../base/environment/clock.js';
import { ClosedError, type RdmaError } from '../../base/errors.js';
import { RDMA_DESTINATION_WINDOW_BYTES, RDMA_LOG_INTERVAL_MS, RDMA_RETRY_AFTER_MS } from '../../base/limits.js';
import type { HostRegion } from '../../memory/host-region.js';
import { ACCESS_LOCAL_WRITE } from '../../native/addon/contract.js';
import type { EngineChannel } from '../../native/engine/engine-channel.js';

interface DestinationsOptions {
  readonly channel: EngineChannel;
  readonly clock: Clock;
  /**
   * Called when memory could not be registered, so that reads into it end false; at most once in {@link
   * RDMA_LOG_INTERVAL_MS}.
   */
  onFailure(error: Error): void;
}

/** The system error when a process may not lock more memory. */
const { ENOMEM } = constants.errno;

/** A registered part of a region; window i starts at byte i * RDMA_DESTINATION_WINDOW_BYTES. */
interface Window {
  readonly destination: Destination;
  readonly number: number;
  readonly length: number;
  readonly handle: number;
  /** Batches in progress that read into the window. */
  users: number;
}

interface Destination {
  readonly windows: Map<number, Window>;
  /** Stops watching for the freeing of the region. */
  readonly unwatch: () => void;
  /** Earliest time at which another window of the region may be registered, after a failure. */
  retryAtMs: number;
}

/**
 * Memory that reads write into. It is registered with the engine at the first read and stays registered until its
 * region is freed. Only local devices may write to it; peers cannot access it.
 *
 * Registering locks the memory, which blocks this thread for a while. Therefore only the windows in use of a large
 * region are registered, and a range that crosses windows is given to the engine in pieces. When the process may not
 * lock more memory, the least recently used windows are deregistered.
 */
export class Destinations {
  readonly #options: DestinationsOptions;
  readonly #byRegion = new Map<HostRegion, Destination>();
  /** Windows, the least recently used first. */
  readonly #windows = new Set<Window>();
  /** Memory of freed regions that devices may still write to. */
  readonly #held = new Set<readonly Uint8Array[]>();
  /** The last registration that failed because no more memory can be locked. */
  #shortage: { readonly destination: Destination; readonly length: number; readonly error: Error } | undefined;
  /** Earliest time at which another failure may be reported. */
  #tellAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: DestinationsOptions) {
    this.#options = options;
  }

  /** Begins the use of windows by one batch. They stay registered until `release()`. */
  use(): DestinationUse {
    return new DestinationUse(this);
  }

  /** Returns the window with this number in a live region; undefined if it cannot be registered now. */
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
   * Deregisters unused windows after a registration failed because no more memory could be locked. Resolves with true
   * if another attempt may succeed.
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
    destination.retryAtMs = nowMs + RDMA_RETRY_AFTER_MS;
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

  /**
   * Throws `InvariantError` unless the order of use lists every window of the regions once, and no user count is
   * negative.
   */
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

/** The windows that one batch reads into and keeps registered. */
export class DestinationUse {
  readonly #destinations: Destinations;
  readonly #windows = new Set<Window>();

  constructor(destinations: Destinations) {
    this.#destinations = destinations;
  }

  /**
   * Prepares `length` bytes (at least 1) from `start` on in the live `region` as a destination. Returns false if they
   * cannot be registered now.
   */
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

/** Returns the number of bytes from `start` to the end of its window. */
export function windowRestBytes(region: HostRegion, start: number): number {
  return RDMA_DESTINATION_WINDOW_BYTES - ((start - region.start) % RDMA_DESTINATION_WINDOW_BYTES);
}

function windowOf(region: HostRegion, addr: number): number {
  return Math.floor((addr - region.start) / RDMA_DESTINATION_WINDOW_BYTES);
}
