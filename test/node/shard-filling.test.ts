import test, { type ExecutionContext } from 'ava';
import { SHARD_FILLING_POLL_MS, SHARD_FILLING_TIMEOUT_MS } from '../../src/base/limits.js';
import { ShardFilling } from '../../src/node/upkeep/shard-filling.js';
import { RpcServer } from '../../src/rpc/server.js';
import { NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { loggedEnvironment } from '../_support/discovery/masters.js';
import { newClient, testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';

function infoOf(nodeId: string, incarnation: number, controlPort: number): NodeInfo {
  return new NodeInfo({ nodeId, controlHost: '127.0.0.1', controlPort, protocols: ['tcp'], incarnation });
}

/** A node `self` of incarnation 10 among members that answer as `complete` says. */
async function setUp(t: ExecutionContext) {
  const clock = new ManualClock();
  const { env, messages } = loggedEnvironment({ clock });
  const server = new RpcServer({ host: '127.0.0.1', env: testEnvironment() });
  const asked: [string, number][] = [];
  const state = { answers: [] as boolean[], complete: false, isJoined: true, members: new Map<string, NodeInfo>() };
  ShardFilling.handle(server, (ownerId, incarnation) => {
    asked.push([ownerId, incarnation]);
    return state.answers.shift() ?? state.complete;
  });
  const port = await server.start();
  t.teardown(() => server.stop());
  const setMembers = (...nodes: readonly (readonly [nodeId: string, incarnation: number])[]): void => {
    state.members = new Map(nodes.map(([nodeId, incarnation]) => [nodeId, infoOf(nodeId, incarnation, port)]));
  };
  setMembers(['self', 10], ['a', 1]);
  const { members: _, ...options } = { members: null, nodeId: 'self', rpc: newClient(t), env };
  const filling = new ShardFilling({ ...options, members: () => state.members, isJoined: () => state.isJoined });
  t.teardown(() => filling.stop());
  /** Turns the clock to the next question. */
  const turn = async (): Promise<void> => {
    await until(() => clock.pendingCount > 0);
    clock.advance(SHARD_FILLING_POLL_MS);
  };
  return { clock, messages, asked, state, setMembers, filling, turn, port };
}

test('filling: the others are asked again until they have announced everything', async (t) => {
  const { asked, state, filling, turn } = await setUp(t);
  const filled = filling.filled();
  t.is(filling.filled(), filled);
  for (let n = 1; n <= 3; n++) {
    await until(() => asked.length === n);
    if (n === 3) state.complete = true;
    await turn();
  }
  t.true(await filled);
  t.deepEqual(asked[0], ['self', 10]);
  t.is(asked.length, 4);
});

test('filling: who has left is not waited for, nor who has joined later', async (t) => {
  const { asked, filling, setMembers, turn } = await setUp(t);
  const filled = filling.filled();
  await until(() => asked.length === 1);
  setMembers(['self', 10], ['later', 11]);
  await turn();
  t.true(await filled);
});

test('filling: before there is a discovery master nobody is asked', async (t) => {
  const { asked, state, filling, turn } = await setUp(t);
  state.isJoined = false;
  state.complete = true;
  const filled = filling.filled();
  await turn();
  t.is(asked.length, 0);
  state.isJoined = true;
  await turn();
  t.true(await filled);
  t.is(asked.length, 1);
});

test('filling: a node that was dropped meanwhile and joined again is told everything anew', async (t) => {
  const { asked, state, filling, setMembers, turn } = await setUp(t);
  setMembers(['self', 10], ['a', 1], ['b', 1]);
  // One of them has announced everything.
  state.answers = [true, false];
  const filled = filling.filled();
  await until(() => asked.length === 2);
  setMembers(['self', 20], ['a', 1], ['b', 1]);
  state.complete = true;
  await turn();
  t.true(await filled);
  t.deepEqual(asked.slice(-2), [
    ['self', 20],
    ['self', 20],
  ]);
});

test('filling: after the time limit it is given up, with a word in the log', async (t) => {
  const { asked, clock, messages, filling } = await setUp(t);
  const filled = filling.filled();
  await until(() => asked.length === 1 && clock.pendingCount > 0);
  clock.advance(SHARD_FILLING_TIMEOUT_MS);
  t.false(await filled);
  t.is(messages.length, 1);
  t.regex(messages[0] as string, /^warn directory shard incomplete: not all nodes have announced/);
});

test('filling: stop ends the waiting', async (t) => {
  const { asked, clock, filling, messages } = await setUp(t);
  const filled = filling.filled();
  await until(() => asked.length === 1 && clock.pendingCount > 0);
  filling.stop();
  t.false(await filled);
  t.is(messages.length, 0);
  t.is(clock.pendingCount, 0);
});

test('filling: a question that is not well-formed is refused', async (t) => {
  const { port } = await setUp(t);
  const rpc = newClient(t);
  for (const params of [{}, { node_id: 'a' }, { node_id: '', incarnation: 1 }, { node_id: 'a', incarnation: '1' }]) {
    const call = rpc.call({ host: '127.0.0.1', port }, 'directory.announced', params);
    await t.throwsAsync(call, { code: 'ERR_PROTOCOL' });
  }
});
