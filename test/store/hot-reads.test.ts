import test from 'ava';
import {
  COPY_REQUEST_MAX_KEYS,
  HOT_READS_MAX_KEY_CHARACTERS,
  HOT_READS_MIN_COUNT,
  HOT_READS_WINDOW_MS,
} from '../../src/base/limits.js';
import { HotReads, type HotReadsParts } from '../../src/store/copies/hot-reads.js';
import { ManualClock } from '../_support/clock.js';

/** Requests end at once, unless `copy` is given. */
function counting(overrides: Partial<HotReadsParts> = {}) {
  const clock = new ManualClock();
  const asked: (readonly string[])[] = [];
  const copy = async (keys: readonly string[]): Promise<void> => {
    asked.push(keys);
  };
  const reads = new HotReads({ copy, mayCopy: () => true, clock, ...overrides });
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
  const copy = (keys: readonly string[]) => {
    asked.push(keys);
    return new Promise<void>((resolve) => {
      end = resolve;
    });
  };
  const { clock, reads, read } = counting({ copy });
  const keys = Array.from({ length: COPY_REQUEST_MAX_KEYS + 10 }, (_, i) => `key ${i}`);
  await read('a', HOT_READS_MIN_COUNT);
  for (let i = 0; i < 2 * HOT_READS_MIN_COUNT; i++) {
    reads.read(keys);
    await clock.yield();
  }
  t.deepEqual(asked, [['a']]);
  end();
  await clock.yield();
  t.deepEqual(asked.slice(1), [keys.slice(0, COPY_REQUEST_MAX_KEYS)]);
  end();
  await clock.yield();
  t.is(asked.length, 2, 'nothing waits');
  reads.read(keys);
  t.deepEqual(asked.slice(2), [keys.slice(COPY_REQUEST_MAX_KEYS)]);
});

test('hot reads: what waits is given up when the node must not copy any more', async (t) => {
  const asked: (readonly string[])[] = [];
  let end = (): void => {};
  let isDraining = false;
  const copy = (keys: readonly string[]) => {
    asked.push(keys);
    return new Promise<void>((resolve) => {
      end = resolve;
    });
  };
  const { clock, read } = counting({ copy, mayCopy: () => !isDraining });
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
