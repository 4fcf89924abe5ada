import type { Exploration } from './explore.js';
import type { Mistake } from './mistakes.js';
import { brokenPromise, isOvertaken } from './promises.js';
import { Protocol } from './protocol.js';
import { type Budget, initial } from './state.js';

/** Takes so many steps by chance, as a seed has them. */
export function walk(budget: Budget, steps: number, seed: number, mistake?: Mistake): Exploration['violation'] {
  const protocol = new Protocol(mistake);
  let state = initial(budget, 2);
  let chance = seed >>> 0;
  const names: string[] = [];
  for (let at = 0; at < steps; at++) {
    const possible = [...protocol.choices(state)];
    if (possible.length === 0) return undefined;
    // mulberry32, by Tommy Ettinger (public domain).
    chance = (chance + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(chance ^ (chance >>> 15), chance | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    const [name, step] = possible[((mixed ^ (mixed >>> 14)) >>> 0) % possible.length]!;
    state = protocol.after(state, step);
    names.push(name);
    const promise = isOvertaken(state) ? 'a call was overtaken by an earlier one' : brokenPromise(protocol, state);
    if (promise) return { steps: names, promise };
  }
  return undefined;
}

/** Takes the steps of these names one after the other. Throws if one is not possible. */
export function follow(budget: Budget, names: readonly string[], mistake?: Mistake): Exploration['violation'] {
  const protocol = new Protocol(mistake);
  let state = initial(budget, 2);
  for (const [at, name] of names.entries()) {
    const chosen = [...protocol.choices(state)].find(([possible]) => possible === name);
    if (chosen === undefined) throw new Error(`step ${at}, "${name}", is not possible`);
    state = protocol.after(state, chosen[1]);
    const promise = brokenPromise(protocol, state);
    if (promise) return { steps: names.slice(0, at + 1), promise };
  }
  return undefined;
}
