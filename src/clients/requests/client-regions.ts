import { assert, assertAtMost } from '../../base/assert.js';
import type { Sharer, Shares } from '../../base/concurrency/shares.js';
import { CLIENT_FILE_COPIES_MAX_BYTES, CLIENT_REGIONS_MAX_COUNT, PAGE_MAX_BYTES } from '../../base/limits.js';
import { HostRegion } from '../../memory/host-region.js';
import { type CallerPage, RegionPage } from '../../store/call/caller-page.js';
import type { Slice } from '../../store/call/key-steps.js';
import type { PageRoom } from '../../store/found-pages.js';
import type { LocalRange } from '../../transport/contract/transport.js';
import { type PieceColumns, type RegionRequest, STAGING_REGION, Status } from '../wire/messages.js';
import { RequestError } from '../wire/request-error.js';
import { AbsentBudget, AbsentMemory } from './absent-memory.js';
import { ClientFile, type FilePiece } from './client-files.js';

/** Memory of a client: mapped, or a file that is read and written. */
export type ClientMemoryKind = HostRegion | ClientFile;

interface ClientRegion {
  readonly memory: ClientMemoryKind;
  readonly isWritable: boolean;
  /** Number of requests that may touch the region. */
  users: number;
  /** Whether the region is released when its last user ends. */
  isEnding: boolean;
  readonly onReleased: (() => void)[];
}

/** The limit on the regions of all clients, and the process and user whose share this client uses. */
interface RegionShare {
  readonly shares: Shares;
  readonly sharer: Sharer;
}

/** The registered memory of one client, by the region ids that the client chose. */
export class ClientRegions {
  readonly #absent: AbsentMemory;
  readonly #regions = new Map<number, ClientRegion>();
  /** Regions to be released that are still in use. */
  readonly #ending = new Set<ClientRegion>();

  readonly #share: RegionShare | undefined;

  /**
   * `paid` is shared by all clients of a node. Without `share`, only the number of this client's own regions is
   * limited.
   */
  constructor(paid = new AbsentBudget(), share?: RegionShare) {
    this.#absent = new AbsentMemory(paid);
    this.#share = share;
  }

  /** Bytes mapped for the client. */
  get mappedBytes(): number {
    let bytes = 0;
    for (const { memory } of [...this.#regions.values(), ...this.#ending]) {
      if (memory instanceof HostRegion) bytes += memory.length;
    }
    return bytes;
  }

  /** Number of regions that are files. */
  get fileCount(): number {
    return [...this.#regions.values()].filter(({ memory }) => memory instanceof ClientFile).length;
  }

  get count(): number {
    return this.#regions.size;
  }

  has(id: number): boolean {
    return this.#regions.has(id);
  }

  memoryOf(id: number): ClientMemoryKind | undefined {
    return this.#regions.get(id)?.memory;
  }

  /** Throws {@link RequestError} if there is no room for a region with this id. */
  checkRoom(id: number): void {
    if (this.has(id))
      throw new RequestError(Status.badRequest, `region ${id} is registered already; choose another id`);
    if (this.#regions.size >= CLIENT_REGIONS_MAX_COUNT) {
      throw new RequestError(Status.tooMuch, `${CLIENT_REGIONS_MAX_COUNT} regions are registered, no more are allowed`);
    }
    const share = this.#share;
    if (share !== undefined && !share.shares.allows(share.sharer, 1)) {
      throw new RequestError(
        Status.tooMuch,
        `${share.shares.of(share.sharer)} regions of this process are registered; it may have half of what others have left, its user three quarters`,
      );
    }
  }

  /** Adds memory and takes ownership of it. */
  add(id: number, memory: ClientMemoryKind, isWritable: boolean): void {
    this.checkRoom(id);
    this.#share?.shares.take(this.#share.sharer, 1);
    this.#regions.set(id, { memory, isWritable, users: 0, isEnding: false, onReleased: [] });
  }

  /**
   * Removes a region. Resolves when this node no longer touches it and its memory is released. Throws {@link
   * RequestError}.
   */
  remove(id: number): Promise<void> {
    const region = this.#regions.get(id);
    if (region === undefined) throw noRegion(id);
    this.#regions.delete(id);
    return this.#release(region);
  }

  /** Removes all regions; resolves when their memory is released. */
  async removeAll(): Promise<void> {
    const all = [...this.#regions.values()];
    this.#regions.clear();
    await Promise.all(all.map((region) => this.#release(region)));
  }

  /**
   * Holds the regions of a request until `release`, and checks all of its pieces. If it throws {@link RequestError},
   * nothing is held.
   */
  hold({ pieces }: Pick<RegionRequest, 'pieces'>, use: 'read' | 'write'): HeldRegions {
    const ids = distinct(pieces.regionIds);
    const regions = new Map<number, ClientRegion>();
    for (const id of ids) {
      const region = this.#regions.get(id);
      if (region === undefined) throw noRegion(id);
      if (use === 'write' && !region.isWritable) {
        throw new RequestError(Status.badRequest, `region ${id} is not writable; register it as writable`);
      }
      if (region.memory.isDamaged()) {
        this.#drop(id, region);
        throw gone(id);
      }
      regions.set(id, region);
    }
    checkPieces(pieces, regions);
    if (use === 'write' && overlap(pieces, regions)) {
      throw new RequestError(Status.badRequest, 'pieces of a GET overlap');
    }
    for (const region of regions.values()) region.users++;
    return new HeldRegions({ pieces, regions, absent: this.#absent }, () => this.#unhold(regions));
  }

  /**
   * Holds a range of the staging memory until `release`, for pages of unknown length. Throws {@link RequestError} if
   * the client has no such memory.
   */
  holdStaging(offset: number, length: number): HeldRoom {
    const region = this.#regions.get(STAGING_REGION);
    if (region === undefined) throw noRegion(STAGING_REGION);
    const { memory } = region;
    if (offset + length > memory.length || !(memory instanceof HostRegion)) {
      throw new RequestError(
        Status.badRequest,
        `${length} bytes from offset ${offset} on; the staging memory has ${memory.length}`,
      );
    }
    region.users++;
    return {
      length,
      pageAt: (at, bytes) => new RegionPage(memory, memory.start + offset + at, bytes),
      release: () => this.#unhold(new Map([[STAGING_REGION, region]])),
    };
  }

  /** Ends the use of regions. Throws {@link RequestError} if the memory of one was cut short in the meantime. */
  #unhold(regions: ReadonlyMap<number, ClientRegion>): void {
    let damaged: number | undefined;
    for (const [id, region] of regions) {
      if (region.memory.isLive && region.memory.isDamaged()) {
        damaged = id;
        if (!region.isEnding) this.#drop(id, region);
      }
      region.users--;
      if (region.users === 0 && region.isEnding) this.#free(region);
    }
    if (damaged !== undefined) throw gone(damaged);
  }

  #drop(id: number, region: ClientRegion): void {
    if (this.#regions.get(id) === region) this.#regions.delete(id);
    void this.#release(region);
  }

  #release(region: ClientRegion): Promise<void> {
    region.isEnding = true;
    if (region.users === 0) {
      this.#free(region);
      return Promise.resolve();
    }
    this.#ending.add(region);
    return new Promise((resolve) => region.onReleased.push(resolve));
  }

  #free(region: ClientRegion): void {
    this.#ending.delete(region);
    this.#share?.shares.giveBack(this.#share.sharer, 1);
    region.memory.free();
    for (const released of region.onReleased) released();
  }

  /** Throws `InvariantError` unless every region that is being released is in use, and all others are kept. */
  verify(): void {
    assertAtMost('client regions', this.#regions.size, CLIENT_REGIONS_MAX_COUNT);
    for (const [id, { users, isEnding, onReleased, memory }] of this.#regions) {
      const isKept = users >= 0 && !isEnding && onReleased.length === 0 && memory.isLive;
      assert(
        isKept,
        () => `client regions: region ${id} has ${users} users, ending ${isEnding}, live ${memory.isLive}`,
      );
    }
    for (const { users, isEnding } of this.#ending) {
      assert(users > 0 && isEnding, () => `client regions: one that was let go of stays for ${users} users`);
    }
  }
}

interface HeldParts {
  readonly pieces: PieceColumns;
  readonly regions: ReadonlyMap<number, ClientRegion>;
  readonly absent: AbsentMemory;
}

/** The regions of one request, held while it is in progress. */
export class HeldRegions {
  readonly #parts: HeldParts;
  readonly #release: () => void;

  constructor(parts: HeldParts, release: () => void) {
    this.#parts = parts;
    this.#release = release;
  }

  /** Length of a page. */
  lengthOf(page: number): number {
    return lengthOf(page, this.#parts.pieces);
  }

  /**
   * Returns the pages of a step of the request, for the store. Throws {@link RequestError} if their memory would charge
   * this node more than its limit.
   */
  pages({ start, end }: Slice): HeldPages {
    const { pieces, regions, absent } = this.#parts;
    const copies = copiesOf(pieces, regions, { start, end });
    try {
      absent.take(mappedRanges(pieces, regions, { start, end }));
      const isIntact = () => [...regions.values()].every(({ memory }) => !memory.isDamaged());
      const filePieces: FilePiece[][] = [];
      const pages: CallerPage[] = [];
      for (let page = start; page < end; page++) {
        const ofPage: FilePiece[] = [];
        pages.push(pageOf(page, { pieces, regions, copies, filePieces: ofPage, isIntact }));
        filePieces.push(ofPage);
      }
      return new HeldPages(pages, filePieces, () => copies?.memory.free());
    } catch (error) {
      copies?.memory.free();
      throw error;
    }
  }

  /**
   * Must be called once, when nothing touches the pages any more. Throws {@link RequestError} if their memory was cut
   * short in the meantime.
   */
  release(): void {
    this.#release();
  }
}

/** The pages of one step of a request. */
export class HeldPages {
  readonly pages: readonly CallerPage[];
  /** Pieces in files, one list for each page. */
  readonly #filePieces: readonly (readonly FilePiece[])[];
  readonly #release: () => void;

  constructor(pages: readonly CallerPage[], filePieces: readonly (readonly FilePiece[])[], release: () => void) {
    this.pages = pages;
    this.#filePieces = filePieces;
    this.#release = release;
  }

  /** Reads pages that are to be set from their files. Throws {@link RequestError} if a file has been cut short. */
  async load(): Promise<void> {
    for (const { file, offset, view } of this.#filePieces.flat()) {
      if (!(await file.read(offset, view)))
        throw new RequestError(Status.regionGone, 'the file of a region was cut short');
    }
  }

  /** Writes the pages whose result is true to files. */
  async store(results: readonly boolean[]): Promise<void> {
    for (const [page, filePieces] of this.#filePieces.entries()) {
      if (results[page] !== true) continue;
      for (const { file, offset, view } of filePieces) if (!file.isDamaged()) await file.write(offset, view);
    }
  }

  /** Must be called once, when nothing touches the pages any more. */
  release(): void {
    this.#release();
  }
}

/** Memory for pages of unknown length. `release` must be called once, when nothing touches it any more. */
export interface HeldRoom extends PageRoom {
  readonly release: () => void;
}

/** Memory of this node that stands in for pages in files. It is unused from `usedBytes` on. */
interface FileCopies {
  readonly memory: HostRegion;
  usedBytes: number;
}

/** Allocates copies for the pieces of a step that lie in files; undefined if there are none. */
function copiesOf(
  { pieceCount, regionIds, lengths }: PieceColumns,
  regions: ReadonlyMap<number, ClientRegion>,
  { start, end }: Slice,
): FileCopies | undefined {
  let bytes = 0;
  for (let row = start * pieceCount; row < end * pieceCount; row++) {
    if (regions.get(regionIds[row] as number)?.memory instanceof ClientFile) bytes += lengths[row] as number;
  }
  return bytes === 0 ? undefined : { memory: HostRegion.allocate(bytes), usedBytes: 0 };
}

interface PlacedPieces {
  readonly pieces: PieceColumns;
  readonly regions: ReadonlyMap<number, ClientRegion>;
  readonly copies: FileCopies | undefined;
  /** Receives the pieces of the page that lie in files. */
  readonly filePieces: FilePiece[];
  /** Whether the memory of all regions is still there. */
  readonly isIntact: () => boolean;
}

function pageOf(page: number, { pieces, regions, copies, filePieces, isIntact }: PlacedPieces): CallerPage {
  const ranges: LocalRange[] = [];
  const views: Uint8Array[] = [];
  for (let row = page * pieces.pieceCount; row < (page + 1) * pieces.pieceCount; row++) {
    const [offset, length] = [pieces.offsets[row] as number, pieces.lengths[row] as number];
    const { memory } = regions.get(pieces.regionIds[row] as number) as ClientRegion;
    if (memory instanceof HostRegion) {
      ranges.push({ addr: BigInt(memory.start + offset), length });
      views.push(...memory.views(offset, length));
    } else {
      const own = copies as FileCopies;
      ranges.push({ addr: BigInt(own.memory.start + own.usedBytes), length });
      let at = offset;
      for (const view of own.memory.views(own.usedBytes, length)) {
        views.push(view);
        filePieces.push({ file: memory, offset: at, view });
        at += view.length;
      }
      own.usedBytes += length;
    }
  }
  return { ranges, views, length: lengthOf(page, pieces), isIntact };
}

function distinct(ids: ArrayLike<number>): Set<number> {
  const found = new Set<number>();
  for (let row = 0; row < ids.length; row++) if (row === 0 || ids[row] !== ids[row - 1]) found.add(ids[row] as number);
  return found;
}

function lengthOf(page: number, { pieceCount, lengths }: PieceColumns): number {
  let bytes = 0;
  for (let row = page * pieceCount; row < (page + 1) * pieceCount; row++) bytes += lengths[row] as number;
  return bytes;
}

/** Throws {@link RequestError} for a piece outside its region, a page that is too long, or too many bytes in files. */
function checkPieces(pieces: PieceColumns, regions: ReadonlyMap<number, ClientRegion>): void {
  const { pieceCount, regionIds, offsets, lengths } = pieces;
  let fileBytes = 0;
  for (let row = 0; row < regionIds.length; row++) {
    const [id, offset, length] = [regionIds[row] as number, offsets[row] as number, lengths[row] as number];
    const { memory } = regions.get(id) as ClientRegion;
    const page = Math.floor(row / pieceCount);
    if (length === 0 || offset + length > memory.length) {
      throw new RequestError(
        Status.badRequest,
        `page ${page}: ${length} bytes from offset ${offset} on; allowed are 1 or more within the ${memory.length} bytes of region ${id}`,
      );
    }
    if (memory instanceof ClientFile) fileBytes += length;
    const pageBytes = row % pieceCount === 0 ? lengthOf(page, pieces) : 0;
    if (pageBytes > PAGE_MAX_BYTES) {
      throw new RequestError(Status.badRequest, `page ${page} has ${pageBytes} bytes; allowed are ${PAGE_MAX_BYTES}`);
    }
  }
  if (fileBytes <= CLIENT_FILE_COPIES_MAX_BYTES) return;
  throw new RequestError(
    Status.tooMuch,
    `${fileBytes} bytes in files of the client; allowed are ${CLIENT_FILE_COPIES_MAX_BYTES} a request`,
  );
}

/** Whether pieces in mapped memory overlap. If they did, the piece read last would overwrite the other. */
function overlap({ regionIds, offsets, lengths }: PieceColumns, regions: ReadonlyMap<number, ClientRegion>): boolean {
  const rows = regionIds.length;
  const [starts, ends] = [new Float64Array(rows), new Float64Array(rows)];
  let count = 0;
  let isAscending = true;
  for (let row = 0; row < rows; row++) {
    const { memory } = regions.get(regionIds[row] as number) as ClientRegion;
    if (!(memory instanceof HostRegion)) continue;
    starts[count] = memory.start + (offsets[row] as number);
    ends[count] = (starts[count] as number) + (lengths[row] as number);
    if (count > 0 && (starts[count] as number) < (ends[count - 1] as number)) isAscending = false;
    count++;
  }
  if (isAscending) return false;
  // With starts and ends each sorted, ranges are disjoint if and only if no start lies before the previous end.
  const [inOrder, endsInOrder] = [starts.subarray(0, count).sort(), ends.subarray(0, count).sort()];
  for (let i = 1; i < count; i++) if ((inOrder[i] as number) < (endsInOrder[i - 1] as number)) return true;
  return false;
}

/** Returns the pieces of a step that lie in memory shared with the client; those in a row are one range. */
function mappedRanges(
  { pieceCount, regionIds, offsets, lengths }: PieceColumns,
  regions: ReadonlyMap<number, ClientRegion>,
  { start, end }: Slice,
): LocalRange[] {
  const ranges: { addr: number; length: number }[] = [];
  let last = { addr: 0, length: 0 };
  for (let row = start * pieceCount; row < end * pieceCount; row++) {
    const { memory } = regions.get(regionIds[row] as number) as ClientRegion;
    if (!(memory instanceof HostRegion) || !memory.isMapped) continue;
    const [addr, length] = [memory.start + (offsets[row] as number), lengths[row] as number];
    if (addr === last.addr + last.length) {
      last.length += length;
    } else {
      last = { addr, length };
      ranges.push(last);
    }
  }
  return ranges;
}

function noRegion(id: number): RequestError {
  return new RequestError(Status.noRegion, `region ${id} is not registered`);
}

function gone(id: number): RequestError {
  return new RequestError(Status.regionGone, `the file of region ${id} was cut short; the region has been dropped`);
}
