import { ProtocolError } from '../../base/errors.js';
import { BodyPages } from './body-pages.js';
import { BodyTexts } from './body-texts.js';

/** Longest text in bytes: the largest number that fits a u16. */
export const TEXT_MAX_BYTES = 0xffff;
/** Bytes of the length field of a text16. */
const LENGTH16_BYTES = 2;

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Reads the body of a frame from start to end; reading beyond the end throws {@link ProtocolError}. */
export class BodyReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  u8(): number {
    return this.#bytes[this.#take(1)] as number;
  }

  u16(): number {
    return this.#bytes.readUInt16LE(this.#take(2));
  }

  u32(): number {
    return this.#bytes.readUInt32LE(this.#take(4));
  }

  /** Reads a number; throws if it is above 2^53. */
  u64(): number {
    return u64At(viewOf(this.#bytes), this.#take(8));
  }

  text16(): string {
    const length = this.u16();
    return utf8(this.#bytes, this.#take(length), length);
  }

  opt16(): string | undefined {
    const isThere = this.u8();
    if (isThere > 1) throw new ProtocolError(`a text that may be left out begins with 0 or 1, got ${isThere}`);
    return isThere === 1 ? this.text16() : undefined;
  }

  /** Reads keys, which are decoded on demand. */
  keys(maxCount: number): BodyTexts {
    const count = this.u32();
    if (count > maxCount) throw new ProtocolError(`${count} keys, allowed are ${maxCount} a request`);
    const lengthsAt = this.#take(2 * count);
    const starts = new Uint32Array(count + 1);
    let at = this.#at;
    for (let i = 0, lengthAt = lengthsAt; i < count; i++, lengthAt += 2) {
      starts[i] = at;
      at += (this.#bytes[lengthAt] as number) + 2 ** 8 * (this.#bytes[lengthAt + 1] as number);
    }
    starts[count] = at;
    this.#take(at - this.#at);
    return new BodyTexts(this.#bytes, { starts, gapBytes: 0 });
  }

  /** Reads and checks `count` text16 values. */
  texts16(count: number): BodyTexts {
    const starts = new Uint32Array(count + 1);
    for (let i = 0; i < count; i++) {
      const length = this.u16();
      starts[i] = this.#take(length);
    }
    starts[count] = this.#at + LENGTH16_BYTES;
    const texts = new BodyTexts(this.#bytes, { starts, gapBytes: LENGTH16_BYTES });
    texts.check(0, count);
    return texts;
  }

  /** Reads the lengths of `count` pages, and the pages after them. */
  pages(count: number): BodyPages {
    const lengthsAt = this.#take(4 * count);
    const starts = new Uint32Array(count + 1);
    const view = viewOf(this.#bytes);
    let at = this.#at;
    for (let i = 0; i < count; i++) {
      const length = view.getUint32(lengthsAt + 4 * i, true);
      if (length === 0) throw new ProtocolError('a page of 0 bytes; 1 or more are allowed');
      starts[i] = this.#take(length);
      at += length;
    }
    starts[count] = at;
    return new BodyPages(this.#bytes, starts);
  }

  /** Returns a view of the next `length` bytes. */
  bytes(length: number): Buffer {
    const at = this.#take(length);
    return this.#bytes.subarray(at, at + length);
  }

  /** Number of bytes that have not been read. */
  get restBytes(): number {
    return this.#bytes.length - this.#at;
  }

  /** Throws if there are bytes left. */
  end(): void {
    if (this.restBytes > 0) throw new ProtocolError(`${this.restBytes} bytes after the end of the body`);
  }

  #take(length: number): number {
    const at = this.#at;
    if (length > this.#bytes.length - at) {
      throw new ProtocolError(`the body ends after ${this.#bytes.length} bytes, ${at + length} or more are needed`);
    }
    this.#at = at + length;
    return at;
  }
}

/** Reads a number of 8 bytes. Throws {@link ProtocolError} if it is above 2^53. */
export function u64At(bytes: DataView, at: number): number {
  const value = bytes.getUint32(at + 4, true) * 2 ** 32 + bytes.getUint32(at, true);
  if (value <= Number.MAX_SAFE_INTEGER) return value;
  throw new ProtocolError(`a number of ${bytes.getBigUint64(at, true)}, above 2^53`);
}

/** Returns the bytes as a DataView, which reads many numbers faster than a buffer. */
export function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

/** Writes the body of a frame, which grows as needed. */
export class BodyWriter {
  #bytes: Buffer;
  #at = 0;

  constructor(expectedBytes = 64) {
    this.#bytes = Buffer.allocUnsafe(expectedBytes);
  }

  u8(value: number): this {
    // Growing replaces the buffer, so room is made before it is used.
    const at = this.#room(1);
    this.#bytes[at] = value;
    return this;
  }

  u16(value: number): this {
    const at = this.#room(2);
    this.#bytes.writeUInt16LE(value, at);
    return this;
  }

  u32(value: number): this {
    const at = this.#room(4);
    this.#bytes.writeUInt32LE(value, at);
    return this;
  }

  u64(value: number): this {
    const at = this.#room(8);
    this.#bytes.writeBigUInt64LE(BigInt(value), at);
    return this;
  }

  /** Writes a text. Throws {@link ProtocolError} if it is too long. */
  text16(text: string): this {
    const bytes = Buffer.from(text);
    if (bytes.length > TEXT_MAX_BYTES) {
      throw new ProtocolError(`a text of ${bytes.length} bytes, allowed are ${TEXT_MAX_BYTES}`);
    }
    return this.u16(bytes.length).bytes(bytes);
  }

  opt16(text: string | undefined): this {
    return text === undefined ? this.u8(0) : this.u8(1).text16(text);
  }

  /** Writes keys. Throws {@link ProtocolError} for a key that is too long. */
  keys(keys: readonly string[]): this {
    this.u32(keys.length);
    const lengthsAt = this.#room(2 * keys.length);
    keys.forEach((key, i) => {
      const length = Buffer.byteLength(key);
      if (length > TEXT_MAX_BYTES) {
        throw new ProtocolError(`a key of ${length} bytes, allowed are ${TEXT_MAX_BYTES}`);
      }
      const at = this.#room(length);
      this.#bytes.writeUInt16LE(length, lengthsAt + 2 * i);
      this.#bytes.write(key, at);
    });
    return this;
  }

  /** Writes a copy of the bytes. */
  bytes(bytes: Uint8Array): this {
    const at = this.#room(bytes.length);
    this.#bytes.set(bytes, at);
    return this;
  }

  /** Returns the written bytes as a view. Nothing may be written afterwards. */
  done(): Buffer {
    return this.#bytes.subarray(0, this.#at);
  }

  #room(length: number): number {
    const at = this.#at;
    const end = at + length;
    if (end > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(end, 2 * this.#bytes.length));
      this.#bytes.copy(larger, 0, 0, at);
      this.#bytes = larger;
    }
    this.#at = end;
    return at;
  }
}

function utf8(bytes: Buffer, at: number, length: number): string {
  try {
    return decoder.decode(bytes.subarray(at, at + length));
  } catch (cause) {
    throw new ProtocolError('a text that is not UTF-8', { cause });
  }
}
