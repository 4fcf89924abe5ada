import test, { type ExecutionContext } from 'ava';
import { INTRODUCTION_TIMEOUT_MS } from '../../src/base/limits.js';
import { Introduction } from '../../src/node/upkeep/introduction.js';
import { RpcServer } from '../../src/rpc/server.js';
import { NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { loggedEnvironment } from '../_support/discovery/masters.js';
import { newClient, testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';

const ONE_FREE_TURN_MS = 20;

/** A node `self` of incarnation 10 that joins, and the member `a`, which answers at its own address. */
async function setUp(t: ExecutionContext) {
  const clock = new ManualClock();
  const { env, messages } = loggedEnvironment({ clock });
  const server = new RpcServer({ host: '127.0.0.1', env: testEnvironment() });
  const controlPort = await server.start();
  t.teardown(() => server.stop());
  const infoOf = (nodeId: string, incarnation: number): NodeInfo =>
    new NodeInfo({ nodeId, controlHost: '127.0.0.1', controlPort, protocols: ['tcp'], incarnation });
  const mapOf = (...infos: readonly NodeInfo[]) => new Map(infos.map((info) => [info.nodeId, info]));
  const self = infoOf('self', 10);
  const state = { known: mapOf(infoOf('a', 1)), members: mapOf(self, infoOf('a', 1)) };
  const member = new Introduction({ nodeId: 'a', rpc: newClient(t), env, members: () => state.known });
  member.attach(server);
  const introduction = new Introduction({ nodeId: 'self', rpc: newClient(t), env, members: () => state.members });
  t.teardown(() => member.stop());
  t.teardown(() => introduction.stop());
  const learn = (...infos: readonly NodeInfo[]): void => {
    state.known = mapOf(...infos);
    member.membersChanged();
  };
  return { clock, messages, server, state, member, introduction, learn, infoOf, mapOf, self };
}

/** Whether the promise is settled after some time in which everything that runs could go on. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  const waited = new Promise((resolve) => setTimeout(() => resolve(false), ONE_FREE_TURN_MS));
  return (await Promise.race([promise.then(() => true), waited])) as boolean;
}

test('introduction: it is made when the member goes by a list with this start of the node', async (t) => {
  const { clock, messages, introduction, learn, infoOf, self } = await setUp(t);
  const made = introduction.made();
  await until(() => clock.pendingCount > 0);
  t.false(await isSettled(made));
  learn(infoOf('a', 1), infoOf('self', 9));
  t.false(await isSettled(made), 'an earlier start of the node is another one');
  learn(infoOf('a', 1), self);
  await made;
  t.deepEqual(messages, []);
});

test('introduction: a node that knows of no other member does not wait', async (t) => {
  const { introduction, state, mapOf, self } = await setUp(t);
  state.members = mapOf(self);
  await introduction.made();
  t.pass();
});

test('introduction: a member that does not know the node in time is not waited for, with a word in the log', async (t) => {
  const { clock, messages, introduction } = await setUp(t);
  const made = introduction.made();
  await until(() => clock.pendingCount > 0);
  clock.advance(INTRODUCTION_TIMEOUT_MS);
  await made;
  t.is(messages.length, 1);
  t.regex(String(messages[0]), /before all members know it/);
});

test('introduction: a member that has left is not waited for, nor named', async (t) => {
  const { clock, messages, introduction, server, state, mapOf, self } = await setUp(t);
  const made = introduction.made();
  await until(() => clock.pendingCount > 0);
  state.members = mapOf(self);
  await server.stop();
  await made;
  t.deepEqual(messages, []);
});

test('introduction: who has become a member meanwhile is asked as well', async (t) => {
  const { clock, introduction, state, learn, infoOf, mapOf, self } = await setUp(t);
  const made = introduction.made();
  await until(() => clock.pendingCount > 0);
  state.members = mapOf(self, infoOf('a', 1), infoOf('b', 1));
  learn(infoOf('a', 1), self);
  await made;
  t.pass();
});

test('introduction: stop ends the waiting on both sides', async (t) => {
  const { clock, messages, introduction, member } = await setUp(t);
  const made = introduction.made();
  await until(() => clock.pendingCount > 0);
  introduction.stop();
  await made;
  member.stop();
  t.deepEqual(messages, []);
});
