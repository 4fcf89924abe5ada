import test from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { loadNative } from '../../src/native/addon/loader.js';
import { HAS_RDMA } from '../../src/native/index.js';
import { TransferEngine, type TransferEngineOptions } from '../../src/native/transfer-engine.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { FakeFabric, fakeDevice } from '../_support/native/fake-rdma.js';
import { content } from '../_support/support.js';

const env = systemEnvironment({ log: silentLogger });

function engine(fabric: FakeFabric, options: TransferEngineOptions = {}): TransferEngine {
  return new TransferEngine({ host: fabric.host(), env, ...options });
}

test('transfer engine: HAS_RDMA is what the addon was built with', (t) => {
  t.is(HAS_RDMA, loadNative().addon?.hasRdma ?? false);
});

test('transfer engine: reads what a peer has registered, one result a request', async (t) => {
  const fabric = new FakeFabric();
  await using owner = engine(fabric);
  await using reader = engine(fabric);
  t.regex(owner.localEndpoint(), /^10\.77\.0\.1:\d+$/);
  t.is(owner.deviceName, 'fake0');
  using source = HostRegion.allocate(8192);
  using target = HostRegion.allocate(8192);
  source.bytes().set(content(1, 8192));
  const mr = owner.registerMr(source.addr, 8192);
  t.like(mr, { addr: source.addr, length: 8192 });
  reader.registerMr(target.addr, 8192);
  const remoteNode = owner.localEndpoint();
  const good = { remoteNode, localAddr: target.addr, remoteAddr: source.addr, rkey: mr.rkey, length: 4096 };
  const requests = [
    good,
    { ...good, rkey: (mr.rkey ^ 1) >>> 0 },
    { ...good, rkey: -1 },
    { ...good, remoteAddr: source.addr + 4097n },
    { ...good, remoteAddr: 2n ** 64n - 1n },
    { ...good, remoteNode: 'nowhere' },
    { ...good, remoteNode: '10.77.0.1:1' },
    { ...good, localAddr: target.addr + 4096n, remoteAddr: source.addr + 4096n },
  ];
  t.deepEqual(await reader.batchRead(requests), [true, false, false, false, false, false, false, true]);
  t.is(Buffer.compare(target.bytes(), source.bytes()), 0);
  t.deepEqual(await reader.batchRead([]), []);
  t.is(reader.stats().readBytes, 8192);

  await owner.deregisterMr(mr);
  await owner.deregisterMr(mr);
  t.deepEqual(await reader.batchRead([good]), [false]);
  t.not(owner.registerMr(source.addr, 8192).rkey, mr.rkey);
});

test('transfer engine: local memory that is not registered throws before anything is read', async (t) => {
  const fabric = new FakeFabric();
  await using own = engine(fabric);
  using region = HostRegion.allocate(8192);
  const mr = own.registerMr(region.addr, 4096);
  const good = {
    remoteNode: own.localEndpoint(),
    localAddr: region.addr,
    remoteAddr: region.addr,
    rkey: mr.rkey,
    length: 64,
  };
  const wrong = [
    { ...good, localAddr: region.addr + 4033n },
    { ...good, localAddr: 0n },
    { ...good, length: -1 },
    { ...good, length: 1.5 },
    { ...good, localAddr: 64 as unknown as bigint },
  ];
  for (const request of wrong) {
    await t.throwsAsync(own.batchRead([good, request]), { code: 'ERR_ARGUMENT', message: /request 1/ });
  }
  t.is(own.stats().readOps, 0);
  const ranges: [bigint, number][] = [
    [0n, 10],
    [region.addr, 0],
    [region.addr, 0.5],
    [-1n, 10],
  ];
  for (const [addr, length] of ranges) t.throws(() => own.registerMr(addr, length), { code: 'ERR_ARGUMENT' });
});

test('transfer engine: where RDMA cannot be had it says which step fails, wrong names by name', (t) => {
  const fabric = new FakeFabric();
  const none = fabric.host({ devices: () => [] });
  t.throws(() => engine(fabric, { host: none }), { code: 'ERR_RDMA', message: /no RDMA device; .*rdma link/ });
  const off = fabric.host({ load: () => ({ addon: null, reason: 'MESHCACHE_NATIVE=off' }) });
  t.throws(() => engine(fabric, { host: off }), { code: 'ERR_RDMA', message: /MESHCACHE_NATIVE=off; unset/ });
  const down = fabric.host({ devices: () => [fakeDevice({ state: 'DOWN' })] });
  t.throws(() => engine(fabric, { host: down }), { code: 'ERR_RDMA', message: /fake0 \(port 1 down/ });
  const wrong: [TransferEngineOptions, RegExp][] = [
    [{ deviceName: 'mlx5_7' }, /deviceName: there is no RDMA device mlx5_7; this machine has fake0/],
    [{ ibPort: 2 }, /ibPort: /],
    [{ gidIndex: 9 }, /gidIndex: /],
    [{ bindHost: '10.0.0.1' }, /bindHost: 10\.0\.0\.1 is not an address/],
    [{ host: down, deviceName: 'mlx5_7' }, /deviceName: /],
  ];
  for (const [options, message] of wrong) t.throws(() => engine(fabric, options), { code: 'ERR_CONFIG', message });
  t.throws(() => engine(fabric, { bindPort: 70_000 }), { code: 'ERR_ARGUMENT' });
});

test('transfer engine: after close nothing is accepted any more', async (t) => {
  const own = engine(new FakeFabric());
  using region = HostRegion.allocate(4096);
  await own.close();
  await own.close();
  t.throws(() => own.registerMr(region.addr, 4096), { code: 'ERR_CLOSED' });
  await t.throwsAsync(own.batchRead([]), { code: 'ERR_CLOSED' });
});
