import test from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import { ACCESS_LOCAL_WRITE, OP_STATUS, RDMA_EVENT_CAUSES, RDMA_EVENT_KINDS } from '../../src/native/addon/contract.js';
import { EngineChannel, engineOptions, engineToken, OpBatch } from '../../src/native/engine/engine-channel.js';
import { type EngineEvent, EventLog, engineEvent } from '../../src/native/engine/engine-event.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { ManualClock } from '../_support/clock.js';
import { type FakeEngine, FakeFabric, nativeFailure } from '../_support/native/fake-rdma.js';

function open(fabric: FakeFabric, onEvent: (event: EngineEvent) => void = () => {}) {
  const rails = [{ deviceName: 'fake0', ibPort: 1, address: '10.77.0.1', port: 0 }];
  const channel = EngineChannel.open({ addon: fabric.addon(), engine: engineOptions(rails, []), onEvent });
  const endpoint = `10.77.0.1:${channel.ports[0]}`;
  return { channel, endpoint, engine: fabric.engines.get(endpoint) as FakeEngine };
}

test('engine channel: a batch is rows of operations, then their pieces', (t) => {
  const batch = new OpBatch();
  batch.addOp(7, 1, 1000, { checksum: 99, stamp: 77 });
  batch.addPiece(5000, 10);
  batch.addPiece(6000, 20);
  batch.addOp(8, 2, 2000);
  batch.addOp(9, 3, 3000);
  batch.addPiece(7000, 30);
  t.is(batch.opCount, 3);
  t.is(batch.totalBytes, 60);
  const rows = [7, 1, 1000, 99, 77, 2, 8, 2, 2000, -1, 0, 0, 9, 3, 3000, -1, 0, 1];
  t.deepEqual([...batch.encode()], [...rows, 5000, 10, 6000, 20, 7000, 30]);
});

test('engine channel: every batch gets its own statuses, whatever the order of the reports', async (t) => {
  const { channel } = open(new FakeFabric());
  const peers = [channel.peer('10.77.0.9', 1), channel.peer('10.77.0.9', 2), channel.peer('10.77.0.9', 1)];
  t.is(peers[0], peers[2]);
  const results = await Promise.all(
    [1, 2, 3].map((opCount) => {
      const batch = new OpBatch();
      for (let i = 0; i < opCount; i++) batch.addOp(peers[0] as number, 1, 0);
      return channel.submit(batch, 1000);
    }),
  );
  const unreachable = OP_STATUS.indexOf('unreachable');
  t.deepEqual(
    results.map((statuses) => [...(statuses ?? [])]),
    [1, 2, 3].map((opCount) => new Array(opCount).fill(unreachable)),
  );
  t.is(channel.stats().failedOps, 6);
  await channel.close();
});

test('engine channel: what fails in the addon is an RdmaError that says what to do', async (t) => {
  const fabric = new FakeFabric();
  fabric.createFailure = nativeFailure('rdma_bind_addr', 98, 'rdma_bind_addr: Address already in use');
  const cannotStart = {
    code: 'ERR_RDMA',
    message: /cannot be started: rdma_bind_addr: .*fake0.*another one .rdma_port/,
  };
  t.like(
    t.throws(() => open(fabric), cannotStart),
    { call: 'rdma_bind_addr', errno: 98, device: 'fake0' },
  );
  fabric.createFailure = undefined;
  fabric.registerFailure = nativeFailure('ibv_reg_mr', 12, 'ibv_reg_mr: Cannot allocate memory');
  const { channel } = open(fabric);
  const advice = /4096 bytes .*Cannot allocate memory.*may lock .*ulimit -l.*LimitMEMLOCK.*Kubernetes/;
  t.throws(() => channel.registerMr(4096, 4096, 1, ACCESS_LOCAL_WRITE), { code: 'ERR_RDMA', message: advice });
  await channel.close();
});

test('engine channel: close ends what is under way, and is the end', async (t) => {
  const { channel } = open(new FakeFabric());
  const region = HostRegion.allocate(4096);
  t.teardown(() => region.free());
  const { handle } = channel.registerMr(region.start, 4096, 1, ACCESS_LOCAL_WRITE);
  const batch = new OpBatch();
  batch.addOp(channel.peer('10.77.0.9', 1), 1, 0);
  const statuses = channel.submit(batch, 1000);
  const deregistered = channel.deregisterMr(handle);
  const closed = channel.close();
  t.deepEqual([...((await statuses) ?? [])], [OP_STATUS.indexOf('closed')]);
  await Promise.all([closed, deregistered, channel.close(), channel.deregisterMr(handle)]);
  t.is(channel.submit(batch, 1000), undefined);
  t.is(channel.stats().connections, 0);
  t.throws(() => channel.registerMr(region.start, 4096, 1, ACCESS_LOCAL_WRITE), { code: 'ERR_CLOSED' });
});

test('engine events: every number of the contract has a name and words', (t) => {
  const blank = { device: '', peer: '', call: '', errno: 111, wcStatus: 10 };
  for (const [number, name] of RDMA_EVENT_KINDS.entries()) {
    t.is(engineEvent({ ...blank, kind: number, cause: 0 }).kind, name);
  }
  const reasons = RDMA_EVENT_CAUSES.map((name, number) => {
    const event = engineEvent({ ...blank, kind: 0, cause: number });
    t.is(event.cause, name);
    return event.reason;
  });
  t.is(new Set(reasons).size, RDMA_EVENT_CAUSES.length);
  t.deepEqual(reasons.slice(0, 2), ['connection refused', 'remote access error']);
  t.is(engineEvent({ ...blank, errno: 9999, kind: 0, cause: 0 }).reason, 'error 9999');
  t.is(engineEvent({ ...blank, wcStatus: 99, kind: 0, cause: 1 }).reason, 'work completion status 99');
});

test('engine channel: events go to the log, at most one in ten seconds for each kind and peer', async (t) => {
  const clock = new ManualClock();
  const records: Record<string, unknown>[] = [];
  const log = { log: (level: string, message: string, fields = {}) => records.push({ level, message, ...fields }) };
  const events = new EventLog(systemEnvironment({ clock, log }));
  const { channel, engine } = open(new FakeFabric(), (event) => events.record(event));
  const lost = { device: 'fake0', peer: 'a:1', errno: 104, wcStatus: 12 };
  for (let i = 0; i < 5; i++) engine.emit('connection_lost', 'completion_error', lost);
  engine.emit('connection_lost', 'completion_error', { ...lost, peer: 'b:1' });
  engine.emit('rejected', 'refused_secret', lost);
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  t.is(records.length, 3);
  t.like(records[0], {
    level: 'info',
    message: 'RDMA: connection lost',
    peer: 'a:1',
    errno: 'ECONNRESET',
    wc_status: 12,
    reason: 'transport retries exceeded',
  });
  t.like(records[2], { level: 'warn', message: 'RDMA: rejected', reason: 'the peer has another cluster_secret' });
  clock.advance(10_000);
  events.record({ ...lost, kind: 'connection_lost', cause: 'closed_by_peer', reason: '', call: '' });
  t.like(records[3], { peer: 'a:1', more_like_it: 4 });
  await channel.close();
});

test('engine channel: tokens follow from the secret, one half from the other by nobody', (t) => {
  const token = engineToken('a secret');
  t.is(token.length, 64);
  t.deepEqual(token, engineToken('a secret'));
  t.notDeepEqual(token.subarray(0, 32), token.subarray(32));
  t.notDeepEqual(token.subarray(0, 32), engineToken('another secret').subarray(0, 32));
  t.deepEqual(engineOptions([], []).tokens, []);
  t.deepEqual(engineOptions([], ['a secret']).tokens, [token]);
  t.deepEqual(engineOptions([], ['another secret', 'a secret']).tokens, [engineToken('another secret'), token]);
});
