import test from 'ava';
import { EventHeap, type SimEvent } from '../../../src/sim/world/kernel/event-heap.js';
import { EventLog } from '../../../src/sim/world/kernel/event-log.js';
import { Scheduler, SimulatedFailure } from '../../../src/sim/world/kernel/scheduler.js';
import { below, forkedRandom } from '../../../src/sim/world/kernel/seeds.js';

function begin() {
  const log = new EventLog();
  const scheduler = new Scheduler(log);
  const seen: string[] = [];
  const at = (atMs: number, name: string, fn: () => void = () => {}): SimEvent =>
    scheduler.schedule(atMs, {
      kind: name,
      owner: undefined,
      run() {
        seen.push(`${name}@${scheduler.nowMs}`);
        fn();
      },
    });
  return { log, scheduler, seen, at };
}

test.serial(
  'scheduler: events run in the order of their times, and of one time in the order in which they were scheduled',
  async (t) => {
    const { scheduler, seen, at } = begin();
    at(5, 'c');
    at(2, 'a', () => {
      at(5, 'd');
      // A time that is over means now, behind what is there for now.
      at(1, 'b');
    });
    at(2, 'a2');
    t.is(await scheduler.run({}), 'idle');
    t.deepEqual(seen, ['a@2', 'a2@2', 'b@2', 'c@5', 'd@5']);
  },
);

test.serial('scheduler: all promise jobs and ticks of an event run before the next event', async (t) => {
  const { scheduler, seen, at } = begin();
  at(1, 'first', () => {
    (async () => {
      for (let i = 0; i < 100; i++) await Promise.resolve();
      process.nextTick(() => queueMicrotask(() => seen.push('job')));
    })();
  });
  at(1, 'second');
  await scheduler.run({});
  t.deepEqual(seen, ['first@1', 'job', 'second@1']);
});

test.serial('scheduler: a cancelled event does not run, and cancelling one that has run is harmless', async (t) => {
  const { scheduler, seen, at } = begin();
  const cancelled = at(2, 'cancelled');
  const done = at(1, 'done', () => scheduler.cancel(cancelled));
  at(3, 'last', () => scheduler.cancel(done));
  await scheduler.run({});
  t.deepEqual(seen, ['done@1', 'last@3']);
  t.is(scheduler.waitingCount, 0);
});

test.serial('scheduler: a run ends at its time, by its condition, by a stop, or when nothing is left', async (t) => {
  const { scheduler, seen, at } = begin();
  for (let ms = 10; ms <= 100; ms += 10) at(ms, 'x', () => ms === 70 && scheduler.stop());
  t.is(await scheduler.run({ untilMs: 30 }), 'time');
  t.is(scheduler.nowMs, 30);
  t.is(seen.length, 3);
  t.is(await scheduler.run({ untilMs: 35 }), 'time');
  t.is(scheduler.nowMs, 35);
  t.is(await scheduler.run({ until: () => seen.length === 5 }), 'condition');
  t.is(scheduler.nowMs, 50);
  t.is(await scheduler.run({ untilMs: 200 }), 'stopped');
  t.is(scheduler.nowMs, 70);
  t.is(await scheduler.run({ untilMs: 200 }), 'idle');
  t.is(scheduler.nowMs, 200);
});

for (const [name, fails] of [
  [
    'an exception',
    () => {
      throw new Error('planted');
    },
  ],
  ['a rejection that nobody handles', () => void Promise.reject(new Error('planted'))],
  [
    'an exception in a promise job',
    () =>
      queueMicrotask(() => {
        throw new Error('planted');
      }),
  ],
] as const) {
  test.serial(`scheduler: ${name} ends the run, with the time and whose it was`, async (t) => {
    const { scheduler, seen, at } = begin();
    const owner = { id: 7, mayRun: () => true };
    at(1, 'before');
    scheduler.schedule(2, { kind: 'fails', owner, run: fails });
    at(3, 'after');
    const error = await t.throwsAsync(scheduler.run({}), { instanceOf: SimulatedFailure, message: 'planted' });
    t.is(error?.atMs, 2);
    t.is(error?.owner, 7);
    t.is((error?.cause as Error | undefined)?.message, 'planted');
    t.deepEqual(seen, ['before@1']);
    // It is over for good.
    await t.throwsAsync(scheduler.run({}), { instanceOf: SimulatedFailure });
    t.deepEqual(seen, ['before@1']);
  });
}

test.serial('scheduler: listeners of the process are there again after a run', async (t) => {
  const { scheduler, at } = begin();
  const events = ['unhandledRejection', 'uncaughtException'];
  const before = events.map((event) => process.rawListeners(event));
  let during: unknown[] = [];
  at(1, 'x', () => (during = process.rawListeners('uncaughtException')));
  await scheduler.run({});
  t.is(during.length, 1);
  t.deepEqual(
    events.map((event) => process.rawListeners(event)),
    before,
  );
});

test.serial('scheduler: one world runs at a time, and one run of it', async (t) => {
  const { scheduler, at } = begin();
  const other = begin();
  at(1, 'x');
  const running = scheduler.run({});
  t.throws(() => scheduler.run({}), { message: /runs already/ });
  t.throws(() => other.scheduler.run({}), { message: /one at a time/ });
  await running;
  await other.scheduler.run({});
});

test.serial('scheduler: what an owner does not let run waits for it', async (t) => {
  const { scheduler, seen } = begin();
  const held: SimEvent[] = [];
  let isHeld = true;
  const owner = { id: 1, mayRun: (event: SimEvent) => !isHeld || held.push(event) < 0 };
  const run = (name: string) => ({ kind: name, owner, run: () => void seen.push(`${name}@${scheduler.nowMs}`) });
  for (const [i, name] of ['a', 'b', 'c'].entries()) {
    const event = scheduler.schedule(i + 1, run(name));
    if (name === 'b') scheduler.schedule(5, { kind: 'cancel', owner: undefined, run: () => scheduler.cancel(event) });
  }
  scheduler.schedule(10, {
    kind: 'release',
    owner: undefined,
    run() {
      isHeld = false;
      for (const event of held) scheduler.reschedule(event, scheduler.nowMs);
    },
  });
  await scheduler.run({});
  t.deepEqual(seen, ['a@10', 'c@10']);
});

test.serial('scheduler: the end of a turn comes before the next event, once', async (t) => {
  const { scheduler, seen, at } = begin();
  const turnEnded = { turnEnded: () => void seen.push(`end@${scheduler.nowMs}`) };
  at(1, 'x', () => {
    scheduler.atTurnEnd(turnEnded);
    queueMicrotask(() => seen.push('job'));
  });
  at(1, 'y');
  await scheduler.run({});
  t.deepEqual(seen, ['x@1', 'job', 'end@1', 'y@1']);
});

test.serial('scheduler: the hash follows from what happened, and from nothing else', async (t) => {
  const hashes = new Set<string>();
  for (const times of [[1, 2], [1, 2], [2, 1], [1, 2.0000001], [1]]) {
    const { scheduler, log, at } = begin();
    for (const [i, ms] of times.entries()) at(ms, i === 0 ? 'first' : 'second');
    await scheduler.run({});
    hashes.add(log.hash);
  }
  t.is(hashes.size, 4);
  // FNV-1a of 64 bits over words: published test vectors are for bytes, so one word is checked by its definition.
  const log = new EventLog();
  log.event(0, '', 0, 0);
  let expected = 0xcbf29ce484222325n;
  for (let word = 0; word < 5; word++) expected = ((expected ^ 0n) * 0x100000001b3n) & 0xffffffffffffffffn;
  t.is(log.hash, expected.toString(16).padStart(16, '0'));
});

test.serial('scheduler: the heap does what a sorted list does', (t) => {
  const seed = 1;
  t.log(`seed ${seed}`);
  const random = forkedRandom(seed, 'heap');
  const heap = new EventHeap();
  const model: SimEvent[] = [];
  const plan = { kind: 'x', owner: undefined, run() {} };
  for (let sequence = 0; sequence < 20_000; sequence++) {
    const choice = below(random, 10);
    if (choice < 5) {
      const event: SimEvent = { plan, atMs: below(random, 100), sequence, index: -1, isCancelled: false };
      heap.push(event);
      model.push(event);
    } else if (choice < 8 || model.length === 0) {
      model.sort((a, b) => a.atMs - b.atMs || a.sequence - b.sequence);
      t.is(heap.first, model[0]);
      const shifted = heap.shift();
      t.is(shifted, model.shift());
      if (shifted !== undefined) heap.remove(shifted);
    } else {
      const [removed] = model.splice(below(random, model.length), 1);
      heap.remove(removed as SimEvent);
      t.is(removed?.index, -1);
    }
    t.is(heap.length, model.length);
  }
});
