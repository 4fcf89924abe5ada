/**
 * The whole contract between the addon (`native/`) and its only user (`src/native`). Addresses are
 * numbers: user-space pointers are below 2^53. Everything here is checked on the JavaScript side before
 * it crosses; the addon only guards itself against what would crash the process.
 */

/** Version of this contract. The loader refuses an addon that exports another number. */
export const CONTRACT_VERSION = 8;

/** Bits of `flags` of {@link NativeAddon.memoryAllocate}. */
export const MEMORY_HUGE_PAGES = 1;
export const MEMORY_SHARED = 2;

/** Bits of `access` of {@link RdmaEngine.registerMr}. No peer can ever write. */
export const ACCESS_REMOTE_READ = 1;
export const ACCESS_LOCAL_WRITE = 2;

/** Limits of {@link NativeAddon.createDescriptorListener}. */
export const DESCRIPTOR_RECORD_MAX_BYTES = 4096;
export const DESCRIPTOR_REPLY_MAX_BYTES = 256;

/** Outcome of one read; the same numbers as `OpStatus` in `native/verbs/engine.h`. */
export const OP_STATUS = [
  'ok',
  /** The destination is not registered local memory. */
  'bad_local_memory',
  /** The peer has no such rkey, or the range is out of its bounds. */
  'refused',
  /** No connection could be made. */
  'unreachable',
  /** The peer refused the connection: secret, version, or too many connections. */
  'rejected',
  /** The peer's device denied the read: the region went while the read was under way. */
  'remote_access',
  /** The connection broke: peer gone, retries exceeded, disconnected. */
  'connection_lost',
  'timeout',
  /** The bytes did not have the checksum asked for. */
  'checksum',
  'closed',
  /** Another failure of the local device or of a verbs call. */
  'device_error',
  /** The bytes did not end with the stamp asked for: the page had been freed. */
  'stale',
] as const;
export type OpStatusName = (typeof OP_STATUS)[number];

/**
 * Numbers in a row of `ops` of {@link RdmaEngine.submit}: peer, rkey, remote address, checksum (-1: none), stamp (0:
 * none), number of pieces.
 */
export const OP_COLUMNS = 6;

export interface NativeMemory {
  readonly addr: number;
  /** Size of the memory pages behind it: 4096 bytes, or that of huge pages. */
  readonly pageBytes: number;
  /** Descriptor of the memfd or file; -1: the memory is not shared with other processes. */
  readonly fd: number;
}

/** A failed system or verbs call, as thrown by the addon: an `Error` with these fields. */
export interface NativeFailure {
  readonly call: string;
  readonly errno: number;
  /** Name of the RDMA device concerned; empty for none. */
  readonly device: string;
}

/** Whether this host has what RDMA needs beside a device. */
export interface RdmaProbe {
  readonly usable: boolean;
  /** The step that failed: `build`, `libibverbs`, `librdmacm`, `rdma_cm`; empty when usable. */
  readonly step: string;
  /** The message of the system. */
  readonly reason: string;
}

export interface RailOptions {
  readonly deviceName: string;
  readonly ibPort: number;
  /** Numeric IP address of the GID to use; a link-local address has `%interface`. */
  readonly address: string;
  /** Port to listen on; 0: any free one. */
  readonly port: number;
}

export interface RdmaEngineOptions {
  /** One rail for each device, at most 8. Peers are told the address and port of the first. */
  readonly rails: readonly RailOptions[];
  /**
   * Tokens of 64 bytes: 32 that a connecting peer presents and 32 that it is answered with. The engine presents the
   * first and accepts each. Empty: all peers are accepted.
   */
  readonly tokens: readonly Uint8Array[];
  /** Queue pairs to one peer on each rail. */
  readonly queuePairsPerPeer: number;
  /** Work requests posted and not completed on one queue pair. */
  readonly queueDepth: number;
  /** Largest single work request; the device's own limit may be lower. */
  readonly readMaxBytes: number;
  readonly connectTimeoutMs: number;
  /** A connection is given up when nothing completes for this long while something is due. */
  readonly stallTimeoutMs: number;
  /** Time without a sign of life after which an accepted connection is probed. */
  readonly idleProbeMs: number;
  readonly acceptedMaxCount: number;
  /** Time that the poller spins for completions before it sleeps. */
  readonly spinUs: number;
  /** Threads that compute checksums. */
  readonly verifyThreads: number;
}

/**
 * What an engine reports of its connections and devices; the same numbers as `EventKind` in `native/verbs/engine.h`.
 */
export const RDMA_EVENT_KINDS = [
  'connect_failed',
  /** The peer refused this engine, or this engine did not accept the peer's answer. */
  'rejected',
  /** This engine refused a peer that connected. */
  'rejected_peer',
  'connection_lost',
  'device_error',
  'port_state',
] as const;
export type RdmaEventKind = (typeof RDMA_EVENT_KINDS)[number];

/**
 * Why an event happened; the same numbers as `EventCause` in `native/verbs/engine.h`. `EVENT_TEXTS` has them in words.
 */
export const RDMA_EVENT_CAUSES = [
  /** The call failed with `errno`. */
  'system_error',
  /** A work request failed with `wcStatus`. */
  'completion_error',
  'wrong_secret',
  'unknown_protocol',
  'too_many_connections',
  'refused_secret',
  'refused_version',
  'refused_too_many',
  'refused_closing',
  'refused',
  'nobody_listens',
  'unreachable',
  'went_away',
  'closed_by_peer',
  'no_answer',
  'no_progress',
  'read_too_late',
  'not_posted',
  'no_address',
  'other_device',
  'completion_queue_full',
  'other_engine',
  'no_region_table',
  'device_failed',
  'completion_queue_failed',
  'port_active',
  'port_down',
] as const;
export type RdmaEventCause = (typeof RDMA_EVENT_CAUSES)[number];

/** An event of an engine that is worth a line in the log. */
export interface RdmaEvent {
  /** An index into {@link RDMA_EVENT_KINDS}. */
  readonly kind: number;
  /** An index into {@link RDMA_EVENT_CAUSES}. */
  readonly cause: number;
  readonly device: string;
  /** `host:port` of the peer; empty for none. */
  readonly peer: string;
  /** Name of the call or message that showed the event. */
  readonly call: string;
  readonly errno: number;
  /** `ibv_wc_status`, -1 for none. */
  readonly wcStatus: number;
}

/** Everything that has happened since the previous report. */
export interface RdmaReport {
  /** Ids of completed batches; `statuses` has, in the same order, one {@link OP_STATUS} index for each operation. */
  readonly batchIds: readonly number[];
  readonly statuses: readonly Uint8Array[];
  readonly events: readonly RdmaEvent[];
  /** Handles whose memory no device uses any more. */
  readonly deregistered: readonly number[];
  /** Everything is released; there are no more reports. */
  readonly closed: boolean;
}

export const RDMA_STATS = [
  'readOps',
  'readBytes',
  'failedOps',
  'checksumFailures',
  'postedRequests',
  'retriedOps',
  'connections',
  'acceptedConnections',
  'connects',
  'reconnects',
  'refusedConnections',
  'protocolErrors',
  'regionTableReads',
  'lostConnections',
  'droppedEvents',
  'staleOps',
] as const;
/** One of the counters of an engine. */
export type RdmaStatName = (typeof RDMA_STATS)[number];

export interface RdmaEngine {
  /** Port that each rail listens on. */
  readonly ports: readonly number[];
  /**
   * Registers memory with every rail. With ACCESS_REMOTE_READ peers that show `rkey` (not 0, unique within the
   * engine) may read it from the moment this returns. Throws {@link NativeFailure}.
   */
  registerMr(addr: number, length: number, rkey: number, access: number): { handle: number; lkey: number };
  /**
   * Starts no new read of the memory, by peers or into it; `deregistered` reports when reads in progress have ended.
   * Returns true if no read was in progress and the memory is released already; that is reported, too.
   */
  deregisterMr(handle: number): boolean;
  /** The number of the peer `host:port` for `submit`, always the same for one address. */
  peer(host: string, port: number): number;
  /**
   * Starts the reads; the report gives `batchId` back once no device writes into any of their memory any more.
   * `ops` is {@link OP_COLUMNS} numbers for each operation, then address and length of every piece, in order. It
   * is copied.
   */
  submit(batchId: number, opCount: number, ops: Float64Array, timeoutMs: number): void;
  /** Takes other tokens in place of those of its options, for connections that are made from then on. */
  setTokens(tokens: readonly Uint8Array[]): void;
  /** Values of the counters, in the order of {@link RDMA_STATS}. */
  stats(): Float64Array;
  /** Ends everything; the last report says `closed`. Idempotent. */
  close(): void;
}

/** Identity of the process at the other end of a Unix socket at the time it connected. */
export interface PeerCredentials {
  /** Process id in the PID namespace of this process; 0: it is outside of that. */
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

interface NativeDescriptorListenerOptions {
  /** Path of the socket file, which must not exist. */
  readonly path: string;
  /** Permission bits of the socket file; they are set before a process can connect. */
  readonly mode: number;
  /** Group of the socket file; undefined: that of the process. */
  readonly gid: number | undefined;
  /** Length of each record, at most {@link DESCRIPTOR_RECORD_MAX_BYTES}. */
  readonly recordBytes: number;
  readonly connectionsMaxCount: number;
  /** Longest time of one connection, from accept to close. */
  readonly timeoutMs: number;
}

/** One record as the addon gives it. */
export interface NativeDescriptorRecord extends PeerCredentials {
  readonly connection: number;
  readonly record: Uint8Array;
  /** A descriptor, which then belongs to the receiver; -1: none. */
  readonly fd: number;
}

/** Counters of a listener since it was made. */
export interface DescriptorListenerStats {
  /** Connections accepted, without refused ones. */
  readonly connections: number;
  /** Connections closed at once because there were too many. */
  readonly refused: number;
  /** Connections that did not send exactly one record with at most one descriptor. */
  readonly malformed: number;
  readonly timedOut: number;
}

export interface NativeDescriptorListener {
  /**
   * Sends 1 to {@link DESCRIPTOR_REPLY_MAX_BYTES} bytes, with `fd` if given, and closes the connection. Without effect
   * if it has ended.
   */
  reply(connection: number, bytes: Uint8Array, fd: number | undefined): void;
  stats(): DescriptorListenerStats;
  /**
   * Ends all connections, closes descriptors that were not given to `onRecords`, removes the socket file. Idempotent.
   */
  close(): void;
}

/**
 * Computes the tags of one key (`src/memory/frame-tags.ts`), one after the other. Throws if OpenSSL fails. For the
 * thread that made it.
 */
export interface NativeFrameTagger {
  /** Begins the tag of a part of a frame; one that was begun before and not ended is given up. */
  begin(frame: number, part: number): void;
  add(bytes: Uint8Array): void;
  /** Writes the tag into `bytes` from `at` on. Nothing can be added afterwards. */
  end(bytes: Uint8Array, at: number): void;
}

export interface NativeAddon {
  readonly contractVersion: number;
  /** Whether the addon was built with RDMA. */
  readonly hasRdma: boolean;
  /** The checksum implementation for this processor, e.g. `vpclmulqdq-avx512`. */
  readonly checksumPath: string;

  /**
   * Allocates page-aligned memory filled with zeros, with huge pages if asked for and available. Throws {@link
   * NativeFailure}.
   */
  memoryAllocate(length: number, flags: number): NativeMemory;
  /**
   * Maps the first `length` bytes of a memfd, or of a file on tmpfs or hugetlbfs. Other processes may change and
   * truncate the file; truncated parts read as zeros. Takes over the descriptor, unless it throws {@link
   * NativeFailure}.
   */
  memoryMap(fd: number, length: number, writable: boolean): NativeMemory;
  /** Whether the file of the memory is or was shorter than the memory. False for memory that cannot be truncated. */
  memoryIsDamaged(addr: number): boolean;
  /**
   * Buffers over memory of {@link memoryAllocate} or {@link memoryMap}, each but the last of `segmentBytes`. They hold
   * the memory: it is returned to the system when it has been freed and the last buffer is gone, in all threads. Memory
   * that is shared with other processes is returned when it is freed; then the buffers show private zeros. V8 does not
   * count them: an ArrayBuffer would cost a garbage collection for each.
   */
  memoryViews(addr: number, segmentBytes: number): SharedArrayBuffer[];
  /**
   * Frees memory. Large memory goes back to the system a little later, on another thread: the system needs time in
   * proportion to it.
   */
  memoryFree(addr: number): void;
  /** Makes the system provide the pages of any live memory, on `threads` threads; contents stay. */
  memoryPrefault(addr: number, length: number, threads: number): Promise<void>;
  /**
   * Bytes of system pages that are not in memory, within ranges given as pairs of address and length: pages that nobody
   * has touched, or that are swapped out. Whoever touches one of a shared file first pays for it. 0 where the system
   * does not tell.
   */
  memoryAbsent(ranges: Float64Array): number;
  /** Address of the first byte. The memory must neither move nor be freed while the address is in use. */
  addressOf(view: Uint8Array): number;

  crc32(view: Uint8Array, seed: number): number;
  /**
   * Copies pages and computes their checksums in one pass. `pieces` has destination, source and length of each piece
   * (destination 0: checksum only); `counts` has the number of consecutive pieces of each page. Returns one CRC-32 for
   * each page.
   */
  copyPagesSync(pieces: Float64Array, counts: Uint32Array): Uint32Array;
  /** Does what `copyPagesSync` does on threads of the addon. The memory must stay until the promise has resolved. */
  copyPages(pieces: Float64Array, counts: Uint32Array): Promise<Uint32Array>;

  /** Tags under a key of 32 bytes, by the OpenSSL that Node uses. Null: the addon cannot call it. */
  createFrameTagger(key: Uint8Array): NativeFrameTagger | null;

  /**
   * Reserves disk space for a range of a file on a separate thread. A shorter file is extended; contents stay. Resolves
   * with 0 or the errno of fallocate(2): EOPNOTSUPP if the file system cannot do it, ENOSPC. The descriptor must stay
   * open until then.
   */
  preallocate(fd: number, offset: number, length: number): Promise<number>;
  /**
   * Reads into memory on a thread that no other call waits for, and for which the process does not stay. Resolves with
   * the number of bytes, fewer only where the file ends, or with the negative errno of pread(2). The memory, the
   * descriptor and `state`, one number in shared memory, must stay until then; the thread sets `state` to 0 as soon as
   * the system has answered.
   */
  readAt(fd: number, addr: number, length: number, position: number, state: Int32Array): Promise<number>;
  /**
   * Writes as `readAt` reads. Resolves with the number of bytes that the system has accepted, or the negative errno of
   * pwrite(2).
   */
  writeAt(fd: number, addr: number, length: number, position: number, state: Int32Array): Promise<number>;

  /**
   * Listens for records on a Unix socket, on a separate thread, which does not keep the process alive. `onRecords` is
   * called on the thread that created the listener. Throws {@link NativeFailure}.
   */
  createDescriptorListener(
    options: NativeDescriptorListenerOptions,
    onRecords: (records: readonly NativeDescriptorRecord[]) => void,
  ): NativeDescriptorListener;
  /**
   * Closes a descriptor that another process has sent, if need be on another thread: closing the last one of a file
   * gives its memory back, and a file system may not answer. Does not throw for a descriptor that is not open.
   */
  closeReceived(fd: number): void;
  /** Credentials of the peer of a connected Unix socket. Throws {@link NativeFailure}. */
  peerCredentials(fd: number): PeerCredentials;

  rdmaProbe(): RdmaProbe;
  /** Starts an engine; `onReport` is called on the thread that created it. Throws {@link NativeFailure}. */
  createRdmaEngine(options: RdmaEngineOptions, onReport: (report: RdmaReport) => void): RdmaEngine;
}
