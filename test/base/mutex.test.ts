import test from 'ava';
import { Mutex } from '../../src/base/concurrency/mutex.js';

function gate(): { readonly passed: Promise<void>; open(): void } {
  let open: () => void = () => {};
  const passed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { passed, open };
}

test('mutex: one at a time, in the order of asking; the first at once', async (t) => {
  const mutex = new Mutex();
  const log: string[] = [];
  const gates = [gate(), gate(), gate()];
  const runs = gates.map(({ passed }, i) =>
    mutex.run(async () => {
      log.push(`start ${i}`);
      await passed;
      log.push(`end ${i}`);
      return i;
    }),
  );
  t.deepEqual(log, ['start 0']);
  t.true(mutex.isLocked);
  const ended = mutex.ended().then(() => log.push('all'));
  for (const { open } of [...gates].reverse()) open();
  t.deepEqual(await Promise.all(runs), [0, 1, 2]);
  await ended;
  t.deepEqual(log, ['start 0', 'end 0', 'start 1', 'end 1', 'start 2', 'end 2', 'all']);
  t.false(mutex.isLocked);
  await mutex.ended();
});

test('mutex: one that fails does not stop the others', async (t) => {
  const mutex = new Mutex();
  const failing = mutex.run(() => Promise.reject(new Error('mine')));
  const next = mutex.run(() => 7);
  await t.throwsAsync(failing, { message: 'mine' });
  t.is(await next, 7);
});
