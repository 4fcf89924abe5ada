import test from 'ava';
import { HybridClock } from '../../src/base/concurrency/hybrid-clock.js';
import { stringsOf } from '../../src/core/binding/key-batch.js';
import { DirectoryClient } from '../../src/directory/client.js';
import { KnownRings } from '../../src/directory/owners/known-rings.js';
import { OwnerChannels } from '../../src/directory/owners/owner-channels.js';
import type { OwnerRing } from '../../src/directory/owners/owners.js';
import { type RequestKind, RequestQueue } from '../../src/directory/owners/request-queue.js';
import { KeyTable } from '../../src/directory/shard/key-table.js';
import { LocationLists } from '../../src/directory/shard/location-lists.js';
import { LocationSlab } from '../../src/directory/shard/location-slab.js';
import { NodeRecords } from '../../src/directory/shard/node-records.js';
import { Removals } from '../../src/directory/shard/removals.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import type { RpcClient } from '../../src/rpc/client.js';
import { ManualClock } from '../_support/clock.js';
import { columnsOf, locationOf, putOne } from '../_support/directory/locations.js';
import { assertAsks, assertFound, losing } from '../_support/planted.js';
import { testEnvironment } from '../_support/rpc/server.js';

const NODE = { nodeId: 'n', incarnation: 1, endpoint: 'h:1' };
const RING: OwnerRing = { nodes: ['owner'], getNodesBatch: (keys, n) => new Uint32Array(stringsOf(keys).length * n) };
const ENDPOINT = { host: '192.0.2.9', port: 9 };
const NEVER = { call: () => new Promise(() => {}) } as unknown as RpcClient;

test.serial('verify: key table', async (t) => {
  const table = new KeyTable();
  for (let i = 0; i < 200; i++) table.set(`key ${i}`, i);
  table.delete('key 7');
  await assertFound(t, table, /key table: size/, () =>
    losing(Map.prototype, 'delete', () => table.delete('key 1'), { result: true }),
  );
});

test.serial('verify: node records', async (t) => {
  const records = new NodeRecords();
  const counted: number[] = [1];
  const whole = { verify: () => records.verify(counted) };
  records.hold(NODE);
  records.uncount(records.hold({ ...NODE, nodeId: 'gone' }));
  await assertFound(t, whole, /locations of n: 2 by what is kept, 1/, () => records.hold(NODE));
  counted[0] = 2;
  await assertFound(t, whole, /n, dropped true, found by name true/, () =>
    losing(Map.prototype, 'delete', () => records.drop(records.at(0))),
  );
});

test.serial('verify: location slab', async (t) => {
  const slab = new LocationSlab();
  const slots = [slab.allocate(), slab.allocate(), slab.allocate()];
  slab.free(slots.pop() as number);
  const whole = { verify: () => slab.verify(slots) };
  await assertFound(t, whole, /free slot 0 comes twice/, () => slab.free(0));
  slab.clear();
  slots.length = 0;
  await assertFound(t, whole, /location slab: slots: 1 by what is kept, 0/, () => slab.allocate());
});

test.serial('verify: location lists', async (t) => {
  const newLists = (): LocationLists => {
    const lists = new LocationLists();
    const columns = columnsOf(locationOf());
    const record = lists.records.hold(NODE);
    lists.begin('a', columns, 0, record);
    lists.append(lists.keys.get('a') as number, columns, 0, record);
    lists.begin('b', columns, 0, record);
    lists.uncount(record);
    return lists;
  };
  const inCircles = newLists();
  await assertFound(t, inCircles, /listed slot 0 comes twice/, () => inCircles.slab.setNext(1, 0));
  const miscounted = newLists();
  await assertFound(t, miscounted, /location lists: locations: 4 by what is kept, 3/, () => miscounted.locations++);
  const undropped = newLists();
  await assertFound(t, undropped, /locations of dropped nodes: 0 by what is kept, 3/, () =>
    undropped.records.drop(undropped.records.at(0)),
  );
  assertAsks(t, newLists(), [KeyTable, LocationSlab, NodeRecords]);
});

test.serial('verify: removals', async (t) => {
  const removals = new Removals(100, { keepsPartitions: true });
  for (let i = 1; i < 20; i++) removals.note(`key ${i}`, i);
  await assertFound(t, removals, /removals: a version beside the newest: \d+, allowed are 0/, () =>
    losing(Float64Array.prototype, 'fill', () => removals.clear()),
  );
});

test.serial('verify: shard: what is void, or does not go together', async (t) => {
  const older = new DirectoryShard();
  await assertFound(t, older, /"k" has the void version 5/, () => {
    older.removeAll(['k'], 9);
    losing(Removals.prototype, 'isVoid', () => putOne(older, 'k', { version: 5 }), { result: false });
  });
  const different = new DirectoryShard();
  putOne(different, 'k', { nodeId: 'a', version: 5, kind: 'named', checksum: 1 });
  await assertFound(t, different, /"k" has different contents of b and a/, () =>
    losing(
      LocationSlab.prototype,
      'versionOf',
      () => putOne(different, 'k', { nodeId: 'b', version: 6, kind: 'named', checksum: 2 }),
      { result: 0 },
    ),
  );
  const lost = new DirectoryShard();
  putOne(lost, 'k', { nodeId: 'a' });
  await assertFound(t, lost, /location slab: slots/, () =>
    losing(LocationSlab.prototype, 'free', () => lost.forget(['k'])),
  );
  assertAsks(t, new DirectoryShard(), [LocationLists, Removals]);
});

test.serial('verify: request queue, owner channels', async (t) => {
  const kind: RequestKind<{ keys: string[] }, string> = {
    canJoin: () => true,
    join: ([first]) => first as { keys: string[] },
    send: () => new Promise(() => {}),
    part: (answer) => answer,
    onUnsent: () => {},
  };
  const queue = new RequestQueue(kind, { atOnce: 1, clock: new ManualClock() });
  const waiting = { keys: ['b', 'c'] };
  void queue.ask({ keys: ['a'] });
  await Promise.resolve();
  // One request is under way, and no more may be.
  void queue.ask(waiting);
  await Promise.resolve();
  await assertFound(t, queue, /waiting keys: 2 by what is kept, 3/, () => waiting.keys.push('d'));
  const channels = new OwnerChannels({
    nodeId: 'me',
    localShard: undefined,
    displacedTold: async () => {},
    resolveControl: () => ENDPOINT,
    rpc: NEVER,
    env: testEnvironment(),
    timeoutMs: undefined,
    versions: new HybridClock(new ManualClock()),
  });
  const channel = channels.to('owner');
  void channel.exists(['k']);
  void channel.get({ keys: ['k'], avoided: [] });
  void channel.put(['k'], columnsOf(locationOf()));
  assertAsks(t, channels, [RequestQueue]);
});

test.serial('verify: known rings, directory client', async (t) => {
  const rings = new KnownRings(RING, 1000, new ManualClock());
  await assertFound(t, rings, /former rings: 20, allowed are 16/, () =>
    losing(Array.prototype, 'shift', () => {
      for (let i = 0; i < 20; i++) rings.set({ ...RING });
    }),
  );
  const client = new DirectoryClient(RING, () => ENDPOINT, 1, { nodeId: 'me', rpc: NEVER, env: testEnvironment() });
  await assertFound(t, client, /identities: 99, allowed are 65/, () => {
    const locations = Array.from({ length: 99 }, (_, i) => locationOf({ nodeId: `n${i}` }));
    losing(
      Map.prototype,
      'has',
      () =>
        void client.state(
          locations.map((_, i) => `k${i}`),
          columnsOf(...locations),
        ),
      { result: true },
    );
  });
  const fresh = new DirectoryClient(RING, () => ENDPOINT, 1, { nodeId: 'me', rpc: NEVER, env: testEnvironment() });
  assertAsks(t, fresh, [KnownRings, OwnerChannels]);
});
