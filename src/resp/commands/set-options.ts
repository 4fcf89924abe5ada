import { EXPIRY_MAX_MS } from '../../base/limits.js';
import type { RespArgument } from '../wire/resp-parser.js';
import { CommandError, textOf, wordOf } from './command.js';

/** Options of SET that say when the value expires: the milliseconds of their unit, and whether they count from 1970 on. */
const EXPIRIES: ReadonlyMap<string, ExpiryUnit> = new Map([
  ['ex', { unitMs: 1000, isDate: false }],
  ['px', { unitMs: 1, isDate: false }],
  ['exat', { unitMs: 1000, isDate: true }],
  ['pxat', { unitMs: 1, isDate: true }],
]);
/** Options of SET that Redis has and meshcache has not. */
const REFUSED: ReadonlySet<string> = new Set(['keepttl', 'nx', 'xx', 'get']);
/** A whole number as Redis takes it, without leading zeros, a plus sign or spaces. One of 64 bits has at most 19 digits. */
const WHOLE_NUMBER = /^(?:0|-?[1-9]\d{0,18})$/;
const INTEGER_MAX = 2n ** 63n - 1n;

/** How an option states an expiry. */
export interface ExpiryUnit {
  readonly unitMs: number;
  /** Whether the number is a time since 1970, and not from now on. */
  readonly isDate: boolean;
}

/**
 * Reads what follows the value of a SET; the one place for its options. Returns the milliseconds after which the value is expired, 1 for a time
 * that has passed; undefined: never. A client that asks for something that would not happen gets an error: throws `CommandError`.
 */
export function expiryOfSet(options: readonly RespArgument[], dateMs: number): number | undefined {
  let expiry: { readonly argument: RespArgument | undefined; readonly unit: ExpiryUnit } | undefined;
  let refused: string | undefined;
  for (let i = 0; i < options.length; i++) {
    const word = wordOf(options[i]);
    const unit = EXPIRIES.get(word);
    if (unit !== undefined && expiry === undefined && i + 1 < options.length) expiry = { argument: options[++i], unit };
    else if (REFUSED.has(word)) refused ??= word;
    else throw new CommandError('ERR syntax error');
  }
  if (refused !== undefined) {
    throw new CommandError(`ERR SET with the option ${refused.toUpperCase()} is not supported by meshcache`);
  }
  return expiry && expiryOf(expiry.argument, expiry.unit, { command: 'set', dateMs });
}

/** Milliseconds from now on until an expiry that a client has stated; 1 for a time that has passed. Throws `CommandError`. */
export function expiryOf(
  argument: RespArgument | undefined,
  { unitMs, isDate }: ExpiryUnit,
  { command, dateMs }: { readonly command: string; readonly dateMs: number },
): number {
  const text = textOf(argument);
  const value = WHOLE_NUMBER.test(text) ? BigInt(text) : undefined;
  if (value === undefined || value > INTEGER_MAX || value < -INTEGER_MAX - 1n) {
    throw new CommandError('ERR value is not an integer or out of range');
  }
  if (value <= 0n) throw new CommandError(`ERR invalid expire time in '${command}' command`);
  const ms = Number(value) * unitMs - (isDate ? dateMs : 0);
  if (ms <= EXPIRY_MAX_MS) return Math.max(1, ms);
  // Redis takes what fits into 64 bits.
  throw new CommandError(`ERR invalid expire time in '${command}' command: a value expires after ten years at most`);
}
