import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import type { RequestHint } from './pool-types.js';

const NUMBERS: ReadonlyMap<unknown, number> = new Map<RequestHint, number>([
  ['open', 1],
  ['closed', 2],
  [0, 0],
  [1, 1],
  [2, 2],
  [3, 3],
]);

/**
 * The number of a hint, 0 to 3, as pools and peers have it; 0 for undefined. Throws `ArgumentError` for an invalid
 * hint.
 */
export function hintNumber(hint: RequestHint | undefined = 0): 0 | 1 | 2 | 3 {
  const number = NUMBERS.get(hint);
  if (number === undefined) throw new ArgumentError(`hint must be "open", "closed", 0, 1, 2 or 3, got ${shown(hint)}`);
  return number as 0 | 1 | 2 | 3;
}
