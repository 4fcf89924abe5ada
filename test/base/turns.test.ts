import test from 'ava';
import { Turns } from '../../src/base/concurrency/turns.js';

function gate(): { readonly passed: Promise<void>; open(): void } {
  let open: () => void = () => {};
  const passed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { passed, open };
}

test('turns: one at a time, in the order of asking; the first at once', async (t) => {
  const turns = new Turns();
  const log: string[] = [];
  const gates = [gate(), gate(), gate()];
  const runs = gates.map(({ passed }, i) =>
    turns.run(async () => {
      log.push(`start ${i}`);
      await passed;
      log.push(`end ${i}`);
      return i;
    }),
  );
  t.deepEqual(log, ['start 0']);
  t.true(turns.isTaken);
  const ended = turns.ended().then(() => log.push('all'));
  for (const { open } of [...gates].reverse()) open();
  t.deepEqual(await Promise.all(runs), [0, 1, 2]);
  await ended;
  t.deepEqual(log, ['start 0', 'end 0', 'start 1', 'end 1', 'start 2', 'end 2', 'all']);
  t.false(turns.isTaken);
  await turns.ended();
});

test('turns: one that fails does not stop the others', async (t) => {
  const turns = new Turns();
  const failing = turns.run(() => Promise.reject(new Error('mine')));
  const next = turns.run(() => 7);
  await t.throwsAsync(failing, { message: 'mine' });
  t.is(await next, 7);
});
