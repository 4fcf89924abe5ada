import test from 'ava';
import { assert, assertAtMost, assertEqual, reduced } from '../../src/base/assert.js';
import { InvariantError } from '../../src/base/errors.js';

test('assert: what does not hold is an error of our own that says what and how much', (t) => {
  const failed = (act: () => void) => t.throws(act, { instanceOf: InvariantError }).message;
  t.is(
    failed(() => assert(false, () => 'a list: 3 of 2')),
    'a list: 3 of 2',
  );
  t.regex(
    failed(() => assertEqual('bytes', 1, 2)),
    /^bytes: 1 by what is kept, 2 when counted anew/,
  );
  t.regex(
    failed(() => assertAtMost('bytes', Number.NaN, 2)),
    /^bytes: NaN, allowed are 2/,
  );
  t.is(reduced('bytes', 5, 5), 0);
  for (const by of [6, Number.NaN])
    t.is(
      failed(() => reduced('bytes', 5, by)),
      `bytes: ${by} given back of 5`,
    );
});
