import { COPY_SLICE_MAX_BYTES } from '../../base/limits.js';

/** A run of the pages of a call; `end` is excluded. */
export interface Slice {
  readonly start: number;
  readonly end: number;
}

/** Splits pages into runs of at most `maxCount` pages and `maxBytes`; a larger page is a run of its own. */
export function* slicesOf(
  pages: readonly { readonly length: number }[],
  { maxBytes = COPY_SLICE_MAX_BYTES, maxCount = Number.POSITIVE_INFINITY } = {},
): Generator<Slice> {
  let start = 0;
  let bytes = 0;
  for (let end = 0; end < pages.length; end++) {
    const length = (pages[end] as { readonly length: number }).length;
    if (end > start && (bytes + length > maxBytes || end - start === maxCount)) {
      yield { start, end };
      start = end;
      bytes = 0;
    }
    bytes += length;
  }
  if (start < pages.length) yield { start, end: pages.length };
}
