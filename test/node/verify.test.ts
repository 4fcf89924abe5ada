import { join } from 'node:path';
import test from 'ava';
import { HybridClock } from '../../src/base/concurrency/hybrid-clock.js';
import { PeerQueue } from '../../src/base/concurrency/peer-queue.js';
import type { Clock } from '../../src/base/environment/clock.js';
import { MEMBERS_MAX_COUNT, OWED_STATEMENTS_MAX_KEYS } from '../../src/base/limits.js';
import { ClientServer } from '../../src/clients/client-server.js';
import { DirectoryClient } from '../../src/directory/client.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import { DiscoveryClient } from '../../src/discovery/client.js';
import { EmbeddedMaster } from '../../src/discovery/embedded-master.js';
import { DiskStore } from '../../src/disk/disk-store.js';
import { NodeRuntime } from '../../src/node/runtime/node-runtime.js';
import { Clears } from '../../src/node/upkeep/clears.js';
import { LostStatements } from '../../src/node/upkeep/lost-statements.js';
import type { MemberChange } from '../../src/node/upkeep/member-log.js';
import { NodeDirectory } from '../../src/node/upkeep/node-directory.js';
import { OwnerLists, type Publications } from '../../src/node/upkeep/owner-lists.js';
import { OwnerRings } from '../../src/node/upkeep/owner-rings.js';
import { PageDrops } from '../../src/node/upkeep/page-drops.js';
import { ShardUpkeep } from '../../src/node/upkeep/shard-upkeep.js';
import { PublishedPool } from '../../src/pool/published-pool.js';
import { RpcClient } from '../../src/rpc/client.js';
import { RpcServer } from '../../src/rpc/server.js';
import { DiskTier } from '../../src/store/disk/disk-tier.js';
import { PageStatements } from '../../src/store/ground/page-statements.js';
import { HeldPages } from '../../src/store/holding/held-pages.js';
import { HotReads } from '../../src/store/holding/hot-reads.js';
import { Promoter } from '../../src/store/holding/promoter.js';
import { WantedPages } from '../../src/store/holding/wanted-pages.js';
import { PageStore } from '../../src/store/page-store.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { temporaryFolder } from '../_support/disk/mounts.js';
import { createStore } from '../_support/node/store-fixture.js';
import { assertAsks, assertFound, losing } from '../_support/planted.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { freePort } from '../_support/support.js';

const ENDPOINT = { host: '192.0.2.9', port: 9 };
const FAILING = { call: async () => Promise.reject(new Error('not now')) } as unknown as RpcClient;

/** A clock that loses timers once it is told to. */
class LosingClock extends ManualClock {
  isLosing = false;

  override after(delayMs: number, fn: () => void): () => void {
    return this.isLosing ? (undefined as never) : super.after(delayMs, fn);
  }
}

function infoOf(nodeId: string, incarnation = 1): NodeInfo {
  return new NodeInfo({ nodeId, controlHost: ENDPOINT.host, controlPort: ENDPOINT.port, incarnation });
}

const changeOf = (before: Map<string, NodeInfo>, after: Map<string, NodeInfo>): MemberChange => {
  return { before, after, changed: [...new Set([...before.keys(), ...after.keys()])] };
};
const asMembers = (...nodes: NodeInfo[]): Map<string, NodeInfo> => new Map(nodes.map((node) => [node.nodeId, node]));

async function settled(clock: Clock): Promise<void> {
  for (let i = 0; i < 20; i++) await clock.yield();
}

test.serial('verify: owner lists', async (t) => {
  const env = testEnvironment({ clock: new ManualClock() });
  const initial = { ring: new OwnerRings(16).make(['a']), incarnations: new Map([['a', 1]]) };
  const directory = new DirectoryClient(initial.ring, () => undefined, 1, { rpc: FAILING, env });
  const lists = new OwnerLists({ directory, shard: new DirectoryShard(), initial, env });
  assertAsks(t, lists, [PeerQueue]);
  const keys = Array.from({ length: OWED_STATEMENTS_MAX_KEYS + 1 }, (_, i) => `${i}`);
  await assertFound(t, lists, /owed statements: of a: 65537, allowed are 65536/, () =>
    losing(Map.prototype, 'delete', () => lists.owe('a', keys)),
  );
  lists.stop();
});

test.serial('verify: lost statements', async (t) => {
  const lost = new LostStatements({
    nodeId: 'self',
    rpc: FAILING,
    env: testEnvironment({ clock: new ManualClock() }),
    endpointOf: () => ENDPOINT,
    isLive: () => true,
  });
  const gone = Array.from({ length: MEMBERS_MAX_COUNT + 1 }, (_, i) => infoOf(`n${i}`));
  await assertFound(t, lost, /lost statements: nodes: \d+, allowed are/, () =>
    losing(Map.prototype, 'delete', () => lost.membersChanged(changeOf(asMembers(...gone), asMembers()))),
  );
  lost.stop();
});

test.serial('verify: page drops', async (t) => {
  const clock = new LosingClock();
  const drops = new PageDrops({
    nodeId: 'a',
    rpc: FAILING,
    env: testEnvironment({ clock }),
    endpointOf: () => ENDPOINT,
    joinMs: 0,
  });
  await assertFound(t, drops, /page drops: b is never told again/, async () => {
    clock.isLosing = true;
    drops.tell('b', [{ key: 'k', voidBelow: 1, reason: 'superseded' }]);
    await settled(clock);
  });
  drops.stop();
});

test.serial('verify: shard upkeep, owner rings', async (t) => {
  const clock = new ManualClock();
  const rings = new OwnerRings(16);
  const options = { shard: new DirectoryShard(), nodeId: 'a', replicas: 1, pruneDelayMs: 1000, clock };
  const upkeep = new ShardUpkeep(options);
  upkeep.start();
  await assertFound(t, upkeep, /shard upkeep: former rings: 19, allowed are 16/, () =>
    losing(Array.prototype, 'splice', () => {
      for (let i = 0; i < 20; i++) upkeep.ownersChanged(rings.make(['a']));
    }),
  );
  const whole = { verify: () => rings.verify([upkeep]) };
  await assertFound(t, whole, /owner rings: one that is used was freed/, () => rings.keepFor([]));
  upkeep.stop();
});

test.serial('verify: node directory', async (t) => {
  const self = infoOf('self');
  const env = testEnvironment({ clock: new ManualClock() });
  const directory = new NodeDirectory({
    self,
    vnodes: 16,
    replicas: 1,
    settleMs: 1000,
    endpointOf: () => ENDPOINT,
    isLive: () => true,
    rpc: FAILING,
    versions: new HybridClock(env.clock),
    env,
  });
  const pages: Publications = {
    keysInSlices: () => [],
    isEmpty: true,
    locationsOf: (keys) => keys.map(() => null),
    drop: async () => {},
    *eachNote() {},
  };
  directory.startAnnouncing(pages);
  assertAsks(t, directory, [
    DirectoryShard,
    DirectoryClient,
    OwnerLists,
    ShardUpkeep,
    PageDrops,
    Clears,
    LostStatements,
    OwnerRings,
  ]);
  await directory.stop();
});

test.serial('verify: store', async (t) => {
  const folder = temporaryFolder(t);
  const store = await createStore(await freePort(), {
    disk_enabled: true,
    disk_path: join(folder, 'disk'),
    disk_size: '16mb',
    client_socket: join(folder, 'socket'),
  });
  t.teardown(() => store.close());
  assertAsks(t, store, [NodeRuntime, PageStore, DiskStore, Promoter, HeldPages, WantedPages, HotReads, ClientServer]);
  // Those of the runtime and of the pages.
  assertAsks(t, store, [NodeDirectory, RpcServer, RpcClient, TcpTransport, DiscoveryClient, EmbeddedMaster]);
  assertAsks(t, store, [PublishedPool, DiskTier, PageStatements]);
});
