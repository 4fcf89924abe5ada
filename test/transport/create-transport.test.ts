import test from 'ava';
import { systemEnvironment } from '../../src/base/environment.js';
import type { Labels } from '../../src/base/metrics-sink.js';
import { createTransport } from '../../src/transport/create-transport.js';

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
    t.is(gauges.length, 1);
    t.like(gauges[0], { name: 'meshcache_transport_info', value: 1, labels: { protocol: 'tcp', wanted: protocol } });
    t.is(/RDMA/.test(gauges[0]?.labels?.reason ?? ''), protocol === 'rdma');
  });
}

test('create transport: a port that is taken is refused', async (t) => {
  const first = await createTransport({ protocol: 'tcp', tcpPort: 0 });
  t.teardown(() => first.close());
  const tcpPort = Number(first.localEndpoint().split(':')[1]);
  await t.throwsAsync(createTransport({ protocol: 'tcp', tcpPort }), { code: 'ERR_CONFIG' });
});
