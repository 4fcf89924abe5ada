import test from 'ava';
import { INTRODUCTION_TIMEOUT_MS } from '../../src/base/limits.js';
import { introduce } from '../../src/node/upkeep/introduction.js';
import { loggedEnvironment } from '../_support/discovery/masters.js';
import { startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated } from '../_support/simulated.js';

test('introduction: members that do not know the node in time are named in the log', async (t) => {
  const { env, messages } = loggedEnvironment();
  const waited: number[] = [];
  for (const unaware of [[], ['a', 'b']]) {
    const introduced = async (waitMs: number) => {
      waited.push(waitMs);
      return unaware;
    };
    await introduce({ introduced }, 'self', env);
  }
  t.deepEqual(waited, [INTRODUCTION_TIMEOUT_MS, INTRODUCTION_TIMEOUT_MS]);
  t.is(messages.length, 1);
  t.regex(String(messages[0]), /before all members know it/);
});

simulated('introduction: a node has started when every member goes by a list with it', async (t, world) => {
  const stores = await startCluster(world, 2);
  for (let i = 0; i < 8; i++) {
    const startedMs = world.nowMs;
    const store = await startStore(world);
    const { nodeId } = store.runtime;
    for (const other of stores) t.true(other.runtime.members().has(nodeId), `node ${i}`);
    t.true(world.nowMs - startedMs < INTRODUCTION_TIMEOUT_MS, `node ${i}: ${world.nowMs - startedMs} ms`);
    stores.push(store);
  }
});

simulated('introduction: nodes that start at once know each other when they have started', async (t, world) => {
  await startCluster(world, 2);
  const stores = await Promise.all(Array.from({ length: 6 }, () => startStore(world)));
  const ids = stores.map((store) => store.runtime.nodeId);
  for (const store of stores) for (const id of ids) t.true(store.runtime.members().has(id));
});

simulated('introduction: a member that is frozen is waited for one second', async (t, world) => {
  const stores = await startCluster(world, 3);
  const frozen = stores[2];
  frozen?.process.host.freeze();
  const startedMs = world.nowMs;
  await startStore(world);
  const tookMs = world.nowMs - startedMs;
  // The frozen one ceases to be a member when its time-to-live is over, which is as long.
  t.true(tookMs > INTRODUCTION_TIMEOUT_MS / 2 && tookMs < INTRODUCTION_TIMEOUT_MS + 200, `${tookMs} ms`);
  frozen?.process.host.thaw();
});
