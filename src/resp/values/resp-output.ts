import type { ByteBudget } from '../../base/concurrency/byte-budget.js';
import type { Sharer } from '../../base/concurrency/shares.js';
import type { Clock } from '../../base/environment/clock.js';
import type { Connection } from '../../base/environment/network.js';
import { POOL_SERVED_GRACE_MS, RESP_OUTPUT_MAX_BYTES, RESP_SLICE_BYTES } from '../../base/limits.js';
import type { ServedConnection } from '../../net/served/served-connection.js';
import type { ServedPage } from '../../pool/published-pool.js';
import { CRLF } from '../wire/resp-answers.js';

/** A page that is sent directly from its memory, and the bytes to send before it. */
export interface ServedPart {
  readonly head: Buffer;
  readonly page: ServedPage;
}

/** Most bytes of small answers that are collected before they are written. */
const COLLECT_MAX_BYTES = 64 * 2 ** 10;
/** Consecutive pieces up to this length are copied into one, because each piece takes the socket time of its own. */
const JOINED_MAX_BYTES = 1024;
const HELD_UP = 'the client holds up a page that is being set';

/**
 * The answers to one client, in order. Small ones are collected and written together. Large values are given to the
 * socket slice by slice, each after the system has taken the one before. When the connection is closed, nothing reads
 * from the remaining memory any more.
 */
export class RespOutput {
  readonly #socket: Connection;
  readonly #served: ServedConnection;
  readonly #clock: Clock;
  readonly #budget: ByteBudget;
  /** The sharer whose share of memory is used for answers. */
  readonly sharer: Sharer;
  #collected: Uint8Array[] = [];
  #collectedBytes = 0;

  /**
   * `memory` is the budget for copies of pages that are to be replaced while they are sent, and the sharer whose share
   * is used.
   */
  constructor(
    socket: Connection,
    served: ServedConnection,
    clock: Clock,
    memory: { readonly budget: ByteBudget; readonly sharer: Sharer },
  ) {
    this.#socket = socket;
    this.#served = served;
    this.#clock = clock;
    this.#budget = memory.budget;
    this.sharer = memory.sharer;
  }

  /** Bytes that the client has not received yet. */
  get waitingBytes(): number {
    return this.#served.waitingBytes + this.#collectedBytes;
  }

  /** Whether {@link room} has to wait. */
  get isFull(): boolean {
    return this.waitingBytes > RESP_OUTPUT_MAX_BYTES;
  }

  /** Adds a part of an answer. The bytes must not change afterwards. */
  add(bytes: Uint8Array): void {
    if (this.#served.isClosed) return;
    this.#collected.push(bytes);
    this.#collectedBytes += bytes.length;
    if (this.#collectedBytes >= COLLECT_MAX_BYTES) this.flush();
  }

  /** Writes the collected bytes. */
  flush(): void {
    if (this.#collectedBytes === 0 || this.#served.isClosed) return;
    const bytes = this.#collectedBytes;
    const pieces = this.#takeCollected();
    this.#write(bytes <= COLLECT_MAX_BYTES && pieces.length > 1 ? [Buffer.concat(pieces, bytes)] : pieces);
  }

  /** Writes pieces together. */
  #write(all: readonly Uint8Array[]): void {
    const socket = this.#socket;
    const pieces = joined(all);
    if (pieces.length > 1) socket.cork();
    for (const piece of pieces) socket.write(piece);
    if (pieces.length > 1) socket.uncork();
    this.#served.wrote();
  }

  /** Resolves when there is room for more answers; with false if the connection is closed. */
  async room(): Promise<boolean> {
    if (this.isFull) {
      this.flush();
      if (this.#served.waitingBytes > RESP_OUTPUT_MAX_BYTES) await this.#served.taken();
    }
    return !this.#served.isClosed;
  }

  /** Sends pieces, whose memory is in use until this resolves. Resolves with false if the connection is closed. */
  sendPieces(pieces: readonly Uint8Array[]): Promise<boolean> {
    return this.#send(slicesOf(pieces), () => {});
  }

  /**
   * Sends a page directly from its memory. Releases it as soon as the system has taken all of it, or the connection is
   * closed. If the page is set again in the meantime, the rest is copied, so that the writer waits only for the slice
   * in progress.
   */
  async sendServed(head: Buffer, page: ServedPage): Promise<boolean> {
    const slices = slicesOf([...page.views, CRLF]);
    let cancelGrace = (): void => {};
    let giveBack: (() => void) | undefined;
    let sentCount = 0;
    let isCopied = false;
    page.onWanted = () => {
      giveBack = this.#copyRest(slices, sentCount);
      isCopied = giveBack !== undefined;
      cancelGrace = this.#limitGrace();
    };
    // A writer may have begun to wait while the page was checked.
    if (page.isWanted) page.onWanted();
    try {
      this.#collect(head);
      return await this.#send(slices, (count) => {
        sentCount = count + 1;
        // The system has taken everything that was given to the socket before.
        if (isCopied) page.release();
        if (isCopied) cancelGrace();
      });
    } finally {
      cancelGrace();
      giveBack?.();
      page.release();
    }
  }

  /** Like {@link sendServed}, for several pages that make one slice together. */
  async sendTogether(parts: readonly ServedPart[]): Promise<boolean> {
    const cancels: (() => void)[] = [];
    for (const { page } of parts) {
      page.onWanted = () => cancels.push(this.#limitGrace());
      if (page.isWanted) page.onWanted();
    }
    try {
      if (this.#served.isClosed) return false;
      this.#write([...this.#takeCollected(), ...parts.flatMap(({ head, page }) => [head, ...page.views, CRLF])]);
      await this.#served.taken();
      return !this.#served.isClosed;
    } finally {
      for (const cancel of cancels) cancel();
      for (const { page } of parts) page.release();
    }
  }

  /** Drops the collected bytes. */
  close(): void {
    this.#takeCollected();
  }

  /**
   * Closes the connection after a grace period unless cancelled, because a writer waits for a page that is being sent.
   */
  #limitGrace(): () => void {
    return this.#clock.after(POOL_SERVED_GRACE_MS, () => this.#served.close(HELD_UP));
  }

  /** Adds the beginning of a value, which is written together with the value itself. */
  #collect(bytes: Uint8Array): void {
    this.#collected.push(bytes);
    this.#collectedBytes += bytes.length;
  }

  /**
   * Copies the slices from index `from` on, if there is memory for them. Returns a function that releases the memory.
   */
  #copyRest(slices: Uint8Array[][], from: number): (() => void) | undefined {
    const bytes = slices.slice(from).reduce((sum, slice) => sum + bytesOf(slice), 0);
    let isGranted = false;
    const giveBack = this.#budget.take(this.sharer, bytes, () => {
      isGranted = true;
    });
    if (!isGranted) {
      giveBack();
      return undefined;
    }
    for (let i = from; i < slices.length; i++) slices[i] = [Buffer.concat(slices[i] as Uint8Array[])];
    return giveBack;
  }

  /** Writes slice by slice. `onNext` is called before each slice, when the system has taken all earlier ones. */
  async #send(slices: readonly Uint8Array[][], onNext: (index: number) => void): Promise<boolean> {
    for (let i = 0; i < slices.length && !this.#served.isClosed; i++) {
      onNext(i);
      this.#write([...this.#takeCollected(), ...(slices[i] as Uint8Array[])]);
      await this.#served.taken();
    }
    return !this.#served.isClosed;
  }

  #takeCollected(): Uint8Array[] {
    const pieces = this.#collected;
    this.#collected = [];
    this.#collectedBytes = 0;
    return pieces;
  }
}

/** The pieces, with consecutive small ones as one piece. */
function joined(pieces: readonly Uint8Array[]): Uint8Array[] {
  const result: Uint8Array[] = [];
  for (let i = 0; i < pieces.length; ) {
    let end = i;
    while (end < pieces.length && (pieces[end] as Uint8Array).length <= JOINED_MAX_BYTES) end++;
    if (end > i + 1) result.push(Buffer.concat(pieces.slice(i, end)));
    else result.push(pieces[i] as Uint8Array);
    i = Math.max(end, i + 1);
  }
  return result;
}

/**
 * Splits bytes into slices of at least RESP_SLICE_BYTES and less than twice that. Each slice is a list of views, large
 * enough for a socket to report when it has been taken.
 */
function slicesOf(views: readonly Uint8Array[]): Uint8Array[][] {
  const slices: Uint8Array[][] = [[]];
  let leftBytes = bytesOf(views);
  let roomBytes = leftBytes >= 2 * RESP_SLICE_BYTES ? RESP_SLICE_BYTES : leftBytes;
  for (const view of views) {
    for (let at = 0; at < view.length; ) {
      const take = Math.min(roomBytes, view.length - at);
      slices.at(-1)?.push(view.subarray(at, at + take));
      at += take;
      roomBytes -= take;
      leftBytes -= take;
      if (roomBytes > 0 || leftBytes === 0) continue;
      slices.push([]);
      roomBytes = leftBytes >= 2 * RESP_SLICE_BYTES ? RESP_SLICE_BYTES : leftBytes;
    }
  }
  return slices;
}

function bytesOf(views: readonly Uint8Array[]): number {
  return views.reduce((sum, { length }) => sum + length, 0);
}
