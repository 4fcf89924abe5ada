import test, { type ExecutionContext } from 'ava';
import { DIRECTORY_REQUEST_MAX_KEYS, OWED_STATEMENTS_MAX_KEYS, STATEMENT_RETRY_MAX_MS } from '../../src/base/limits.js';
import { PartitionedRing } from '../../src/core/ring/partitions.js';
import { DirectoryClient, type LocationSource } from '../../src/directory/client.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import { OwnerLists } from '../../src/node/upkeep/owner-lists.js';
import { ManualClock } from '../_support/clock.js';
import { locationOf } from '../_support/directory/locations.js';
import { newClient, testEnvironment } from '../_support/rpc/server.js';

/** What owners were told by a directory client that tells nobody. An owner that is deaf answers nothing. */
class RecordingDirectory extends DirectoryClient {
  readonly told: string[] = [];
  isDeaf = true;
  onAsked = (): void => {};

  override async announce(ownerId: string, keys: readonly string[], locations: LocationSource): Promise<boolean> {
    const found = typeof locations === 'function' ? locations(keys) : locations;
    return this.#take(
      ownerId,
      keys.filter((_, i) => found[i] !== null),
      'has',
    );
  }

  override async retract(ownerId: string, keys: readonly string[]): Promise<boolean> {
    return this.#take(ownerId, keys, 'has no');
  }

  override async renounce(ownerId: string): Promise<boolean> {
    return this.#take(ownerId, ['else'], 'has nothing');
  }

  #take(ownerId: string, keys: readonly string[], what: string): boolean {
    if (keys.length === 0) return true;
    this.onAsked();
    this.onAsked = () => {};
    if (!this.isDeaf) this.told.push(...keys.map((key) => `${ownerId} ${what} ${key}`));
    return !this.isDeaf;
  }
}

function bench(t: ExecutionContext) {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const here = new Set<string>();
  const viewOf = (...nodeIds: string[]) => {
    const ring = new PartitionedRing(16);
    ring.setNodes(nodeIds);
    return { ring, incarnations: new Map(nodeIds.map((id) => [id, 1])) };
  };
  const initial = viewOf('self', 'o', 'p');
  const owner = new RecordingDirectory(initial.ring, () => undefined, 1, { rpc: newClient(t), env });
  const owed = new OwnerLists({ directory: owner, shard: new DirectoryShard(), initial, env });
  owed.start({
    keysInSlices: () => [[...here]],
    isEmpty: true,
    locationsOf: (keys) => keys.map((key) => (here.has(key) ? locationOf() : null)),
    drop: async () => {},
    *eachNote() {},
  });
  t.teardown(() => owed.stop());
  const pass = async (ms: number): Promise<void> => {
    for (let left = ms; left > 0; left -= 250) {
      clock.advance(250);
      for (let i = 0; i < 10; i++) await clock.yield();
    }
  };
  return { clock, here, owner, owed, viewOf, pass };
}

test('owed statements: an owner is told what holds when it answers, not what held', async (t) => {
  const { here, owner, owed, pass } = bench(t);
  const { told } = owner;
  here.add('a');
  owed.owe('o', ['a', 'b']);
  owed.owe('o', ['c']);
  await pass(60_000);
  t.deepEqual(told, []);
  here.delete('a');
  here.add('b');
  owner.isDeaf = false;
  await pass(2 * STATEMENT_RETRY_MAX_MS);
  t.deepEqual(told.sort(), ['o has b', 'o has no a', 'o has no c']);
  await pass(60_000);
  t.is(told.length, 3, 'once');
});

test('owed statements: an owner that is owed too much is told of everything', async (t) => {
  const { owner, owed, pass } = bench(t);
  for (let i = 0; i <= OWED_STATEMENTS_MAX_KEYS; i += 1000)
    owed.owe(
      'o',
      Array.from({ length: 1000 }, (_, j) => `${i + j}`),
    );
  await pass(10_000);
  owner.isDeaf = false;
  await pass(2 * STATEMENT_RETRY_MAX_MS);
  t.is(owner.told.at(-1), 'o has nothing else');
});

test('owed statements: an owner that has left is owed nothing, and nothing is left when they are stopped', async (t) => {
  const { clock, owner, owed, viewOf, pass } = bench(t);
  owed.owe('o', ['a']);
  owed.owe('p', ['a']);
  owed.ownersChanged(viewOf('self', 'p'));
  owner.isDeaf = false;
  await pass(2 * STATEMENT_RETRY_MAX_MS);
  t.deepEqual(owner.told, ['p has no a']);
  owed.owe('p', ['b']);
  owed.stop();
  t.is(clock.pendingCount, 0);
});

test('owed statements: what could not be told comes back to what is owed, and together it is not more than may be', async (t) => {
  // Cause: the keys of a failed message were added whatever else was owed by then.
  const { clock, owner, owed } = bench(t);
  const owe = (name: string, count: number): void =>
    owed.owe(
      'o',
      Array.from({ length: count }, (_, i) => `${name} ${i}`),
    );
  owe('first', OWED_STATEMENTS_MAX_KEYS);
  owner.onAsked = () => owe('later', DIRECTORY_REQUEST_MAX_KEYS);
  clock.advance(2 * STATEMENT_RETRY_MAX_MS);
  await clock.yield();
  t.notThrows(() => owed.verify());
});
