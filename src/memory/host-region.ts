import { constants, openSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { getSystemErrorName } from 'node:util';
import type { Host, HostMemory } from '../base/environment/host.js';
import { ArgumentError } from '../base/errors.js';
import { SEGMENT_MAX_BYTES } from '../base/limits.js';
import { checkNames } from '../base/settings/known-names.js';
import { MEMORY_HUGE_PAGES, MEMORY_SHARED, type NativeAddon, type NativeMemory } from '../native/addon/contract.js';
import { loadNative } from '../native/addon/loader.js';
import { closeReceived } from '../native/unix-sockets.js';
import { addRegion, removeRegion, reserveAddresses } from './address-space.js';
import { addressOf, nativeSegments } from './native-memory.js';

/** Size of an operating system page. Touching one byte of a page makes the operating system provide its memory. */
const OS_PAGE_BYTES = 4096;
/** Threads for prefaulting; more do not make the operating system provide memory any faster. */
const PREFAULT_MAX_THREADS = 16;

/** User-space addresses are below this number. */
const MAPPED_MAX_BYTES = 2 ** 47;

const ALLOCATE_OPTIONS: ReadonlySet<string> = new Set(['hugePages', 'shared']);
const MAP_OPTIONS: ReadonlySet<string> = new Set(['writable']);

/** The system call that creates memory other processes can map, as named in errors of the addon. */
const MEMORY_FILE_CALL = 'memfd_create';
/** Error codes of a forbidden system call. ENOSYS also occurs on kernels before 3.17. */
const FORBIDDEN: ReadonlySet<string> = new Set(['EPERM', 'EACCES', 'ENOSYS']);

/** Kind of memory to allocate; ignored without the native addon. */
export interface HostRegionOptions {
  /** Asks for huge pages. Has an effect only with the native addon. */
  readonly hugePages?: boolean;
  /** Asks for memory that other processes can map. Has an effect only with the native addon. */
  readonly shared?: boolean;
}

/** The memory behind a region. */
interface RegionMemory {
  readonly segments: readonly Uint8Array[];
  readonly start: number;
  readonly length: number;
  readonly kind: 'native' | 'mapped' | 'shared' | 'wrapped';
  /** Descriptor of the memfd if other processes can map the memory, else -1. */
  readonly fd: number;
  readonly isWritable: boolean;
  /** Releases the memory. Views that are still held keep their part of it. */
  release(): void;
}

/**
 * A contiguous range of addresses that transports read from and write into, with the memory behind it.
 *
 * The memory is one or more segments: a view ends at a segment boundary, the addresses do not.
 *
 *       addr          addr + segmentBytes   addr + 2 * segmentBytes     addr + length
 *       |  segment 0  |      segment 1      |       segment 2           |
 *
 * Each segment is a SharedArrayBuffer, unless an ArrayBuffer was wrapped. With the native addon the memory belongs to
 * the addon and `addr` is a real pointer. Without it the addresses are synthetic: never used again in the process, with
 * a gap to the next region.
 *
 * Like memory from malloc, a region lives until `free()`: dropping the object does not give it back.
 *
 * @example
 * import { HostRegion } from 'meshcache';
 *
 * using region = HostRegion.allocate(8 << 20);
 * region.bytes(0, 5).set(new TextEncoder().encode('hello'));
 * console.log(region.addr, region.length);
 */
export class HostRegion implements Disposable {
  readonly addr: bigint;
  /** `addr` as a number, which holds it exactly. */
  readonly start: number;
  /** Length in bytes. */
  readonly length: number;
  /** Distance in bytes between boundaries that no view crosses; `length` if there is only one segment. */
  readonly segmentBytes: number;
  /** Whether the memory belongs to the caller, see {@link wrap}. Wrapped regions may overlap any others. */
  readonly isWrapped: boolean;
  /** Whether the memory belongs to the addon, so that its addresses are real pointers. */
  readonly isNative: boolean;
  /** Whether other threads of the process can see the memory; false only for a wrapped ArrayBuffer. */
  readonly isShared: boolean;
  /** Whether the memory is a file of another process, see {@link map}. */
  readonly isMapped: boolean;
  /** Whether the memory may be written. Writing to a region that was mapped for reading kills the process. */
  readonly isWritable: boolean;
  #liveFlag: Int32Array<SharedArrayBuffer> | undefined;
  #segments: readonly Uint8Array[];
  readonly #release: () => void;
  readonly #freeCallbacks = new Set<() => void>();
  readonly #fd: number;
  #wasDamaged = false;

  private constructor({ segments, start, length, kind, fd, isWritable, release }: RegionMemory) {
    const first = segments[0] as Uint8Array;
    this.addr = BigInt(start);
    this.start = start;
    this.length = length;
    this.segmentBytes = first.length;
    this.isWrapped = kind === 'wrapped';
    this.isMapped = kind === 'mapped';
    this.isNative = kind === 'native' || this.isMapped;
    this.isWritable = isWritable;
    this.isShared = first.buffer instanceof SharedArrayBuffer;
    this.#segments = segments;
    this.#release = release;
    this.#fd = fd;
    addRegion(this);
  }

  /**
   * Allocates `length` bytes of zero-filled memory that all threads of the process can see. The operating system
   * provides the memory when it is touched: see {@link prefault}. Throws {@link ArgumentError} if `length` is not a
   * whole number of at least 1, or cannot be allocated.
   */
  static allocate(length: number, options: HostRegionOptions = {}): HostRegion {
    if (!Number.isSafeInteger(length) || length < 1) {
      throw new ArgumentError(
        `HostRegion.allocate: length must be a whole number of at least 1 byte, got ${String(length)}`,
      );
    }
    if (typeof options !== 'object' || options === null) {
      throw new ArgumentError(`HostRegion.allocate: options must be an object, got ${String(options)}`);
    }
    checkNames('HostRegion.allocate', options, ALLOCATE_OPTIONS);
    const { addon } = loadNative();
    try {
      return new HostRegion(addon === null ? sharedMemory(length) : nativeMemory(addon, length, options));
    } catch (cause) {
      if (cause instanceof ArgumentError) throw cause;
      throw noMemory(length, cause);
    }
  }

  /** @internal Allocates a region with memory of `host`, for a node's pool. Falls back to {@link allocate}. */
  static allocateFrom(host: Pick<Host, 'allocate'>, length: number): HostRegion {
    let memory: HostMemory | undefined;
    try {
      memory = host.allocate(length);
    } catch (cause) {
      throw noMemory(length, cause);
    }
    if (memory === undefined) return HostRegion.allocate(length);
    const { segments, start } = memory;
    return new HostRegion({ ...GIVEN, segments, start, length, release: () => memory.release() });
  }

  /**
   * @internal Maps the first `length` bytes of the file at `path` for writing, so that a later process finds them
   * again. If `host` keeps memory itself, its memory is used instead. Throws as {@link map} does, or with the system's
   * error if the file cannot be opened.
   */
  static keep(host: Pick<Host, 'keep'>, path: string, length: number): HostRegion {
    const memory = host.keep?.(path, length);
    if (memory === undefined) {
      return HostRegion.map(openSync(path, constants.O_RDWR | constants.O_NOFOLLOW), length, { writable: true });
    }
    const { segments, start } = memory;
    return new HostRegion({ ...GIVEN, segments, start, length, release: () => memory.release() });
  }

  /**
   * Maps the first `length` bytes of the file behind the descriptor `fd`, which another process shares: both see what
   * the other writes. The region owns the descriptor from now on, and closes it when it is freed or when this throws.
   *
   * With `writable` the region may be written into, and the file must be open for reading and writing.
   *
   * The other process may cut the file short. Reads beyond its end then find zeros, and writes there do not reach the
   * file; {@link isDamaged} tells. After copying out of such a region, check it before using the copy.
   *
   * Throws {@link ArgumentError} without the native addon, when the file is not in memory (a memfd, tmpfs, hugetlbfs),
   * is shorter than `length`, or is not open for the wanted access, when `length` is no multiple of its huge pages, and
   * when too much is mapped already.
   */
  static map(fd: number, length: number, options: { readonly writable: boolean }): HostRegion {
    if (!Number.isInteger(fd) || fd < 0 || fd >= 2 ** 31 - 1) {
      throw new ArgumentError(`HostRegion.map: fd must be an open descriptor, got ${String(fd)}`);
    }
    checkNames('HostRegion.map', options ?? {}, MAP_OPTIONS);
    let isTaken = false;
    try {
      return new HostRegion(mappedMemory(fd, length, options, () => (isTaken = true)));
    } catch (cause) {
      if (!isTaken) closeReceived(fd);
      if (cause instanceof ArgumentError) throw cause;
      throw new ArgumentError(`HostRegion.map: ${(cause as Error).message}`, { cause });
    }
  }

  /**
   * Wraps existing memory. The memory still belongs to the caller, and must not be resized or transferred before
   * `free()`. The same memory may be wrapped several times. Memory that is not a SharedArrayBuffer can be a destination
   * of reads, but cannot be served to peers, and large pages in it are copied on the calling thread.
   */
  static wrap(memory: ArrayBuffer | SharedArrayBuffer | ArrayBufferView): HostRegion {
    const view = viewOf(memory);
    if (view.length === 0) throw new ArgumentError('HostRegion.wrap: memory must have at least 1 byte, got 0');
    if ((view.buffer as ArrayBuffer & { resizable?: boolean }).resizable) {
      throw new ArgumentError('HostRegion.wrap: memory must be of fixed length, got a resizable ArrayBuffer');
    }
    const { addon } = loadNative();
    const start = addon === null ? syntheticStart('wrap', view.length) : addressOf(addon, view);
    return new HostRegion({ segments: [view], start, length: view.length, ...WRAPPED });
  }

  get isLive(): boolean {
    return this.#segments.length > 0;
  }

  /**
   * @internal One element: 1 while the region is live, 0 once it is freed. Other threads may watch it. It is created on
   * demand, because shared memory is slow to create and a region that wraps the memory of one call does not need it.
   */
  get liveFlag(): Int32Array<SharedArrayBuffer> {
    this.#liveFlag ??= new Int32Array(new SharedArrayBuffer(4)).fill(this.isLive ? 1 : 0);
    return this.#liveFlag;
  }

  /**
   * Descriptor of the memfd of a live region that was allocated with `shared`, so that other processes can map it. The
   * region keeps owning it. -1 for all other regions.
   */
  get fd(): number {
    return this.isLive ? this.#fd : -1;
  }

  /**
   * Whether the file of a mapped region is shorter than the region, or was when an access noticed it, so that some
   * bytes are not real contents. Once true, it stays true. After the region is freed it returns the last known state.
   */
  isDamaged(): boolean {
    if (this.#wasDamaged || !this.isLive || !this.isNative) return this.#wasDamaged;
    this.#wasDamaged = loadNative().addon?.memoryIsDamaged(this.start) ?? false;
    return this.#wasDamaged;
  }

  /** One view for each segment, in order; empty once the region is freed. Views keep the memory alive. */
  get segments(): readonly Uint8Array[] {
    return this.#segments;
  }

  /**
   * One view of `length` bytes from `offset` on (default: all the rest). Throws {@link ArgumentError} when they are not
   * within the region or cross a segment boundary; use {@link views} in that case.
   */
  bytes(offset = 0, length = this.length - offset): Uint8Array {
    this.#checkRange(offset, length);
    const segmentIndex = this.#segmentIndexOf(offset);
    const at = offset - segmentIndex * this.segmentBytes;
    const segment = this.#segments[segmentIndex] as Uint8Array;
    if (at + length > segment.length) {
      throw new ArgumentError(
        `HostRegion.bytes: ${length} bytes from offset ${offset} on cross the segment boundary at ${(segmentIndex + 1) * this.segmentBytes}; use views()`,
      );
    }
    return segment.subarray(at, at + length);
  }

  /** Views of `length` bytes from `offset` on, one for each segment that contains some of them; none for 0 bytes. */
  views(offset = 0, length = this.length - offset): Uint8Array[] {
    this.#checkRange(offset, length);
    const views: Uint8Array[] = [];
    let segmentIndex = this.#segmentIndexOf(offset);
    let at = offset - segmentIndex * this.segmentBytes;
    for (let rest = length; rest > 0; segmentIndex++, at = 0) {
      const segment = this.#segments[segmentIndex] as Uint8Array;
      const take = Math.min(rest, segment.length - at);
      views.push(segment.subarray(at, at + take));
      rest -= take;
    }
    return views;
  }

  /**
   * Makes the operating system provide all of the memory. The bytes are not changed, even while other threads write.
   * With the addon, several other threads do this; without it, the calling thread does it before this returns, in about
   * a second per GiB. Rejects if the memory is not available. The region may be freed in the meantime. Throws {@link
   * ArgumentError} for a region that is not writable.
   */
  async prefault(): Promise<void> {
    this.#checkRange(0, this.length);
    if (!this.isWritable) throw new ArgumentError('HostRegion.prefault: the region is mapped for reading only');
    const { addon } = loadNative();
    const segments = this.#segments;
    if (addon === null || !this.isNative) {
      for (const segment of segments) touch(segment);
      return;
    }
    const threads = Math.min(availableParallelism(), PREFAULT_MAX_THREADS);
    const held = { segments };
    beingPrefaulted.add(held);
    try {
      await addon.memoryPrefault(this.start, this.length, threads);
    } catch (cause) {
      throw new ArgumentError(`HostRegion.prefault: the operating system cannot provide ${this.length} bytes`, {
        cause,
      });
    } finally {
      beingPrefaulted.delete(held);
    }
  }

  /**
   * Makes the operating system provide the memory of `length` bytes from `offset` on and charge it to this process. The
   * bytes are not changed.
   */
  touch(offset: number, length: number): void {
    for (const view of this.views(offset, length)) touch(view);
  }

  /**
   * Calls `callback` once when the region is freed: at the start of `free()`, while the memory still exists. Returns a
   * function that removes the callback; calling it later is harmless. Throws {@link ArgumentError} if the region is
   * already freed.
   */
  onFree(callback: () => void): () => void {
    this.#checkRange(0, 0);
    const entry = () => callback();
    this.#freeCallbacks.add(entry);
    return () => {
      this.#freeCallbacks.delete(entry);
    };
  }

  /**
   * Frees the memory. Its addresses become invalid for reads and for peers. Views handed out before stay valid, because
   * they hold the memory. Idempotent. An error thrown by a callback of {@link onFree} is thrown after everything is
   * done.
   *
   * Memory that other processes share (mapped, or allocated with `shared`) is released right after the callbacks, and
   * its file is closed: views handed out earlier then show zeros, and may be overwritten. More than 16 MiB are released
   * a little later on another thread, because the operating system needs time in proportion.
   */
  free(): void {
    if (!this.isLive) return;
    const failures = this.#callBack();
    // A callback may have freed the region.
    if (this.isLive) {
      if (this.#liveFlag !== undefined) Atomics.store(this.#liveFlag, 0, 0);
      removeRegion(this);
      this.#segments = [];
      this.#release();
    }
    if (failures.length > 0) throw failures[0];
  }

  /** A short form for logs: where the region is, and how large. */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    const state = this.isLive ? `at ${this.addr}` : 'freed';
    return `HostRegion { ${this.length} bytes, ${state} }`;
  }

  /** Frees the region: `using region = …`. */
  [Symbol.dispose](): void {
    this.free();
  }

  /** Calls the callbacks; returns the errors that they threw. */
  #callBack(): unknown[] {
    const callbacks = [...this.#freeCallbacks];
    this.#freeCallbacks.clear();
    const failures: unknown[] = [];
    for (const callback of callbacks) {
      try {
        callback();
      } catch (error) {
        failures.push(error);
      }
    }
    return failures;
  }

  /**
   * Returns the segment of an offset. The end of the region belongs to the last segment, so that an empty range there
   * is valid.
   */
  #segmentIndexOf(offset: number): number {
    return Math.min(Math.floor(offset / this.segmentBytes), this.#segments.length - 1);
  }

  #checkRange(offset: number, length: number): void {
    if (!this.isLive) throw new ArgumentError(`HostRegion: the region at ${this.addr} is freed`);
    const isRange = Number.isSafeInteger(offset) && offset >= 0 && Number.isSafeInteger(length) && length >= 0;
    if (isRange && offset + length <= this.length) return;
    throw new ArgumentError(
      `HostRegion: ${String(length)} bytes from offset ${String(offset)} on are not within its ${this.length} bytes`,
    );
  }
}

/** Segments that the addon is prefaulting. This set keeps their memory alive even if the region is freed. */
const beingPrefaulted = new Set<{ readonly segments: readonly Uint8Array[] }>();

function noMemory(length: number, cause: unknown): ArgumentError {
  return new ArgumentError(`HostRegion.allocate: cannot allocate ${length} bytes: ${whyNot(cause)}`, { cause });
}

/** Explains why there is no memory, and what to do if the system forbids the requested kind of memory. */
function whyNot(cause: unknown): string {
  const { call, errno = 0, message } = cause as { call?: string; errno?: number; message: string };
  const code = errno === 0 ? '' : getSystemErrorName(-errno);
  if (call !== MEMORY_FILE_CALL || !FORBIDDEN.has(code)) return message;
  return `${call} is forbidden (${code}), and memory that other processes can map needs it: allow it (seccomp profile of the container or service; sysctl vm.memfd_noexec), or allocate without \`shared\`; pages then go through the client socket`;
}

/** Fields that all wrapped regions share. */
const WRAPPED = { kind: 'wrapped', fd: -1, isWritable: true, release() {} } as const;

/** Fields that are the same for all regions with memory of a host. */
const GIVEN = { kind: 'shared', fd: -1, isWritable: true } as const;

function nativeMemory(addon: NativeAddon, length: number, options: HostRegionOptions): RegionMemory {
  const flags = (options.hugePages ? MEMORY_HUGE_PAGES : 0) | (options.shared ? MEMORY_SHARED : 0);
  const memory = addon.memoryAllocate(length, flags);
  return { ...viewsOf(addon, memory), length, kind: 'native', fd: memory.fd, isWritable: true };
}

/** Maps a file. Calls `taken` once the memory owns the descriptor. */
function mappedMemory(
  fd: number,
  length: number,
  options: { readonly writable: boolean },
  taken: () => void,
): RegionMemory {
  if (!Number.isSafeInteger(length) || length < 1 || length >= MAPPED_MAX_BYTES) {
    throw new ArgumentError(
      `HostRegion.map: length must be a whole number of 1 to ${MAPPED_MAX_BYTES - 1} bytes, got ${String(length)}`,
    );
  }
  const writable: unknown = options?.writable;
  if (typeof writable !== 'boolean') {
    throw new ArgumentError(`HostRegion.map: options.writable must be true or false, got ${String(writable)}`);
  }
  const { addon, reason } = loadNative();
  if (addon === null) throw new ArgumentError(`HostRegion.map: mapping files needs the native addon: ${reason}`);
  const memory = addon.memoryMap(fd, length, writable);
  taken();
  return { ...viewsOf(addon, memory), length, kind: 'mapped', fd: -1, isWritable: writable };
}

function viewsOf(addon: NativeAddon, { addr }: NativeMemory): Pick<RegionMemory, 'segments' | 'start' | 'release'> {
  const release = (): void => addon.memoryFree(addr);
  try {
    return { segments: nativeSegments(addon, addr), start: addr, release };
  } catch (error) {
    release();
    throw error;
  }
}

function sharedMemory(length: number): RegionMemory {
  const segments: Uint8Array[] = [];
  for (let at = 0; at < length; at += SEGMENT_MAX_BYTES) {
    segments.push(new Uint8Array(new SharedArrayBuffer(Math.min(SEGMENT_MAX_BYTES, length - at))));
  }
  return {
    segments,
    start: syntheticStart('allocate', length),
    length,
    kind: 'shared',
    fd: -1,
    isWritable: true,
    release() {},
  };
}

function syntheticStart(method: string, length: number): number {
  const start = reserveAddresses(length);
  if (start === undefined) throw new ArgumentError(`HostRegion.${method}: no addresses left for ${length} bytes`);
  return start;
}

function touch(segment: Uint8Array): void {
  for (let at = 0; at < segment.length; at += OS_PAGE_BYTES) Atomics.or(segment, at, 0);
  Atomics.or(segment, segment.length - 1, 0);
}

function viewOf(memory: unknown): Uint8Array {
  if (ArrayBuffer.isView(memory)) return new Uint8Array(memory.buffer, memory.byteOffset, memory.byteLength);
  if (memory instanceof ArrayBuffer || memory instanceof SharedArrayBuffer) return new Uint8Array(memory);
  throw new ArgumentError(
    `HostRegion.wrap: memory must be a typed array, a DataView, an ArrayBuffer or a SharedArrayBuffer, got ${typeof memory}`,
  );
}
