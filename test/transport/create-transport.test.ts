import test from 'ava';
import { silentLogger } from '../../src/base/environment/log.js';
import { type Labels, noMetrics } from '../../src/base/environment/metrics-sink.js';
import { HostRegion } from '../../src/memory/host-region.js';
import type { NativeAddon, RdmaProbe } from '../../src/native/addon/contract.js';
import type { RdmaHost } from '../../src/native/devices/rdma-devices.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { createTransport, type TransportConfig } from '../../src/transport/create-transport.js';
import type { DataProtocol } from '../../src/types.js';
import { FakeFabric, fakeDevice, nativeFailure } from '../_support/native/fake-rdma.js';
import { RawReader } from '../_support/transport/raw-peer.js';

const fabric = new FakeFabric();

function listener() {
  const records: Record<string, unknown>[] = [];
  const gauges: { name: string; value: number; labels?: Labels }[] = [];
  const env = systemEnvironment({
    log: { log: (_level, _message, fields) => records.push({ ...fields }) },
    metrics: {
      ...noMetrics,
      setGaugeProvider: (name, provider, labels) => gauges.push({ name, value: provider(), labels }),
      setCounterProvider: (name, provider, labels) => gauges.push({ name, value: provider(), labels }),
    },
  });
  return { records, gauges, env };
}

const FALLBACKS: readonly [name: string, wanted: DataProtocol, host: Partial<RdmaHost>, reason: RegExp][] = [
  ['TCP when it is asked for', 'tcp', {}, /^as configured$/],
  ['no addon', 'rdma', { load: () => ({ addon: null, reason: 'no native addon at x' }) }, /^no RDMA: no native addon/],
  ['MESHCACHE_NATIVE=off', 'rdma', { load: () => ({ addon: null, reason: 'MESHCACHE_NATIVE=off' }) }, /NATIVE=off$/],
  ['no RDMA in the build', 'rdma', addonWith({ hasRdma: false }), /^no RDMA: .*built without RDMA$/],
  ['no libibverbs', 'rdma', addonWith({ rdmaProbe: failing('libibverbs') }), /^no RDMA: libibverbs cannot be loaded/],
  ['no librdmacm', 'rdma', addonWith({ rdmaProbe: failing('librdmacm') }), /^no RDMA: librdmacm cannot be loaded/],
  ['no rdma_cm', 'rdma', addonWith({ rdmaProbe: failing('rdma_cm') }), /^no RDMA: the connection manager/],
  ['no device', 'rdma', { devices: () => [] }, /^no RDMA: this host has no RDMA device$/],
  ['no port that is up', 'rdma', { devices: () => [fakeDevice({ state: 'DOWN' })] }, /^no RDMA: .*port 1 down/],
  [
    'too little memory that can be locked',
    'rdma',
    { lockedMemory: () => ({ limitBytes: 2 ** 23, isPrivileged: false }) },
    /^no RDMA: 1\.5 GiB of memory have to be locked, and this process may lock 8 MiB/,
  ],
  [
    'an engine that cannot be started',
    'rdma',
    addonWith({
      createRdmaEngine: () => {
        throw nativeFailure('ibv_alloc_pd', 12, 'ibv_alloc_pd: Cannot allocate memory');
      },
    }),
    /^no RDMA: the RDMA engine cannot be started: ibv_alloc_pd/,
  ],
];

for (const [name, wanted, host, reason] of FALLBACKS) {
  test(`create transport: ${name}: TCP, which is said once, with the reason`, async (t) => {
    const { records, gauges, env } = listener();
    const config = { protocol: wanted, localHostname: '127.0.0.1', tcpPort: 0, globalSegmentSize: 2 ** 30 };
    const transport = await createTransport(config, env, fabric.host(host));
    t.teardown(() => transport.close());
    t.is(transport.protocol, 'tcp');
    t.regex(transport.localEndpoint(), /^127\.0\.0\.1:\d+$/);
    t.is(records.length, 1);
    t.like(records[0], { protocol: 'tcp', wanted });
    t.regex(String(records[0]?.reason), reason);
    t.notRegex(String(records[0]?.reason), /\n/);
    t.is(gauges.filter(({ name }) => name === 'meshcache_transport_info').length, 1);
    t.like(gauges[0], { name: 'meshcache_transport_info', value: 1, labels: { protocol: 'tcp', wanted } });
    t.regex(gauges[0]?.labels?.reason ?? '', reason);
  });
}

test('create transport: RDMA where there is all that it needs, and TCP beside it', async (t) => {
  const { records, gauges, env } = listener();
  const config = { protocol: 'rdma', localHostname: 'localhost', tcpPort: 0, rdmaPort: 7471, ibPort: 1 } as const;
  const transport = await createTransport(config, env, fabric.host());
  t.teardown(() => transport.close());
  t.is(transport.protocol, 'rdma');
  t.is(transport.localEndpoint(), '10.77.0.1:7471');
  t.is(transport.localEndpoints().tcp?.host, 'localhost');
  t.is(records.length, 1);
  t.like(records[0], { protocol: 'rdma', wanted: 'rdma', endpoint: '10.77.0.1:7471', devices: 'fake0' });
  t.like(gauges[0], { name: 'meshcache_transport_info', labels: { protocol: 'rdma' } });
  t.true(gauges.some(({ name, value }) => name === 'meshcache_rdma_region_table_reads_total' && value === 0));
});

test('create transport: what is named and not there is refused by its key, also where a port is down', async (t) => {
  const { env } = listener();
  const wrong: [Partial<TransportConfig>, RegExp][] = [
    [
      { deviceName: 'mlx5_7' },
      /^configuration key "device_name": there is no RDMA device mlx5_7; this machine has fake0 /,
    ],
    [{ deviceNames: ['fake0', 'mlx5_7'] }, /^configuration key "device_names": /],
    [{ ibPort: 2 }, /^configuration key "ib_port": /],
    [{ gidIndex: 9 }, /^configuration key "gid_index": /],
  ];
  for (const state of ['ACTIVE', 'DOWN']) {
    const host = fabric.host({ devices: () => [fakeDevice({ state })] });
    for (const [keys, message] of wrong) {
      const made = createTransport({ protocol: 'rdma', tcpPort: 0, ...keys }, env, host);
      await t.throwsAsync(made, { code: 'ERR_CONFIG', message });
    }
  }
  const none = fabric.host({ devices: () => [] });
  const transport = await createTransport({ protocol: 'rdma', tcpPort: 0, deviceName: 'mlx5_7' }, env, none);
  t.is(transport.protocol, 'tcp', 'a machine without RDMA');
  await transport.close();
});

test('create transport: an RDMA port that is taken is refused', async (t) => {
  const { env } = listener();
  const busy = new FakeFabric();
  busy.createFailure = nativeFailure('rdma_bind_addr', 98, 'rdma_bind_addr: Address already in use');
  const made = createTransport({ protocol: 'rdma', tcpPort: 0, rdmaPort: 7471 }, env, busy.host());
  await t.throwsAsync(made, { code: 'ERR_CONFIG', message: /"rdma_port": cannot listen on 7471/ });
});

test('create transport: what peers do wrong shows in its metrics', async (t) => {
  const metrics = new Map<string, () => number>();
  const env = systemEnvironment({
    log: silentLogger,
    metrics: {
      ...noMetrics,
      setGaugeProvider: (name, provider) => metrics.set(name, provider),
      setCounterProvider: (name, provider) => metrics.set(name, provider),
    },
  });
  const transport = await createTransport({ protocol: 'tcp', tcpPort: 0 }, env);
  t.teardown(() => transport.close());
  const value = (name: string): number | undefined => metrics.get(`meshcache_transport_${name}`)?.();
  const totals = ['protocol_errors', 'refused_ops', 'failed_ops', 'reconnects', 'read_pages', 'served_bytes'];
  for (const name of ['connections', ...totals.map((total) => `${total}_total`)]) {
    t.is(value(name), 0, name);
  }
  const target = HostRegion.allocate(100);
  t.teardown(() => target.free());
  const op = { remoteEndpoint: transport.localEndpoint(), remoteAddr: target.addr, rkey: 1, length: 100 };
  t.deepEqual(await transport.batchRead([{ ...op, localAddr: target.addr }]), [false]);
  t.is(value('refused_ops_total'), 1);
  t.is(value('failed_ops_total'), 1);
  t.is(value('connections'), 2, 'it reads from itself: both ends');
  const stranger = await RawReader.connect(t, transport.localEndpoint());
  stranger.send(Buffer.from('GET / HTTP/1.1'));
  await stranger.closed();
  t.is(value('protocol_errors_total'), 1);
});

test('create transport: a port that is taken is refused', async (t) => {
  const env = systemEnvironment({ log: silentLogger });
  const first = await createTransport({ protocol: 'tcp', tcpPort: 0 }, env);
  t.teardown(() => first.close());
  const tcpPort = Number(first.localEndpoint().split(':')[1]);
  await t.throwsAsync(createTransport({ protocol: 'tcp', tcpPort }, env), { code: 'ERR_CONFIG' });
});

function addonWith(overrides: Partial<NativeAddon>): Partial<RdmaHost> {
  return { load: () => ({ addon: fabric.addon(overrides), reason: '' }) };
}

function failing(step: string): () => RdmaProbe {
  return () => ({ usable: false, step, reason: 'it is not there' });
}
