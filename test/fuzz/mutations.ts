import type { RandomSource } from '../../src/base/environment/random.js';

const INTERESTING_8 = [0, 1, 0x7f, 0x80, 0xff];
const INTERESTING_32 = [
  0,
  1,
  2,
  0x7f,
  0x80,
  0xff,
  0x100,
  0x3ff,
  0x400,
  0x401,
  0xffff,
  2 ** 24,
  2 ** 31 - 1,
  2 ** 31,
  2 ** 32 - 1,
];

export interface MutationMaterial {
  /** Inputs that pieces may be taken from. */
  readonly pool: readonly Uint8Array[];
  readonly tokens: readonly Uint8Array[];
  readonly maxBytes: number;
}

export function below(random: RandomSource, limit: number): number {
  return random.u32() % Math.max(1, limit);
}

export function oneOf<T>(random: RandomSource, list: readonly T[]): T {
  return list[below(random, list.length)] as T;
}

/** A changed copy of `input`: mostly one change, sometimes several. */
export function mutateBytes(input: Uint8Array, random: RandomSource, material: MutationMaterial): Buffer {
  let bytes: Buffer = Buffer.from(input);
  const changes = 1 << below(random, 4);
  for (let i = 0; i < changes; i++) bytes = changeOnce(bytes, random, material);
  return bytes.length <= material.maxBytes ? bytes : bytes.subarray(0, material.maxBytes);
}

function changeOnce(bytes: Buffer, random: RandomSource, { pool, tokens }: MutationMaterial): Buffer {
  if (bytes.length === 0) return Buffer.from(random.bytes(1 + below(random, 16)));
  const at = below(random, bytes.length);
  const length = pieceLength(random, bytes.length - at);
  switch (below(random, 12)) {
    case 0: // a bit
      bytes[at] = (bytes[at] as number) ^ (1 << below(random, 8));
      return bytes;
    case 1:
      bytes[at] = oneOf(random, INTERESTING_8);
      return bytes;
    case 2:
      bytes[at] = random.u32() & 0xff;
      return bytes;
    case 3: // a number a little off
      bytes[at] = ((bytes[at] as number) + below(random, 17) - 8) & 0xff;
      return bytes;
    case 4: // a length that lies
      return overwritten(bytes, at, number32(random));
    case 5: // cut off
      return bytes.subarray(0, at);
    case 6: // a piece left out
      return Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + length)]);
    case 7: // a piece twice
      return Buffer.concat([bytes.subarray(0, at + length), bytes.subarray(at)]);
    case 8: // a piece many times
      return Buffer.concat([
        bytes,
        ...Array.from({ length: 1 + below(random, 8) }, () => bytes.subarray(at, at + length)),
      ]);
    case 9: // one input's beginning, another one's end
      return spliced(bytes, at, oneOf(random, pool), random);
    case 10:
      return inserted(bytes, at, tokens.length > 0 ? oneOf(random, tokens) : random.bytes(1 + below(random, 8)));
    default:
      return tokens.length > 0 ? overwritten(bytes, at, oneOf(random, tokens)) : inserted(bytes, at, random.bytes(4));
  }
}

/** Short ones more often. */
function pieceLength(random: RandomSource, max: number): number {
  return Math.min(max, 1 + below(random, 1 << (1 + below(random, 8))));
}

function number32(random: RandomSource): Buffer {
  const bytes = Buffer.alloc(oneOf(random, [1, 2, 4, 8]));
  const value = oneOf(random, INTERESTING_32);
  const width = Math.min(4, bytes.length);
  const small = value % 2 ** (8 * width);
  if (random.u32() & 1) bytes.writeUIntLE(small, 0, width);
  else bytes.writeUIntBE(small, bytes.length - width, width);
  return bytes;
}

function overwritten(bytes: Buffer, at: number, piece: Uint8Array): Buffer {
  const room = bytes.length - at;
  bytes.set(piece.subarray(0, room), at);
  return bytes;
}

function inserted(bytes: Buffer, at: number, piece: Uint8Array): Buffer {
  return Buffer.concat([bytes.subarray(0, at), piece, bytes.subarray(at)]);
}

function spliced(bytes: Buffer, at: number, other: Uint8Array, random: RandomSource): Buffer {
  const from = below(random, other.length);
  return Buffer.concat([bytes.subarray(0, at), other.subarray(from)]);
}
