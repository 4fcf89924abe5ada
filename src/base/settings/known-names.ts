import { ArgumentError } from '../errors.js';
import { meantName, nearestName } from '../names.js';
import { shown } from '../shown.js';

/**
 * Throws `ArgumentError` if an options object has a name that is not among the allowed ones: a misspelt option would
 * otherwise have no effect, and nobody would be told. The message begins with `what` and names the allowed name that is
 * the most like it. `kind` is the word for a name.
 */
export function checkNames(what: string, given: object, allowed: ReadonlySet<string>, kind = 'option'): void {
  for (const name of Object.keys(given)) {
    if (allowed.has(name)) continue;
    const names = [...allowed];
    const meant = meantName(nearestName(name, names));
    const all = meant === '' ? '; allowed are' : `${meant} Allowed are`;
    throw new ArgumentError(`${what}: unknown ${kind} ${shown(name)}${all} ${names.join(', ')}`);
  }
}
