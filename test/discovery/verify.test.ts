import test from 'ava';
import { DISCOVERY_FORMER_MASTERS_MAX_COUNT, DISCOVERY_REFUSED_MAX_COUNT } from '../../src/base/limits.js';
import { DiscoveryClient } from '../../src/discovery/client.js';
import { EmbeddedMaster } from '../../src/discovery/embedded-master.js';
import { MasterLink } from '../../src/discovery/masters/master-link.js';
import { LostMasters } from '../../src/discovery/masters/master-troubles.js';
import { MemberTable } from '../../src/discovery/messages/member-table.js';
import { RefusedNodes } from '../../src/discovery/refused-nodes.js';
import { DiscoveryServer } from '../../src/discovery/server.js';
import { RpcClient } from '../../src/rpc/client.js';
import { RpcServer } from '../../src/rpc/server.js';
import { ManualClock } from '../_support/clock.js';
import { newMember, nodeOf, startMaster } from '../_support/discovery/masters.js';
import { assertAsks, assertFound, losing } from '../_support/planted.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { freePort } from '../_support/support.js';
import { memoryEnvironment } from '../fuzz/memory-environment.js';

test.serial('verify: member table', async (t) => {
  const table = new MemberTable(1000);
  table.register(nodeOf('a'), 0);
  table.leave('a', 1);
  await assertFound(t, table, /a is here and has gone/, () =>
    losing(Array.prototype, 'filter', () => table.register(nodeOf('a'), 0), {
      result: [{ nodeId: 'a', incarnation: 1, hasLeft: true }],
    }),
  );
  const unchanged = new MemberTable(1000);
  await assertFound(t, unchanged, /member table: changes: 0 by what is kept, 1/, () =>
    losing(Array.prototype, 'push', () => unchanged.register(nodeOf('a'), 0)),
  );
});

test.serial('verify: lost masters, refused nodes', async (t) => {
  const lost = new LostMasters();
  await assertFound(t, lost, /lost masters: former ones/, () =>
    losing(Map.prototype, 'delete', () => {
      for (let i = 0; i <= DISCOVERY_FORMER_MASTERS_MAX_COUNT; i++) lost.markFormer(`h:${i}`, i);
    }),
  );
  const clock = new ManualClock();
  const refused = new RefusedNodes(testEnvironment({ clock }));
  for (const nodeId of ['a', 'b']) refused.refuse(nodeOf(nodeId), []);
  await assertFound(t, refused, /refused nodes: when one was refused before b/, () => {
    clock.advance(1000);
    losing(Map.prototype, 'delete', () => refused.refuse(nodeOf('a'), []));
  });
  const many = new RefusedNodes(testEnvironment({ clock }));
  await assertFound(t, many, /refused nodes: \d+, allowed are/, () =>
    losing(Map.prototype, 'delete', () => {
      for (let i = 0; i <= DISCOVERY_REFUSED_MAX_COUNT; i++) many.refuse(nodeOf(`n${i}`), []);
    }),
  );
});

test.serial('verify: discovery server and embedded master', async (t) => {
  const clock = new ManualClock();
  const { master, addr } = await startMaster(t, { env: testEnvironment({ clock }) });
  assertAsks(t, master, [MemberTable, RefusedNodes, RpcServer]);
  const member = newMember(t, addr, nodeOf('a'));
  await member.client.start();
  assertAsks(t, member.client, [LostMasters, RpcClient]);
  const port = await freePort();
  const embedded = new EmbeddedMaster([{ host: '127.0.0.1', port }], { env: testEnvironment() });
  await embedded.start();
  assertAsks(t, embedded, [DiscoveryServer]);
  await embedded.stop();
});

test.serial('verify: discovery server: who is silent is noticed, and changes are told', async (t) => {
  const tables: MemberTable[] = [];
  const { register } = MemberTable.prototype;
  MemberTable.prototype.register = function (...args) {
    tables.push(this);
    return register.apply(this, args);
  };
  const { master, addr } = await startMaster(t);
  const { client } = newMember(t, addr, nodeOf('a'));
  await client.start().finally(() => {
    MemberTable.prototype.register = register;
  });
  const [table] = tables as [MemberTable];
  await assertFound(t, master, /discovery server: version \d+ is not spread, and will not be/, () =>
    // The table has changed, and nobody has told its server.
    table.register(nodeOf('b'), 0),
  );
  table.leave('b', 1);
  await client.stop();
});

test.serial('verify: discovery client', async (t) => {
  const client = new DiscoveryClient('192.0.2.9:9', nodeOf('a'), { env: memoryEnvironment() });
  t.notThrows(() => client.verify());
  const isLink = (_: unknown, [, value]: readonly unknown[]): boolean => value instanceof MasterLink;
  const unlinked = losing(
    Map.prototype,
    'set',
    () => new DiscoveryClient('192.0.2.9:9', nodeOf('a'), { env: memoryEnvironment() }),
    { when: isLink },
  );
  t.throws(() => unlinked.verify(), { message: /discovery client: no link to the master 192.0.2.9:9/ });
});
