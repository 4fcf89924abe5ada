import { Packr, RESERVE_START_SPACE } from 'msgpackr/pack';
import { Unpackr } from 'msgpackr/unpack';
import { ProtocolError } from '../base/errors.js';
import { RPC_MESSAGE_MAX_DEPTH, RPC_MESSAGE_MAX_ELEMENTS } from '../base/limits.js';

/** Most reserved bytes: msgpackr keeps their number in the low byte of its options. */
const RESERVED_MAX_BYTES = 255;

/**
 * msgpack as the control plane uses it: nil, booleans, numbers, text, binary, arrays and maps with text keys. Extension
 * types are not allowed, so that a message can never create an object of a class, a regular expression or a shared
 * reference.
 *
 * It uses the plain entry points of msgpackr. The native string extraction would return slices of larger strings, which
 * keep whole messages in memory for one key.
 */
export class MessageCodec {
  readonly #packr = new Packr({ useRecords: false, encodeUndefinedAsNil: true, int64AsType: 'bigint' });
  readonly #unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: 'bigint' });

  /** Encodes a message after `reservedBytes` (at most 255) that the caller fills in; the caller owns the result. */
  encode(value: unknown, reservedBytes = 0): Buffer {
    if (reservedBytes > RESERVED_MAX_BYTES) throw new RangeError(`${reservedBytes} reserved bytes`);
    return this.#packr.pack(value, RESERVE_START_SPACE | reservedBytes);
  }

  /**
   * Decodes exactly these bytes; maps become plain objects. Binary fields are views of `bytes`: copy them to keep them.
   * Throws {@link ProtocolError} unless `bytes` is one complete message of the types above.
   */
  decode(bytes: Uint8Array): unknown {
    checkMessage(bytes);
    try {
      return this.#unpackr.unpack(bytes);
    } catch (cause) {
      throw new ProtocolError('message: not decodable', { cause });
    }
  }
}

const PROTO = Buffer.from('__proto__');

/**
 * Throws {@link ProtocolError} unless `bytes` is one complete message of the allowed types, within the limits on depth
 * and number of elements. It runs before the decoder, so that the decoder never allocates memory for announced lengths
 * that are not there.
 */
export function checkMessage(bytes: Uint8Array): void {
  new MessageScan(bytes).run();
}

class MessageScan {
  readonly #bytes: Uint8Array;
  #at = 0;
  #elements = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  run(): void {
    this.#value(0);
    if (this.#at !== this.#bytes.length) throw new ProtocolError('message: bytes after its end');
  }

  #value(depth: number): void {
    if (++this.#elements > RPC_MESSAGE_MAX_ELEMENTS) throw new ProtocolError('message: too many elements');
    if (depth > RPC_MESSAGE_MAX_DEPTH) throw new ProtocolError('message: nested too deep');
    const token = this.#uint(1);
    if (token < 0x80 || token >= 0xe0) return;
    if (token < 0x90) this.#map(token & 0x0f, depth);
    else if (token < 0xa0) this.#array(token & 0x0f, depth);
    else if (token < 0xc0) this.#skip(token & 0x1f);
    else this.#marked(token, depth);
  }

  #marked(token: number, depth: number): void {
    switch (token) {
      case 0xc0: // nil
      case 0xc2: // false
      case 0xc3: // true
        return;
      case 0xc4: // binary
      case 0xc5:
      case 0xc6:
        this.#skip(this.#uint(1 << (token - 0xc4)));
        return;
      case 0xca: // floating point
      case 0xcb:
        this.#skip(4 << (token - 0xca));
        return;
      case 0xcc: // unsigned
      case 0xcd:
      case 0xce:
      case 0xcf:
        this.#skip(1 << (token - 0xcc));
        return;
      case 0xd0: // signed
      case 0xd1:
      case 0xd2:
      case 0xd3:
        this.#skip(1 << (token - 0xd0));
        return;
      case 0xd9: // text
      case 0xda:
      case 0xdb:
        this.#skip(this.#uint(1 << (token - 0xd9)));
        return;
      case 0xdc: // array
      case 0xdd:
        this.#array(this.#uint(2 << (token - 0xdc)), depth);
        return;
      case 0xde: // map
      case 0xdf:
        this.#map(this.#uint(2 << (token - 0xde)), depth);
        return;
      default:
        throw new ProtocolError(`message: type 0x${token.toString(16)} is not allowed`);
    }
  }

  #array(count: number, depth: number): void {
    this.#checkCount(count);
    for (let i = 0; i < count; i++) this.#value(depth + 1);
  }

  #map(count: number, depth: number): void {
    this.#checkCount(count * 2);
    for (let i = 0; i < count; i++) {
      this.#key();
      this.#value(depth + 1);
    }
  }

  #key(): void {
    const token = this.#uint(1);
    let length: number;
    if (token >= 0xa0 && token < 0xc0) length = token & 0x1f;
    else if (token === 0xd9) length = this.#uint(1);
    else throw new ProtocolError('message: a map key that is not short text');
    const start = this.#at;
    this.#skip(length);
    if (length === PROTO.length && PROTO.equals(this.#bytes.subarray(start, this.#at))) {
      throw new ProtocolError('message: a map key that is not allowed');
    }
  }

  /** Rejects a count that exceeds the remaining bytes, because each element takes at least one byte. */
  #checkCount(count: number): void {
    if (count > this.#bytes.length - this.#at) throw new ProtocolError('message: truncated');
  }

  #skip(count: number): void {
    if (count > this.#bytes.length - this.#at) throw new ProtocolError('message: truncated');
    this.#at += count;
  }

  /** Reads an unsigned integer, big-endian as in msgpack. */
  #uint(byteCount: number): number {
    const start = this.#at;
    this.#skip(byteCount);
    let value = 0;
    for (let i = start; i < this.#at; i++) value = value * 256 + (this.#bytes[i] as number);
    return value;
  }
}
