import { ArgumentError } from '../errors.js';
import { meantName, nearestName } from '../names.js';
import { shown } from '../shown.js';

/**
 * Throws `ArgumentError` if an options object has an unknown name, because a misspelt option would silently have no
 * effect. The message begins with `what` and suggests the most similar allowed name. `kind` is the word for a name.
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
