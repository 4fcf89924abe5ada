import type { CancelSignal } from '../../base/concurrency/cancellation.js';
import { SparseLog } from '../../base/environment/sparse-log.js';
import { Gone } from '../../base/gone.js';
import type { LocatedPages } from '../../directory/messages/located-pages.js';
import type { LocationNode } from '../../directory/messages/location-columns.js';
import { crc32 } from '../../memory/checksum.js';
import { HostRegion } from '../../memory/host-region.js';
import { imageBytes, imageChecksum, NO_STAMP, STAMP_BYTES } from '../../memory/page-stamp.js';
import type { ReadOp } from '../../transport/contract/transport.js';
import type { MissReason, ReasonLog, Reasons } from '../call/call-options.js';
import { type CallerPage, fillPage, isAddressable, RegionPage, restoreTail } from '../call/caller-page.js';
import type { StoreGround } from '../ground/store-ground.js';
import type { KnownLocations } from './known-locations.js';
import type { ReadTroubles } from './read-troubles.js';
import { RemoteOutcome } from './remote-outcome.js';

/** Distance in bytes between scratch places, where the stamps of pages shorter than a stamp land. */
const SCRATCH_STRIDE_BYTES = 8;

/** Collaborators of callers' reads, beside the ground; copies are made without them. */
export interface ReadMemory {
  /** Reusable answers of the directory. */
  readonly knownLocations: KnownLocations;
  /** Logs the reasons of misses, rate-limited. */
  readonly missLog: ReasonLog<MissReason>;
}

/** A call whose pages are read, and its state. */
export interface MemoryReadsCall {
  readonly keys: readonly string[];
  readonly pages: readonly CallerPage[];
  readonly troubles: ReadTroubles;
  readonly signal?: CancelSignal | undefined;
  /** Collects the reasons of misses, if the caller wants them. */
  readonly reasons?: Reasons<MissReason> | undefined;
}

interface Miss {
  readonly call: MemoryReadsCall;
  readonly outcome: RemoteOutcome;
  readonly remoteEndpoint: string;
  /** A {@link Gone} value: whether the node has answered that the page is not there. */
  readonly gone: number;
  /** Whether the page arrived too late to be trusted. */
  readonly isLate: boolean;
}

/** Reads pages from the memory of other nodes. */
export class MemoryReads {
  readonly #ground: StoreGround;
  readonly #memory: ReadMemory | undefined;
  readonly #lines: SparseLog;
  #closed = false;

  constructor(ground: StoreGround, memory: ReadMemory | undefined) {
    this.#ground = ground;
    this.#memory = memory;
    this.#lines = new SparseLog(ground);
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Stops: reads in progress finish, no new ones begin. */
  close(): void {
    this.#closed = true;
  }

  /**
   * Reads the pages that have the wanted length and whose owner is alive; pages of another length are misses and are
   * not reported.
   */
  async read(located: LocatedPages, call: MemoryReadsCall): Promise<RemoteOutcome> {
    const { transport, clock, config } = this.#ground;
    const outcome = new RemoteOutcome();
    const images = new ImageReads({ isVerified: config.verifyReads, maxCount: located.count });
    const tried = this.#plan(located, call, { images, outcome });
    const { ops } = images;
    if (ops.length === 0 || this.#closed || call.signal?.aborted === true) {
      images.release();
      return outcome;
    }
    const sinceMs = clock.nowMs();
    const gone = new Uint8Array(ops.length);
    const read = await transport.batchRead(ops, gone, call.signal).catch((error: unknown): boolean[] => {
      // A read fails if the caller's memory was freed meanwhile; the call still waits for its other reads.
      this.#lines.log('warn', 'reading pages of other nodes failed', { error: String(error) });
      return [];
    });
    const isInTime = this.#isWithinQuarantine(clock.nowMs() - sinceMs);
    for (let o = 0; o < tried.count; o++) {
      if (isInTime && read[o] === true) {
        images.finish(o);
        outcome.addRead(tried, o);
      } else {
        const { remoteEndpoint } = ops[o] as ReadOp;
        this.#missed(tried, o, { call, outcome, remoteEndpoint, gone: gone[o] as number, isLate: read[o] === true });
      }
    }
    images.release();
    return outcome;
  }

  /**
   * Takes the pages whose bytes came with their locations, and are whole; returns what is left to be read. Nothing is
   * awaited, so the caller's memory is written before its call can end.
   */
  take(located: LocatedPages, { pages }: MemoryReadsCall): { arrived: RemoteOutcome; rest: LocatedPages } {
    const arrived = new RemoteOutcome();
    const { columns, rows, indices } = located;
    if (columns.inline === undefined || this.#closed) return { arrived, rest: located };
    const rest: number[] = [];
    for (let k = 0; k < located.count; k++) {
      const row = rows[k] as number;
      const page = pages[indices[k] as number] as CallerPage;
      const bytes = columns.inline.bytesOf(row);
      if (bytes !== undefined && crc32(bytes) === columns.checksum[row] && fill(page, bytes)) {
        arrived.addRead(located, k);
      } else {
        rest.push(k);
      }
    }
    return { arrived, rest: located.pick(rest) };
  }

  /** Adds an operation for each readable page; returns these pages, in the order of the operations. */
  #plan(
    located: LocatedPages,
    { pages, troubles, reasons }: MemoryReadsCall,
    { images, outcome }: { readonly images: ImageReads; readonly outcome: RemoteOutcome },
  ): LocatedPages {
    const { columns, rows, indices } = located;
    /** Endpoints by node number in the columns; null: the node is not alive; undefined: not looked up yet. */
    const endpoints: (string | null | undefined)[] = [];
    const planned: number[] = [];
    for (let k = 0; k < located.count; k++) {
      const row = rows[k] as number;
      const index = indices[k] as number;
      const page = pages[index] as CallerPage;
      if (columns.length[row] !== page.length || !isAddressable(page)) {
        this.#note(index, 'other_size', reasons);
        continue;
      }
      const nodeNumber = columns.node[row] as number;
      const node = columns.nodes[nodeNumber] as LocationNode;
      let endpoint = endpoints[nodeNumber];
      if (endpoint === undefined) {
        endpoint = this.#ground.cluster.dataEndpointOf(node) ?? null;
        endpoints[nodeNumber] = endpoint;
      }
      if (endpoint === null || troubles.isDead(node.nodeId)) {
        troubles.note(index, endpoint === null ? 'owner_gone' : 'unreachable');
        troubles.noteDead(node.nodeId);
        this.#note(index, 'unreachable', reasons);
        outcome.missed.push({ index, nodeId: node.nodeId, tier: 'memory' });
        continue;
      }
      images.add(endpoint, located, k, page);
      planned.push(k);
    }
    return planned.length === located.count ? located : located.pick(planned);
  }

  /** Records that operation `o` has not delivered its page. */
  #missed(tried: LocatedPages, o: number, { call, outcome, remoteEndpoint, gone, isLate }: Miss): void {
    const { transport } = this.#ground;
    const { keys, troubles, signal, reasons } = call;
    const isGone = gone !== Gone.no;
    const index = tried.indices[o] as number;
    const { nodeId } = tried.nodeAt(o);
    this.#memory?.knownLocations.forget(keys[index] as string);
    if (signal?.aborted !== true || isGone) {
      const trouble = isLate ? 'late' : transport.isReachable(remoteEndpoint) ? 'unreadable' : 'unreachable';
      troubles.note(index, trouble);
      if (trouble === 'unreachable') troubles.noteDead(nodeId);
      if (gone === Gone.damaged) this.#note(index, 'checksum', reasons);
      else if (!isGone) this.#note(index, trouble === 'unreachable' ? trouble : 'unreadable', reasons);
    }
    const location = tried.locationAt(o);
    outcome.missed.push({ index, nodeId, tier: 'memory', location, ...(isGone ? { isGone } : {}) });
  }

  #note(index: number, reason: MissReason, reasons: Reasons<MissReason> | undefined): void {
    reasons?.note(index, reason);
    this.#memory?.missLog.note(reason);
  }

  /**
   * Whether a read ended within half of the quarantine. Without checksums, only the quarantine protects the bytes of a
   * page that is freed during its read, so a slower read is a miss.
   */
  #isWithinQuarantine(elapsedMs: number): boolean {
    const { verifyReads, reuseQuarantineMs } = this.#ground.config;
    return verifyReads || reuseQuarantineMs === 0 || elapsedMs <= reuseQuarantineMs / 2;
  }
}

/** Copies bytes into a page of the caller; false: the page has another length, or its memory is gone. */
function fill(page: CallerPage, bytes: Uint8Array): boolean {
  return page.length === bytes.length && fillPage(page, bytes) === bytes.length;
}

/**
 * The read operations for a batch of pages, which turn the received images into pages (see `memory/page-stamp.ts`). An
 * operation succeeds only if the image has the stamp that its location names; {@link finish} then replaces the stamp by
 * the page's own last bytes. Single use; {@link release} it when the operations have ended.
 */
class ImageReads {
  readonly ops: ReadOp[] = [];
  readonly #isVerified: boolean;
  readonly #maxCount: number;
  readonly #pages: CallerPage[] = [];
  readonly #tails: number[] = [];
  #scratch: HostRegion | undefined;

  /** Creates room for at most `maxCount` pages. `isVerified`: the images must match their checksums. */
  constructor({ isVerified, maxCount }: { readonly isVerified: boolean; readonly maxCount: number }) {
    this.#isVerified = isVerified;
    this.#maxCount = maxCount;
  }

  /** Adds the page at position `k`, which must be in the node's memory and have the length of `page`. */
  add(remoteEndpoint: string, { rows, columns }: LocatedPages, k: number, page: CallerPage): void {
    const row = rows[k] as number;
    const stamp = columns.stamp[row] as number;
    const tail = columns.tail[row] as number;
    const isStamped = stamp !== NO_STAMP;
    const { length } = page;
    let checksum: number | undefined;
    if (this.#isVerified) {
      const sum = columns.checksum[row] as number;
      checksum = isStamped ? imageChecksum({ length, checksum: sum, stamp, tail }) : sum;
    }
    let localAddr: ReadOp['localAddr'];
    let scatter: ReadOp['scatter'];
    if (isStamped && length < STAMP_BYTES) {
      localAddr = this.#scratchAddr();
    } else if (page instanceof RegionPage) {
      localAddr = page.addr;
    } else {
      const { ranges } = page;
      localAddr = ranges[0]?.addr ?? 0;
      if (ranges.length > 1) scatter = ranges;
    }
    this.#pages.push(page);
    this.#tails.push(isStamped ? tail : -1);
    this.ops.push({
      remoteEndpoint,
      localAddr,
      remoteAddr: columns.addressAt(row),
      rkey: columns.rkey[row] as number,
      length: isStamped ? imageBytes(length) : length,
      scatter,
      checksum,
      stamp: isStamped ? stamp : undefined,
    });
  }

  /** Finishes operation `i`, which must have succeeded: the caller's memory then holds the page. */
  finish(i: number): void {
    const tail = this.#tails[i] as number;
    if (tail >= 0) restoreTail(this.#pages[i] as CallerPage, tail);
  }

  release(): void {
    this.#scratch?.free();
    this.#scratch = undefined;
  }

  #scratchAddr(): number {
    this.#scratch ??= HostRegion.wrap(new SharedArrayBuffer(this.#maxCount * SCRATCH_STRIDE_BYTES));
    return this.#scratch.start + this.ops.length * SCRATCH_STRIDE_BYTES;
  }
}
