import type { RespArgument } from '../wire/resp-parser.js';
import { CommandError, wordOf } from './command.js';

/** Options of SET that Redis has and meshcache has not, with the number of words that follow each. */
const REFUSED: ReadonlyMap<string, number> = new Map([
  ['ex', 1],
  ['px', 1],
  ['exat', 1],
  ['pxat', 1],
  ['keepttl', 0],
  ['nx', 0],
  ['xx', 0],
  ['get', 0],
]);

/**
 * Reads what follows the value of a SET; the one place for its options. A client that asks for something that would not happen gets an
 * error: throws `CommandError`.
 */
export function checkSetOptions(options: readonly RespArgument[]): void {
  const [first] = options;
  if (first === undefined) return;
  const word = wordOf(first);
  const following = REFUSED.get(word);
  if (following === undefined || following >= options.length) throw new CommandError('ERR syntax error');
  throw new CommandError(`ERR SET with the option ${word.toUpperCase()} is not supported by meshcache`);
}
