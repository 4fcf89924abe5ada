/**
 * The whole contract between the addon (`native/`) and its only user (`src/native`). Addresses are
 * numbers: user-space pointers are below 2^53. Everything here is checked on the JavaScript side before
 * it crosses; the addon only guards itself against what would crash the process.
 */

/** The addon exports the same number; another one is refused by the loader. */
export const CONTRACT_VERSION = 4;

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

/** Numbers in a row of `ops` of {@link RdmaEngine.submit}: peer, rkey, remote address, checksum (-1: none), stamp (0: none), count of pieces. */
export const OP_COLUMNS = 6;

export interface NativeMemory {
  readonly addr: number;
  /** Bytes of the pages behind it: 4096, or of huge pages. */
  readonly pageBytes: number;
  /** Descriptor of the memfd or file; -1 when the memory is not shared with other processes. */
  readonly fd: number;
}

/** A failed system or verbs call, as thrown by the addon: an `Error` with these fields. */
export interface NativeFailure {
  readonly call: string;
  readonly errno: number;
  /** RDMA device concerned; empty for none. */
  readonly device: string;
}

/** Whether this host has what RDMA needs beside a device. */
export interface RdmaProbe {
  readonly usable: boolean;
  /** The step that failed: `build`, `libibverbs`, `librdmacm`, `rdma_cm`; empty when usable. */
  readonly step: string;
  /** What the system said. */
  readonly reason: string;
}

export interface RailOptions {
  readonly deviceName: string;
  readonly ibPort: number;
  /** Numeric IP address of the GID to use; a link-local one with `%interface`. */
  readonly address: string;
  /** To listen on; 0: a free one. */
  readonly port: number;
}

export interface RdmaEngineOptions {
  /** One for each device, at most 8. The first one's address and port are what peers are told. */
  readonly rails: readonly RailOptions[];
  /**
   * 64 bytes each: the 32 that a connecting peer shows and the 32 that it is answered with. The first is the one
   * shown to others, any is accepted. Empty: everybody is let in.
   */
  readonly tokens: readonly Uint8Array[];
  /** Queue pairs to one peer on each rail. */
  readonly queuePairsPerPeer: number;
  /** Work requests posted and not completed on one queue pair. */
  readonly queueDepth: number;
  /** Largest single work request; the device's own limit may be lower. */
  readonly readMaxBytes: number;
  readonly connectTimeoutMs: number;
  /** A connection on which nothing completes for this long while something is due is given up. */
  readonly stallTimeoutMs: number;
  /** An accepted connection is probed after so long without a sign of life. */
  readonly idleProbeMs: number;
  readonly acceptedMaxCount: number;
  /** The poller looks for completions so long before it sleeps. */
  readonly spinUs: number;
  /** Threads that take checksums. */
  readonly verifyThreads: number;
}

/** What an engine reports of its connections and devices; the same numbers as `EventKind` in `native/verbs/engine.h`. */
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

/** Why an event happened; the same numbers as `EventCause` in `native/verbs/engine.h`. `EVENT_TEXTS` has them in words. */
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

/** Something worth a line in the log. */
export interface RdmaEvent {
  /** An index into {@link RDMA_EVENT_KINDS}. */
  readonly kind: number;
  /** An index into {@link RDMA_EVENT_CAUSES}. */
  readonly cause: number;
  readonly device: string;
  /** `host:port` of the peer; empty for none. */
  readonly peer: string;
  /** Name of the call or message that it was noticed by. */
  readonly call: string;
  readonly errno: number;
  /** `ibv_wc_status`, -1 for none. */
  readonly wcStatus: number;
}

/** Everything that has happened since the report before. */
export interface RdmaReport {
  /** Batches that are done: their ids and, in the same order, one {@link OP_STATUS} index for each operation. */
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
   * No new read of it starts from now on, by peers or into it; `deregistered` reports when reads under way have
   * ended. True: nothing was under way and it is released already (reported all the same).
   */
  deregisterMr(handle: number): boolean;
  /** A number for `host:port` to use in `submit`; the same for the same address. */
  peer(host: string, port: number): number;
  /**
   * Starts the reads; the report gives `batchId` back once no device writes into any of their memory any more.
   * `ops` is {@link OP_COLUMNS} numbers for each operation, then address and length of every piece, in order. It
   * is copied.
   */
  submit(batchId: number, opCount: number, ops: Float64Array, timeoutMs: number): void;
  /** In the order of {@link RDMA_STATS}. */
  stats(): Float64Array;
  /** Ends everything; the last report says `closed`. Idempotent. */
  close(): void;
}

/** Who the process at the other end of a Unix socket was when it connected. */
export interface PeerCredentials {
  /** In the PID namespace of this process; 0: it is not in there. */
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

export interface NativeDescriptorListenerOptions {
  /** The socket file is made there; nothing may be there before. */
  readonly path: string;
  /** Permission bits, which the file has before anybody can connect. */
  readonly mode: number;
  /** Group of the file; undefined: that of the process. */
  readonly gid: number | undefined;
  /** Of each record, at most {@link DESCRIPTOR_RECORD_MAX_BYTES}. */
  readonly recordBytes: number;
  readonly connectionsMaxCount: number;
  /** For one connection, from accept to close. */
  readonly timeoutMs: number;
}

/** One record as the addon gives it. */
export interface NativeDescriptorRecord extends PeerCredentials {
  readonly connection: number;
  readonly record: Uint8Array;
  /** -1: none. It is the receiver's. */
  readonly fd: number;
}

/** Counters of a listener since it was made. */
export interface DescriptorListenerStats {
  /** Taken up, without those that were refused. */
  readonly connections: number;
  /** Closed at once, because there were too many. */
  readonly refused: number;
  /** Ended without one whole record, or with more than that and one descriptor. */
  readonly malformed: number;
  readonly timedOut: number;
}

export interface NativeDescriptorListener {
  /** Sends 1 to {@link DESCRIPTOR_REPLY_MAX_BYTES} bytes, with `fd` if given, and closes the connection; in vain when that has ended. */
  reply(connection: number, bytes: Uint8Array, fd: number | undefined): void;
  stats(): DescriptorListenerStats;
  /** Ends all connections, closes descriptors that were not given to `onRecords`, removes the socket file. Idempotent. */
  close(): void;
}

export interface NativeAddon {
  readonly contractVersion: number;
  /** Whether this build has RDMA in it. */
  readonly hasRdma: boolean;
  /** How checksums are taken on this processor, e.g. `vpclmulqdq-avx512`. */
  readonly checksumPath: string;

  /** Page-aligned, zero-filled memory. Huge pages are asked for and done without where there are none. Throws {@link NativeFailure}. */
  memoryAllocate(length: number, flags: number): NativeMemory;
  /**
   * The first `length` bytes of a memfd, or of a file on tmpfs or hugetlbfs, which other processes may change and cut short: accesses to what
   * is not there any more find zeros. Takes the descriptor over, unless it throws {@link NativeFailure}.
   */
  memoryMap(fd: number, length: number, writable: boolean): NativeMemory;
  /** Whether the file of the memory is or was shorter than the memory. False for memory that nobody can cut short. */
  memoryIsDamaged(addr: number): boolean;
  /**
   * Array buffers over memory of {@link memoryAllocate} or {@link memoryMap}, `segmentBytes` each but the last, in any thread of the
   * process. They keep the memory: it goes back to the system when it is freed and the last of them is gone. Memory that
   * other processes have too goes back when it is freed: the views see zeros then, which may be written over.
   */
  memoryViews(addr: number, segmentBytes: number): ArrayBuffer[];
  memoryFree(addr: number): void;
  /** Makes the system provide the memory, on `threads` threads; contents stay. Any live memory. */
  memoryPrefault(addr: number, length: number, threads: number): Promise<void>;
  /** Address of the first byte. The memory must neither move nor go while the address is in use. */
  addressOf(view: Uint8Array): number;

  crc32(view: Uint8Array, seed: number): number;
  /**
   * Copies pages and takes their checksums in one pass. `pieces` is destination, source and length of each piece
   * (destination 0: only the checksum); `counts` how many pieces in a row each page has; returns one CRC-32 for each page.
   */
  copyPagesSync(pieces: Float64Array, counts: Uint32Array): Uint32Array;
  /** The same on threads of the addon. The memory must stay until the promise has resolved. */
  copyPages(pieces: Float64Array, counts: Uint32Array): Promise<Uint32Array>;

  /**
   * Reserves space for a range of a file, which becomes as long as the range reaches; contents stay, nothing is written. On a
   * thread of its own. Resolves with 0, or the errno of fallocate(2): EOPNOTSUPP where the file system cannot, ENOSPC.
   * The descriptor must stay open until then.
   */
  preallocate(fd: number, offset: number, length: number): Promise<number>;

  /**
   * Listens for records on a Unix socket, on a thread of its own, which does not keep the process from ending. `onRecords` is
   * called on the thread that made it. Throws {@link NativeFailure}.
   */
  createDescriptorListener(
    options: NativeDescriptorListenerOptions,
    onRecords: (records: readonly NativeDescriptorRecord[]) => void,
  ): NativeDescriptorListener;
  /** Of a connected Unix socket. Throws {@link NativeFailure}. */
  peerCredentials(fd: number): PeerCredentials;

  rdmaProbe(): RdmaProbe;
  /** `onReport` is called on the thread that made it. Throws {@link NativeFailure}. */
  createRdmaEngine(options: RdmaEngineOptions, onReport: (report: RdmaReport) => void): RdmaEngine;
}
