import test from 'ava';
import { CLIENT_STEP_KEY_CHARACTERS, CLIENT_STEP_KEYS } from '../../src/base/limits.js';
import { inKeySteps, keySteps } from '../../src/store/call/key-steps.js';

const keysOf = (count: number, characters = 1): string[] =>
  Array.from({ length: count }, (_, i) => `${i}`.padEnd(characters));

test('key steps: a step has so many keys and characters at most, and one key at least', (t) => {
  t.deepEqual([...keySteps([])], []);
  t.deepEqual([...keySteps(['a'])], [{ start: 0, end: 1 }]);
  t.deepEqual(
    [...keySteps(keysOf(2 * CLIENT_STEP_KEYS + 1))].map(({ end }) => end),
    [CLIENT_STEP_KEYS, 2 * CLIENT_STEP_KEYS, 2 * CLIENT_STEP_KEYS + 1],
  );
  t.deepEqual(
    [...keySteps(keysOf(3, CLIENT_STEP_KEY_CHARACTERS))].map(({ end }) => end),
    [1, 2, 3],
  );
});

test('key steps: others are asked before every further step, and results are in the order of the keys', async (t) => {
  const keys = keysOf(5 * CLIENT_STEP_KEYS);
  let asked = 0;
  let underWay = 0;
  let most = 0;
  const goOn = (): undefined => void asked++;
  const results = await inKeySteps(keys, { goOn, atOnce: 2 }, async (some, { start }) => {
    most = Math.max(most, ++underWay);
    for (let i = 0; i < (start === 0 ? 20 : 1); i++) await Promise.resolve();
    underWay--;
    return some;
  });
  t.deepEqual(results, keys);
  t.is(asked, 4);
  t.is(most, 2);
});

test('key steps: a failure is passed on when no step is under way any more', async (t) => {
  const keys = keysOf(4 * CLIENT_STEP_KEYS);
  let isEnded = false;
  const failing = inKeySteps(keys, { goOn: () => undefined, atOnce: 4 }, async (some, { start }) => {
    if (start > 0) throw new Error('a step has failed');
    for (let i = 0; i < 50; i++) await Promise.resolve();
    isEnded = true;
    return some;
  });
  await t.throwsAsync(failing, { message: 'a step has failed' });
  t.true(isEnded);
});
