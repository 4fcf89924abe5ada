import type { ByteBudget } from '../../base/concurrency/byte-budget.js';
import type { Sharer } from '../../base/concurrency/shares.js';
import type { Clock } from '../../base/environment/clock.js';
import type { Connection } from '../../base/environment/network.js';
import { POOL_SERVED_GRACE_MS, RESP_OUTPUT_MAX_BYTES, RESP_SLICE_BYTES } from '../../base/limits.js';
import type { ServedPage } from '../../pool/published-pool.js';
import { CRLF } from '../wire/resp-answers.js';

export interface RespOutputParts {
  readonly socket: Connection;
  readonly clock: Clock;
  /** Memory for what is left of pages that are wanted while they are sent. */
  readonly budget: ByteBudget;
  /** The connection whose share of it is taken. */
  readonly sharer: Sharer;
  readonly stallTimeoutMs: number;
  /** Called when the client has taken nothing for the time limit, or holds up somebody who sets a page. */
  readonly onStalled: (reason: string) => void;
}

/** A page that is sent from where it lies, and what is sent before it. */
export interface ServedPart {
  readonly head: Buffer;
  readonly page: ServedPage;
}

/** Bytes of small answers that are collected before they are written. */
const COLLECT_MAX_BYTES = 64 * 2 ** 10;
/** Pause before looking again whether the socket has taken what it does not tell of. */
const POLL_MS = 1;

/**
 * The answers to one client, in order. Small ones are collected and written together. Large values are given to the
 * socket slice by slice, each when the one before has been taken by the system: nothing that was not taken is read from
 * any more when the connection is closed.
 */
export class RespOutput {
  readonly #parts: RespOutputParts;
  #collected: Uint8Array[] = [];
  #collectedBytes = 0;
  #onDrained: (() => void)[] = [];
  #isClosed = false;

  constructor(parts: RespOutputParts) {
    this.#parts = parts;
    parts.socket.on('drain', () => this.#drained());
  }

  /** The connection whose share of memory answers take. */
  get sharer(): Sharer {
    return this.#parts.sharer;
  }

  /** Bytes that the client has not taken yet. */
  get waitingBytes(): number {
    return this.#parts.socket.writableLength + this.#collectedBytes;
  }

  /** Whether {@link room} has to wait. */
  get isFull(): boolean {
    return this.waitingBytes > RESP_OUTPUT_MAX_BYTES;
  }

  /** Adds a part of an answer, which must not change any more. */
  add(bytes: Uint8Array): void {
    if (this.#isClosed) return;
    this.#collected.push(bytes);
    this.#collectedBytes += bytes.length;
    if (this.#collectedBytes >= COLLECT_MAX_BYTES) this.flush();
  }

  /** Writes what was collected. */
  flush(): void {
    if (this.#collectedBytes === 0 || this.#isClosed) return;
    const pieces = this.#takeCollected();
    const { socket } = this.#parts;
    const [first] = pieces;
    if (pieces.length === 1 && first !== undefined) {
      socket.write(first);
      return;
    }
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
    if (bytes <= COLLECT_MAX_BYTES) {
      socket.write(Buffer.concat(pieces, bytes));
      return;
    }
    socket.cork();
    for (const piece of pieces) socket.write(piece);
    socket.uncork();
  }

  /** Resolves when little enough waits for the client; false: the connection is closed. */
  async room(): Promise<boolean> {
    if (this.isFull) {
      this.flush();
      if (this.#parts.socket.writableLength > RESP_OUTPUT_MAX_BYTES) await this.#taken();
    }
    return !this.#isClosed;
  }

  /** Sends a value that belongs to the caller until this resolves; false: the connection is closed. */
  sendValue(head: string, value: Uint8Array): Promise<boolean> {
    this.#collect(Buffer.from(head));
    return this.#send(slicesOf([value], value.length), () => {});
  }

  /**
   * Sends a page from where it lies, and releases it as soon as the system has taken all of it, or the connection is
   * closed. If somebody sets the page meanwhile, what is left is copied, so that only the slice under way is waited
   * for.
   */
  async sendServed(head: Buffer, page: ServedPage): Promise<boolean> {
    const { clock, onStalled } = this.#parts;
    const slices = slicesOf(page.views, page.length);
    let cancelGrace = (): void => {};
    let giveBack: (() => void) | undefined;
    let sentCount = 0;
    let isCopied = false;
    page.onWanted = () => {
      giveBack = this.#copyRest(slices, sentCount);
      isCopied = giveBack !== undefined;
      cancelGrace = clock.after(POOL_SERVED_GRACE_MS, () => onStalled('the client holds up a page that is being set'));
    };
    // Somebody may have begun to wait while the page was checked.
    if (page.isWanted) page.onWanted();
    try {
      this.#collect(head);
      return await this.#send(slices, (count) => {
        sentCount = count + 1;
        // What was given to the socket before has been taken by now.
        if (isCopied) page.release();
        if (isCopied) cancelGrace();
      });
    } finally {
      cancelGrace();
      giveBack?.();
      page.release();
    }
  }

  /** {@link sendServed} of several pages that are one slice together. */
  async sendTogether(parts: readonly ServedPart[]): Promise<boolean> {
    const { socket, clock, onStalled } = this.#parts;
    const cancels: (() => void)[] = [];
    for (const { page } of parts) {
      page.onWanted = () => {
        cancels.push(
          clock.after(POOL_SERVED_GRACE_MS, () => onStalled('the client holds up a page that is being set')),
        );
      };
      if (page.isWanted) page.onWanted();
    }
    try {
      if (this.#isClosed) return false;
      socket.cork();
      for (const piece of this.#takeCollected()) socket.write(piece);
      for (const { head, page } of parts) {
        socket.write(head);
        for (const view of page.views) socket.write(view);
        socket.write(CRLF);
      }
      socket.uncork();
      if (socket.writableLength > 0) await this.#taken();
      return !this.#isClosed;
    } finally {
      for (const cancel of cancels) cancel();
      for (const { page } of parts) page.release();
    }
  }

  /** Ends all waiting. Nothing is written any more. */
  close(): void {
    this.#isClosed = true;
    this.#collected = [];
    this.#collectedBytes = 0;
    this.#drained();
  }

  /** Adds the beginning of a value that follows at once, and is written together with it. */
  #collect(bytes: Uint8Array): void {
    this.#collected.push(bytes);
    this.#collectedBytes += bytes.length;
  }

  /** Copies the slices from one on, if there is memory for them; returns a function that gives it back. */
  #copyRest(slices: Uint8Array[][], from: number): (() => void) | undefined {
    const bytes = slices.slice(from).reduce((sum, slice) => sum + bytesOf(slice), 0);
    let isGranted = false;
    const giveBack = this.#parts.budget.take(this.#parts.sharer, bytes, () => {
      isGranted = true;
    });
    if (!isGranted) {
      giveBack();
      return undefined;
    }
    for (let i = from; i < slices.length; i++) slices[i] = [Buffer.concat(slices[i] as Uint8Array[])];
    return giveBack;
  }

  /** Writes slice by slice; `onNext` is called before each slice, when those before it have been taken. */
  async #send(slices: readonly Uint8Array[][], onNext: (index: number) => void): Promise<boolean> {
    const { socket } = this.#parts;
    for (let i = 0; i < slices.length && !this.#isClosed; i++) {
      onNext(i);
      socket.cork();
      for (const piece of this.#takeCollected()) socket.write(piece);
      for (const view of slices[i] as Uint8Array[]) socket.write(view);
      if (i === slices.length - 1) socket.write(CRLF);
      socket.uncork();
      if (socket.writableLength > 0) await this.#taken();
    }
    return !this.#isClosed;
  }

  #takeCollected(): Uint8Array[] {
    const pieces = this.#collected;
    this.#collected = [];
    this.#collectedBytes = 0;
    return pieces;
  }

  /** Resolves when the system has taken everything that was written, or the connection is closed. */
  async #taken(): Promise<void> {
    const { socket, clock, stallTimeoutMs, onStalled } = this.#parts;
    const cancelStall = clock.after(stallTimeoutMs, () => onStalled('the client does not take its answers'));
    while (!this.#isClosed && socket.writableLength > 0) {
      const isTold = socket.writableNeedDrain;
      await new Promise<void>((resolve) => {
        this.#onDrained.push(resolve);
        // A socket tells nothing of writes below its high-water mark.
        if (!isTold) clock.after(POLL_MS, resolve);
      });
    }
    cancelStall();
  }

  #drained(): void {
    for (const resolve of this.#onDrained.splice(0)) resolve();
  }
}

/**
 * Splits bytes into slices of RESP_SLICE_BYTES or more, and less than twice as much. Each is a list of views, and large
 * enough for a socket to tell when it has been taken.
 */
function slicesOf(views: readonly Uint8Array[], totalBytes: number): Uint8Array[][] {
  const slices: Uint8Array[][] = [[]];
  let leftBytes = totalBytes;
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
