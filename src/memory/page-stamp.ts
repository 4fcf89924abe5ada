/**
 * The stamp of a page in a pool. A pool keeps, in place of a page's last STAMP_BYTES bytes, a random number that only
 * the page's location names; the location carries the bytes themselves, the page's *tail*. A reader takes the page's
 * *image*, page and stamp, in one read of the page's own length, compares the stamp, and puts the tail in its place.
 * Freeing a page destroys its stamp first, so that a later read cannot succeed, whatever a directory still says.
 *
 *       page of n >= 6 bytes      image:  bytes 0 to n - 7 of the page | stamp (6 bytes, little endian)
 *       page of n < 6 bytes       image:  stamp (6 bytes); the tail is the whole page
 *
 * Stamps and tails are whole numbers below 2^48, which JavaScript's numbers hold exactly. 0 means no stamp: a page
 * whose location has none is read as it lies there, and a destroyed stamp is 0.
 */
export const STAMP_BYTES = 6;
export const NO_STAMP = 0;

const TWO_TO_32 = 2 ** 32;
const CRC_POLYNOMIAL = 0xedb88320;
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let sum = byte;
  for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ CRC_POLYNOMIAL : sum >>> 1;
  return sum;
});

/** Bytes that a page of `length` bytes takes in its pool, and that a reader reads. */
export function imageBytes(length: number): number {
  return Math.max(length, STAMP_BYTES);
}

/** Reads the number in the `count` bytes (at most STAMP_BYTES) from `at` on, little endian. */
export function readStamp(bytes: Uint8Array, at: number, count = STAMP_BYTES): number {
  let value = 0;
  for (let i = count - 1; i >= 0; i--) value = value * 256 + (bytes[at + i] as number);
  return value;
}

/** Writes the low `count` bytes (at most STAMP_BYTES) of `value` from `at` on, little endian. */
export function writeStamp(bytes: Uint8Array, at: number, value: number, count = STAMP_BYTES): void {
  for (let i = 0, rest = value; i < count; i++, rest = Math.floor(rest / 256)) bytes[at + i] = rest % 256;
}

/**
 * Reads the number in the last STAMP_BYTES of memory that consists of several views; in all bytes if there are fewer.
 */
export function readTail(views: readonly Uint8Array[], length: number): number {
  let value = 0;
  eachTailByte(views, length, (view, at) => {
    value = value * 256 + (view[at] as number);
  });
  return value;
}

/** Writes the number that {@link readTail} reads back. */
export function writeTail(views: readonly Uint8Array[], length: number, tail: number): void {
  const count = Math.min(length, STAMP_BYTES);
  const bytes = new Uint8Array(STAMP_BYTES);
  writeStamp(bytes, 0, tail);
  let left = count;
  eachTailByte(views, length, (view, at) => {
    view[at] = bytes[--left] as number;
  });
}

/** Computes the CRC-32 of the image of a page from its length, checksum, stamp and tail. */
export function imageChecksum({ length, checksum, stamp, tail }: StampedPage): number {
  if (length < STAMP_BYTES) return (feed(0xffffffff, stamp) ^ 0xffffffff) >>> 0;
  // A CRC is linear: if two pages of one length differ only in their last bytes, the checksum of the difference is the
  // difference of the checksums.
  return (checksum ^ feed(0, stamp) ^ feed(0, tail)) >>> 0;
}

export interface StampedPage {
  /** Bytes of the page. */
  readonly length: number;
  /** CRC-32 of the page. */
  readonly checksum: number;
  readonly stamp: number;
  readonly tail: number;
}

function feed(sum: number, value: number): number {
  let crc = sum;
  const low = (value % TWO_TO_32) | 0;
  const high = Math.floor(value / TWO_TO_32);
  for (let shift = 0; shift < 32; shift += 8) crc = step(crc, low >>> shift);
  for (let shift = 0; shift < 16; shift += 8) crc = step(crc, high >>> shift);
  return crc;
}

function step(crc: number, byte: number): number {
  return (crc >>> 8) ^ (CRC_TABLE[(crc ^ byte) & 0xff] as number);
}

/** Calls `use` for each byte of the tail, from the last byte on. */
function eachTailByte(views: readonly Uint8Array[], length: number, use: (view: Uint8Array, at: number) => void): void {
  let left = Math.min(length, STAMP_BYTES);
  for (let v = views.length - 1; v >= 0 && left > 0; v--) {
    const view = views[v] as Uint8Array;
    for (let at = view.length - 1; at >= 0 && left > 0; at--, left--) use(view, at);
  }
}
