import { STAMP_BYTES } from '../../memory/page-stamp.js';

/** A range of a pool, in bytes from its start. */
export interface PoolRange {
  readonly offset: number;
  readonly length: number;
}

/** The memory of a pool: no page crosses the end of a segment. */
export interface PoolShape {
  readonly capacity: number;
  readonly segmentBytes: number;
}

/** Whether a pool still has a gap of at least `bytes` if these pages stay where they are. */
export function leavesGap(pages: readonly PoolRange[], bytes: number, { capacity, segmentBytes }: PoolShape): boolean {
  const wanted = spaceOf(bytes);
  let takenBytes = 0;
  for (const { length } of pages) takenBytes += spaceOf(length);
  const segmentsCount = Math.ceil(capacity / segmentBytes);
  // The pages and segment ends divide the rest into at most this many gaps, so the longest one is at least as long as
  // the mean.
  if ((capacity - takenBytes) / (pages.length + segmentsCount) >= wanted) return true;
  let startOfGap = 0;
  for (const { offset, length } of [...pages].sort((a, b) => a.offset - b.offset)) {
    if (longestPiece(startOfGap, offset, segmentBytes) >= wanted) return true;
    startOfGap = offset + spaceOf(length);
  }
  return longestPiece(startOfGap, capacity, segmentBytes) >= wanted;
}

/** Bytes that a page of this length takes in a pool with page stamps. */
export function spaceOf(length: number): number {
  return Math.max(length, STAMP_BYTES);
}

/** Length of the longest part of a range within one segment. */
function longestPiece(start: number, end: number, segmentBytes: number): number {
  const nextSegment = (Math.floor(start / segmentBytes) + 1) * segmentBytes;
  if (end <= nextSegment) return end - start;
  const inLast = end - Math.floor(end / segmentBytes) * segmentBytes;
  const hasWhole = end - nextSegment >= segmentBytes;
  return hasWhole ? segmentBytes : Math.max(nextSegment - start, inLast);
}
