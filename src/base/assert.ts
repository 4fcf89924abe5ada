import { InvariantError } from './errors.js';

/**
 * Throws `InvariantError` unless `holds`. For our own bugs only, never for input or I/O. `message` names the structure,
 * the rule that it must keep and the numbers; a function is called only when the assertion fails.
 */
export function assert(holds: boolean, message: string | (() => string)): asserts holds {
  if (!holds) throw new InvariantError(typeof message === 'string' ? message : message());
}

/** Throws `InvariantError` unless a running total equals a fresh count. */
export function assertEqual(what: string, kept: number, counted: number): void {
  if (kept !== counted) throw new InvariantError(`${what}: ${kept} by what is kept, ${counted} when counted anew`);
}

/** Throws `InvariantError` unless a number is within its limit. */
export function assertAtMost(what: string, value: number, max: number): void {
  // NaN is beyond every limit.
  if (!(value <= max)) throw new InvariantError(`${what}: ${value}, allowed are ${max}`);
}

/** Subtracts `by` from `taken`; throws `InvariantError` if more is given back than was taken. */
export function reduced(what: string, taken: number, by: number): number {
  if (!(by <= taken)) throw new InvariantError(`${what}: ${by} given back of ${taken}`);
  return taken - by;
}
