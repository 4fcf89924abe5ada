import test from 'ava';
import { systemClock } from '../../src/base/clock.js';
import { JoinedReads } from '../../src/store/joined-reads.js';
import type { CallerPage } from '../../src/store/page-store.js';
import type { RemoteRead, RemoteReadOptions } from '../../src/store/remote-reads.js';

const PAGE: CallerPage = { ranges: [], views: [], length: 8 };

interface Asked {
  readonly keys: readonly string[];
  readonly options: RemoteReadOptions;
  end(reads: RemoteRead[]): void;
  fail(error: Error): void;
}

/** Joined reads above reads that a test ends; keys have the owner that is their last digit. */
function joined() {
  const asked: Asked[] = [];
  const read = (
    keys: readonly string[],
    _pages: readonly CallerPage[],
    wanted: readonly number[],
    options: RemoteReadOptions = {},
  ) =>
    new Promise<RemoteRead[]>((end, fail) => {
      asked.push({ keys: wanted.map((i) => keys[i] as string), options, end, fail });
    });
  const firstOwners = (keys: readonly string[]) => Uint32Array.from(keys, (key) => Number(key.at(-1)));
  const reads = new JoinedReads({ reads: { read }, firstOwners, clock: systemClock });
  const get = (keys: readonly string[], wanted = keys.map((_, i) => i), options: RemoteReadOptions = {}) =>
    reads.read(
      keys,
      keys.map(() => PAGE),
      wanted,
      options,
    );
  return { asked, get };
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

function found(index: number, isRead = true): RemoteRead {
  return { index, nodeId: 'n', tier: 'memory', isRead };
}

test('joined reads: calls of one turn and one owner are one read, those of other owners are read apart', async (t) => {
  const { asked, get } = joined();
  const calls = [get(['a1']), get(['b2']), get(['c1', 'x1'], [0]), get(['d3'])];
  t.is(asked.length, 0);
  await turn();
  t.deepEqual(
    asked.map(({ keys }) => keys),
    [['a1', 'c1'], ['b2'], ['d3']],
  );
  for (const { keys, end } of asked) end(keys.map((_, i) => found(i, i === 0)));
  t.deepEqual(await Promise.all(calls), [[found(0)], [found(0)], [found(0, false)], [found(0)]]);
  void get(['e1']);
  await turn();
  t.is(asked.length, 4, 'the next turn is another read');
});

test('joined reads: a call ends when its own pages are there, the others when all is known', async (t) => {
  const { asked, get } = joined();
  const ended: string[] = [];
  const early = get(['a1', 'b1']).then((reads) => ended.push('early') && reads);
  const late = get(['c1']).then((reads) => ended.push('late') && reads);
  await turn();
  const [{ options, end }] = asked as [Asked];
  options.onRead?.(found(1));
  await turn();
  t.deepEqual(ended, []);
  options.onRead?.(found(0));
  t.deepEqual(await early, [found(1), found(0)]);
  t.deepEqual(ended, ['early']);
  // Tried on two nodes, and read at the second attempt.
  end([found(2, false), found(0), found(1), found(2)]);
  t.deepEqual(await late, [found(0, false), found(0)]);
});

test('joined reads: what is on the own disk is told to the call whose it is, and a failure to all', async (t) => {
  const { asked, get } = joined();
  const own: string[] = [];
  const a = get(['a1'], [0], { onOwn: (indices) => own.push(`a ${indices}`) });
  const b = get(['x', 'b1'], [1], { onOwn: (indices) => own.push(`b ${indices}`) });
  await turn();
  const [{ options, fail }] = asked as [Asked];
  options.onOwn?.([1, 0]);
  t.deepEqual(own, ['b 1', 'a 0']);
  const failed = Promise.allSettled([a, b]);
  fail(new Error('planted'));
  t.deepEqual(
    (await failed).map(({ status }) => status),
    ['rejected', 'rejected'],
  );
});

test('joined reads: calls of many pages and those that may be aborted are read alone, and at once', async (t) => {
  const { asked, get } = joined();
  const { signal } = new AbortController();
  void get(['a1'], [0], { signal });
  void get(Array.from({ length: 100 }, () => 'b1'));
  t.is(asked.length, 2);
  t.is(asked[0]?.options.signal, signal);
});
