import type { ExecutionContext } from 'ava';
import test from 'ava';
import { ClusterSecrets } from '../../src/base/environment/credentials.js';
import { type LogFields, silentLogger } from '../../src/base/environment/log.js';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ } from '../../src/native/addon/contract.js';
import { engineToken } from '../../src/native/engine/engine-channel.js';
import { DataEndpoints } from '../../src/node/runtime/members.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { type ReadOp, type Transport, tcpEndpointText } from '../../src/transport/contract/transport.js';
import { RdmaTransport } from '../../src/transport/rdma/rdma-transport.js';
import { TcpTransport } from '../../src/transport/tcp/tcp-transport.js';
import { NodeInfo } from '../../src/types.js';
import { ManualClock } from '../_support/clock.js';
import { type FakeEngine, FakeFabric, nativeFailure } from '../_support/native/fake-rdma.js';
import { content, until } from '../_support/support.js';

const MIB = 2 ** 20;

function bench(t: ExecutionContext) {
  const fabric = new FakeFabric();
  const clock = new ManualClock();
  const records: { message: string; fields: LogFields }[] = [];
  const counts: string[] = [];
  const env = systemEnvironment({
    log: { log: (_level, message, fields = {}) => records.push({ message, fields }) },
    metrics: { ...noMetrics, count: (name) => counts.push(name) },
  });
  const tcp = async (): Promise<TcpTransport> => {
    const transport = await TcpTransport.create({ host: '127.0.0.1', env });
    t.teardown(() => transport.close());
    return transport;
  };
  const rdma = async (): Promise<RdmaTransport> => {
    const rails = [{ deviceName: 'fake0', ibPort: 1, address: '10.77.0.1', port: 0 }];
    const timed = { ...env, clock };
    const transport = new RdmaTransport({ addon: fabric.addon(), rails, tcp: await tcp(), env: timed, engine: {} });
    t.teardown(() => transport.close());
    return transport;
  };
  const engineOf = (transport: Transport): FakeEngine => fabric.engines.get(transport.localEndpoint()) as FakeEngine;
  const region = (length: number, seed?: number): HostRegion => {
    const made = HostRegion.allocate(length);
    if (seed !== undefined) made.bytes().set(content(seed, length));
    t.teardown(() => made.free());
    return made;
  };
  return { fabric, clock, records, counts, tcp, rdma, engineOf, region };
}

function opOf(owner: Transport, source: HostRegion, target: HostRegion, endpoint = owner.localEndpoint()): ReadOp {
  const { rkey } = owner.registerMr(source.addr, source.length);
  const [localAddr, remoteAddr] = [target.addr, source.addr];
  return { remoteEndpoint: endpoint, localAddr, remoteAddr, rkey, length: Math.min(source.length, target.length) };
}

function nodeOf(transport: Transport): NodeInfo {
  const { rdma, tcp } = transport.localEndpoints();
  return new NodeInfo({
    nodeId: transport.localEndpoint(),
    controlHost: '127.0.0.1',
    controlPort: 1,
    rdmaHost: rdma?.host,
    rdmaPort: rdma?.port,
    tcpHost: tcp?.host,
    tcpPort: tcp?.port,
  });
}

test('RDMA transport: nodes with and without RDMA read from each other, under one rkey', async (t) => {
  const { rdma, tcp, region, records } = bench(t);
  const [both, onlyTcp, reader] = [await rdma(), await tcp(), await rdma()];
  const source = region(5000, 1);
  const target = region(5000);
  const log = { log: (_level: unknown, message: string) => records.push({ message, fields: {} }) };

  const byRdma = opOf(both, source, target, new DataEndpoints(reader, log).of(nodeOf(both)));
  t.is(byRdma.remoteEndpoint, both.localEndpoint());
  const byTcp = opOf(onlyTcp, source, region(5000), new DataEndpoints(reader, log).of(nodeOf(onlyTcp)));
  t.is(byTcp.remoteEndpoint, tcpEndpointText(onlyTcp.localEndpoint()));
  const wrong = { ...byTcp, rkey: (byTcp.rkey ^ 1) >>> 0 };
  t.deepEqual(await reader.batchRead([byTcp, byRdma, wrong]), [true, true, false]);
  t.is(Buffer.compare(target.bytes(), source.bytes()), 0);
  t.is(onlyTcp.stats().servedOps, 1);
  t.like(reader.stats(), { readOps: 2, readBytes: 10_000, failedOps: 1 });

  const back = { ...byRdma, remoteEndpoint: new DataEndpoints(onlyTcp, log).of(nodeOf(both)) as string };
  t.deepEqual(await onlyTcp.batchRead([back]), [true]);
  t.is(both.stats().servedOps, 1);
  t.deepEqual(records, []);
});

test('RDMA transport: a node that does not answer by RDMA is read over TCP until it does, and the log says so once', async (t) => {
  const { rdma, region, records, fabric, clock, engineOf } = bench(t);
  const [owner, reader] = [await rdma(), await rdma()];
  const log = { log: (_level: unknown, message: string, fields = {}) => records.push({ message, fields }) };
  const endpoints = new DataEndpoints(reader, log);
  const node = nodeOf(owner);
  const op = opOf(owner, region(100, 1), region(100));
  const read = async () => reader.batchRead([{ ...op, remoteEndpoint: endpoints.of(node) as string }]);
  fabric.faults.set(owner.localEndpoint(), 'unreachable');
  t.deepEqual(await read(), [false]);
  t.deepEqual(await read(), [true]);
  t.deepEqual(await read(), [true]);
  t.is(owner.stats().servedOps, 2);
  t.is(records.length, 1);
  t.like(records[0]?.fields, { node_id: node.nodeId, rdma_endpoint: owner.localEndpoint() });

  clock.advance(1000);
  const triesBefore = engineOf(reader).submitted.length;
  t.deepEqual(await read(), [true], 'it is tried in the background');
  t.is(owner.stats().servedOps, 3);
  t.is(engineOf(reader).submitted.length, triesBefore + 1);
  fabric.faults.clear();
  await until(() => {
    clock.advance(1000);
    return endpoints.of(node) === owner.localEndpoint();
  });
  t.deepEqual(await read(), [true]);
  t.is(owner.stats().servedOps, 3);
});

test('RDMA transport: memory is registered for peers with its rkey, destinations once and for writing only', async (t) => {
  const { rdma, region, engineOf } = bench(t);
  const [owner, reader] = [await rdma(), await rdma()];
  const target = region(1000);
  const op = opOf(owner, region(1000, 1), target);
  t.like(
    [...engineOf(owner).registered.values()],
    [{ rkey: op.rkey, access: ACCESS_REMOTE_READ | ACCESS_LOCAL_WRITE }],
  );
  for (let i = 0; i < 3; i++) t.deepEqual(await reader.batchRead([op]), [true]);
  const registered = [...engineOf(reader).registered.values()];
  t.deepEqual(registered, [{ start: target.start, length: 1000, rkey: 0, access: ACCESS_LOCAL_WRITE }]);
  target.free();
  t.is(engineOf(reader).registered.size, 0);

  const published = region(1000);
  reader.registerMr(published.addr, 1000);
  t.deepEqual(await reader.batchRead([{ ...op, localAddr: published.addr }]), [true]);
  t.is(engineOf(reader).registered.size, 1, 'what is registered for peers takes reads too');
});

test('RDMA transport: of a large region only the windows that are read into are registered', async (t) => {
  const { rdma, region, engineOf } = bench(t);
  const [owner, reader] = [await rdma(), await rdma()];
  const window = 256 * MIB;
  const source = region(3 * MIB, 1);
  const target = region(3 * window);
  const localAddr = target.addr + BigInt(2 * window - MIB);
  t.deepEqual(await reader.batchRead([{ ...opOf(owner, source, target), localAddr }]), [true]);
  t.is(Buffer.compare(target.bytes(2 * window - MIB, 3 * MIB), source.bytes()), 0);
  const starts = [...engineOf(reader).registered.values()].map(({ start }) => start - target.start);
  t.deepEqual(starts, [window, 2 * window]);
});

test('RDMA transport: a region freed while it is read into stays until the read has ended', async (t) => {
  const { rdma, region, engineOf } = bench(t);
  const [owner, reader] = [await rdma(), await rdma()];
  const target = region(8 * MIB);
  const view = target.bytes();
  const source = region(8 * MIB, 1);
  const reading = reader.batchRead([opOf(owner, source, target)]);
  await until(() => view[0] !== 0);
  target.free();
  t.deepEqual(await reading, [true]);
  t.is(Buffer.compare(view, source.bytes()), 0);
  t.is(engineOf(reader).registered.size, 0);
});

test('RDMA transport: memory that cannot be registered', async (t) => {
  const { rdma, region, fabric, records, clock } = bench(t);
  const [owner, reader] = [await rdma(), await rdma()];
  const op = opOf(owner, region(1000, 1), region(1000));
  fabric.registerFailure = nativeFailure('ibv_reg_mr', 12, 'ibv_reg_mr: Cannot allocate memory');
  const source = region(1000);
  t.throws(() => owner.registerMr(source.addr, 1000), { code: 'ERR_RDMA', message: /ulimit -l/ });
  t.deepEqual(await reader.batchRead([op, op]), [false, false]);
  t.deepEqual(await reader.batchRead([op]), [false]);
  t.is(records.length, 1, 'said once');
  t.regex(String(records[0]?.fields.reason), /ulimit -l/);
  t.is(reader.stats().failedOps, 3);
  fabric.registerFailure = undefined;
  clock.advance(10_000);
  t.deepEqual(await reader.batchRead([op]), [true]);
});

test('RDMA transport: where no more can be locked, memory used longest ago makes room; memory in use does not', async (t) => {
  const { rdma, region, fabric, records, clock, engineOf } = bench(t);
  const [owner, reader] = [await rdma(), await rdma()];
  const op = opOf(owner, region(MIB, 1), region(MIB));
  const targets = [1, 2, 3, 4].map(() => region(MIB));
  const into = (...chosen: readonly number[]): ReadOp[] =>
    chosen.map((i) => ({ ...op, localAddr: (targets[i] as HostRegion).addr }));
  const starts = () => [...engineOf(reader).registered.values()].map(({ start }) => start);
  const startsOf = (...chosen: readonly number[]) => chosen.map((i) => (targets[i] as HostRegion).start);
  // The source, and two of what is read into.
  fabric.lockableBytes = 3 * MIB;
  t.deepEqual(await reader.batchRead(into(0)), [true]);
  t.deepEqual(await reader.batchRead(into(1)), [true]);
  t.deepEqual(await reader.batchRead(into(0)), [true]);
  t.deepEqual(await reader.batchRead(into(2)), [true]);
  t.deepEqual(starts(), startsOf(0, 2), 'of 0 and 1, 1 was used the longest ago');
  t.is(Buffer.compare((targets[2] as HostRegion).bytes(), content(1, MIB)), 0);

  t.deepEqual(await reader.batchRead(into(3, 0, 1)), [true, true, false], 'what a batch uses makes no room for it');
  t.deepEqual(starts(), startsOf(3, 0));
  t.is(records.length, 1);
  t.regex(String(records[0]?.fields.reason), /ulimit -l/);
  t.is(reader.stats().failedOps, 1);
  t.deepEqual(await reader.batchRead(into(1)), [false], 'it is left alone for a while');
  t.deepEqual(await reader.batchRead(into(2)), [true], 'other memory is not');
  clock.advance(1000);
  t.deepEqual(await reader.batchRead(into(1)), [true]);
  t.is(records.length, 1);
});

test('RDMA transport: what TCP could not serve is not registered for RDMA either', async (t) => {
  const { rdma, engineOf } = bench(t);
  const owner = await rdma();
  const wrapped = HostRegion.wrap(new ArrayBuffer(4096));
  t.teardown(() => wrapped.free());
  t.throws(() => owner.registerMr(wrapped.addr, 4096), { code: 'ERR_ARGUMENT', message: /only one thread can see/ });
  t.is(engineOf(owner).registered.size, 0);
});

test('RDMA transport: a batch has the stall timeout and a second for each MiB under way', async (t) => {
  const { rdma, region, engineOf } = bench(t);
  const [owner, reader] = [await rdma(), await rdma()];
  const op = opOf(owner, region(4 * MIB, 1), region(4 * MIB));
  await Promise.all([reader.batchRead([op]), reader.batchRead([op, op])]);
  t.deepEqual(
    engineOf(reader).submitted.map(({ timeoutMs }) => timeoutMs),
    [3000 + 4000, 3000 + 12_000],
  );
});

test('RDMA transport: a wrong checksum is counted where the dashboards look for it', async (t) => {
  const { rdma, region, counts } = bench(t);
  const [owner, reader] = [await rdma(), await rdma()];
  t.deepEqual(await reader.batchRead([{ ...opOf(owner, region(100, 1), region(100)), checksum: 1 }]), [false]);
  t.deepEqual(counts, ['meshcache_checksum_failures_total']);
  t.is(reader.stats().checksumFailures, 1);
});

test('RDMA transport: close ends within seconds although the engine does not', async (t) => {
  const { rdma, fabric, clock, records } = bench(t);
  const transport = await rdma();
  fabric.ends = false;
  const closing = transport.close();
  await until(() => clock.pendingCount > 0);
  clock.advance(3000);
  await closing;
  t.is(records.at(-1)?.message, 'RDMA: the engine did not close in time');
});

test('rdma transport: a secret that is renewed counts for the engine, too', async (t) => {
  const fabric = new FakeFabric();
  const secrets = ClusterSecrets.of(['the old one']) as ClusterSecrets;
  const env = systemEnvironment({ log: silentLogger, secrets });
  const transport = new RdmaTransport({
    addon: fabric.addon(),
    rails: [{ deviceName: 'fake0', ibPort: 1, address: '10.77.0.1', port: 0 }],
    tcp: await TcpTransport.create({ host: '127.0.0.1', env }),
    env,
  });
  t.teardown(() => transport.close());
  const engine = fabric.engines.get(transport.localEndpoint()) as FakeEngine;
  t.deepEqual(engine.tokens, [engineToken('the old one')]);
  secrets.renew(['the new one', 'the old one']);
  t.deepEqual(engine.tokens, [engineToken('the new one'), engineToken('the old one')]);
  await transport.close();
  secrets.renew(['the new one']);
  t.is(engine.tokens.length, 2);
});
