/** Limits of the disk tier and of what it promotes into memory; `limits.ts` exports them with all others and checks the relations between them. */
const KIB = 2 ** 10;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** Offsets and space of pages on disk are multiples of this, for direct I/O. */
export const DISK_ALIGNMENT_BYTES = 4096;
/** The smallest disk tier. */
export const DISK_MIN_BYTES = 1 * MIB;
/** The largest one. */
export const DISK_MAX_BYTES = 1024 * 1024 * GIB;
/** Part of a disk that its index may take, the one that replaces it included. */
export const DISK_INDEX_FRACTION = 1 / 32;
/** What the index needs for a page with a key of 64 hexadecimal characters, with room for rewriting it. */
export const DISK_INDEX_BYTES_PER_PAGE = 400;
export const DISK_INDEX_MIN_BYTES = 256 * KIB;
/** Folder, lock and header. */
export const DISK_OVERHEAD_BYTES = 64 * KIB;
/** Pages that wait to be written; further ones are skipped. */
export const DISK_QUEUE_MAX_BYTES = 256 * MIB;
/** Part of a pool whose pages may wait to be written: they are held. */
export const DISK_QUEUE_POOL_FRACTION = 1 / 8;
/**
 * With `disk_write: wait`, part of a pool that may wait for the disk or is being written to it, and is not evicted; a larger page may
 * alone.
 */
export const DISK_HELD_POOL_FRACTION = 3 / 8;
/** Part of that which a call adds at a time: the disk has work while the call waits for room, and the directory whole batches. */
export const DISK_WRITE_SLICE_FRACTION = 1 / 4;
/** Setting pages waits so long for the disk, or for room in the pool, in one call; what is left then is set without waiting. */
export const DISK_WRITE_WAIT_MAX_MS = 30_000;
/** A disk that has ended no write for so long, while it has some, is not waited for until it does. */
export const DISK_STALL_MS = 5_000;
/** A page that finds no room in the pool is tried again after a pause that doubles from the first to the second of these. */
export const DISK_WRITE_RETRY_MIN_MS = 5;
export const DISK_WRITE_RETRY_MAX_MS = 100;
/** Pages that are being written at a time. */
export const DISK_WRITES_IN_FLIGHT_MAX_COUNT = 8;
/** Publishing a page waits so long for one under the same key that is being brought from disk. */
export const POOL_FILL_WAIT_MS = 1_000;
/** Small pages are written together, up to this. */
export const DISK_WRITE_TARGET_BYTES = 1 * MIB;
/** After a failed write nothing is written for this long. */
export const DISK_RETRY_AFTER_MS = 1_000;
/** A full file system: pages that are given up for one new one before that is skipped. */
export const DISK_FULL_EVICTIONS_MAX_COUNT = 4;
/** Between two log records on failed writes. */
export const DISK_LOG_INTERVAL_MS = 10_000;
/** `close()` waits so long for what the disk has been asked for. */
export const DISK_END_TIMEOUT_MS = 1_500;
/** `close()` writes for so long what waits. */
export const DISK_DRAIN_TIMEOUT_MS = 1_500;
/** Uses of pages on disk are in the journal of the index so much later, at most. */
export const JOURNAL_USE_DELAY_MS = 1_000;
/** Pages whose uses wait in memory for that. */
export const JOURNAL_USES_MAX_COUNT = 4096;
/** Body of one block of the journal; part of its format. */
export const JOURNAL_BLOCK_MAX_BYTES = 1 * MIB;
export const JOURNAL_MIN_BYTES = 64 * KIB;
/** Parts of a journal's limit: what the pages that are listed may take, and how long it becomes before it is rewritten. */
export const JOURNAL_LIVE_FRACTION = 0.35;
export const JOURNAL_REWRITE_FRACTION = 0.6;
/** One call to the page file at most; a longer page is several, one after the other. */
export const DISK_PIECE_MAX_BYTES = 4 * MIB;
/** Buffers of that size for what direct I/O does not take as it is: the most memory that they take is this many times it. */
export const DISK_STAGING_BUFFERS_COUNT = 8;
/** Pages that are being read and written at a time; the others wait. */
export const DISK_IN_FLIGHT_MAX_COUNT = 16;
/** Fewer bytes are copied on the spot: handing them to another thread takes as long. */
export const DISK_COPY_OFF_THREAD_MIN_BYTES = 64 * KIB;
/** Several that want the lock at once: for so long they find out who gets it. */
export const DISK_LOCK_TIMEOUT_MS = 20_000;
export const DISK_LOCK_PAUSE_MIN_MS = 5;
export const DISK_LOCK_PAUSE_MAX_MS = 25;
/** Keys that a reader asks an owner to promote at a time. */
export const PROMOTE_ROUND_MAX_KEYS = 128;
/** Bytes that an owner reads from disk for one request. */
export const PROMOTE_ROUND_MAX_BYTES = 64 * MIB;
/** Part of a pool that promoted pages may take until their readers have read them; a larger page may alone. */
export const PROMOTE_POOL_FRACTION = 1 / 2;
/** A promoted page stays for a reader that does not say it has read it for this long. */
export const PROMOTE_LEASE_MS = 2_000;
/** A request to promote is answered after this long at the latest, with what is there by then. */
export const PROMOTE_ANSWER_MAX_MS = 1_000;
/** A reader that gets nothing promoted asks again after a pause that doubles from the first to the second of these. */
export const PROMOTE_RETRY_MIN_MS = 5;
export const PROMOTE_RETRY_MAX_MS = 100;
/** A reader that gets nothing promoted for this long gives up. */
export const PROMOTE_TIMEOUT_MS = 5_000;
