import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { CLIENT_STEP_BYTES, CLIENT_STEP_KEY_BYTES, CLIENT_STEP_KEYS } from '../../src/base/limits.js';
import { inKeySteps, keySteps, type StepKeys } from '../../src/store/call/key-steps.js';
import { systemRandom } from '../../src/system/system-random.js';

const keysOf = (count: number, characters = 1): string[] =>
  Array.from({ length: count }, (_, i) => `${i}`.padEnd(characters));

type OnRun = (start: number, end: number) => void;

/** Keys that are there already; `made` and `checked` are called for each run of them. */
function stepKeys(
  keys: readonly string[],
  { made = noted, checked = noted }: { made?: OnRun; checked?: OnRun } = {},
): StepKeys {
  return {
    count: keys.length,
    bytesBetween: (start, end) => keys.slice(start, end).join('').length,
    check: checked,
    slice(start, end) {
      made(start, end);
      return keys.slice(start, end);
    },
  };
}

function noted(_start: number, _end: number): void {}

test('key steps: a step has so many keys and bytes at most, and one key at least', (t) => {
  t.deepEqual([...keySteps(stepKeys([]))], []);
  t.deepEqual([...keySteps(stepKeys(['a']))], [{ start: 0, end: 1 }]);
  t.deepEqual(
    [...keySteps(stepKeys(keysOf(2 * CLIENT_STEP_KEYS + 1)))].map(({ end }) => end),
    [CLIENT_STEP_KEYS, 2 * CLIENT_STEP_KEYS, 2 * CLIENT_STEP_KEYS + 1],
  );
  t.deepEqual(
    [...keySteps(stepKeys(keysOf(3, CLIENT_STEP_KEY_BYTES)))].map(({ end }) => end),
    [1, 2, 3],
  );
});

test('key steps: each step is as long as it may be', (t) => {
  const seed = Number(process.env.MESHCACHE_SEED ?? systemRandom.u32());
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  for (let round = 0; round < 200; round++) {
    const keys = Array.from({ length: random.u32() % 30 }, () => 'x'.repeat(random.u32() % 12));
    const limits = { maxBytes: 1 + (random.u32() % 20), maxCount: 1 + (random.u32() % 8) };
    const bytesOf = (start: number, end: number): number => keys.slice(start, end).join('').length;
    let next = 0;
    for (const { start, end } of keySteps(stepKeys(keys), limits)) {
      t.is(start, next);
      next = end;
      t.true(end - start === 1 || (end - start <= limits.maxCount && bytesOf(start, end) <= limits.maxBytes));
      const isFull = end - start === limits.maxCount || bytesOf(start, end + 1) > limits.maxBytes;
      t.true(isFull || end === keys.length, `${start} to ${end} of ${keys.map(({ length }) => length)}`);
    }
    t.is(next, keys.length);
  }
});

test('key steps: others are asked before every step of a long request, and results are in the order of the keys', async (t) => {
  const keys = keysOf(5 * CLIENT_STEP_KEYS);
  let asked = 0;
  let underWay = 0;
  let most = 0;
  const goOn = (): undefined => void asked++;
  const results = await inKeySteps(stepKeys(keys), { goOn, atOnce: 2 }, async (some, { start }) => {
    most = Math.max(most, ++underWay);
    for (let i = 0; i < (start === 0 ? 20 : 1); i++) await Promise.resolve();
    underWay--;
    return some;
  });
  t.deepEqual(results, keys);
  t.is(asked, 5);
  t.is(most, 2);
});

test('key steps: a failure is passed on when no step is under way any more', async (t) => {
  const keys = keysOf(4 * CLIENT_STEP_KEYS);
  let isEnded = false;
  const failing = inKeySteps(stepKeys(keys), { goOn: () => undefined, atOnce: 4 }, async (some, { start }) => {
    if (start > 0) throw new Error('a step has failed');
    for (let i = 0; i < 50; i++) await Promise.resolve();
    isEnded = true;
    return some;
  });
  await t.throwsAsync(failing, { message: 'a step has failed' });
  t.true(isEnded);
});

test('key steps: all keys are checked before the first of them is made, and nothing is done when one is malformed', async (t) => {
  const keys = keysOf(40, CLIENT_STEP_KEY_BYTES / 2);
  for (const malformed of [undefined, 39]) {
    const events: string[] = [];
    const source = stepKeys(keys, {
      made: (start, end) => events.push(`made ${start} ${end}`),
      checked(start, end) {
        t.true((end - start) * (CLIENT_STEP_KEY_BYTES / 2) <= CLIENT_STEP_BYTES);
        events.push('checked');
        if (malformed !== undefined && malformed < end) throw new Error('malformed');
      },
    });
    const done = inKeySteps(source, { goOn: () => void events.push('turn') }, async (some) => some);
    if (malformed === undefined) t.deepEqual(await done, keys);
    else await t.throwsAsync(done, { message: 'malformed' });
    const checks = Array.from({ length: 5 }, (_, i) => (i === 0 ? ['checked'] : ['turn', 'checked'])).flat();
    t.deepEqual(events.slice(0, checks.length), checks);
    t.deepEqual(events.slice(checks.length, checks.length + 2), malformed === undefined ? ['turn', 'made 0 2'] : []);
  }
});
