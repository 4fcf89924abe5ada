import { CLIENT_STEP_KEY_CHARACTERS, CLIENT_STEP_KEYS } from '../../base/limits.js';
import type { Slice } from './page-slices.js';

/** Splits the keys of a request into runs that are short to work on; a longer key is a run of its own. */
export function* keySteps(keys: readonly string[]): Generator<Slice> {
  let start = 0;
  let characters = 0;
  for (let end = 0; end < keys.length; end++) {
    const { length } = keys[end] as string;
    if (end > start && (end - start === CLIENT_STEP_KEYS || characters + length > CLIENT_STEP_KEY_CHARACTERS)) {
      yield { start, end };
      start = end;
      characters = 0;
    }
    characters += length;
  }
  if (start < keys.length) yield { start, end: keys.length };
}

export interface KeyStepsOptions {
  /** Lets others have their turn before a further step begins; undefined: nobody needs it now. */
  readonly goOn: () => Promise<void> | undefined;
  /** Steps that may be under way at once, as far as they wait for something. Default: 1. */
  readonly atOnce?: number;
}

/**
 * Works on the keys of a request step by step. Resolves with the results of all steps, each of which has one for each of its keys. Rejects when a
 * step has failed and none is under way any more.
 */
export async function inKeySteps<T>(
  keys: readonly string[],
  { goOn, atOnce = 1 }: KeyStepsOptions,
  step: (keys: readonly string[], slice: Slice) => Promise<readonly T[]>,
): Promise<T[]> {
  const steps: Promise<readonly T[]>[] = [];
  try {
    for (const slice of keySteps(keys)) {
      if (slice.start > 0) await goOn();
      if (steps.length >= atOnce) await steps[steps.length - atOnce];
      const begun = step(keys.slice(slice.start, slice.end), slice);
      // A failure is passed on below.
      begun.catch(() => {});
      steps.push(begun);
    }
    return (await Promise.all(steps)).flat() as T[];
  } finally {
    await Promise.allSettled(steps);
  }
}
