import test, { type Implementation } from 'ava';

/** Adds a test to the file. */
type AddTest = (title: string, implementation: Implementation<[]>) => void;

/** Adds tests, or skips them with the reason in their titles if something is missing; an empty text: nothing is. */
export function unless(missing: string): AddTest {
  if (missing === '') return (title, implementation) => test(title, implementation);
  return (title, implementation) => test.skip(`${title} (skipped: ${missing})`, implementation);
}
