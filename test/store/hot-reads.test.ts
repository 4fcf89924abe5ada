import test from 'ava';
import {
  HOLD_REQUEST_MAX_KEYS,
  HOT_READS_MAX_KEY_CHARACTERS,
  HOT_READS_MIN_COUNT,
  HOT_READS_WINDOW_MS,
} from '../../src/base/limits.js';
import { HotReads } from '../../src/store/holding/hot-reads.js';
import { ManualClock } from '../_support/clock.js';

/** Requests end at once, unless `bring` is given. */
function counting({
  bring = undefined as ((keys: readonly string[]) => Promise<Uint8Array>) | undefined,
  mayCopy = (): boolean => true,
  maxKeys = undefined as number | undefined,
} = {}) {
  const clock = new ManualClock();
  const asked: (readonly string[])[] = [];
  const atOnce = async (keys: readonly string[]): Promise<Uint8Array> => {
    asked.push(keys);
    return new Uint8Array(keys.length);
  };
  const held = {
    bring: bring ?? atOnce,
    get mayCopy() {
      return mayCopy();
    },
  };
  const reads = new HotReads(held, clock, maxKeys);
  /** So many reads of the key, each in a call of its own. */
  const read = async (key: string, count = 1): Promise<void> => {
    for (let i = 0; i < count; i++) {
      reads.read([key]);
      await clock.yield();
    }
  };
  return { clock, asked, reads, read };
}

test('hot reads: a page is asked for when it has been read often enough within the window, wherever that begins', async (t) => {
  const { clock, asked, read } = counting();
  await read('a', HOT_READS_MIN_COUNT - 1);
  clock.advance(HOT_READS_WINDOW_MS + 1);
  await read('a', HOT_READS_MIN_COUNT - 1);
  t.deepEqual(asked, [], 'the first reads were too long ago');
  clock.advance(HOT_READS_WINDOW_MS);
  await read('a');
  t.deepEqual(asked, [['a']], 'the last reads lie within one window');
});

test('hot reads: a page is asked for once a window, whatever became of it', async (t) => {
  const { clock, asked, read } = counting();
  await read('a', 10 * HOT_READS_MIN_COUNT);
  t.is(asked.length, 1);
  clock.advance(HOT_READS_WINDOW_MS);
  await read('a', 10 * HOT_READS_MIN_COUNT);
  t.is(asked.length, 1);
  clock.advance(1);
  await read('a');
  t.is(asked.length, 2);
});

test('hot reads: one request is under way, the keys of one more wait for its end, the others for their next read', async (t) => {
  const asked: (readonly string[])[] = [];
  let end = (): void => {};
  const bring = (keys: readonly string[]) => {
    asked.push(keys);
    return new Promise<Uint8Array>((resolve) => {
      end = () => resolve(new Uint8Array(keys.length));
    });
  };
  const { clock, reads, read } = counting({ bring });
  const keys = Array.from({ length: HOLD_REQUEST_MAX_KEYS + 10 }, (_, i) => `key ${i}`);
  await read('a', HOT_READS_MIN_COUNT);
  for (let i = 0; i < 2 * HOT_READS_MIN_COUNT; i++) {
    reads.read(keys);
    await clock.yield();
  }
  t.deepEqual(asked, [['a']]);
  end();
  await clock.yield();
  t.deepEqual(asked.slice(1), [keys.slice(0, HOLD_REQUEST_MAX_KEYS)]);
  end();
  await clock.yield();
  t.is(asked.length, 2, 'nothing waits');
  reads.read(keys);
  t.deepEqual(asked.slice(2), [keys.slice(HOLD_REQUEST_MAX_KEYS)]);
});

test('hot reads: what waits is given up when the node must not copy any more', async (t) => {
  const asked: (readonly string[])[] = [];
  let end = (): void => {};
  let isDraining = false;
  const bring = (keys: readonly string[]) => {
    asked.push(keys);
    return new Promise<Uint8Array>((resolve) => {
      end = () => resolve(new Uint8Array(keys.length));
    });
  };
  const { clock, read } = counting({ bring, mayCopy: () => !isDraining });
  await read('a', HOT_READS_MIN_COUNT);
  await read('b', HOT_READS_MIN_COUNT);
  isDraining = true;
  end();
  await clock.yield();
  t.deepEqual(asked, [['a']]);
});

test('hot reads: a node that must not copy asks for nothing', async (t) => {
  let isDraining = true;
  const { asked, read } = counting({ mayCopy: () => !isDraining });
  await read('a', 2 * HOT_READS_MIN_COUNT);
  t.deepEqual(asked, []);
  isDraining = false;
  await read('a');
  t.deepEqual(asked, [['a']]);
});

test('hot reads: what was read longest ago is forgotten first, by number and by length of the keys', async (t) => {
  const { asked, reads, read } = counting({ maxKeys: 10 });
  await read('a', HOT_READS_MIN_COUNT - 1);
  await read('b', HOT_READS_MIN_COUNT - 2);
  for (let i = 0; i < 8; i++) await read(`other ${i}`);
  await read('b');
  t.is(reads.size, 10);
  await read('one more');
  t.is(reads.size, 10);
  await read('a');
  t.deepEqual(asked, [], 'its reads were forgotten');
  await read('b');
  t.deepEqual(asked, [['b']], 'it was not the one that was read longest ago');

  const long = counting();
  const letters = HOT_READS_MAX_KEY_CHARACTERS / 4;
  for (let i = 0; i < 20; i++) {
    await long.read(String.fromCharCode(97 + i).repeat(letters));
    t.is(long.reads.size, Math.min(4, i + 1));
  }
});
