import test from 'ava';
import { LocatedPages } from '../../src/directory/messages/located-pages.js';
import type { CallerPage } from '../../src/store/call/caller-page.js';
import { JoinedReads } from '../../src/store/remote/joined-reads.js';
import { RemoteOutcome } from '../../src/store/remote/remote-outcome.js';
import type { RemoteReads, RemoteRequest } from '../../src/store/remote/remote-reads.js';
import { DataLocation } from '../../src/types.js';
import { groundOf } from '../_support/store/ground.js';

const PAGE: CallerPage = { ranges: [], views: [], length: 8 };

type Options = Partial<RemoteRequest>;

interface Asked {
  readonly keys: readonly string[];
  readonly options: Options;
  end(outcome: RemoteOutcome): void;
  fail(error: Error): void;
}

/** Joined reads above reads that a test ends; keys have the owner that is their last digit. */
function joined() {
  const asked: Asked[] = [];
  const read = (request: RemoteRequest) =>
    new Promise<RemoteOutcome>((end, fail) => {
      const { keys, wanted } = request;
      asked.push({ keys: wanted.map((i) => keys[i] as string), options: request, end, fail });
    });
  const firstOwners = (keys: readonly string[]) => Uint32Array.from(keys, (key) => Number(key.at(-1)));
  const reads = new JoinedReads(groundOf({ directory: { firstOwners } }), { read } as unknown as RemoteReads);
  const get = async (
    keys: readonly string[],
    wanted: readonly number[] = keys.map((_, i) => i),
    options: Options = {},
    page = PAGE,
  ) => outcomesOf(await reads.read({ keys, pages: keys.map(() => page), wanted, ...options }));
  return { asked, get };
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

function found(index: number, isRead = true) {
  return { index, isRead };
}

/** Of one node, which has read or missed these. */
function outcome(...pages: readonly ReturnType<typeof found>[]): RemoteOutcome {
  const result = new RemoteOutcome();
  for (const { index, isRead } of pages) {
    const location = new DataLocation({ nodeId: 'n', rdmaEndpoint: 'h:1', remoteAddr: 0n, rkey: 1, length: 8 });
    if (isRead) result.addRead(LocatedPages.of([[index, location]]), 0);
    else result.missed.push({ index, nodeId: 'n', tier: 'memory' });
  }
  return result;
}

function outcomesOf({ reads, missed }: RemoteOutcome) {
  return [
    ...missed.map(({ index }) => found(index, false)),
    ...reads.flatMap(({ indices }) => indices).map((i) => found(i)),
  ];
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
  for (const { keys, options, end } of asked) {
    const pages = keys.map((_, i) => found(i));
    for (const page of pages) options.round?.tried(outcome(page));
    end(outcome(...pages));
  }
  t.deepEqual(
    await Promise.all(calls),
    calls.map(() => [found(0)]),
  );
  void get(['e1']);
  await turn();
  t.is(asked.length, 4, 'the next turn is another read');
});

test('joined reads: a call ends when its own pages are there, or are known to be misses', async (t) => {
  const { asked, get } = joined();
  const ended: string[] = [];
  const early = get(['a1', 'b1']).then((reads) => ended.push('early') && reads);
  const missing = get(['c1']).then((reads) => ended.push('missing') && reads);
  const late = get(['d1']).then((reads) => ended.push('late') && reads);
  await turn();
  const [{ options, end }] = asked as [Asked];
  options.round?.tried(outcome(found(1)));
  await turn();
  t.deepEqual(ended, []);
  options.round?.tried(outcome(found(0)));
  t.deepEqual(await early, [found(1), found(0)]);
  options.round?.searched(Uint8Array.of(1, 1, 0, 1));
  t.deepEqual(await missing, []);
  t.deepEqual(ended, ['early', 'missing']);
  end(outcome(found(0), found(1)));
  t.deepEqual(await late, [], 'with another length, it was not tried');
  t.is(asked.length, 1);
});

test('joined reads: a page that was not where it was said to be is looked for anew, alone', async (t) => {
  const { asked, get } = joined();
  const slow = get(['a1']);
  const stale = get(['x', 'b1', 'c1'], [1, 2]);
  await turn();
  const [{ options, end }] = asked as [Asked];
  options.round?.tried(outcome(found(1, false)));
  options.round?.tried(outcome(found(2)));
  t.deepEqual(
    asked.map(({ keys }) => keys),
    [['a1', 'b1', 'c1'], ['b1']],
    'without waiting for others',
  );
  asked[1]?.end(outcome(found(1)));
  t.deepEqual(await stale, [found(1, false), found(2), found(1)]);
  options.round?.tried(outcome(found(0)));
  end(outcome(found(0)));
  t.deepEqual(await slow, [found(0)]);
});

test('joined reads: a page that is on the own disk is told to the call whose it is, which waits for nobody', async (t) => {
  const { asked, get } = joined();
  const own: string[] = [];
  void get(['a1'], [0], { onOwn: (indices) => own.push(`a ${indices}`) });
  const b = get(['x', 'b1'], [1], { onOwn: (indices) => own.push(`b ${indices}`) });
  await turn();
  const [{ options }] = asked as [Asked];
  options.onOwn?.([1]);
  t.deepEqual(own, ['b 1']);
  t.deepEqual(await b, []);
});

test('joined reads: when they fail together, each is read alone', async (t) => {
  const { asked, get } = joined();
  const calls = [get(['a1']), get(['b1']), get(['c1'])];
  await turn();
  const [{ options, fail }] = asked as [Asked];
  options.round?.tried(outcome(found(2)));
  fail(new Error('planted'));
  await turn();
  t.deepEqual(
    asked.map(({ keys }) => keys),
    [['a1', 'b1', 'c1'], ['a1'], ['b1']],
  );
  asked[1]?.fail(new Error('its own'));
  asked[2]?.end(outcome(found(0)));
  await t.throwsAsync(calls[0] as Promise<unknown>, { message: 'its own' });
  t.deepEqual(await calls[1], [found(0)]);
  t.deepEqual(await calls[2], [found(0)]);
});

test('joined reads: calls of many pages and those that may be aborted are read alone, and at once', async (t) => {
  const { asked, get } = joined();
  const { signal } = new AbortController();
  void get(['a1'], [0], { signal });
  void get(Array.from({ length: 100 }, () => 'b1'));
  void get(['c1'], [0], {}, { ...PAGE, length: 2 ** 24 });
  t.is(asked.length, 3);
  t.is(asked[0]?.options.signal, signal);
});
