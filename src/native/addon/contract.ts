/**
 * The whole contract between the addon (`native/`) and its only user (`src/native`). Addresses are
 * numbers: user-space pointers are below 2^53. Everything here is checked on the JavaScript side before
 * it crosses; the addon only guards itself against what would crash the process.
 */

/** Version of this contract. The loader refuses an addon that exports another number. */
export const CONTRACT_VERSION = 11;

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
  /** Size of the memory pages behind it: 4096 bytes, or the size of huge pages. */
  readonly pageBytes: number;
  /** Descriptor of the memfd or file; -1 if the memory is not shared with other processes. */
  readonly fd: number;
}

/** A failed system or verbs call, as thrown by the addon: an `Error` with these fields. */
export interface NativeFailure {
  readonly call: string;
  readonly errno: number;
  /** Name of the RDMA device concerned; empty for none. */
  readonly device: string;
}

/** Whether this host has everything that RDMA needs, apart from a device. */
export interface RdmaProbe {
  readonly usable: boolean;
  /** The step that failed: `build`, `libibverbs`, `librdmacm`, `rdma_cm`; empty when usable. */
  readonly step: string;
  /** The error message of the system. */
  readonly reason: string;
}

export interface RailOptions {
  readonly deviceName: string;
  readonly ibPort: number;
  /** Numeric IP address of the GID to use; a link-local address includes `%interface`. */
  readonly address: string;
  /** Port to listen on; 0: any free one. */
  readonly port: number;
}

export interface RdmaEngineOptions {
  /** One rail per device, at most 8. Peers are told the address and port of the first. */
  readonly rails: readonly RailOptions[];
  /**
   * Tokens of 64 bytes: 32 that a connecting peer presents, and 32 that are the answer to it. The engine presents the
   * first token and accepts each. Empty: all peers are accepted.
   */
  readonly tokens: readonly Uint8Array[];
  /** Queue pairs per peer and rail. */
  readonly queuePairsPerPeer: number;
  /** Most work requests posted and not completed on one queue pair. */
  readonly queueDepth: number;
  /** Largest single work request; the device's own limit may be lower. */
  readonly readMaxBytes: number;
  readonly connectTimeoutMs: number;
  /** A connection is given up when nothing completes for this long while something is due. */
  readonly stallTimeoutMs: number;
  /** Time without a sign of life until an accepted connection is probed. */
  readonly idleProbeMs: number;
  readonly acceptedMaxCount: number;
  /** Time that the poller spins waiting for completions before it sleeps. */
  readonly spinUs: number;
  /** Threads that compute checksums. */
  readonly verifyThreads: number;
  /** Differentiated services code point of the packets of both directions; undefined: that of the system. */
  readonly dscp?: number | undefined;
}

/**
 * Kinds of events of an engine's connections and devices; the same numbers as `EventKind` in `native/verbs/engine.h`.
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

/** Causes of events; the same numbers as `EventCause` in `native/verbs/engine.h`. `EVENT_TEXTS` has them in words. */
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

/** An event of an engine that should be logged. */
export interface RdmaEvent {
  /** An index into {@link RDMA_EVENT_KINDS}. */
  readonly kind: number;
  /** An index into {@link RDMA_EVENT_CAUSES}. */
  readonly cause: number;
  readonly device: string;
  /** `host:port` of the peer; empty if there is none. */
  readonly peer: string;
  /** Name of the call or message that revealed the event. */
  readonly call: string;
  readonly errno: number;
  /** `ibv_wc_status`; -1 if there is none. */
  readonly wcStatus: number;
}

/** Everything that has happened since the previous report. */
export interface RdmaReport {
  /** Ids of completed batches. `statuses` has, in the same order, one {@link OP_STATUS} index per operation. */
  readonly batchIds: readonly number[];
  readonly statuses: readonly Uint8Array[];
  readonly events: readonly RdmaEvent[];
  /** Handles whose memory no device uses any more. */
  readonly deregistered: readonly number[];
  /** Whether everything is released; then there are no more reports. */
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
   * Registers memory with every rail. With ACCESS_REMOTE_READ, peers that present `rkey` (not 0, unique within the
   * engine) may read it from the moment this returns. Throws {@link NativeFailure}.
   */
  registerMr(addr: number, length: number, rkey: number, access: number): { handle: number; lkey: number };
  /**
   * Starts no new read of the memory, by peers or into it. `deregistered` reports when reads in progress have ended.
   * Returns true if no read was in progress, so that the memory is already released; this is reported, too.
   */
  deregisterMr(handle: number): boolean;
  /** Returns the number of the peer `host:port` for `submit`; always the same for one address. */
  peer(host: string, port: number): number;
  /**
   * Starts the reads. The report returns `batchId` once no device writes into any of their memory any more. `ops` has
   * {@link OP_COLUMNS} numbers per operation, then address and length of every piece, in order. It is copied.
   */
  submit(batchId: number, opCount: number, ops: Float64Array, timeoutMs: number): void;
  /** Replaces the tokens of its options, for connections that are made from then on. */
  setTokens(tokens: readonly Uint8Array[]): void;
  /** Values of the counters, in the order of {@link RDMA_STATS}. */
  stats(): Float64Array;
  /** Ends everything; the last report has `closed` set. Idempotent. */
  close(): void;
}

/** Identity of the process at the other end of a Unix socket when it connected. */
export interface PeerCredentials {
  /** Process id in this process's PID namespace; 0 if the process is outside of it. */
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

interface NativeDescriptorListenerOptions {
  /** Path of the socket file, which must not exist. */
  readonly path: string;
  /** Permission bits of the socket file. They are set before any process can connect. */
  readonly mode: number;
  /** Group of the socket file; undefined for the group of the process. */
  readonly gid: number | undefined;
  /** Length of each record, at most {@link DESCRIPTOR_RECORD_MAX_BYTES}. */
  readonly recordBytes: number;
  readonly connectionsMaxCount: number;
  /** Longest time of one connection, from accept to close. */
  readonly timeoutMs: number;
}

/** One record as the addon passes it on. */
export interface NativeDescriptorRecord extends PeerCredentials {
  readonly connection: number;
  readonly record: Uint8Array;
  /** The descriptor, which belongs to the receiver; -1 if there is none. */
  readonly fd: number;
}

/** Counters of a listener since its creation. */
export interface DescriptorListenerStats {
  /** Accepted connections, without refused ones. */
  readonly connections: number;
  /** Connections closed at once because there were too many. */
  readonly refused: number;
  /** Connections that did not send exactly one record with at most one descriptor. */
  readonly malformed: number;
  readonly timedOut: number;
}

export interface NativeDescriptorListener {
  /**
   * Sends 1 to {@link DESCRIPTOR_REPLY_MAX_BYTES} bytes, and `fd` if given, then closes the connection. Has no effect
   * if the connection has ended.
   */
  reply(connection: number, bytes: Uint8Array, fd: number | undefined): void;
  stats(): DescriptorListenerStats;
  /**
   * Ends all connections, closes descriptors that were not passed to `onRecords`, and removes the socket file.
   * Idempotent.
   */
  close(): void;
}

/**
 * Computes tags under one key (`src/memory/frame-tags.ts`), one after the other. May be used only on the thread that
 * created it. Throws if OpenSSL fails.
 */
export interface NativeFrameTagger {
  /** Begins the tag of a part of a frame. A tag that was begun and not ended is discarded. */
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
   * Allocates page-aligned memory filled with zeros, with huge pages if requested and available. Throws {@link
   * NativeFailure}.
   */
  memoryAllocate(length: number, flags: number): NativeMemory;
  /**
   * Maps the first `length` bytes of a memfd, or of a file on tmpfs or hugetlbfs. Other processes may change and
   * truncate the file; truncated parts read as zeros. Takes ownership of the descriptor, unless it throws {@link
   * NativeFailure}.
   */
  memoryMap(fd: number, length: number, writable: boolean): NativeMemory;
  /**
   * Whether the file of the memory is or was shorter than the memory. Always false for memory that cannot be truncated.
   */
  memoryIsDamaged(addr: number): boolean;
  /**
   * Returns buffers over memory of {@link memoryAllocate} or {@link memoryMap}, each of `segmentBytes` except the last.
   * They hold the memory: it is returned to the system once it has been freed and the last buffer is gone, in all
   * threads. Memory that is shared with other processes is returned as soon as it is freed; the buffers then show
   * private zeros. V8 does not count their memory: with ArrayBuffers, each one would cost a garbage collection.
   */
  memoryViews(addr: number, segmentBytes: number): SharedArrayBuffer[];
  /**
   * Frees memory. Large memory is returned a little later on another thread, because the system needs time in
   * proportion to its size.
   */
  memoryFree(addr: number): void;
  /** Makes the system provide the pages of any live memory, on `threads` threads. The contents are not changed. */
  memoryPrefault(addr: number, length: number, threads: number): Promise<void>;
  /**
   * Returns the bytes of system pages that are not in memory (never touched, or swapped out) within ranges given as
   * pairs of address and length. A process that touches such a page of a shared file first is charged for it. Returns 0
   * if the system does not tell.
   */
  memoryAbsent(ranges: Float64Array): number;
  /** Returns the address of the first byte. The memory must neither move nor be freed while the address is in use. */
  addressOf(view: Uint8Array): number;

  crc32(view: Uint8Array, seed: number): number;
  /**
   * Copies pages and computes their checksums in one pass. `pieces` has destination, source and length of each piece
   * (destination 0: checksum only); `counts` has the number of consecutive pieces of each page. Returns one CRC-32 per
   * page.
   */
  copyPagesSync(pieces: Float64Array, counts: Uint32Array): Uint32Array;
  /** Like `copyPagesSync`, but on threads of the addon. The memory must stay until the promise has resolved. */
  copyPages(pieces: Float64Array, counts: Uint32Array): Promise<Uint32Array>;

  /** Creates a tagger for a key of 32 bytes, using the OpenSSL of Node. Null if the addon cannot call it. */
  createFrameTagger(key: Uint8Array): NativeFrameTagger | null;

  /**
   * Waits for input of this thread's event loop without sleeping, for `us` microseconds (at most 10,000); returns sooner,
   * with true, as soon as the loop has something to handle.
   */
  waitForInput(us: number): boolean;

  /**
   * Reserves disk space for a range of a file on a separate thread. A shorter file is extended; existing contents stay.
   * Resolves with 0 or the errno of fallocate(2), such as ENOSPC, or EOPNOTSUPP if the file system cannot do it. The
   * descriptor must stay open until then.
   */
  preallocate(fd: number, offset: number, length: number): Promise<number>;
  /**
   * Reads into memory on a thread that no other call waits for and that does not keep the process alive. Resolves with
   * the number of bytes, fewer only at the end of the file, or with the negative errno of pread(2). Until then, the
   * memory, the descriptor and `state` (one number in shared memory) must stay. The thread sets `state` to 0 as soon as
   * the system has answered.
   */
  readAt(fd: number, addr: number, length: number, position: number, state: Int32Array): Promise<number>;
  /**
   * Writes in the same way as `readAt` reads. Resolves with the number of bytes that the system has accepted, or the
   * negative errno of pwrite(2).
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
   * Closes a descriptor that another process has sent, if necessary on another thread: closing the last one of a file
   * releases its memory, and a file system may not answer. Does not throw for a descriptor that is not open.
   */
  closeReceived(fd: number): void;
  /** Returns a second descriptor of the same file or socket. Throws {@link NativeFailure}. */
  duplicate(fd: number): number;
  /**
   * Marks what a TCP socket sends with a differentiated services code point, over IPv4 and IPv6. Throws {@link
   * NativeFailure}.
   */
  setDscp(fd: number, dscp: number): void;
  /** Credentials of the peer of a connected Unix socket. Throws {@link NativeFailure}. */
  peerCredentials(fd: number): PeerCredentials;

  rdmaProbe(): RdmaProbe;
  /** Starts an engine; `onReport` is called on the thread that created it. Throws {@link NativeFailure}. */
  createRdmaEngine(options: RdmaEngineOptions, onReport: (report: RdmaReport) => void): RdmaEngine;
}
