/** Length of the first window; each further one is twice as long. */
const FIRST_WINDOW_COUNT = 4;

/**
 * Looks for pages that form a chain, in growing windows: from the first page on as far as all of a window are found;
 * or, when the first is missing, from the last one back. So a chain that is not there costs two looks, and pages behind
 * a gap are not looked for. `look` says which pages of a window it has found, and may be given fewer than it could
 * take; `windowMaxCount` says how many from an index on.
 */
export async function searchChain(
  count: number,
  look: (indices: readonly number[]) => Promise<readonly boolean[]>,
  windowMaxCount: (index: number, step: 1 | -1) => number,
): Promise<void> {
  if (count === 0) return;
  if ((await look([0]))[0] === true) return follow(1, count, 1, look, windowMaxCount);
  if (count > 1 && (await look([count - 1]))[0] === true) return follow(count - 2, 0, -1, look, windowMaxCount);
}

/** Looks from `start` on towards `end`, until a page of a window is missing. */
async function follow(
  start: number,
  end: number,
  step: 1 | -1,
  look: (indices: readonly number[]) => Promise<readonly boolean[]>,
  windowMaxCount: (index: number, step: 1 | -1) => number,
): Promise<void> {
  const left = (at: number): number => (step === 1 ? end - at : at - end);
  let windowCount = FIRST_WINDOW_COUNT;
  for (let at = start; left(at) > 0; ) {
    const length = Math.max(1, Math.min(windowCount, left(at), windowMaxCount(at, step)));
    const found = await look(Array.from({ length }, (_, i) => at + i * step));
    if (found.includes(false)) return;
    at += length * step;
    windowCount *= 2;
  }
}
