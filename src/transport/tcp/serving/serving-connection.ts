import type { Clock } from '../../../base/environment/clock.js';
import type { ClusterSecrets } from '../../../base/environment/credentials.js';
import type { Connection } from '../../../base/environment/network.js';
import type { RandomSource } from '../../../base/environment/random.js';
import { type FrameTags, type SessionTags, TAG_BYTES, tagsUnder } from '../../../memory/frame-tags.js';
import type { AuthFailureReason } from '../../../net/auth-failures.js';
import { ServerOpening } from '../../../net/opening.js';
import type { TcpLimits } from '../protocol/limits.js';
import {
  DATA_HELLO,
  decodeRequestHeader,
  encodeResponseHeader,
  grantOp,
  HEADER_PART,
  OP_BYTES,
  opAddr,
  opLength,
  opPart,
  opRkey,
  opTagAt,
  REQUEST_HEADER_BYTES,
  type RequestHeader,
  setPayloadBytes,
} from '../protocol/protocol.js';
import { SharedCounters } from '../threads/shared-counters.js';
import type { Registration, Registrations } from './registrations.js';

/** Counters of the serving side of a transport, in the order of the numbers in shared memory. */
const NAMES = [
  'servedOps',
  'servedBytes',
  'refusedOps',
  'protocolErrors',
  'refusedConnections',
  'connections',
] as const;

export type ServingCounterName = (typeof NAMES)[number];

/** Counters of one thread that serves. */
export class ServingCounters extends SharedCounters<ServingCounterName> {
  /** Uses existing `memory`, or new counters that are all zero. */
  constructor(memory?: SharedArrayBuffer) {
    super(NAMES, memory);
  }
}

export interface ServingConnectionParts {
  readonly socket: Connection;
  readonly registrations: Registrations;
  readonly counters: ServingCounters;
  readonly limits: TcpLimits;
  readonly clock: Clock;
  readonly random: RandomSource;
  /** Secrets of the cluster; without them there is no authentication. */
  readonly secrets?: ClusterSecrets | undefined;
  /** Most bytes of an answer written at a time; the rest follows when the kernel has taken them. Default: no limit. */
  readonly writeMaxBytes?: number;
  /** The target that readers must name to authenticate with this server. */
  readonly target: string;
  /** Called once the opening has succeeded. */
  onOpen(): void;
  /** Called when the two sides do not share a secret; the connection ends. */
  onUnauthenticated(reason: AuthFailureReason): void;
}

/**
 * Answers to requests that arrived together are written together, up to this many bytes, because a system call costs
 * more than a small answer.
 */
const ANSWERS_TARGET_BYTES = 256 * 1024;
const NO_INPUT = Buffer.alloc(0);

/**
 * The connection of one reader. Requests are answered in order; answers to requests that arrived together are written
 * together. Further requests are parsed only after the kernel has taken all of that, so that a connection never holds
 * more than ANSWERS_TARGET_BYTES of views (or one larger answer) and one received chunk.
 */
export class ServingConnection {
  readonly #parts: ServingConnectionParts;
  readonly #opening: ServerOpening;
  /** Tags of requests and responses; undefined if they have none. */
  #tags: SessionTags | undefined;
  #isDraining = false;
  /** The unwritten rest of the current answer. */
  #rest: Payload | undefined;
  #isFinishing = false;
  /** Bytes received and not parsed yet. */
  #input: Buffer = NO_INPUT;
  /** Bytes written since the socket was corked. */
  #corkedBytes = 0;
  /**
   * Counts not added to the shared counters yet: updating counters shared by two threads costs more than a plain sum.
   */
  readonly #served = { ops: 0, bytes: 0, refusedOps: 0 };
  #cancelDeadline: (() => void) | undefined;
  /** The event that the deadline is for. */
  #awaited: 'frame' | 'drain' | undefined;

  /** Takes over the socket and destroys it when the peer ends, stalls or violates the protocol. */
  constructor(parts: ServingConnectionParts) {
    this.#parts = parts;
    const { socket } = parts;
    const subject = { env: parts, target: parts.target, isEncrypted: () => socket.encrypted === true };
    this.#opening = new ServerOpening(DATA_HELLO, subject, {
      send: (bytes) => socket.write(bytes),
      opened: (_peerHello, keys) => {
        this.#tags = tagsUnder(keys);
        parts.onOpen();
      },
      refused: (reason) => parts.onUnauthenticated(reason),
      // `#parseOpening` sees that the opening has failed and ends the connection.
      foreign: () => {},
    });
    socket.on('data', (chunk: Buffer) => this.#received(chunk));
    socket.on('drain', () => this.#drained());
    socket.on('end', () => this.#ended());
    // The 'close' event follows; a reset by the peer is normal.
    socket.on('error', () => {});
    socket.on('close', () => this.#expect(undefined));
    this.#opening.greet();
    this.#expect('frame');
  }

  /** Answers no further requests. The connection ends when the peer has received the current answer. */
  finish(): void {
    this.#isFinishing = true;
    this.#input = NO_INPUT;
    if (this.#rest === undefined) this.#finishSocket();
  }

  #finishSocket(): void {
    const { socket } = this.#parts;
    if (socket.writableLength === 0) socket.destroy();
    else socket.end(() => socket.destroy());
  }

  #received(chunk: Buffer): void {
    if (this.#isFinishing) return;
    this.#input = this.#input.length === 0 ? chunk : Buffer.concat([this.#input, chunk]);
    this.#parse();
  }

  #drained(): void {
    if (!this.#isDraining) return;
    if (this.#rest !== undefined) {
      this.#write(this.#rest);
      if (this.#isFinishing && this.#rest === undefined) this.#finishSocket();
      if (this.#parts.socket.writableNeedDrain) return;
    }
    if (this.#isFinishing) return;
    this.#isDraining = false;
    this.#parts.socket.resume();
    this.#parse();
  }

  #ended(): void {
    if (this.#input.length > 0 || this.#opening.isWithinGreeting) this.#violated();
    else this.#parts.socket.destroy();
  }

  #parse(): void {
    const { socket } = this.#parts;
    let at = 0;
    let used: number | undefined = 0;
    socket.cork();
    while (!this.#isDraining && !socket.destroyed) {
      used = this.#opening.isOpen ? this.#parseRequest(at) : this.#parseOpening(at);
      if (used === undefined || used === 0) break;
      at += used;
      if (this.#corkedBytes >= ANSWERS_TARGET_BYTES || this.#rest !== undefined) this.#flush();
    }
    this.#corkedBytes = 0;
    this.#countServed();
    socket.uncork();
    if (used === undefined) {
      this.#violated();
      return;
    }
    this.#waitIfFull();
    if (at > 0) this.#input = at === this.#input.length ? NO_INPUT : this.#input.subarray(at);
    const isIdle = this.#opening.isOpen && this.#input.length === 0;
    // A hello and the nonce after it share one deadline.
    this.#expect(this.#isDraining ? 'drain' : isIdle ? undefined : 'frame', at > 0 && !this.#opening.isWithinGreeting);
  }

  /** Adds what has been answered to the shared counters, before the reader can see the answer. */
  #countServed(): void {
    const { counters } = this.#parts;
    counters.add('servedOps', this.#served.ops);
    counters.add('servedBytes', this.#served.bytes);
    counters.add('refusedOps', this.#served.refusedOps);
    this.#served.ops = this.#served.bytes = this.#served.refusedOps = 0;
  }

  /** Passes the written answers to the kernel. */
  #flush(): void {
    const { socket } = this.#parts;
    this.#corkedBytes = 0;
    this.#countServed();
    socket.uncork();
    this.#waitIfFull();
    socket.cork();
  }

  /** Stops receiving until the kernel has taken what was written. */
  #waitIfFull(): void {
    const { socket } = this.#parts;
    const isTaken = socket.writableLength === 0 && this.#rest === undefined;
    // The opening has its own deadline, and its messages always fit.
    if (this.#isDraining || !this.#opening.isOpen || !socket.writableNeedDrain || isTaken) return;
    this.#isDraining = true;
    socket.pause();
  }

  /**
   * Parses a part of the opening. Returns the bytes used, 0 if more are needed, undefined if they violate the protocol.
   */
  #parseOpening(at: number): number | undefined {
    const bytes = this.#input.subarray(at);
    // Wrong bytes are detected at once, so that a client of another protocol does not hold the connection until the
    // deadline.
    this.#opening.examine(bytes);
    const { nextBytes } = this.#opening;
    if (nextBytes === 0) return undefined;
    if (bytes.length < nextBytes) return 0;
    this.#opening.take(bytes.subarray(0, nextBytes));
    return this.#opening.nextBytes > 0 || this.#opening.isOpen ? nextBytes : undefined;
  }

  /** Parses and answers a request. Returns the bytes used, 0 if more are needed, undefined if they are malformed. */
  #parseRequest(at: number): number | undefined {
    const { requestMaxOps: maxOps, readMaxBytes: maxBytes } = this.#parts.limits;
    if (this.#input.length - at < REQUEST_HEADER_BYTES) return 0;
    const header = decodeRequestHeader(this.#input, at, { maxOps, maxBytes });
    if (header === undefined) return undefined;
    const requestBytes = REQUEST_HEADER_BYTES + header.opCount * OP_BYTES;
    const frameBytes = requestBytes + (this.#tags === undefined ? 0 : TAG_BYTES);
    if (this.#input.length - at < frameBytes) return 0;
    const isTagged = this.#isTagged(at, requestBytes);
    return isTagged && this.#serve(header, at + REQUEST_HEADER_BYTES) ? frameBytes : undefined;
  }

  /** Whether the request at `at` has a correct tag, or needs none. */
  #isTagged(at: number, requestBytes: number): boolean {
    const tags = this.#tags?.received;
    if (tags === undefined) return true;
    tags.begin();
    return tags.isTagged(HEADER_PART, this.#input.subarray(at, at + requestBytes + TAG_BYTES));
  }

  /** Answers the request whose operations begin at `opsAt`. False: its lengths do not add up. */
  #serve(request: RequestHeader, opsAt: number): boolean {
    const { socket, registrations } = this.#parts;
    const tags = this.#tags?.sent;
    const header = encodeResponseHeader(request.requestId, request.opCount, { isTagged: tags !== undefined });
    const payload = new Payload();
    tags?.begin();
    let totalBytes = 0;
    let grantedOps = 0;
    const ops = new DataView(this.#input.buffer, this.#input.byteOffset + opsAt, request.opCount * OP_BYTES);
    for (let i = 0; i < request.opCount; i++) {
      const length = opLength(ops, i);
      const addr = opAddr(ops, i);
      totalBytes += length;
      const registration = registrations.find(opRkey(ops, i), addr, length);
      if (registration === undefined) continue;
      grantOp(header, i);
      grantedOps++;
      tags?.beginPart(opPart(i));
      payload.add(registration, { addr, length, tags });
      tags?.endPart(header, opTagAt(i));
    }
    if (totalBytes !== request.totalBytes) return false;
    setPayloadBytes(header, payload.bytes);

    this.#served.ops += grantedOps;
    this.#served.bytes += payload.bytes;
    this.#served.refusedOps += request.opCount - grantedOps;
    tags?.tagPart(HEADER_PART, header);
    socket.write(header);
    this.#write(payload);
    this.#corkedBytes += header.length + payload.bytes;
    return true;
  }

  /** Writes as much as allowed now. The rest follows when the kernel has taken it. */
  #write(payload: Payload): void {
    const { socket, writeMaxBytes = Number.POSITIVE_INFINITY } = this.#parts;
    socket.cork();
    do payload.writeTo(socket, writeMaxBytes);
    while (!payload.isWritten && !socket.writableNeedDrain);
    socket.uncork();
    this.#rest = payload.isWritten ? undefined : payload;
  }

  #violated(): void {
    this.#parts.counters.add('protocolErrors', 1);
    this.#parts.socket.destroy();
  }

  /** Sets the only deadline: for a frame to arrive completely, or for an answer to be received by the peer. */
  #expect(what: 'frame' | 'drain' | undefined, isAnother = false): void {
    if (what === this.#awaited && !isAnother) return;
    this.#awaited = what;
    this.#cancelDeadline?.();
    this.#cancelDeadline = undefined;
    const { limits, clock, socket } = this.#parts;
    if (what === undefined || socket.destroyed) return;
    const delayMs = what === 'frame' ? limits.handshakeTimeoutMs : limits.drainTimeoutMs;
    this.#cancelDeadline = clock.after(delayMs, () => this.#violated());
  }
}

/** The bytes of an answer as pieces of segments; adjacent ranges are one piece. */
class Payload {
  bytes = 0;
  /** Index of the first piece that is not written completely. */
  #next = 0;
  readonly #segments: Uint8Array[] = [];
  readonly #starts: number[] = [];
  readonly #ends: number[] = [];

  /** Adds a range, and its bytes to the part of `tags` that has begun. */
  add(
    registration: Registration,
    { addr, length, tags }: { readonly addr: number; readonly length: number; readonly tags: FrameTags | undefined },
  ): void {
    this.bytes += length;
    let offset = addr - registration.regionStart;
    for (let rest = length; rest > 0; ) {
      const segmentIndex = Math.floor(offset / registration.segmentBytes);
      const segment = registration.segments[segmentIndex] as Uint8Array;
      const start = offset - segmentIndex * registration.segmentBytes;
      const take = Math.min(rest, segment.length - start);
      this.#addPiece(segment, start, start + take);
      tags?.add(segment.subarray(start, start + take));
      offset += take;
      rest -= take;
    }
  }

  get isWritten(): boolean {
    return this.#next === this.#segments.length;
  }

  /** Writes the next pieces, at most `maxBytes` in all. */
  writeTo(socket: Connection, maxBytes: number): void {
    for (let rest = maxBytes; rest > 0 && !this.isWritten; ) {
      const i = this.#next;
      const { buffer, byteOffset } = this.#segments[i] as Uint8Array;
      const start = this.#starts[i] as number;
      const take = Math.min(rest, (this.#ends[i] as number) - start);
      socket.write(Buffer.from(buffer as ArrayBuffer, byteOffset + start, take));
      rest -= take;
      this.#starts[i] = start + take;
      if (start + take === this.#ends[i]) this.#next++;
    }
  }

  #addPiece(segment: Uint8Array, start: number, end: number): void {
    const last = this.#segments.length - 1;
    if (last >= 0 && this.#segments[last] === segment && this.#ends[last] === start) {
      this.#ends[last] = end;
      return;
    }
    this.#segments.push(segment);
    this.#starts.push(start);
    this.#ends.push(end);
  }
}
