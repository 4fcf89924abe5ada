import test from 'ava';
import { systemEnvironment } from '../../src/base/environment.js';
import { silentLogger } from '../../src/base/log.js';
import type { Labels } from '../../src/base/metrics-sink.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { createTransport } from '../../src/transport/create-transport.js';
import { RawReader } from './raw-peer.js';

for (const protocol of ['rdma', 'tcp'] as const) {
  test(`create transport: ${protocol} gives TCP in this build, and says so once`, async (t) => {
    const records: Record<string, unknown>[] = [];
    const gauges: { name: string; value: number; labels?: Labels }[] = [];
    const env = systemEnvironment({
      log: { log: (_level, _message, fields) => records.push({ ...fields }) },
      metrics: {
        count() {},
        setGaugeProvider: (name, provider, labels) => gauges.push({ name, value: provider(), labels }),
      },
    });
    const transport = await createTransport({ protocol, localHostname: '127.0.0.1', tcpPort: 0 }, env);
    t.teardown(() => transport.close());
    t.is(transport.protocol, 'tcp');
    t.regex(transport.localEndpoint(), /^127\.0\.0\.1:\d+$/);
    t.is(records.length, 1);
    t.like(records[0], { protocol: 'tcp', wanted: protocol });
    t.is(gauges.filter(({ name }) => name === 'meshcache_transport_info').length, 1);
    t.like(gauges[0], { name: 'meshcache_transport_info', value: 1, labels: { protocol: 'tcp', wanted: protocol } });
    t.is(/RDMA/.test(gauges[0]?.labels?.reason ?? ''), protocol === 'rdma');
  });
}

test('create transport: what peers do wrong shows in gauges', async (t) => {
  const gauges = new Map<string, () => number>();
  const env = systemEnvironment({
    log: silentLogger,
    metrics: { count() {}, setGaugeProvider: (name, provider) => gauges.set(name, provider) },
  });
  const transport = await createTransport({ protocol: 'tcp', tcpPort: 0 }, env);
  t.teardown(() => transport.close());
  const value = (name: string): number | undefined => gauges.get(`meshcache_transport_${name}`)?.();
  for (const name of ['protocol_errors', 'refused_ops', 'failed_ops', 'connections', 'reconnects']) {
    t.is(value(name), 0, name);
  }
  const target = HostRegion.allocate(100);
  t.teardown(() => target.free());
  const op = { remoteEndpoint: transport.localEndpoint(), remoteAddr: target.addr, rkey: 1, length: 100 };
  t.deepEqual(await transport.batchRead([{ ...op, localAddr: target.addr }]), [false]);
  t.is(value('refused_ops'), 1);
  t.is(value('failed_ops'), 1);
  t.is(value('connections'), 2, 'it reads from itself: both ends');
  const stranger = await RawReader.connect(t, transport.localEndpoint());
  stranger.send(Buffer.from('GET / HTTP/1.1'));
  await stranger.closed();
  t.is(value('protocol_errors'), 1);
});

test('create transport: a port that is taken is refused', async (t) => {
  const first = await createTransport({ protocol: 'tcp', tcpPort: 0 });
  t.teardown(() => first.close());
  const tcpPort = Number(first.localEndpoint().split(':')[1]);
  await t.throwsAsync(createTransport({ protocol: 'tcp', tcpPort }), { code: 'ERR_CONFIG' });
});
