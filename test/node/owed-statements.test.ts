import test, { type ExecutionContext } from 'ava';
import { DIRECTORY_REQUEST_MAX_KEYS, OWED_STATEMENTS_MAX_KEYS, STATEMENT_RETRY_MAX_MS } from '../../src/base/limits.js';
import type { LocationSource } from '../../src/directory/client.js';
import { OwedStatements } from '../../src/node/upkeep/owed-statements.js';
import { ManualClock } from '../_support/clock.js';
import { locationOf } from '../_support/directory/locations.js';
import { testEnvironment } from '../_support/rpc/server.js';

function bench(t: ExecutionContext) {
  const clock = new ManualClock();
  const here = new Set<string>();
  const told: string[] = [];
  const owner = { isDeaf: true, onAsked: (): void => {} };
  const members = new Set(['o', 'p']);
  const locationsOf = (keys: readonly string[]) => keys.map((key) => (here.has(key) ? locationOf() : null));
  const take = async (keys: readonly string[], what: string): Promise<boolean> => {
    if (keys.length === 0) return true;
    owner.onAsked();
    owner.onAsked = () => {};
    if (!owner.isDeaf) told.push(...keys.map((key) => `${what} ${key}`));
    return !owner.isDeaf;
  };
  const owed = new OwedStatements({
    directory: {
      announce: async (_ownerId: string, keys: readonly string[], _source: LocationSource) => take(keys, 'has'),
      retract: async (_ownerId: string, keys: readonly string[]) => take(keys, 'has no'),
    },
    locationsOf,
    isMember: (nodeId) => members.has(nodeId),
    restateAll: async (ownerId) => {
      if (!owner.isDeaf) told.push(`everything to ${ownerId}`);
      return !owner.isDeaf;
    },
    env: testEnvironment({ clock }),
  });
  t.teardown(() => owed.stop());
  const pass = async (ms: number): Promise<void> => {
    for (let left = ms; left > 0; left -= 250) {
      clock.advance(250);
      for (let i = 0; i < 10; i++) await clock.yield();
    }
  };
  const leave = (nodeId: string): void => {
    members.delete(nodeId);
    owed.membersChanged();
  };
  return { clock, here, told, owner, owed, leave, pass };
}

test('owed statements: an owner is told what holds when it answers, not what held', async (t) => {
  const { here, told, owner, owed, pass } = bench(t);
  here.add('a');
  owed.owe('o', ['a', 'b']);
  owed.owe('o', ['c']);
  await pass(60_000);
  t.deepEqual(told, []);
  here.delete('a');
  here.add('b');
  owner.isDeaf = false;
  await pass(2 * STATEMENT_RETRY_MAX_MS);
  t.deepEqual(told.sort(), ['has b', 'has no a', 'has no c']);
  await pass(60_000);
  t.is(told.length, 3, 'once');
});

test('owed statements: an owner that is owed too much is told of everything', async (t) => {
  const { told, owner, owed, pass } = bench(t);
  for (let i = 0; i <= OWED_STATEMENTS_MAX_KEYS; i += 1000)
    owed.owe(
      'o',
      Array.from({ length: 1000 }, (_, j) => `${i + j}`),
    );
  await pass(10_000);
  owner.isDeaf = false;
  await pass(2 * STATEMENT_RETRY_MAX_MS);
  t.is(told.at(-1), 'everything to o');
});

test('owed statements: an owner that has left is owed nothing, and nothing is left when they are stopped', async (t) => {
  const { clock, told, owner, owed, leave, pass } = bench(t);
  owed.owe('o', ['a']);
  owed.owe('p', ['a']);
  leave('o');
  owner.isDeaf = false;
  await pass(2 * STATEMENT_RETRY_MAX_MS);
  t.deepEqual(told, ['has no a']);
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
