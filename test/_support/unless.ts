import test, { type Implementation } from 'ava';

/** Adds a test to the file. */
type AddTest = (title: string, implementation: Implementation<[]>) => void;

/**
 * Adds tests, or skips them with the reason in their titles if something is missing; an empty text: nothing is. `add`:
 * as `test.serial` adds them.
 */
export function unless(missing: string, add: AddTest = test): AddTest {
  if (missing === '') return (title, implementation) => add(title, implementation);
  return (title, implementation) => test.skip(`${title} (skipped: ${missing})`, implementation);
}
