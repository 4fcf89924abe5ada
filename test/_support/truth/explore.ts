import type { Mistake } from './mistakes.js';
import { brokenPromise, isOvertaken } from './promises.js';
import { Protocol } from './protocol.js';
import { type Budget, initial, type State } from './state.js';

export interface Exploration {
  readonly states: number;
  readonly depth: number;
  /** The steps to the first state that breaks a promise, and the promise; undefined: none does. */
  readonly violation?: { readonly steps: readonly string[]; readonly promise: string } | undefined;
}

/** Goes through all states that can be reached in so many steps, each once, the nearest first. */
export function explore(budget: Budget, keyCount: number, depth: number, mistake?: Mistake): Exploration {
  const protocol = new Protocol(mistake);
  const first = initial(budget, keyCount);
  const seen = new Set<string>([keyOf(first)]);
  let level: { state: State; path: Path | undefined }[] = [{ state: first, path: undefined }];
  for (let at = 0; at < depth; at++) {
    const further: typeof level = [];
    for (const { state, path } of level) {
      for (const [name, step] of protocol.choices(state)) {
        const next = protocol.after(state, step);
        const key = keyOf(next);
        if (seen.has(key)) continue;
        seen.add(key);
        const steps = { name, before: path };
        const promise = isOvertaken(next) ? 'a call was overtaken by an earlier one' : brokenPromise(protocol, next);
        if (promise) return { states: seen.size, depth: at + 1, violation: { steps: namesOf(steps), promise } };
        further.push({ state: next, path: steps });
      }
    }
    level = further;
    if (level.length === 0) return { states: seen.size, depth: at + 1 };
  }
  return { states: seen.size, depth };
}

interface Path {
  readonly name: string;
  readonly before: Path | undefined;
}

function namesOf(path: Path | undefined): string[] {
  const names: string[] = [];
  for (let at = path; at; at = at.before) names.unshift(at.name);
  return names;
}

/** A text that two states have in common only if they are alike. */
function keyOf({ cut, nodes, sessions, calls, budget }: State): string {
  const parts: unknown[] = [cut, ...Object.values(budget)];
  for (const node of nodes) {
    parts.push(
      node.start,
      node.clock,
      node.joined,
      node.view,
      node.heard.join('/'),
      node.cleared,
      node.forgotten.join('/'),
      node.lists.flat().map((listed) => (listed ? `${listed.version}${listed.isNamed}` : '')),
    );
    for (const page of node.pages) parts.push(page ? Object.values(page).join() : '');
    for (const note of node.notes) parts.push(note ? Object.values(note).join() : '');
  }
  for (const session of sessions.flat()) {
    parts.push(...session.states);
    for (const change of session.changes) parts.push(...Object.values(change));
    parts.push(JSON.stringify(session.sent));
    for (const drop of session.drops) parts.push(...Object.values(drop));
  }
  for (const call of calls) parts.push(...Object.values(call));
  return parts.join();
}
