/**
 * XXH64 and XXH3-128 (seed 0, default secret), after the published specification of xxHash. All nodes and languages
 * must compute the same hashes: these functions are part of the wire contract.
 */

const PRIME32_1: u64 = 0x9e3779b1;
const PRIME32_2: u64 = 0x85ebca77;
const PRIME32_3: u64 = 0xc2b2ae3d;
const PRIME64_1: u64 = 0x9e3779b185ebca87;
const PRIME64_2: u64 = 0xc2b2ae3d27d4eb4f;
const PRIME64_3: u64 = 0x165667b19e3779f9;
const PRIME64_4: u64 = 0x85ebca77c2b2ae63;
const PRIME64_5: u64 = 0x27d4eb2f165667c5;
const PRIME_MX1: u64 = 0x165667919e3779f9;
const PRIME_MX2: u64 = 0x9fb21c651e98df25;

/** XXH3's default secret, 192 bytes. */
// biome-ignore format: the table of the specification
const SECRET: usize = memory.data<u8>([
  0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb,
  0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
  0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
  0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
  0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
  0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
  0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc,
  0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
]);

/** Accumulators of long inputs: eight u64. */
const ACCUMULATORS: usize = memory.data(64, 8);

/** The two halves of the last `xxh3`; read them before the next call. */
export let digestLow: u64 = 0;
export let digestHigh: u64 = 0;

// @ts-ignore: decorator
@inline
function read64(at: usize): u64 {
  return load<u64>(at);
}

// @ts-ignore: decorator
@inline
function read32(at: usize): u64 {
  return <u64>load<u32>(at);
}

// @ts-ignore: decorator
@inline
function secret64(offset: usize): u64 {
  return load<u64>(SECRET + offset);
}

// @ts-ignore: decorator
@inline
function avalanche64(hash: u64): u64 {
  hash = (hash ^ (hash >> 33)) * PRIME64_2;
  hash = (hash ^ (hash >> 29)) * PRIME64_3;
  return hash ^ (hash >> 32);
}

// @ts-ignore: decorator
@inline
function round64(accumulator: u64, lane: u64): u64 {
  return rotl<u64>(accumulator + lane * PRIME64_2, 31) * PRIME64_1;
}

// @ts-ignore: decorator
@inline
function merge64(hash: u64, accumulator: u64): u64 {
  return (hash ^ round64(0, accumulator)) * PRIME64_1 + PRIME64_4;
}

/** XXH64 of `bytes` bytes. */
export function xxh64(at: usize, bytes: usize, seed: u64): u64 {
  const end = at + bytes;
  let hash: u64;
  if (bytes >= 32) {
    let a = seed + PRIME64_1 + PRIME64_2;
    let b = seed + PRIME64_2;
    let c = seed;
    let d = seed - PRIME64_1;
    const last = end - 32;
    do {
      a = round64(a, read64(at));
      b = round64(b, read64(at + 8));
      c = round64(c, read64(at + 16));
      d = round64(d, read64(at + 24));
      at += 32;
    } while (at <= last);
    hash = rotl<u64>(a, 1) + rotl<u64>(b, 7) + rotl<u64>(c, 12) + rotl<u64>(d, 18);
    hash = merge64(merge64(merge64(merge64(hash, a), b), c), d);
  } else {
    hash = seed + PRIME64_5;
  }
  hash += <u64>bytes;
  while (at + 8 <= end) {
    hash = rotl<u64>(hash ^ round64(0, read64(at)), 27) * PRIME64_1 + PRIME64_4;
    at += 8;
  }
  if (at + 4 <= end) {
    hash = rotl<u64>(hash ^ (read32(at) * PRIME64_1), 23) * PRIME64_2 + PRIME64_3;
    at += 4;
  }
  while (at < end) {
    hash = rotl<u64>(hash ^ (<u64>load<u8>(at) * PRIME64_5), 11) * PRIME64_1;
    at++;
  }
  return avalanche64(hash);
}

/** High half of the 128-bit product. */
// @ts-ignore: decorator
@inline
function multiplyHigh(a: u64, b: u64): u64 {
  const aLow = a & 0xffffffff;
  const aHigh = a >> 32;
  const bLow = b & 0xffffffff;
  const bHigh = b >> 32;
  const middle = aHigh * bLow + ((aLow * bLow) >> 32);
  const cross = aLow * bHigh + (middle & 0xffffffff);
  return aHigh * bHigh + (middle >> 32) + (cross >> 32);
}

// @ts-ignore: decorator
@inline
function fold(a: u64, b: u64): u64 {
  return (a * b) ^ multiplyHigh(a, b);
}

// @ts-ignore: decorator
@inline
function avalanche3(hash: u64): u64 {
  hash = (hash ^ (hash >> 37)) * PRIME_MX1;
  return hash ^ (hash >> 32);
}

// @ts-ignore: decorator
@inline
function mix16(at: usize, secret: usize): u64 {
  return fold(read64(at) ^ secret64(secret), read64(at + 8) ^ secret64(secret + 8));
}

/** XXH3-128 of `bytes` bytes, into {@link digestLow} and {@link digestHigh}. */
export function xxh3(at: usize, bytes: usize): void {
  if (bytes > 240) return hashLong(at, bytes);
  if (bytes > 128) return hash129To240(at, bytes);
  if (bytes > 16) return hash17To128(at, bytes);
  if (bytes > 8) return hash9To16(at, bytes);
  if (bytes >= 4) return hash4To8(at, bytes);
  if (bytes > 0) return hash1To3(at, bytes);
  digestLow = avalanche64(secret64(64) ^ secret64(72));
  digestHigh = avalanche64(secret64(80) ^ secret64(88));
}

function hash1To3(at: usize, bytes: usize): void {
  const first = <u32>load<u8>(at);
  const middle = <u32>load<u8>(at + (bytes >> 1));
  const last = <u32>load<u8>(at + bytes - 1);
  const low = (first << 16) | (middle << 24) | last | (<u32>bytes << 8);
  const high = rotl<u32>(bswap<u32>(low), 13);
  digestLow = avalanche64(<u64>low ^ (read32(SECRET) ^ read32(SECRET + 4)));
  digestHigh = avalanche64(<u64>high ^ (read32(SECRET + 8) ^ read32(SECRET + 12)));
}

function hash4To8(at: usize, bytes: usize): void {
  const input = read32(at) + (read32(at + bytes - 4) << 32);
  const keyed = input ^ (secret64(16) ^ secret64(24));
  const factor = PRIME64_1 + (<u64>bytes << 2);
  let low = keyed * factor;
  const high = multiplyHigh(keyed, factor) + (low << 1);
  low ^= high >> 3;
  low = (low ^ (low >> 35)) * PRIME_MX2;
  digestLow = low ^ (low >> 28);
  digestHigh = avalanche3(high);
}

function hash9To16(at: usize, bytes: usize): void {
  const flipLow = secret64(32) ^ secret64(40);
  const flipHigh = secret64(48) ^ secret64(56);
  const first = read64(at);
  let last = read64(at + bytes - 8);
  const keyed = first ^ last ^ flipLow;
  let low = keyed * PRIME64_1 + ((<u64>bytes - 1) << 54);
  let high = multiplyHigh(keyed, PRIME64_1);
  last ^= flipHigh;
  high += last + (last & 0xffffffff) * (PRIME32_2 - 1);
  low ^= bswap<u64>(high);
  digestLow = avalanche3(low * PRIME64_2);
  digestHigh = avalanche3(multiplyHigh(low, PRIME64_2) + high * PRIME64_2);
}

function hash17To128(at: usize, bytes: usize): void {
  let low = <u64>bytes * PRIME64_1;
  let high: u64 = 0;
  for (let i = (<i32>bytes - 1) >> 5; i >= 0; i--) {
    const front = at + (<usize>i << 4);
    const back = at + bytes - 16 - (<usize>i << 4);
    const secret = <usize>i << 5;
    low = (low + mix16(front, secret)) ^ (read64(back) + read64(back + 8));
    high = (high + mix16(back, secret + 16)) ^ (read64(front) + read64(front + 8));
  }
  finishMiddle(low, high, bytes);
}

function hash129To240(at: usize, bytes: usize): void {
  let low = <u64>bytes * PRIME64_1;
  let high: u64 = 0;
  for (let i: usize = 0; i < 128; i += 32) {
    const pair = at + i;
    low = (low + mix16(pair, i)) ^ (read64(pair + 16) + read64(pair + 24));
    high = (high + mix16(pair + 16, i + 16)) ^ (read64(pair) + read64(pair + 8));
  }
  low = avalanche3(low);
  high = avalanche3(high);
  for (let i: usize = 128; i + 32 <= bytes; i += 32) {
    const pair = at + i;
    const secret = i - 125;
    low = (low + mix16(pair, secret)) ^ (read64(pair + 16) + read64(pair + 24));
    high = (high + mix16(pair + 16, secret + 16)) ^ (read64(pair) + read64(pair + 8));
  }
  const back = at + bytes - 16;
  const front = at + bytes - 32;
  low = (low + mix16(back, 103)) ^ (read64(front) + read64(front + 8));
  high = (high + mix16(front, 119)) ^ (read64(back) + read64(back + 8));
  finishMiddle(low, high, bytes);
}

// @ts-ignore: decorator
@inline
function finishMiddle(low: u64, high: u64, bytes: usize): void {
  digestLow = avalanche3(low + high);
  digestHigh = 0 - avalanche3(low * PRIME64_1 + high * PRIME64_4 + <u64>bytes * PRIME64_2);
}

function hashLong(at: usize, bytes: usize): void {
  store<u64>(ACCUMULATORS, PRIME32_3);
  store<u64>(ACCUMULATORS, PRIME64_1, 8);
  store<u64>(ACCUMULATORS, PRIME64_2, 16);
  store<u64>(ACCUMULATORS, PRIME64_3, 24);
  store<u64>(ACCUMULATORS, PRIME64_4, 32);
  store<u64>(ACCUMULATORS, PRIME32_2, 40);
  store<u64>(ACCUMULATORS, PRIME64_5, 48);
  store<u64>(ACCUMULATORS, PRIME32_1, 56);
  const stripes = (bytes - 1) >> 6;
  for (let i: usize = 0; i < stripes; i++) {
    const inBlock = i & 15;
    accumulate(at + (i << 6), inBlock << 3);
    if (inBlock == 15) scramble();
  }
  accumulate(at + bytes - 64, 121);
  digestLow = mergeAccumulators(11, <u64>bytes * PRIME64_1);
  digestHigh = mergeAccumulators(117, ~(<u64>bytes * PRIME64_2));
}

function accumulate(at: usize, secret: usize): void {
  for (let i: usize = 0; i < 64; i += 8) {
    const value = read64(at + i);
    const keyed = value ^ secret64(secret + i);
    const neighbour = ACCUMULATORS + (i ^ 8);
    store<u64>(neighbour, read64(neighbour) + value);
    const own = ACCUMULATORS + i;
    store<u64>(own, read64(own) + (keyed & 0xffffffff) * (keyed >> 32));
  }
}

function scramble(): void {
  for (let i: usize = 0; i < 64; i += 8) {
    const accumulator = read64(ACCUMULATORS + i);
    store<u64>(ACCUMULATORS + i, (accumulator ^ (accumulator >> 47) ^ secret64(128 + i)) * PRIME32_1);
  }
}

function mergeAccumulators(secret: usize, start: u64): u64 {
  let hash = start;
  for (let i: usize = 0; i < 64; i += 16) {
    hash += fold(read64(ACCUMULATORS + i) ^ secret64(secret + i), read64(ACCUMULATORS + i + 8) ^ secret64(secret + i + 8));
  }
  return avalanche3(hash);
}
