import { once } from 'node:events';
import net from 'node:net';
import test from 'ava';
import { ByteBudget } from '../../src/base/concurrency/byte-budget.js';
import { Shares } from '../../src/base/concurrency/shares.js';
import { WorkTurns } from '../../src/base/concurrency/work-turns.js';
import { silentLogger } from '../../src/base/environment/log.js';
import { SparseLog } from '../../src/base/environment/sparse-log.js';
import { Attachment } from '../../src/client/attachment.js';
import { MeshCacheClient } from '../../src/client/meshcache-client.js';
import { NodeLink } from '../../src/client/node-link.js';
import { ClientConnection } from '../../src/clients/client-connection.js';
import { clientLimits } from '../../src/clients/client-limits.js';
import { ClientMemory } from '../../src/clients/client-memory.js';
import type { ClientServer } from '../../src/clients/client-server.js';
import { ClientRegions } from '../../src/clients/requests/client-regions.js';
import { type ClientRequest, RequestsInFlight } from '../../src/clients/requests-in-flight.js';
import { Capability, type FrameHeader, RequestType } from '../../src/clients/wire/messages.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { startServer } from '../_support/clients/client-fixture.js';
import { servedByItself } from '../_support/net/served.js';
import { assertAsks, assertFound, lose, losing } from '../_support/planted.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { MemorySocket } from '../fuzz/memory-socket.js';

const BODY = Buffer.alloc(10);

function requestsInFlight(): RequestsInFlight {
  return new RequestsInFlight(clientLimits(), servedByItself().served);
}

function begin(requests: RequestsInFlight, requestId: number, type: RequestType = RequestType.get): ClientRequest {
  const header: FrameHeader = { bodyBytes: BODY.length, type, status: 0, requestId, deadlineMs: 0 };
  return requests.begin({ header, body: BODY });
}

test.serial('verify: byte budget', async (t) => {
  const budget = new ByteBudget(100);
  const giveBack = budget.take({ one: 'a', group: 'g' }, 60, () => {});
  await assertFound(t, budget, /byte budget: bytes: 100 by what is kept, 40/, () =>
    losing(Shares.prototype, 'giveBack', giveBack),
  );
});

test.serial('verify: requests in flight', async (t) => {
  const forgotten = requestsInFlight();
  await assertFound(t, forgotten, /requests in flight: 1 waits or runs, and is not in flight/, () => {
    const request = begin(forgotten, 1);
    forgotten.wait(request);
    forgotten.settle(request);
  });
  const unended = requestsInFlight();
  await assertFound(t, unended, /requests in flight: 1 waits or runs/, () => {
    const request = begin(unended, 1);
    unended.wait(request);
    unended.runNext();
    losing(Set.prototype, 'delete', () => unended.ended(request));
  });
  const uncounted = requestsInFlight();
  await assertFound(t, uncounted, /requests in flight: bytes of small bodies: 10 by what is kept, 0/, () =>
    losing(Map.prototype, 'set', () => begin(uncounted, 1)),
  );
  const fence = requestsInFlight();
  begin(fence, 1);
  await assertFound(t, fence, /requests in flight: fences: 1 by what is kept, 0/, () => {
    const request = begin(fence, 2, RequestType.fence);
    Object.assign(request.header, { type: RequestType.get });
  });
});

test.serial('verify: client regions', async (t) => {
  const regions = new ClientRegions();
  const memory = HostRegion.allocate(4096);
  regions.add(1, memory, true);
  await assertFound(t, regions, /client regions: region 1 has 0 users, ending false, live false/, () => memory.free());
});

test.serial('verify: client memory, client connection', async (t) => {
  const env = testEnvironment();
  const memory = new ClientMemory({ path: '', mode: 0o600, env, lines: new SparseLog(env) });
  const client = { name: 'client', regions: new ClientRegions() } as unknown as ClientConnection;
  memory.attach(Buffer.from('token'), client);
  await assertFound(t, memory, /client memory: client is found by another token/, () =>
    losing(Map.prototype, 'delete', () => memory.detach(client), { when: (_, [key]) => typeof key === 'string' }),
  );
  const { connections } = servedByItself();
  const door = { limits: clientLimits(), budget: new ByteBudget(100), connections } as unknown as ClientServer;
  const sharer = { one: 'process', group: 'user' };
  const connection = new ClientConnection(new MemorySocket(), door, { sharer, credentials: undefined });
  assertAsks(t, connection, [RequestsInFlight, ClientRegions]);
});

test.serial('verify: client server, attached client', async (t) => {
  const { server, path } = await startServer(t);
  const client = await MeshCacheClient.connect({ socket: path, required: true }, { log: silentLogger });
  t.teardown(() => client.close());
  assertAsks(t, server, [ClientConnection, ByteBudget, ClientMemory, WorkTurns]);
  assertAsks(t, client, [Attachment, NodeLink]);
  // A connection that ends is taken out of those that are to attach: here it is not.
  const found = lose(Map.prototype, 'delete', {
    when: (pending, [value]) =>
      value instanceof ClientConnection &&
      value.name === '' &&
      typeof (pending as Map<unknown, unknown>).get(value) === 'string',
  });
  const socket = net.connect(path);
  socket.end();
  await once(socket, 'close').finally(found);
  t.throws(() => server.verify(), { message: 'pending connections: one that is none any more' });
});

test.serial('verify: node link, attachment', async (t) => {
  const { path } = await startServer(t);
  const parts = { path, tokens: {}, name: 'planted', namespace: undefined, env: testEnvironment() };
  const link = await NodeLink.open({ ...parts, onClosed() {} });
  t.teardown(() => link.close('the test has ended'));
  void link.request(RequestType.stats, Buffer.alloc(0), 0);
  await assertFound(t, link, /node link: requests that are sent: 1, allowed are 0/, () => {
    Object.assign(link.hello, { inFlightMaxCount: 0 });
  });
  const attachment = new Attachment(parts, true);
  await attachment.connect();
  t.teardown(() => attachment.close());
  const region = {
    fd: 1_000_000,
    length: 4096,
    start: 4096,
    isLive: true,
    onFree: () => () => {},
  } as unknown as HostRegion;
  await assertFound(t, attachment, /attachment: the region at 4096 is registered and not watched/, () => {
    const used = Object.assign(attachment.link as NodeLink, {});
    Object.assign(used.hello, { capabilities: Capability.files });
    losing(Map.prototype, 'set', () => void attachment.regionId(used, region), {
      when: (_, [key, value]) => key === region && typeof value === 'function',
    });
  });
});
