import test from 'ava';
import {
  Cancellation,
  checkNotAborted,
  onAbort,
  unlessAborted,
  untilAny,
} from '../../src/base/concurrency/cancellation.js';

test('cancellation: it calls its listeners once, in order, and none that was removed or added later', (t) => {
  const cancellation = new Cancellation();
  const called: string[] = [];
  const listen = (name: string): (() => void) => onAbort(cancellation, () => called.push(name));
  listen('first');
  const stop = listen('removed');
  listen('second');
  stop();
  t.false(cancellation.aborted);
  t.is(cancellation.reason, undefined);
  cancellation.abort(new Error('first reason'));
  cancellation.abort(new Error('second reason'));
  listen('late');
  stop();
  t.deepEqual(called, ['first', 'second']);
  t.true(cancellation.aborted);
  t.is((cancellation.reason as Error).message, 'first reason');
});

test('cancellation: without a reason it has the one of an AbortController', (t) => {
  const [cancellation, controller] = [new Cancellation(), new AbortController()];
  t.notThrows(() => checkNotAborted(cancellation));
  cancellation.abort();
  controller.abort();
  t.is((cancellation.reason as Error).name, controller.signal.reason.name);
  for (const signal of [cancellation, controller.signal]) {
    const thrown = t.throws(() => checkNotAborted(signal), { any: true });
    t.is(thrown as unknown, signal.reason);
  }
});

test('cancellation: work that is not awaited any more is left at once, for signals of both kinds', async (t) => {
  for (const abort of [new Cancellation(), new AbortController()]) {
    const signal = abort instanceof AbortController ? abort.signal : abort;
    const left = unlessAborted(new Promise(() => {}), signal);
    abort.abort();
    t.is(await left, undefined);
  }
});

test('cancellation: one signal for several ends with the first of them, and leaves no listeners', async (t) => {
  for (const ending of [0, 1]) {
    const signals = [new CountedSignal(), new CountedSignal()];
    const ended = await untilAny([signals[0], undefined, signals[1]], async (any) => {
      t.false(any.aborted);
      signals[ending]?.abort(`reason ${ending}`);
      return { isAborted: any.aborted, reason: any.reason };
    });
    t.deepEqual(ended, { isAborted: true, reason: `reason ${ending}` });
    t.deepEqual(
      signals.map(({ listeners }) => listeners.size),
      [0, 0],
    );
  }
  const over = new Cancellation();
  over.abort('over');
  t.is(await untilAny([undefined, over], async ({ reason }) => reason), 'over');
  const open = new CountedSignal();
  await t.throwsAsync(
    untilAny([open], async () => {
      throw new Error('failed');
    }),
  );
  t.is(open.listeners.size, 0);
});

/** Knows its listeners. */
class CountedSignal extends Cancellation {
  readonly listeners = new Set<() => void>();

  override addEventListener(type: 'abort', listener: () => void): void {
    super.addEventListener(type, listener);
    this.listeners.add(listener);
  }

  override removeEventListener(type: 'abort', listener: () => void): void {
    super.removeEventListener(type, listener);
    this.listeners.delete(listener);
  }
}
