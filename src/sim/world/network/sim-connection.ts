import { EventEmitter } from 'node:events';
import type { Connection, ReceiveInto } from '../../../base/environment/network.js';
import { systemError } from '../kernel/system-error.js';
import type { HostNetwork, NetworkProcess } from './host-network.js';
import { type Burst, type Stream, type StreamEnd, splitAt } from './stream.js';

/** High-water mark of streams in Node 20, used on every version of Node. */
const HIGH_WATER_MARK_BYTES = 16 * 1024;

interface ConnectionParts {
  readonly process: NetworkProcess;
  readonly network: HostNetwork;
  /** Address of the peer; undefined for a Unix socket. */
  readonly remote: { readonly address: string; readonly port: number } | undefined;
  readonly onread?: ReceiveInto | undefined;
  /** Milliseconds of silence after which the peer is probed; undefined: never. */
  readonly keepAliveMs?: number | undefined;
  readonly splitProbability: number;
}

/** One end of a simulated connection, which behaves like a `net.Socket`. */
export class SimConnection extends EventEmitter implements Connection, StreamEnd {
  readonly process: NetworkProcess;
  readonly network: HostNetwork;
  readonly keepAliveMs: number | undefined;
  readonly #remote: ConnectionParts['remote'];
  readonly #splitProbability: number;
  readonly #onread: ReceiveInto | undefined;
  #target: Uint8Array | undefined;
  #outgoing: Stream | undefined;
  #incoming: Stream | undefined;
  /** Data written before the connection was established. */
  #early: Uint8Array[] = [];
  #earlyBytes = 0;
  /** Data written since the connection was corked. */
  #corked: Uint8Array[] = [];
  #corkedBytes = 0;
  #corks = 0;
  #bytesWritten = 0;
  #needsDrain = false;
  /** Whether the program knows that the connection is open. */
  #isOpen = false;
  #isFlowing: boolean | undefined;
  #isHandingOver = false;
  #isFlowDue = false;
  /** Number of bytes of the first burst that were delivered. */
  #handedBytes = 0;
  #hasPeerEnded = false;
  #resetCode: string | undefined;
  #isEnding = false;
  #hasFinished = false;
  #endsWhenFinished = false;
  #onFinished: (() => void)[] = [];
  #isDestroyed = false;
  readonly #flowNow = (): void => this.#flow();

  constructor(parts: ConnectionParts) {
    super();
    this.process = parts.process;
    this.network = parts.network;
    this.keepAliveMs = parts.keepAliveMs;
    this.#remote = parts.remote;
    this.#splitProbability = parts.splitProbability;
    this.#onread = parts.onread;
    this.#target = parts.onread?.buffer();
    this.network.connections.add(this);
    this.process.connections.add(this);
  }

  get remoteAddress(): string | undefined {
    return this.#isDestroyed ? undefined : this.#remote?.address;
  }

  get remotePort(): number | undefined {
    return this.#isDestroyed ? undefined : this.#remote?.port;
  }

  /** Network of the other end; undefined while it is not connected. */
  get peerNetwork(): HostNetwork | undefined {
    return this.#outgoing?.link.to;
  }

  /** The other end; undefined while it is not connected. */
  get peer(): SimConnection | undefined {
    return this.#outgoing?.receiver as SimConnection | undefined;
  }

  get outgoing(): Stream | undefined {
    return this.#outgoing;
  }

  get incoming(): Stream | undefined {
    return this.#incoming;
  }

  /** Whether the other end is gone, even if nothing has told this end so. */
  get isPeerGone(): boolean {
    return this.#outgoing?.receiver.isGone === true;
  }

  get destroyed(): boolean {
    return this.#isDestroyed;
  }

  get isGone(): boolean {
    return this.#isDestroyed;
  }

  get writableLength(): number {
    if (this.#isDestroyed) return 0;
    return this.#corkedBytes + this.#earlyBytes + (this.#outgoing?.queuedBytes ?? 0);
  }

  get writableNeedDrain(): boolean {
    return this.#needsDrain && !this.#isDestroyed;
  }

  get writableEnded(): boolean {
    return this.#isEnding;
  }

  get bytesWritten(): number {
    return this.#bytesWritten;
  }

  override on(event: string, listener: (...values: never[]) => void): this {
    super.on(event, listener as (...values: unknown[]) => void);
    if (event === 'data' && this.#isFlowing === undefined) this.resume();
    return this;
  }

  write(bytes: Uint8Array): boolean {
    if (this.#isDestroyed) return false;
    if (this.#isEnding) {
      this.#destroy(systemError('ERR_STREAM_WRITE_AFTER_END', 'write after end'));
      return false;
    }
    this.#bytesWritten += bytes.length;
    if (this.#corks > 0) {
      this.#corked.push(bytes);
      this.#corkedBytes += bytes.length;
    } else {
      this.#send(bytes);
    }
    if (this.writableLength >= HIGH_WATER_MARK_BYTES) this.#needsDrain = true;
    return !this.#needsDrain;
  }

  cork(): void {
    this.#corks++;
  }

  uncork(): void {
    if (this.#corks === 0 || --this.#corks > 0) return;
    this.#flushCorked();
  }

  pause(): this {
    this.#isFlowing = false;
    return this;
  }

  resume(): this {
    this.#isFlowing = true;
    this.#flowSoon();
    return this;
  }

  isPaused(): boolean {
    return this.#isFlowing === false;
  }

  end(last?: Uint8Array | (() => void)): this {
    if (this.#isDestroyed) return this;
    if (typeof last === 'function') this.#onFinished.push(last);
    else if (last !== undefined && !this.#isEnding) this.write(last);
    if (this.#isEnding || this.#isDestroyed) return this;
    this.#corks = 0;
    this.#flushCorked();
    this.#isEnding = true;
    this.#afterSending();
    return this;
  }

  destroy(): this {
    this.#destroy(undefined);
    return this;
  }

  destroySoon(): void {
    this.end();
    if (this.#hasFinished) this.destroy();
    else this.#endsWhenFinished = true;
  }

  resetAndDestroy(): this {
    if (!this.#isDestroyed) this.#outgoing?.reset();
    return this.destroy();
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  /** Establishes the connection in the kernel; {@link opened} tells the program. */
  established(outgoing: Stream, incoming: Stream): void {
    this.#outgoing = outgoing;
    this.#incoming = incoming;
    const early = this.#early;
    this.#early = [];
    this.#earlyBytes = 0;
    for (const bytes of early) outgoing.write(bytes);
  }

  /** Tells the program that the connection is open; must run in its process. */
  opened(event?: 'connect'): void {
    this.#isOpen = true;
    this.#afterSending();
    if (event !== undefined) this.emit(event);
    this.#flow();
  }

  /** Ends a connection that could not be established. */
  failedToConnect(error: NodeJS.ErrnoException): void {
    this.#destroy(error);
  }

  taken(): void {
    this.process.enter('taken', () => {
      this.#drained();
      this.#finishWhenSent();
    });
  }

  arrived(): void {
    if (!this.#isOpen || this.#isFlowDue || !this.#mayHandOver()) return;
    this.#isFlowDue = true;
    this.process.enter('readable', this.#flowNow);
  }

  wasReset(): void {
    if (this.#isDestroyed || this.#resetCode !== undefined) return;
    this.#resetCode = this.#hasPeerEnded ? 'EPIPE' : 'ECONNRESET';
    const wasWriting = this.#isOpen && this.writableLength > this.#corkedBytes;
    this.#outgoing?.silence();
    if (wasWriting) {
      this.failed(this.#resetCode);
      return;
    }
    if (!this.#isOpen || this.#isFlowDue || !this.#isReading) return;
    this.#isFlowDue = true;
    this.process.enter('readable', this.#flowNow);
  }

  failed(code: string): void {
    this.process.enter('failed', () => this.#destroy(systemError(code, `read ${code}`, { syscall: 'read' })));
  }

  /** Stops, or resumes, all arrivals in both directions. */
  setStalled(isStalled: boolean): void {
    if (this.#outgoing !== undefined) this.#outgoing.isStalled = isStalled;
    if (this.#incoming !== undefined) this.#incoming.isStalled = isStalled;
  }

  /** Resets both ends once `bytes` more bytes have arrived at one of them; 0: now. */
  cutAfter(bytes: number): void {
    if (bytes === 0) this.#outgoing?.cut();
    this.#outgoing?.cutAfter(bytes);
    this.#incoming?.cutAfter(bytes);
  }

  /** Closes the connection of a process that has died. */
  closedByKernel(): void {
    this.removeAllListeners();
    this.#close();
  }

  /** Ends the connection of a host that is gone; the peer is not informed. */
  vanished(): void {
    this.removeAllListeners();
    this.#isDestroyed = true;
    this.#outgoing?.silence();
    this.#forget();
  }

  #send(bytes: Uint8Array): void {
    if (this.#outgoing === undefined) {
      this.#early.push(bytes);
      this.#earlyBytes += bytes.length;
    } else if (this.#resetCode !== undefined) {
      this.#destroy(systemError(this.#resetCode, `write ${this.#resetCode}`, { syscall: 'write' }));
    } else {
      this.#outgoing.write(bytes);
    }
  }

  #flushCorked(): void {
    const corked = this.#corked;
    this.#corked = [];
    this.#corkedBytes = 0;
    if (this.#isDestroyed) return;
    for (const bytes of corked) this.#send(bytes);
    this.#afterSending();
  }

  /** Emits 'drain', and finishes an end, once the system has taken all data. */
  #afterSending(): void {
    if (this.#isDestroyed || !this.#isOpen || this.writableLength > 0) return;
    if (this.#needsDrain) this.process.schedule('drain', () => this.#drained());
    this.#finishWhenSent();
  }

  #drained(): void {
    if (!this.#needsDrain || this.#isEnding || this.#isDestroyed || this.writableLength > 0) return;
    this.#needsDrain = false;
    this.emit('drain');
  }

  #finishWhenSent(): void {
    if (!this.#isEnding || this.#hasFinished || this.#isDestroyed || !this.#isOpen || this.writableLength > 0) return;
    this.#hasFinished = true;
    this.#outgoing?.end();
    this.process.schedule('finish', () => this.#finished());
  }

  #finished(): void {
    for (const onFinished of this.#onFinished.splice(0)) onFinished();
    if (this.#endsWhenFinished || this.#hasPeerEnded) this.destroy();
  }

  #flowSoon(): void {
    const hasMore = this.#resetCode !== undefined || (this.#incoming?.inbox.length ?? 0) > 0;
    if (!this.#isOpen || this.#isDestroyed || this.#isFlowDue || !hasMore) return;
    this.#isFlowDue = true;
    this.process.schedule('readable', this.#flowNow);
  }

  /** Whether Node reads from the system, if necessary into its own buffer, so that it notices a reset at once. */
  get #isReading(): boolean {
    if (this.#isFlowing === true) return true;
    if (this.#onread !== undefined) return this.#isFlowing !== false;
    return this.#waitingBytes() < HIGH_WATER_MARK_BYTES;
  }

  /** Delivers the data that has arrived. */
  #flow(): void {
    this.#isFlowDue = false;
    if (this.#isHandingOver) return;
    const hadBytes = this.#waitingBytes() > 0;
    this.#isHandingOver = true;
    try {
      while (this.#mayHandOver()) this.#handOverFirst();
    } finally {
      this.#isHandingOver = false;
    }
    if (this.#resetCode === undefined || this.#isDestroyed || !this.#isReading) return;
    // Bytes and a reset that are found together look like bytes and an end.
    if (hadBytes && this.#waitingBytes() === 0) this.#peerEnded();
    else this.#destroy(systemError(this.#resetCode, `read ${this.#resetCode}`, { syscall: 'read' }));
  }

  #waitingBytes(): number {
    let bytes = -this.#handedBytes;
    for (const burst of this.#incoming?.inbox ?? []) bytes += burst.lengthBytes;
    return bytes;
  }

  #mayHandOver(): boolean {
    const first = this.#incoming?.inbox[0];
    if (first === undefined || this.#isDestroyed) return false;
    if (this.#onread !== undefined) return this.#isFlowing !== false;
    // Even a program that does not read notices an end without data before it.
    return this.#isFlowing === true || this.#handedBytes === first.lengthBytes;
  }

  #handOverFirst(): void {
    const incoming = this.#incoming as Stream;
    const burst = incoming.inbox[0] as Burst;
    if (this.#handedBytes < burst.lengthBytes) {
      if (this.#onread === undefined) this.#handOver(burst, incoming);
      else this.#receiveInto(this.#onread, burst);
    }
    // Even a program that has paused meanwhile is told of the end, because no data is left before it.
    if (this.#isDestroyed || this.#handedBytes < burst.lengthBytes) return;
    this.#handedBytes = 0;
    incoming.consumed();
    if (burst.isEnd) this.#peerEnded();
  }

  #handOver(burst: Burst, incoming: Stream): void {
    const from = this.#handedBytes;
    const restBytes = burst.lengthBytes - from;
    const split = from === 0 ? splitAt(incoming.link, restBytes, this.#splitProbability) : 0;
    this.#handedBytes += split === 0 ? restBytes : split;
    const isComplete = from === 0 && this.#handedBytes === burst.bytes.length;
    this.emit('data', isComplete ? burst.bytes : burst.bytes.subarray(from, this.#handedBytes));
  }

  #receiveInto({ buffer, callback }: ReceiveInto, burst: Burst): void {
    const target = this.#target as Uint8Array;
    const count = Math.min(target.length, burst.lengthBytes - this.#handedBytes);
    target.set(burst.bytes.subarray(this.#handedBytes, this.#handedBytes + count));
    this.#handedBytes += count;
    if (callback(count, target) === false) this.#isFlowing = false;
    this.#target = buffer();
  }

  #peerEnded(): void {
    this.#hasPeerEnded = true;
    this.emit('end');
    if (this.#isDestroyed) return;
    if (this.#hasFinished) this.destroy();
    else this.end();
  }

  #destroy(error: NodeJS.ErrnoException | undefined): void {
    if (this.#isDestroyed) return;
    this.#close();
    this.process.schedule('close', () => {
      if (error !== undefined) this.emit('error', error);
      this.emit('close');
      this.removeAllListeners();
    });
  }

  #close(): void {
    if (this.#isDestroyed) return;
    this.#isDestroyed = true;
    this.#onFinished = [];
    this.#early = [];
    this.#corked = [];
    // Closing a connection with unread data resets it.
    const hasUnread = this.#incoming?.inbox.some((burst) => burst.lengthBytes > 0) === true;
    if (hasUnread) this.#outgoing?.reset();
    else this.#outgoing?.abandon();
    this.#forget();
  }

  #forget(): void {
    this.#incoming?.inbox.splice(0);
    this.network.connections.delete(this);
    this.process.connections.delete(this);
  }
}
