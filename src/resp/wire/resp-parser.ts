import { ProtocolError } from '../../base/errors.js';
import {
  RECEIVING_STEP_BYTES,
  RESP_ARGUMENT_COST_BYTES,
  RESP_ARGUMENT_MAX_BYTES,
  RESP_ARGUMENTS_MAX_BYTES,
  RESP_ARGUMENTS_MAX_COUNT,
  RESP_LARGE_ARGUMENT_BYTES,
  RESP_LINE_MAX_BYTES,
  RESP_STRANGER_ARGUMENT_MAX_BYTES,
  RESP_STRANGER_ARGUMENTS_MAX_COUNT,
  RESP_WORDS_FREE_BYTES,
  RESP_WORDS_STEP_BYTES,
} from '../../base/limits.js';
import { roomFor } from '../../net/arrivals.js';
import { isHttpRequest, splitInline } from './inline-command.js';

/** One argument of a command; null if it was dropped on receipt, because there was no memory for it. */
export type RespArgument = Buffer | null;

export interface RespParserParts {
  /** Called with each command, its name first; the arguments belong to the callee. */
  readonly onCommand: (args: RespArgument[]) => void;
  /**
   * Called for a large argument that has not arrived completely with its beginning. Returns false if it is to be
   * dropped on receipt.
   */
  readonly beginLarge: (bytes: number) => boolean;
  /**
   * Asks for memory for `bytes` more bytes of the large argument, as they arrive. `later`: {@link RespParser.resume} is
   * called when there is memory. `drop`: there will be none.
   */
  readonly reserve: (bytes: number) => 'now' | 'later' | 'drop';
  /**
   * Asks for memory for small arguments of a command that has many. The answers mean the same as for `reserve`; small
   * arguments are never dropped.
   */
  readonly reserveWords: (bytes: number) => 'now' | 'later';
  /**
   * Returns a buffer of `bytes` bytes that begins with the contents of `body`, and releases `body`; null if there is no
   * memory.
   */
  readonly grow: (body: Buffer, bytes: number) => Buffer | null;
  /** Whether the client has authenticated itself; other clients may send only short commands. */
  readonly isTrusted: () => boolean;
}

const [ASTERISK, DOLLAR, MINUS, CR, LF, ZERO, NINE] = [0x2a, 0x24, 0x2d, 0x0d, 0x0a, 0x30, 0x39];
/** First byte of a TLS handshake; no command begins with it. */
const TLS_HANDSHAKE = 0x16;
const NO_TLS =
  'this port speaks no TLS: connect without it, or set resp_tls_cert_file and resp_tls_key_file on the node';
/** Most digits of a length or a count; longer numbers are invalid. */
const NUMBER_MAX_DIGITS = 10;
const CRLF_BYTES = 2;
const NOT_A_NUMBER = Number.NaN;

/**
 * Assembles commands from the pieces that a socket delivers: arrays of bulk strings, and typed lines. For anything
 * else, throws a `ProtocolError` with the wording of Redis.
 *
 *       command   * count CR LF, then count times:  $ bytes CR LF  argument  CR LF        or a line of words
 */
export class RespParser {
  readonly #parts: RespParserParts;
  /** Beginning of a line whose end has not arrived. */
  #line: Buffer[] = [];
  #lineBytes = 0;
  #args: RespArgument[] = [];
  #argsBytes = 0;
  /** Arguments of the array that have not arrived yet; 0 when a new command begins. */
  #missing = 0;
  /** Length of the argument that is being received; -1 if its beginning has not arrived. */
  #length = -1;
  /** Memory of the current argument, as far as it was needed; null if it is dropped; undefined if not taken yet. */
  #body: Buffer | null | undefined;
  /** Bytes of the current argument for which memory has been reserved. */
  #reservedBytes = 0;
  /** Bytes for which memory is awaited, for the current argument or for small ones. */
  #wantedBytes = 0;
  #isForWords = false;
  /** Bytes that the small arguments take. */
  #wordsBytes = 0;
  /** Bytes for small arguments for which memory has been reserved. */
  #wordsReservedBytes = RESP_WORDS_FREE_BYTES;
  #filledBytes = 0;
  /** Bytes that arrived before there was memory for an argument. */
  #early: Buffer[] = [];
  #isStopped = false;

  constructor(parts: RespParserParts) {
    this.#parts = parts;
  }

  /** Whether a command has begun and not ended. */
  get isWithinCommand(): boolean {
    return this.#missing > 0 || this.#lineBytes > 0;
  }

  /**
   * Processes a piece, which is valid only during the call. Throws `ProtocolError`; after that, nothing more may be
   * received.
   */
  receive(chunk: Buffer): void {
    if (this.#wantedBytes > 0) {
      this.#early.push(Buffer.from(chunk));
      return;
    }
    for (let at = 0; at < chunk.length && !this.#isStopped; ) {
      if (this.#wantedBytes > 0) {
        this.#early.push(Buffer.from(chunk.subarray(at)));
        return;
      }
      at = this.#length < 0 ? this.#receiveLine(chunk, at) : this.#receiveArgument(chunk, at);
    }
  }

  /** Continues when the memory is available for which `reserve` or `reserveWords` returned `later`. */
  resume(): void {
    if (this.#wantedBytes === 0) return;
    if (this.#isForWords) this.#wordsReservedBytes += this.#wantedBytes;
    else this.#reservedBytes += this.#wantedBytes;
    this.#wantedBytes = 0;
    this.#isForWords = false;
    for (const chunk of this.#early.splice(0)) this.receive(chunk);
  }

  /** Stops passing on commands, and drops what was received. */
  stop(): void {
    this.#isStopped = true;
    this.#args = [];
    this.#body = undefined;
    this.#wantedBytes = 0;
    this.#early = [];
    this.#line = [];
  }

  #receiveLine(chunk: Buffer, at: number): number {
    if (chunk[at] === TLS_HANDSHAKE && this.#lineBytes === 0 && this.#missing === 0) throw new ProtocolError(NO_TLS);
    const end = chunk.indexOf(LF, at);
    if (end < 0) {
      // The piece is copied, because it may be a small part of a large chunk.
      this.#line.push(Buffer.from(chunk.subarray(at)));
      this.#lineBytes += chunk.length - at;
      if (this.#lineBytes > RESP_LINE_MAX_BYTES) throw this.#tooLongLine();
      return chunk.length;
    }
    if (this.#lineBytes > 0) {
      const line = Buffer.concat([...this.#line, chunk.subarray(at, end)]);
      this.#line = [];
      this.#lineBytes = 0;
      this.#handleLine(line, 0, line.length);
    } else {
      this.#handleLine(chunk, at, end);
    }
    return end + 1;
  }

  #tooLongLine(): ProtocolError {
    if (this.#missing > 0) return new ProtocolError('Protocol error: too big bulk count string');
    const isArray = this.#line[0]?.[0] === ASTERISK;
    return new ProtocolError(`Protocol error: too big ${isArray ? 'mbulk count string' : 'inline request'}`);
  }

  /** Handles the line from `start` to `end`, the position of its line feed. */
  #handleLine(bytes: Buffer, start: number, end: number): void {
    if (end - start > RESP_LINE_MAX_BYTES) {
      this.#line = [bytes.subarray(start)];
      throw this.#tooLongLine();
    }
    const last = end > start && bytes[end - 1] === CR ? end - 1 : end;
    const first = bytes[start];
    if (this.#missing > 0) {
      if (first !== DOLLAR) throw new ProtocolError(`Protocol error: expected '$', got '${shownByte(first)}'`);
      this.#beginArgument(numberIn(bytes, start + 1, last));
    } else if (first === ASTERISK) {
      this.#beginArray(numberIn(bytes, start + 1, last));
    } else {
      const words = splitInline(bytes.subarray(start, last));
      if (words === undefined) throw new ProtocolError('Protocol error: unbalanced quotes in request');
      if (isHttpRequest(words)) throw new ProtocolError('this is a port for Redis clients, and this is HTTP');
      if (words.length > 0) this.#parts.onCommand(words);
    }
  }

  #beginArray(count: number): void {
    if (!(count <= RESP_ARGUMENTS_MAX_COUNT)) throw new ProtocolError('Protocol error: invalid multibulk length');
    if (count > RESP_STRANGER_ARGUMENTS_MAX_COUNT && !this.#parts.isTrusted()) {
      throw new ProtocolError('Protocol error: unauthenticated multibulk length');
    }
    // An empty array is not a command, and Redis does not answer it either.
    this.#missing = Math.max(0, count);
  }

  #beginArgument(bytes: number): void {
    if (!(bytes >= 0 && bytes <= RESP_ARGUMENT_MAX_BYTES))
      throw new ProtocolError('Protocol error: invalid bulk length');
    if (bytes > RESP_STRANGER_ARGUMENT_MAX_BYTES && !this.#parts.isTrusted()) {
      throw new ProtocolError('Protocol error: unauthenticated bulk length');
    }
    this.#length = bytes;
    this.#filledBytes = 0;
    this.#body = undefined;
    this.#reservedBytes = 0;
  }

  #receiveArgument(chunk: Buffer, at: number): number {
    const wantedBytes = this.#length + CRLF_BYTES;
    if (this.#filledBytes === 0 && chunk.length - at >= wantedBytes && this.#body === undefined) {
      this.#end(Buffer.from(chunk.subarray(at, at + this.#length)), chunk, at + this.#length);
      return at + wantedBytes;
    }
    if (this.#body === undefined) this.#takeMemory();
    const take = Math.min(this.#length - this.#filledBytes, chunk.length - at);
    if (take > 0) {
      if (!this.#hasMemory(this.#filledBytes + take)) return at;
      this.#body?.set(take === chunk.length ? chunk : chunk.subarray(at, at + take), this.#filledBytes);
      this.#filledBytes += take;
      return at + take;
    }
    return this.#receiveEnd(chunk, at);
  }

  /** Begins an argument that has not arrived completely. */
  #takeMemory(): void {
    if (this.#length <= RESP_LARGE_ARGUMENT_BYTES) {
      this.#body = Buffer.allocUnsafe(this.#length);
      this.#reservedBytes = this.#length;
    } else {
      this.#body = this.#parts.beginLarge(this.#length) ? Buffer.alloc(0) : null;
    }
  }

  /**
   * Makes room for the first `bytes` bytes of the argument, unless it is dropped. Returns false if memory has to be
   * awaited.
   */
  #hasMemory(bytes: number): boolean {
    if (this.#body !== null && bytes > this.#reservedBytes) {
      const wantedBytes = Math.min(this.#length, bytes + RECEIVING_STEP_BYTES) - this.#reservedBytes;
      const answer = this.#parts.reserve(wantedBytes);
      if (answer === 'later') {
        this.#wantedBytes = wantedBytes;
        return false;
      }
      if (answer === 'drop') this.#body = null;
      else this.#reservedBytes += wantedBytes;
    }
    const body = this.#body;
    if (body === null || body === undefined || body.length >= bytes) return true;
    const roomBytes = roomFor(bytes, { roomBytes: body.length, wholeBytes: this.#length });
    this.#body = this.#parts.grow(body, roomBytes);
    return true;
  }

  /** Receives the line end after an argument, which may arrive in two pieces. */
  #receiveEnd(chunk: Buffer, at: number): number {
    const expected = this.#filledBytes === this.#length ? CR : LF;
    if (chunk[at] !== expected) throw new ProtocolError('Protocol error: expected CR LF behind a bulk string');
    this.#filledBytes++;
    if (expected === LF) this.#add(this.#body?.subarray(0, this.#length) ?? null);
    return at + 1;
  }

  #end(argument: Buffer, chunk: Buffer, at: number): void {
    if (chunk[at] !== CR || chunk[at + 1] !== LF) {
      throw new ProtocolError('Protocol error: expected CR LF behind a bulk string');
    }
    this.#add(argument);
  }

  #add(argument: RespArgument): void {
    const isInOwnMemory = this.#body !== undefined && this.#length > RESP_LARGE_ARGUMENT_BYTES;
    this.#args.push(argument);
    this.#length = -1;
    this.#body = undefined;
    this.#wordsBytes += RESP_ARGUMENT_COST_BYTES;
    if (argument !== null && !isInOwnMemory) {
      this.#argsBytes += argument.length;
      this.#wordsBytes += argument.length;
      if (this.#argsBytes > RESP_ARGUMENTS_MAX_BYTES) throw new ProtocolError('Protocol error: too big request');
    }
    if (--this.#missing > 0) {
      this.#reserveWords();
      return;
    }
    const args = this.#args;
    this.#args = [];
    this.#argsBytes = 0;
    this.#wordsBytes = 0;
    this.#wordsReservedBytes = RESP_WORDS_FREE_BYTES;
    this.#parts.onCommand(args);
  }

  /** Reserves memory for the small arguments of a command that has many. */
  #reserveWords(): void {
    if (this.#wordsBytes <= this.#wordsReservedBytes) return;
    if (this.#parts.reserveWords(RESP_WORDS_STEP_BYTES) === 'now') {
      this.#wordsReservedBytes += RESP_WORDS_STEP_BYTES;
      return;
    }
    this.#wantedBytes = RESP_WORDS_STEP_BYTES;
    this.#isForWords = true;
  }
}

/** Returns the whole number between two positions; NaN if there is none. */
function numberIn(bytes: Buffer, start: number, end: number): number {
  const isNegative = bytes[start] === MINUS;
  const from = isNegative ? start + 1 : start;
  if (end <= from || end - from > NUMBER_MAX_DIGITS) return NOT_A_NUMBER;
  let value = 0;
  for (let at = from; at < end; at++) {
    const digit = bytes[at] as number;
    if (digit < ZERO || digit > NINE) return NOT_A_NUMBER;
    value = value * 10 + (digit - ZERO);
  }
  return isNegative ? -value : value;
}

function shownByte(byte: number | undefined): string {
  return byte === undefined || byte < 0x20 || byte > 0x7e ? ' ' : String.fromCharCode(byte);
}
