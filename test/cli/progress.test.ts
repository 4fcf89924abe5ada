import test from 'ava';
import type { Clock } from '../../src/base/environment/clock.js';
import { streamProgress } from '../../src/command/progress.js';

class TurnedClock implements Clock {
  ms = 5_000;
  nowMs(): number {
    return this.ms;
  }
  wallMs(): number {
    return this.ms;
  }
  #timer: { readonly atMs: number; readonly fn: () => void } | undefined;
  after(delayMs: number, fn: () => void): () => void {
    const timer = { atMs: this.ms + delayMs, fn };
    this.#timer = timer;
    return () => {
      if (this.#timer === timer) this.#timer = undefined;
    };
  }
  turn(ms: number): void {
    this.ms += ms;
    const timer = this.#timer;
    if (timer === undefined || timer.atMs > this.ms) return;
    this.#timer = undefined;
    timer.fn();
  }
  async yield(): Promise<void> {}
  soon(fn: () => void): void {
    queueMicrotask(fn);
  }
}

class Stream {
  text = '';
  constructor(
    readonly isTTY: boolean,
    readonly columns = 20,
  ) {}
  write(text: string): void {
    this.text += text;
  }
}

test('progress: nothing is said in the first second', (t) => {
  const clock = new TurnedClock();
  const stream = new Stream(false);
  const progress = streamProgress(stream, clock);
  for (; clock.ms < 5_999; clock.ms += 7) progress.update(`at ${clock.ms}`);
  progress.end();
  t.is(stream.text, '');
});

test('progress: plain lines now and then where there is no terminal', (t) => {
  const clock = new TurnedClock();
  const stream = new Stream(false);
  const progress = streamProgress(stream, clock);
  for (let at = 0; at <= 10_000; at += 100) {
    clock.ms = 5_000 + at;
    progress.update(`at ${at}`);
  }
  progress.end();
  t.is(stream.text, 'at 1000\nat 3000\nat 5000\nat 7000\nat 9000\n');
});

test('progress: one line that changes on a terminal, cut to its width and taken away at the end', (t) => {
  const clock = new TurnedClock();
  const stream = new Stream(true);
  const progress = streamProgress(stream, clock);
  clock.ms += 1_000;
  progress.update('first');
  clock.ms += 50;
  progress.update('too soon');
  clock.ms += 50;
  progress.update('a text that is longer than the terminal');
  progress.end();
  progress.end();
  t.is(stream.text, '\r\x1b[2Kfirst\r\x1b[2Ka text that is long\r\x1b[2K');
});

test('progress: what was said too soon comes when its time has come, the latest of it', (t) => {
  const clock = new TurnedClock();
  const stream = new Stream(false);
  const progress = streamProgress(stream, clock);
  progress.update('first');
  progress.update('second');
  clock.turn(999);
  t.is(stream.text, '');
  clock.turn(1);
  t.is(stream.text, 'second\n');
  progress.update('third');
  progress.end();
  clock.turn(10_000);
  t.is(stream.text, 'second\n', 'nothing after the end');
});

test('progress: a terminal that reports 0 columns shows the line', (t) => {
  const clock = new TurnedClock();
  const stream = new Stream(true, 0);
  const progress = streamProgress(stream, clock);
  clock.ms += 1_000;
  progress.update('x'.repeat(100));
  progress.end();
  t.is(stream.text, `\r\x1b[2K${'x'.repeat(79)}\r\x1b[2K`);
});
