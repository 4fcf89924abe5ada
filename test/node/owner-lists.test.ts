import test, { type ExecutionContext } from 'ava';
import {
  ANNOUNCE_ASKED_GAP_MS,
  ANNOUNCE_FULL_MS,
  ANNOUNCE_RETRY_MAX_MS,
  RPC_RETRY_AFTER_MS,
} from '../../src/base/limits.js';
import { PartitionedRing } from '../../src/core/ring/partitions.js';
import { DirectoryClient, type LocationSource } from '../../src/directory/client.js';
import type { RingView } from '../../src/directory/gains.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import { OwnerLists } from '../../src/node/upkeep/owner-lists.js';
import { OwnerRings } from '../../src/node/upkeep/owner-rings.js';
import { ShardUpkeep } from '../../src/node/upkeep/shard-upkeep.js';
import { ManualClock } from '../_support/clock.js';
import { locationOf, putOne } from '../_support/directory/locations.js';
import { newClient, testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';

const KEYS = Array.from({ length: 300 }, (_, i) => `key-${i}`);

function viewOf(...nodeIds: string[]): RingView & { ring: PartitionedRing } {
  const ring = new PartitionedRing(160);
  ring.setNodes(nodeIds);
  return { ring, incarnations: new Map(nodeIds.map((id) => [id, 1])) };
}

/** A directory client that only remembers what it would have announced; `answer` says how each announcement ends. */
class RecordingDirectory extends DirectoryClient {
  readonly told = new Map<string, Set<string>>();
  answer: (ownerId: string) => Promise<boolean> = async () => true;

  override async announce(ownerId: string, keys: readonly string[], locations: LocationSource): Promise<boolean> {
    const found = typeof locations === 'function' ? locations(keys) : locations;
    const isComplete = await this.answer(ownerId);
    if (!isComplete) return false;
    const told = this.told.get(ownerId) ?? new Set();
    this.told.set(ownerId, told);
    keys.forEach((key, i) => void (found[i] && told.add(key)));
    return true;
  }
}

function newLists(t: ExecutionContext, initial: RingView, keys: string[] = [...KEYS], sliceKeys = 1_000) {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const directory = new RecordingDirectory(initial.ring, () => undefined, 1, { rpc: newClient(t), env });
  const lists = new OwnerLists({ directory, shard: new DirectoryShard(), initial, env });
  let [walks, slices] = [0, 0];
  lists.start({
    *keysInSlices() {
      walks++;
      for (let i = 0; i < keys.length; i += sliceKeys) {
        slices++;
        yield keys.slice(i, i + sliceKeys);
      }
    },
    get isEmpty() {
      return keys.length === 0;
    },
    locationsOf: (some) => some.map(() => locationOf()),
    drop: async () => {},
    *eachNote() {},
  });
  t.teardown(() => {
    lists.verify();
    lists.stop();
  });
  return { clock, directory, lists, keys, walks: () => walks, slices: () => slices };
}

const ownedBy = (view: RingView & { ring: PartitionedRing }, id: string): string[] =>
  KEYS.filter((key) => view.ring.getNode(key) === id);

test('owner lists: an owner that does not answer is told again, after longer and longer pauses, until it has answered', async (t) => {
  // Cause: a failed announcement was logged and then counted as made.
  const after = viewOf('a', 'b');
  const { clock, directory, lists } = newLists(t, viewOf('a'));
  let attempts = 0;
  directory.answer = async () => ++attempts > 2;
  lists.ownersChanged(after);
  await until(() => attempts === 1 && clock.pendingCount === 1);
  clock.advance(RPC_RETRY_AFTER_MS);
  await until(() => attempts === 2 && clock.pendingCount === 1);
  clock.advance(RPC_RETRY_AFTER_MS);
  t.is(attempts, 2, 'the second pause is longer');
  t.false(lists.isComplete);
  clock.advance(RPC_RETRY_AFTER_MS);
  await until(() => lists.isComplete);
  t.is(directory.told.get('b')?.size, ownedBy(after, 'b').length);
  t.is(clock.pendingCount, 0);
});

test('owner lists: when no owner answers, the rest of the pages is not walked through', async (t) => {
  const { clock, directory, lists, slices } = newLists(t, viewOf('a'), [...KEYS], 100);
  let attempts = 0;
  directory.answer = async () => ++attempts > 1;
  lists.ownersChanged(viewOf('a', 'b'));
  await until(() => attempts === 1 && clock.pendingCount === 1);
  t.is(slices(), 1);
  clock.advance(2 * RPC_RETRY_AFTER_MS);
  await until(() => lists.isComplete);
  t.is(slices(), 1 + 3);
});

test('owner lists: an owner has been told when it has answered for everything, as the start that it is', async (t) => {
  const after = viewOf('a', 'b');
  const { clock, directory, lists } = newLists(t, viewOf('a'));
  let attempts = 0;
  directory.answer = async () => ++attempts > 1;
  t.false(lists.hasListed('b', 1), 'no member');
  lists.ownersChanged(after);
  t.false(lists.hasListed('b', 1));
  await until(() => attempts === 1 && clock.pendingCount === 1);
  t.false(lists.hasListed('b', 1), 'it has not taken it');
  clock.advance(2 * RPC_RETRY_AFTER_MS);
  t.false(lists.hasListed('b', 1), 'on its way');
  await until(() => lists.hasListed('b', 1));
  t.is(directory.told.get('b')?.size, ownedBy(after, 'b').length);
  t.false(lists.hasListed('b', 2), 'another start of it');
  lists.listAll();
  t.false(lists.hasListed('b', 1));
  await until(() => lists.hasListed('b', 1));
});

test('owner lists: before a node has said which pages it has, no owner has been told', (t) => {
  // Cause: a node that had joined, and was about to list the pages of its disk, said that it had none.
  const [initial, env] = [viewOf('a', 'b'), testEnvironment({ clock: new ManualClock() })];
  const directory = new RecordingDirectory(initial.ring, () => undefined, 1, { rpc: newClient(t), env });
  const lists = new OwnerLists({ directory, shard: new DirectoryShard(), initial, env });
  t.teardown(() => lists.stop());
  t.false(lists.hasListed('b', 1));
  lists.start({
    keysInSlices: () => [],
    isEmpty: true,
    locationsOf: (some) => some.map(() => null),
    drop: async () => {},
    *eachNote() {},
  });
  t.true(lists.hasListed('b', 1));
});

test('owner lists: one that has left is told nothing more, and a new start of it everything', async (t) => {
  const { clock, directory, lists } = newLists(t, viewOf('a'));
  let attempts = 0;
  directory.answer = async (ownerId) => {
    if (ownerId === 'b') attempts++;
    return ownerId !== 'b' || attempts > 2;
  };
  lists.ownersChanged(viewOf('a', 'b'));
  await until(() => attempts === 1 && clock.pendingCount === 1);
  lists.ownersChanged(viewOf('a'));
  await until(() => lists.isComplete);
  t.is(clock.pendingCount, 0);
  for (const incarnation of [1, 2]) {
    const { ring } = viewOf('a', 'b');
    // Its failures as an earlier start do not lengthen the pause.
    lists.ownersChanged({ ring, incarnations: new Map(Object.entries({ a: 1, b: incarnation })) });
    await until(() => attempts === 1 + incarnation);
  }
  await until(() => lists.isComplete);
  t.is(directory.told.get('b')?.size, ownedBy(viewOf('a', 'b'), 'b').length);
});

test('owner lists: the pause before an owner is told again is bounded, and it is never given up', async (t) => {
  // Cause: after eight attempts an owner was left without pages until all were stated again, minutes later.
  const { clock, directory, lists } = newLists(t, viewOf('a'));
  let attempts = 0;
  directory.answer = async (ownerId) => {
    if (ownerId === 'b') attempts++;
    return ownerId !== 'b';
  };
  lists.ownersChanged(viewOf('a', 'b'));
  for (let n = 1; n <= 20; n++) {
    await until(() => attempts === n && clock.pendingCount === 1);
    clock.advance(ANNOUNCE_RETRY_MAX_MS);
  }
  await until(() => attempts === 21);
  t.false(lists.isComplete);
});

test('owner lists: an owner that asks for everything gets it soon, and not again and again', async (t) => {
  const after = viewOf('a', 'b');
  const { clock, directory, lists } = newLists(t, after);
  let passes = 0;
  directory.answer = async () => Boolean(++passes);
  lists.listAgain('nobody');
  t.is(clock.pendingCount, 0);
  lists.listAgain('b');
  clock.advance(RPC_RETRY_AFTER_MS);
  await until(() => passes === 1 && lists.isComplete);
  t.is(directory.told.get('b')?.size, ownedBy(after, 'b').length);
  for (let i = 0; i < 5; i++) {
    lists.listAgain('b');
    t.is(clock.pendingCount, 1);
  }
  clock.advance(ANNOUNCE_ASKED_GAP_MS / 2);
  t.is(clock.pendingCount, 1, 'not yet');
  clock.advance(ANNOUNCE_ASKED_GAP_MS);
  await until(() => passes === 2 && lists.isComplete);
  t.is(clock.pendingCount, 0);
});

test('owner lists: pages for which an owner had no room are listed again after minutes, with their partitions', async (t) => {
  const after = viewOf('a', 'b');
  const { clock, directory, lists } = newLists(t, after);
  const [refused, other] = ownedBy(after, 'b') as [string, string];
  lists.refused('b', [refused]);
  lists.refused('gone', [refused]);
  t.true(lists.isComplete, 'it has answered');
  clock.advance(ANNOUNCE_FULL_MS);
  await until(() => directory.told.has('b'));
  await until(() => lists.isComplete);
  t.true(directory.told.get('b')?.has(refused));
  t.false(directory.told.get('b')?.has(other));
  t.deepEqual([[...directory.told.keys()], clock.pendingCount], [['b'], 0]);
});

test('owner lists: one that is to forget what is older gets everything before, and is not told if it does not answer', async (t) => {
  const after = viewOf('a', 'b');
  const { directory, lists } = newLists(t, after);
  const renounced: string[] = [];
  directory.renounce = async (ownerId) => Boolean(renounced.push(`${ownerId} ${directory.told.get(ownerId)?.size}`));
  directory.answer = async () => false;
  t.false(await lists.restate('b'));
  t.deepEqual(renounced, []);
  directory.answer = async () => true;
  t.true(await lists.restate('b'));
  t.deepEqual(renounced, [`b ${ownedBy(after, 'b').length}`]);
});

test('owner lists: what many owners have gained is told in one walk through the pages', async (t) => {
  const ids = Array.from({ length: 40 }, (_, i) => `n${i}`);
  const { clock, directory, lists, walks } = newLists(t, viewOf('a', ...ids));
  lists.ownersChanged(viewOf(...ids));
  t.is(clock.pendingCount, 1, 'in a large cluster nodes do not begin at once, and one timer does for all owners');
  t.false(lists.isComplete);
  clock.advance(1_000);
  await until(() => lists.isComplete);
  t.is(walks(), 1);
  lists.listAll();
  await until(() => lists.isComplete);
  t.is(walks(), 2);
  t.is(directory.told.size, new Set(KEYS.map((key) => viewOf(...ids).ring.getNode(key))).size);
});

test('owner lists: keys put under a view that came and went within a walk reach the owners after it', async (t) => {
  // Cause: the next pass compared the last announced view with the current one; a view in between did not count.
  const last = viewOf('a', 'b');
  const { directory, lists, keys } = newLists(t, viewOf('a'), []);
  keys.push('first');
  let release: (() => void) | undefined;
  directory.answer = () =>
    new Promise((resolve) => {
      release = () => resolve(true);
    });
  lists.ownersChanged(viewOf('b'));
  await until(() => release !== undefined);
  directory.answer = async () => true;
  const between = viewOf('a', 'b', 'c');
  lists.ownersChanged(between);
  keys.push(...KEYS);
  lists.ownersChanged(last);
  release?.();
  await until(() => lists.isComplete);
  for (const key of KEYS) {
    const owner = last.ring.getNode(key) as string;
    const wasTold = directory.told.get(owner)?.has(key) ?? false;
    t.true(wasTold || between.ring.getNode(key) === owner, key);
  }
});

test('owner lists: many changes within a walk end with everybody told everything', async (t) => {
  const last = viewOf('a', 'b');
  const { directory, lists } = newLists(t, viewOf('a'));
  let release: (() => void) | undefined;
  directory.answer = () =>
    new Promise((resolve) => {
      release = () => resolve(true);
    });
  lists.ownersChanged(last);
  await until(() => release !== undefined);
  directory.answer = async () => true;
  for (let i = 0; i < 100; i++) lists.ownersChanged(viewOf('a', `${i}`));
  t.is(lists.rings().length, 1);
  lists.ownersChanged(last);
  release?.();
  await until(() => lists.isComplete);
  for (const key of ownedBy(last, 'b')) t.true(directory.told.get('b')?.has(key), key);
});

test('owner lists: what changes just as a walk ends is listed', async (t) => {
  // Cause: it was left to a pass that had looked for the last time; a restarted node's pages on disk were not
  // announced.
  for (let ticks = 0; ticks < 24; ticks++) {
    const after = viewOf('a', 'b');
    const { directory, lists, keys } = newLists(t, viewOf('a'), []);
    lists.ownersChanged(after);
    for (let i = 0; i < ticks; i++) await Promise.resolve();
    keys.push(...KEYS);
    lists.listAll();
    await until(() => lists.isComplete);
    t.is(directory.told.get('b')?.size, ownedBy(after, 'b').length, `${ticks} ticks`);
  }
});

test('owner lists: stop does not wait for an owner that does not answer', async (t) => {
  // Cause: stop waited for the whole pass, up to a deadline for each batch.
  const { directory, lists } = newLists(t, viewOf('a'));
  let asked = 0;
  directory.answer = () => {
    asked++;
    return new Promise(() => {});
  };
  lists.ownersChanged(viewOf('a', 'b'));
  await until(() => asked === 1);
  lists.stop();
  t.is(asked, 1);
});

test('upkeep: nodes that come and go all the time do not put pruning off for ever', async (t) => {
  // Cause: each change of owners started the delay again.
  const clock = new ManualClock();
  const shard = new DirectoryShard();
  for (const key of KEYS) putOne(shard, key);
  const upkeep = new ShardUpkeep({ shard, nodeId: 'a', replicas: 1, pruneDelayMs: 1000, clock });
  t.teardown(() => upkeep.stop());
  const [two, three] = [viewOf('a', 'b'), viewOf('a', 'b', 'c')];
  upkeep.ownersChanged(two.ring);
  clock.advance(600);
  upkeep.ownersChanged(three.ring);
  clock.advance(399);
  t.is(shard.stats().keys, KEYS.length);
  clock.advance(1);
  t.is(shard.stats().keys, ownedBy(two, 'a').length, 'what has been owned within the delay stays');
  await until(() => clock.pendingCount === 1);
  clock.advance(1000);
  t.is(shard.stats().keys, ownedBy(three, 'a').length);
  await new Promise((resolve) => setImmediate(resolve));
  t.is(clock.pendingCount, 0);
  t.deepEqual(upkeep.rings(), [three.ring]);
});

test('upkeep: what a node has owned until a moment ago stays, however long ago the change before was', async (t) => {
  // Cause: all went by the ring of the moment when the first change was old enough; those who joined just then were not
  // told yet.
  const clock = new ManualClock();
  const shard = new DirectoryShard();
  for (const key of KEYS) putOne(shard, key);
  const upkeep = new ShardUpkeep({ shard, nodeId: 'a', replicas: 1, pruneDelayMs: 1000, clock });
  t.teardown(() => upkeep.stop());
  const [one, two] = [viewOf('a'), viewOf('a', 'b')];
  upkeep.ownersChanged(one.ring);
  clock.advance(999);
  upkeep.ownersChanged(two.ring);
  clock.advance(1);
  t.is(shard.stats().keys, KEYS.length);
  t.deepEqual(upkeep.rings(), [two.ring, one.ring]);
  await until(() => clock.pendingCount === 1);
  clock.advance(1000);
  t.is(shard.stats().keys, ownedBy(two, 'a').length);
});

test('rings: those that nobody uses are freed, the others stay', (t) => {
  // Cause: the garbage collector does not see the points of rings that were given up.
  const rings = new OwnerRings(10);
  const kept = rings.make(['a', 'b']);
  const dropped = rings.make(['a']);
  rings.keepFor([{ rings: () => [kept] }, { rings: () => [] }]);
  t.is(rings.count, 1);
  t.true(['a', 'b'].includes(kept.getNode('key') as string));
  t.throws(() => dropped.getNode('key'), { code: 'ERR_CLOSED' });
});
