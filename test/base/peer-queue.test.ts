import test from 'ava';
import { jittered, pauseAfter } from '../../src/base/concurrency/backoff.js';
import { PeerQueue, type Waiting } from '../../src/base/concurrency/peer-queue.js';
import { ManualClock } from '../_support/clock.js';
import { testEnvironment } from '../_support/rpc/server.js';

interface Item {
  readonly text: string;
}

const BACKOFF = { minMs: 100, maxMs: 400 };

function bench(graceMs = 0) {
  const clock = new ManualClock();
  const peer = { isDeaf: false, isMember: true, onTold: (): void | Promise<void> => {} };
  const told: string[] = [];
  const hear = async (texts: readonly string[]): Promise<boolean> => {
    await peer.onTold();
    if (!peer.isDeaf) told.push(texts.join());
    return !peer.isDeaf;
  };
  const textsOf = (waiting: readonly Waiting<Item>[]): string[] => waiting.map(([key, { text }]) => `${key}${text}`);
  const queue = new PeerQueue<Item>({
    name: 'queue',
    env: testEnvironment({ clock }),
    backoff: BACKOFF,
    maxCount: 3,
    graceMs,
    isMember: () => peer.isMember,
    join: (before, item) => ({ text: before.text + item.text }),
    tell: async (_peer, waiting) => ((await hear(textsOf(waiting))) ? waiting : []),
    tellAll: () => hear(['all']),
  });
  const turns = async (): Promise<void> => {
    for (let i = 0; i < 20; i++) await clock.yield();
  };
  const pass = async (ms: number): Promise<void> => {
    await turns();
    clock.advance(ms);
    await turns();
    queue.verify();
  };
  return { clock, peer, told, queue, turns, pass };
}

const x = (...keys: string[]): Waiting<Item>[] => keys.map((key) => [key, { text: 'x' }]);

test('backoff: each pause is twice the one before, up to the longest, and is a quarter shorter at most', (t) => {
  t.deepEqual(
    [1, 2, 3, 4, 2000].map((failures) => pauseAfter(failures, BACKOFF)),
    [100, 200, 400, 400, 400],
  );
  t.is(jittered(100, { u32: () => 0 }), 75);
  t.is(Math.round(jittered(100, { u32: () => 0xffffffff })), 100);
});

test('peer queue: what is added in one turn is told together, once, with one item a key', async (t) => {
  const { queue, told, turns } = bench();
  queue.add('p', x('a', 'b'));
  queue.add('p', x('a'));
  t.true(queue.has('p', 'a'));
  await queue.attended(() => true, 1000);
  await turns();
  t.deepEqual(told, ['bx,axx']);
  t.false(queue.has('p', 'a'));
  t.is(queue.count, 0);
});

test('peer queue: peers that are added together wait for one timer, unless they start or the queue stops', async (t) => {
  const { clock, queue, told, turns, pass } = bench();
  const addAll = () =>
    queue.addEach(
      ['p', 'q', 'r'].map((peer) => [peer, x(peer)] as const),
      100,
    );
  addAll();
  t.is(clock.pendingCount, 1);
  queue.started('q');
  await turns();
  queue.verify();
  t.deepEqual(told, ['qx']);
  await pass(100);
  t.deepEqual(told, ['qx', 'px', 'rx']);
  addAll();
  queue.stop();
  t.is(clock.pendingCount, 0);
});

test('peer queue: a peer that has started is told at once, and is waited for', async (t) => {
  const { queue, told, peer, turns } = bench();
  peer.isDeaf = true;
  queue.add('p', x('a'));
  await turns();
  peer.isDeaf = false;
  queue.add('p', x('b'));
  queue.started('p');
  queue.verify();
  await queue.attended(() => true, 1000);
  t.deepEqual(told, ['ax,bx']);
  t.is(queue.count, 0);
});

test('peer queue: an attempt that a former start has yet to answer delays nothing for a peer that has started', async (t) => {
  const { queue, told, peer, turns } = bench();
  let answer = (): void => {};
  peer.onTold = () => new Promise<void>((resolve) => (answer = resolve));
  queue.add('p', x('a'));
  await turns();
  peer.onTold = () => {};
  queue.add('p', x('b'));
  queue.started('p');
  await queue.attended(() => true, 1000);
  t.deepEqual(told, ['ax,bx']);
  answer();
  await turns();
  queue.verify();
  t.is(queue.count, 0);
});

test('peer queue: who does not hear is told again after pauses that double, and what is added meanwhile goes along', async (t) => {
  const { queue, told, peer, clock, pass } = bench();
  peer.isDeaf = true;
  let attempts = 0;
  peer.onTold = () => {
    attempts++;
  };
  queue.add('p', x('a'));
  for (let i = 0; i < 10; i++) await pass(500);
  t.is(attempts, 11);
  queue.add('p', x('b'));
  await pass(0);
  t.is(attempts, 11, 'not before the pause is over');
  peer.isDeaf = false;
  await pass(500);
  t.deepEqual(told, ['ax,bx']);
  t.is(clock.pendingCount, 0);
});

test('peer queue: what changes while it is being told is told once more', async (t) => {
  const { queue, told, peer, pass } = bench();
  peer.onTold = () => {
    peer.onTold = () => {};
    queue.add('p', x('a'));
  };
  queue.add('p', x('a'));
  await pass(0);
  t.deepEqual(told, ['ax', 'axx']);
});

test('peer queue: beyond its limit the oldest are forgotten, and the peer is told all', async (t) => {
  const { queue, told, peer, pass } = bench();
  peer.isDeaf = true;
  queue.add('p', x('a', 'b', 'c', 'd', 'e'));
  t.is(queue.count, 5);
  t.true(queue.has('p', 'a'), 'it may have been forgotten');
  await pass(0);
  peer.isDeaf = false;
  await pass(500);
  t.deepEqual(told, ['cx,dx,ex', 'all']);
  t.false(queue.has('p', 'a'));
});

for (const graceMs of [0, 1000]) {
  test(`peer queue: a peer that has been no member for ${graceMs} ms is told nothing any more`, async (t) => {
    const { queue, told, peer, clock, pass } = bench(graceMs);
    peer.isDeaf = true;
    queue.add('p', x('a'));
    await pass(0);
    peer.isMember = false;
    queue.membersChanged();
    t.is(queue.count, graceMs === 0 ? 0 : 1);
    for (let i = 0; i < 4; i++) await pass(500);
    t.is(queue.count, 0);
    peer.isDeaf = false;
    await pass(500);
    t.deepEqual(told, []);
    t.is(clock.pendingCount, 0);
  });
}

test('peer queue: nobody waits for a peer that did not hear the last time, and after the end nothing is told', async (t) => {
  const { queue, told, peer, clock, pass } = bench();
  peer.isDeaf = true;
  queue.add('p', x('a'));
  await queue.attended(() => true, 1_000_000);
  await queue.attended(() => true, 1_000_000);
  queue.stop();
  queue.add('p', x('b'));
  await pass(1000);
  t.deepEqual(told, []);
  t.is(clock.pendingCount, 0);
});
