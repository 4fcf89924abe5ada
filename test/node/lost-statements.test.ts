import test, { type ExecutionContext } from 'ava';
import { HybridClock } from '../../src/base/concurrency/hybrid-clock.js';
import { RPC_RETRY_AFTER_MS } from '../../src/base/limits.js';
import { LocationColumns } from '../../src/directory/messages/location-columns.js';
import { digestOf } from '../../src/directory/shard/removals.js';
import { LostStatements } from '../../src/node/upkeep/lost-statements.js';
import type { MemberChange } from '../../src/node/upkeep/member-log.js';
import { NodeDirectory } from '../../src/node/upkeep/node-directory.js';
import type { Publications } from '../../src/node/upkeep/owner-lists.js';
import type { RpcClient } from '../../src/rpc/client.js';
import { RpcServer } from '../../src/rpc/server.js';
import { NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { locationOf } from '../_support/directory/locations.js';
import { newClient, testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';

const KEYS = Array.from({ length: 300 }, (_, i) => `key-${i}`);
const PAGES_OF_A: Publications = {
  keysInSlices: () => [KEYS],
  isEmpty: false,
  drop: async () => {},
  *eachNote() {},
  locationsOf: (some) => some.map(() => locationOf({ nodeId: 'a', incarnation: 1, generation: 0 })),
};

/** Begins to announce the pages to nodes that come; the node's own shard knows nothing of them. */
function startAnnouncing(directory: NodeDirectory): void {
  const pages = { ...PAGES_OF_A, isEmpty: true };
  directory.startAnnouncing(pages);
  pages.isEmpty = false;
}

function infoOf(nodeId: string, controlPort: number, incarnation = 1): NodeInfo {
  return new NodeInfo({ nodeId, controlHost: '127.0.0.1', controlPort, protocols: ['tcp'], incarnation });
}

const changeOf = (before: Map<string, NodeInfo>, after: Map<string, NodeInfo>): MemberChange => {
  return { before, after, changed: [...new Set([...before.keys(), ...after.keys()])] };
};
const asMembers = (...nodes: NodeInfo[]): Map<string, NodeInfo> => new Map(nodes.map((node) => [node.nodeId, node]));

/** The directory part of a node, behind a server of its own. */
async function newNode(t: ExecutionContext, nodeId: string) {
  const env = testEnvironment();
  const server = new RpcServer({ host: '127.0.0.1', env });
  const self = infoOf(nodeId, await server.start());
  let members = asMembers(self);
  const directory = new NodeDirectory({
    self,
    vnodes: 160,
    replicas: 2,
    settleMs: 8000,
    endpointOf: (id) => {
      const node = members.get(id);
      return node && { host: node.controlHost, port: node.controlPort };
    },
    isLive: (id, incarnation) => members.get(id)?.incarnation === incarnation,
    rpc: newClient(t),
    versions: new HybridClock(env.clock, digestOf(nodeId)),
    env,
  });
  directory.attach(server);
  directory.drops.handle(
    server,
    async () => 0,
    (ownerId) => directory.restate(ownerId),
  );
  t.teardown(async () => {
    await directory.stop();
    await server.stop();
  });
  const see = (...nodes: NodeInfo[]): void => {
    const before = members;
    members = asMembers(...nodes);
    directory.membersChanged(changeOf(before, members));
  };
  return { self, directory, see };
}

test('lost statements: a node that was dropped by another one only, and knows nothing of it, is found there again', async (t) => {
  // Cause: hearing from no master but one that had not heard of a node yet, others dropped it and what it had stated;
  // it was not told.
  const a = await newNode(t, 'a');
  const b = await newNode(t, 'b');
  startAnnouncing(a.directory);
  a.see(a.self, b.self);
  b.see(a.self, b.self);
  await until(() => b.directory.keys === KEYS.length);
  b.see(b.self);
  await until(() => b.directory.keys === 0);
  b.see(a.self, b.self);
  await until(() => b.directory.keys === KEYS.length);
  t.false((await b.directory.client.exists(KEYS)).includes(false));
});

test('lost statements: a start that a former one of the same node has replaced for a while is found again', async (t) => {
  // Cause: a master that had not heard of the restart was the only one that answered for a moment; what the new start
  // had stated was dropped.
  const a = await newNode(t, 'a');
  const b = await newNode(t, 'b');
  const former = infoOf('a', a.self.controlPort, 0.5);
  startAnnouncing(a.directory);
  b.see(former, b.self);
  a.see(a.self, b.self);
  b.see(a.self, b.self);
  await until(async () => !(await b.directory.client.exists(KEYS)).includes(false));
  b.see(former, b.self);
  await until(async () => !(await b.directory.client.exists(KEYS)).includes(true));
  b.see(a.self, b.self);
  await until(async () => !(await b.directory.client.exists(KEYS)).includes(false));
  t.pass();
});

test('lost statements: what was refused to a start after a clock went back is announced once its former start has gone', async (t) => {
  // Cause: until then the shard took its statements for those of an earlier start, and nobody repeated them.
  const a = await newNode(t, 'a');
  const b = await newNode(t, 'b');
  const former = infoOf('a', a.self.controlPort, 2);
  const locationsOf = (incarnation: number) =>
    LocationColumns.of(KEYS.map(() => locationOf({ nodeId: 'a', incarnation, generation: 1 })));
  b.see(former, b.self);
  await b.directory.client.state(KEYS, locationsOf(2));
  a.see(a.self, b.self);
  await until(() => a.directory.isAnnounced);
  startAnnouncing(a.directory);
  await a.directory.client.state(KEYS, locationsOf(1));
  b.see(b.self);
  b.see(a.self, b.self);
  await until(async () => !(await b.directory.client.exists(KEYS)).includes(false));
  t.pass();
});

test('lost statements: only who is back as the same start is asked, again until it answers', async (t) => {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const server = new RpcServer({ host: '127.0.0.1', env: testEnvironment() });
  const asked: string[] = [];
  server.handle('pages.restate', (params) => {
    asked.push((params as { node_id: string }).node_id);
    return {};
  });
  const port = await server.start();
  t.teardown(() => server.stop());
  let attempts = 0;
  const client = newClient(t);
  const call: RpcClient['call'] = (...request) => {
    attempts++;
    return client.call(...request);
  };
  const lost = new LostStatements({
    nodeId: 'self',
    rpc: { call } as RpcClient,
    env,
    // Nobody listens on port 1.
    endpointOf: () => ({ host: '127.0.0.1', port: attempts >= 2 ? port : 1 }),
    isLive: () => true,
  });
  t.teardown(() => lost.stop());
  const [one, two] = [infoOf('one', port), infoOf('two', port)];
  lost.membersChanged(changeOf(asMembers(one, two), asMembers()));
  lost.membersChanged(changeOf(asMembers(), asMembers(infoOf('one', port, 2))));
  t.is(attempts, 0, 'a new start announces by itself');
  lost.membersChanged(changeOf(asMembers(), asMembers(two)));
  for (const pauseMs of [RPC_RETRY_AFTER_MS, 2 * RPC_RETRY_AFTER_MS]) {
    await until(() => clock.pendingCount === 1);
    clock.advance(1.25 * pauseMs);
  }
  await until(() => asked.length === 1);
  t.deepEqual(asked, ['self']);
  t.is(attempts, 3);
  lost.membersChanged(changeOf(asMembers(two), asMembers(two)));
  t.is(attempts, 3);
});

test('lost statements: once they are stopped, nothing is waited for', async (t) => {
  // Cause: a call that failed after the stop was followed by the pause before the next one.
  const clock = new ManualClock();
  let fail: () => void = () => {};
  const call = () => new Promise<never>((_, reject) => (fail = () => reject(new Error('too late'))));
  const lost = new LostStatements({
    nodeId: 'self',
    rpc: { call } as unknown as RpcClient,
    env: testEnvironment({ clock }),
    endpointOf: () => ({ host: '192.0.2.9', port: 9 }),
    isLive: () => true,
  });
  const other = asMembers(infoOf('other', 9));
  lost.membersChanged(changeOf(other, asMembers()));
  lost.membersChanged(changeOf(asMembers(), other));
  lost.stop();
  fail();
  await clock.yield();
  t.notThrows(() => lost.verify());
  t.is(clock.pendingCount, 0);
});
