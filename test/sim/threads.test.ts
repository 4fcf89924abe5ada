import test from 'ava';
import type { Thread, Threads } from '../../src/base/environment/threads.js';
import { inlineThreads } from '../../src/sim/world/inline-threads.js';
import { systemClock } from '../../src/system/system-clock.js';
import { systemThreads } from '../../src/system/system-threads.js';
import { echo } from '../_programs/sim/threads-program.js';
import { ManualClock } from '../_support/clock.js';
import { until } from '../_support/support.js';

const CASES: Readonly<Record<string, Threads>> = {
  'system threads': systemThreads,
  'inline threads': inlineThreads(systemClock),
};

interface Started {
  readonly thread: Thread;
  /** What has come from it. */
  readonly received: unknown[];
  readonly mayReceive: Int32Array;
}

function start(threads: Threads): Started {
  const script = new URL('./sim-threads-program.js', import.meta.url);
  const mayReceive = new Int32Array(new SharedArrayBuffer(4));
  const thread = threads.start({ name: 'echo', script, data: mayReceive, inline: echo });
  const received: unknown[] = [];
  thread.messages.onMessage((message) => received.push(message));
  return { thread, received, mayReceive };
}

for (const [name, threads] of Object.entries(CASES)) {
  test(`${name}: what is posted arrives in order, also what was posted before the thread ran`, async (t) => {
    const { thread, received } = start(threads);
    for (let i = 0; i < 100; i++) thread.messages.post(i);
    t.deepEqual(received, [], 'nothing arrives while it is posted');
    await until(() => received.length === 101);
    thread.messages.post('end');
    t.is(await thread.ended, undefined);
    t.deepEqual(received, ['hello', ...Array(100).keys()]);
  });

  test(`${name}: what has been posted can be received at once, and does not arrive again`, async (t) => {
    const { thread, received, mayReceive } = start(threads);
    await until(() => received.length === 1);
    for (const message of ['take all', 1, 2, 3]) thread.messages.post(message);
    Atomics.store(mayReceive, 0, 1);
    Atomics.notify(mayReceive, 0);
    await until(() => received.length === 2);
    thread.messages.post('end');
    await thread.ended;
    t.deepEqual(received, ['hello', [1, 2, 3]]);
  });

  test(`${name}: one that fails ends with the message of its error`, async (t) => {
    const { thread } = start(threads);
    let isClosed = false;
    thread.messages.onClose(() => {
      isClosed = true;
    });
    thread.messages.post('fail');
    t.is(await thread.ended, 'told to fail');
    t.true(isClosed);
    thread.messages.post('without effect');
  });

  test(`${name}: one that is terminated has ended`, async (t) => {
    const { thread, received } = start(threads);
    await until(() => received.length === 1);
    await thread.terminate();
    t.is(await thread.ended, undefined);
    const early = start(threads).thread;
    await early.terminate();
    t.is(await early.ended, undefined);
  });

  test(`${name}: closed messages end it`, async (t) => {
    const { thread } = start(threads);
    thread.messages.close();
    t.is(await thread.ended, undefined);
  });
}

test('inline threads: nothing happens but in turns of the clock', async (t) => {
  const clock = new ManualClock();
  const { thread, received } = start(inlineThreads(clock));
  thread.messages.post(1);
  await systemClock.yield();
  t.deepEqual(received, []);
  for (let i = 0; i < 10; i++) {
    clock.advance(0);
    await systemClock.yield();
  }
  t.deepEqual(received, ['hello', 1]);
});
