/**
 * Limits of the tiers behind the pool: disk, promotion into memory, object store. `limits.ts` exports them with all
 * others and checks their relations.
 */
const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** Offsets and space of pages on disk are multiples of this, for direct I/O. */
export const DISK_ALIGNMENT_BYTES = 4096;
/** The smallest disk tier. */
export const DISK_MIN_BYTES = 1 * MIB;
/** The largest disk tier. */
export const DISK_MAX_BYTES = 1024 * 1024 * GIB;
/** Part of the disk tier that its index may take, including the new index while the old one is replaced. */
export const DISK_INDEX_FRACTION = 1 / 32;
/** Bytes of index for a page with a key of 64 hexadecimal characters, including room for rewriting the index. */
export const DISK_INDEX_BYTES_PER_PAGE = 400;
export const DISK_INDEX_MIN_BYTES = 256 * KIB;
/** Disk space of the folder, the lock and the header of the index. */
export const DISK_OVERHEAD_BYTES = 64 * KIB;
/** Bytes of pages that wait to be written; pages beyond it are not written. */
export const DISK_QUEUE_MAX_BYTES = 256 * MIB;
/** Part of a pool that may wait to be written; these pages are pinned. */
export const DISK_QUEUE_POOL_FRACTION = 1 / 8;
/**
 * With `disk_write: wait`, the part of a pool that may wait for the disk or be written to it, and is not evicted. A
 * single larger page is allowed, too.
 */
export const DISK_HELD_POOL_FRACTION = 11 / 32;
/**
 * Part of DISK_HELD_POOL_FRACTION that one call adds at a time, so that the disk has work while the call waits for room
 * and the directory gets whole batches.
 */
export const DISK_WRITE_SLICE_FRACTION = 1 / 4;
/**
 * Longest time that one call waits for the disk, or for room in the pool; the rest of its pages is then set without
 * waiting.
 */
export const DISK_WRITE_WAIT_MAX_MS = 30_000;
/** A disk that has completed no pending write for this long is not waited for until it completes one. */
export const DISK_STALL_MS = 5_000;
/** With `disk_write: evicted`, clears whose keys are remembered; after that, older pages are not written at all. */
export const DISK_CLEARS_MAX_COUNT = 16;
/** With `disk_write: evicted`, keys that are never asked for again from which on those without a page are forgotten. */
export const DISK_NEVER_MIN_KEYS = 1024;
/** Pause before a page without room in the pool is tried again; it doubles from the minimum to the maximum. */
export const DISK_WRITE_RETRY_MIN_MS = 5;
export const DISK_WRITE_RETRY_MAX_MS = 100;
/** Pages that are written to disk at the same time. */
export const DISK_WRITES_IN_FLIGHT_MAX_COUNT = 8;
/** Longest time that publishing a page waits for a promotion of the same key to end. */
export const POOL_FILL_WAIT_MS = 1_000;
/** Size up to which small pages are collected into one write. */
export const DISK_WRITE_TARGET_BYTES = 1 * MIB;
/** Pause in writing after a failed write. */
export const DISK_RETRY_AFTER_MS = 1_000;
/** Pages that are evicted for one new page on a full file system before the new page is skipped. */
export const DISK_FULL_EVICTIONS_MAX_COUNT = 4;
/** Part of the disk tier that is given back when its file system is full and has no room for the index. */
export const DISK_GIVEN_BACK_FRACTION = 1 / 16;
/** Shortest time between two log records about failed writes. */
export const DISK_LOG_INTERVAL_MS = 10_000;
/** Longest time that `close()` waits for disk operations in progress. */
export const DISK_END_TIMEOUT_MS = 1_500;
/** Longest time that `close()` spends on writing pages that wait. */
export const DISK_DRAIN_TIMEOUT_MS = 1_500;
/** Longest time that removing a page waits until no crash can bring it back. */
export const DISK_REMOVALS_TIMEOUT_MS = 4_000;
/** Keys of removed pages that are remembered while the disk cannot record that they are removed. */
export const DISK_UNRECORDED_MAX_KEYS = 65_536;
/** Longest delay until the use of a page on disk is recorded in the journal. */
export const JOURNAL_USE_DELAY_MS = 1_000;
/** Pages whose uses wait in memory to be recorded in the journal. */
export const JOURNAL_USES_MAX_COUNT = 4096;
/** Body of one block of the journal; part of its format. */
export const JOURNAL_BLOCK_MAX_BYTES = 1 * MIB;
export const JOURNAL_MIN_BYTES = 64 * KIB;
/** Parts of a journal's limit: for the entries of listed pages, and the length at which the journal is rewritten. */
export const JOURNAL_LIVE_FRACTION = 0.35;
export const JOURNAL_REWRITE_FRACTION = 0.6;
/** Most bytes of one call to the page file; a longer page takes several calls, one after the other. */
export const DISK_PIECE_MAX_BYTES = 4 * MIB;
/** Buffers of DISK_PIECE_MAX_BYTES for data that is not aligned for direct I/O. */
export const DISK_STAGING_BUFFERS_COUNT = 8;
/** Pages that are read or written at the same time; the others wait. */
export const DISK_IN_FLIGHT_MAX_COUNT = 16;
/** Smallest copy that is handed to another thread: handing over fewer bytes takes as long as copying them. */
export const DISK_COPY_OFF_THREAD_MIN_BYTES = 64 * KIB;
/** Longest time that several processes take to agree which one gets the lock of a folder. */
export const DISK_LOCK_TIMEOUT_MS = 20_000;
export const DISK_LOCK_PAUSE_MIN_MS = 5;
export const DISK_LOCK_PAUSE_MAX_MS = 25;
/** Bytes that an owner reads from disk for one request to promote. */
export const PROMOTE_ROUND_MAX_BYTES = 64 * MIB;
/**
 * Part of a pool that promoted pages may take until their readers have read them; a single larger page is allowed, too.
 */
export const PROMOTE_POOL_FRACTION = 1 / 2;
/** Lease of a promoted page: it stays this long for a reader that does not confirm the read. */
export const PROMOTE_LEASE_MS = 2_000;
/** Time after which a request to promote is answered with the pages that are in memory by then. */
export const PROMOTE_ANSWER_MAX_MS = 1_000;
/** Pause before a reader that got nothing promoted asks again; it doubles from the minimum to the maximum. */
export const PROMOTE_RETRY_MIN_MS = 5;
export const PROMOTE_RETRY_MAX_MS = 100;
/** Time after which a reader that gets nothing promoted gives up. */
export const PROMOTE_TIMEOUT_MS = 5_000;

/** Bytes in front of a page in its object; part of the format. */
export const OBJECT_HEADER_BYTES = 1024;
/** Longest key in UTF-8 whose page goes to the object store; part of the format. */
export const OBJECT_KEY_MAX_BYTES = 704;
/** Longest id of a writer in UTF-8; longer ones are stored as their digest. Part of the format. */
export const OBJECT_WRITER_MAX_BYTES = 256;
/** Longest page that goes to the object store: it is sent in one request, from memory of its own. */
export const OBJECT_PAGE_MAX_BYTES = 64 * MIB;
/** Longest answer that is no page: an error in XML, or a marker. */
export const OBJECT_ANSWER_MAX_BYTES = 256 * KIB;
/** Requests to the store under way, reads and writes together; further ones wait for a connection. */
export const OBJECT_CONNECTIONS_MAX_COUNT = 48;
/** Pages of one call that are read, or looked for, at the same time. */
export const OBJECT_WINDOW_MAX_PAGES = 32;
/** Part of a pool that the pages of one window take. */
export const OBJECT_WINDOW_POOL_FRACTION = 1 / 8;
/** Bytes of a window of pages; a single larger page is allowed, too. */
export const OBJECT_WINDOW_MAX_BYTES = 64 * MIB;
/** Requests that one call sends to look for pages. */
export const OBJECT_PROBES_MAX_COUNT = 2_048;
/** Time in which one call looks for pages; what has not been found by then is missing. */
export const OBJECT_EXISTS_TIMEOUT_MS = 2_000;
/** Time in which one call reads pages; what has not been read by then is a miss. */
export const OBJECT_READ_TIMEOUT_MS = 10_000;
/** A request that receives no byte for this long has failed. */
export const OBJECT_STALL_MS = 2_000;
/** Time for a request that sends a page: a fixed part, and the slowest rate for its bytes. */
export const OBJECT_WRITE_TIMEOUT_MS = 5_000;
export const OBJECT_WRITE_MIN_BYTES_PER_S = 1 * MIB;
/**
 * Time for which a page that the store does not have is not requested again, and the number of such keys remembered.
 */
export const OBJECT_ABSENT_MS = 2_000;
export const OBJECT_ABSENT_MAX_KEYS = 65_536;
/** Pages that wait to be sent; further pages are skipped. */
export const OBJECT_QUEUE_MAX_PAGES = 4_096;
/** Total characters of the keys of pages that wait to be sent. */
export const OBJECT_QUEUE_MAX_KEY_CHARACTERS = 4 * MIB;
/** Pages that are sent at the same time. */
export const OBJECT_WRITES_MAX_COUNT = 4;
/** Bytes of the pages that are sent at the same time; a single larger page is allowed, too. */
export const OBJECT_WRITES_MAX_BYTES = 128 * MIB;
/** Time after the last call that set pages during which pages still count as being set. */
export const OBJECT_QUIET_MS = 20;
/**
 * While pages are being set, one page is sent to the store at a time, with this pause from its start plus time for its
 * bytes at this rate, because sets go first.
 */
export const OBJECT_BUSY_PAUSE_MS = 250;
export const OBJECT_BUSY_BYTES_PER_S = 8 * MIB;
/** Digests of pages known to be in the store. */
export const OBJECT_KNOWN_MAX_PAGES = 262_144;
/** Pause after a failure of the store before it is tried again; it doubles from the minimum to the maximum. */
export const OBJECT_RETRY_MIN_MS = 1_000;
export const OBJECT_RETRY_MAX_MS = 60_000;
/** Namespaces that one marker lists as cleared; with more, everything of its writer counts as cleared. */
export const OBJECT_CLEARED_MAX_PREFIXES = 256;
/** Time for which credentials read from a file are used before the file is read again. */
export const OBJECT_CREDENTIALS_MAX_AGE_MS = 60_000;
/** Longest time that `close()` waits for pages that are being sent. */
export const OBJECT_CLOSE_TIMEOUT_MS = 2_000;
