import test, { type ExecutionContext } from 'ava';
import { CLIENT_STEP_KEYS, DROPS_MAX_KEYS, STATEMENT_RETRY_MAX_MS } from '../../src/base/limits.js';
import { type DropHandler, type DropReason, PageDrops } from '../../src/node/upkeep/page-drops.js';
import { RpcServer } from '../../src/rpc/server.js';
import { ManualClock } from '../_support/clock.js';
import { startStore } from '../_support/node/simulated-stores.js';
import { newClient, testEnvironment } from '../_support/rpc/server.js';
import { simulated } from '../_support/simulated.js';
import { content, until } from '../_support/support.js';

const JOIN_MS = 10_000;
/** Versions from here on are too far ahead. */
const FAR = 1e9;

interface Told {
  readonly keys: readonly string[];
  readonly voidBelow: readonly number[];
  readonly reason: DropReason;
}

/** The drops of node `a`, and node `b`, which answers when `answer` has resolved. */
async function newPair(t: ExecutionContext, clock = new ManualClock()) {
  const env = testEnvironment({ clock });
  const server = new RpcServer({ host: '127.0.0.1', env: testEnvironment() });
  const port = await server.start();
  const told: Told[] = [];
  const holder = {
    isReachable: true,
    isMember: true,
    answer: async (): Promise<void> => {},
    onRestate: (): void => {},
  };
  const endpointOf = () => (holder.isMember ? { host: '127.0.0.1', port } : undefined);
  const options = { rpc: newClient(t), env, endpointOf, joinMs: JOIN_MS, isAhead: (version: number) => version >= FAR };
  const restated: number[] = [];
  const handler: DropHandler = async (keys, voidBelow, reason) => {
    if (!holder.isReachable) throw new Error('not now');
    told.push({ keys, voidBelow, reason });
    await holder.answer();
    return 0;
  };
  const restate = (): void => {
    restated.push(told.length);
    holder.onRestate();
  };
  new PageDrops({ ...options, nodeId: 'b' }).handle(server, handler, restate);
  const drops = new PageDrops({ ...options, nodeId: 'a' });
  t.teardown(async () => {
    drops.stop();
    await server.stop();
  });
  return { drops, told, holder, clock, restated };
}

test('page drops: what is owed for one reason stays owed when the key is to be dropped for another', async (t) => {
  // Cause: the latest took the place of what was owed; a deleted page was only dropped, and the delete taken for done.
  const { drops, told, holder, clock } = await newPair(t);
  holder.isReachable = false;
  drops.tell('b', [{ key: 'k', voidBelow: 20, reason: 'deleted' }]);
  await drops.told([]);
  drops.tell('b', [{ key: 'k', voidBelow: 10, reason: 'deleted' }]);
  drops.tell('b', [{ key: 'k', voidBelow: 15, reason: 'superseded' }]);
  t.deepEqual(drops.isOwedBy('b', ['k', 'other']), [true, false]);
  t.deepEqual([drops.owes('b'), drops.owes('c')], [true, false]);
  holder.isReachable = true;
  clock.advance(2 * STATEMENT_RETRY_MAX_MS);
  await until(() => !drops.owes('b'));
  t.deepEqual(drops.isOwedBy('b', ['k']), [false]);
  t.deepEqual(told, [
    { keys: ['k'], voidBelow: [15], reason: 'superseded' },
    { keys: ['k'], voidBelow: [20], reason: 'deleted' },
  ]);
});

test('page drops: an order that every node refuses, because its version is too far ahead, is not owed', async (t) => {
  // Otherwise a node that joins would never have been told everything.
  const { drops, told } = await newPair(t);
  drops.tell('b', [
    { key: 'k', voidBelow: FAR, reason: 'deleted' },
    { key: 'l', voidBelow: 1, reason: 'deleted' },
  ]);
  t.true(drops.owes('b'));
  await drops.told([]);
  t.deepEqual([told[0]?.keys, drops.owes('b')], [['l'], false]);
  t.deepEqual(drops.isOwedBy('b', ['k', 'l']), [true, false], 'it is sent again, until the clocks agree');
});

test('page drops: a node that joins is told when it is known, one that has left is not', async (t) => {
  // Cause: it had stated pages before the owner knew of it as a member; that they were void it never heard.
  const { drops, told, holder, clock } = await newPair(t);
  holder.isMember = false;
  drops.tell('b', [{ key: 'k', voidBelow: 20, reason: 'superseded' }]);
  await drops.told([]);
  t.deepEqual(drops.isOwedBy('b', ['k']), [false], 'nobody waits for it');
  holder.isMember = true;
  clock.advance(STATEMENT_RETRY_MAX_MS);
  await until(() => told.length === 1);
  holder.isMember = false;
  drops.tell('b', [{ key: 'l', voidBelow: 20, reason: 'superseded' }]);
  await drops.told([]);
  for (let attempt = 0; attempt * STATEMENT_RETRY_MAX_MS <= 2 * JOIN_MS; attempt++) {
    clock.advance(2 * STATEMENT_RETRY_MAX_MS);
    await new Promise((resolve) => setImmediate(resolve));
  }
  holder.isMember = true;
  drops.tell('b', [{ key: 'm', voidBelow: 20, reason: 'superseded' }]);
  await until(() => told.length > 1);
  t.deepEqual(
    told.map(({ keys }) => keys),
    [['k'], ['m']],
  );
  drops.verify();
});

test('page drops: who waits is not kept waiting by what is told later', async (t) => {
  // Cause: all that was told before the last answer had come was waited for; under steady overwriting each put waited
  // until its time was over.
  const { drops, told, holder } = await newPair(t);
  let count = 0;
  const tell = (): void => drops.tell('b', [{ key: `k${count++}`, voidBelow: 1, reason: 'superseded' }]);
  holder.answer = async () => {
    if (count < 100) tell();
  };
  tell();
  await drops.told([]);
  t.true(told.length <= 2, `${told.length} messages`);
  await until(() => told.length === 100);
});

test('page drops: whoever drops a key once more waits for what is under way for it', async (t) => {
  // Cause: a page was set twice in a short time; the second set displaced the first one's page only, and returned while
  // the holder of the page before both had not been reached.
  const { drops, told, holder } = await newPair(t);
  let answer: () => void = () => {};
  holder.answer = () => new Promise<void>((resolve) => (answer = resolve));
  drops.tell('b', [{ key: 'k', voidBelow: 1, reason: 'superseded' }]);
  const first = drops.told(['k']);
  await until(() => told.length === 1);
  await drops.told(['other']);
  let isOver = false;
  const second = drops.told(['k']).then(() => (isOver = true));
  await new Promise((resolve) => setImmediate(resolve));
  t.false(isOver);
  answer();
  await Promise.all([first, second]);
  t.is(told.length, 1);
});

test('page drops: a node that is owed more than can be remembered is not said to have dropped any of it', async (t) => {
  const { drops, told, holder, clock, restated } = await newPair(t);
  holder.isReachable = false;
  const keys = Array.from({ length: DROPS_MAX_KEYS + 1 }, (_, i) => `k${i}`);
  drops.tell(
    'b',
    keys.map((key) => ({ key, voidBelow: 1, reason: 'deleted' as const })),
  );
  await drops.told([]);
  t.deepEqual(drops.isOwedBy('b', ['k0', 'k1']), [true, true]);
  holder.isReachable = true;
  clock.advance(2 * STATEMENT_RETRY_MAX_MS);
  await until(() => !drops.isOwedBy('b', ['k0'])[0]);
  t.is(told.flatMap((each) => each.keys).length, DROPS_MAX_KEYS);
  t.is(restated.length, 1, 'the rest it learns from the directory, once it has stated its pages');
});

test('page drops: what is told while a node is asked to state its pages anew is sent to it', async (t) => {
  // Cause: the answer ended all that was owed; a delete that was called meanwhile was true, and the node still had the
  // page.
  const { drops, told, holder, clock } = await newPair(t);
  holder.isReachable = false;
  const keys = Array.from({ length: DROPS_MAX_KEYS + 1 }, (_, i) => `k${i}`);
  drops.tell(
    'b',
    keys.map((key) => ({ key, voidBelow: 1, reason: 'deleted' as const })),
  );
  await drops.told([]);
  holder.isReachable = true;
  holder.onRestate = () => drops.tell('b', [{ key: 'late', voidBelow: 1, reason: 'deleted' }]);
  clock.advance(2 * STATEMENT_RETRY_MAX_MS);
  await until(() => !drops.isOwedBy('b', ['late'])[0]);
  t.true(told.some((each) => each.keys.includes('late')));
  drops.verify();
});

simulated('page drops: of a call that deletes more keys than a node may owe all are gone', async (t, world) => {
  // Cause: the first ones were forgotten before anybody was told of them, and were true.
  const store = await startStore(world);
  const keys = Array.from({ length: DROPS_MAX_KEYS + 1 }, (_, i) => `k${i}`);
  t.true(await store.set('k0', content(1, 100)));
  t.true((await store.delete(keys)).every((isGone) => isGone));
  t.is(await store.get('k0'), null);
});

test('page drops: orders of a node to itself leave the thread to others between two requests', async (t) => {
  // Cause: 65,536 deleted keys were dropped in one turn of the event loop.
  const counts: number[] = [];
  let turns = 0;
  const clock = Object.assign(new ManualClock(), {
    yield: async (): Promise<void> => void turns++,
  });
  const { drops } = await newPair(t, clock);
  const server = new RpcServer({ host: '127.0.0.1', env: testEnvironment() });
  drops.handle(
    server,
    async (keys) => {
      t.is(turns, counts.push(keys.length) - 1);
      return 0;
    },
    () => {},
  );
  const keys = Array.from({ length: 5_000 }, (_, i) => `key ${i}`);
  drops.tell(
    'a',
    keys.map((key) => ({ key, voidBelow: 1, reason: 'deleted' })),
  );
  await drops.told(keys);
  t.true(counts.every((count) => count <= CLIENT_STEP_KEYS));
  t.is(
    counts.reduce((sum, count) => sum + count),
    keys.length,
  );
});
