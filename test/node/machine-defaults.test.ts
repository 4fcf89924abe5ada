import test from 'ava';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import {
  ConsistentHashRing,
  createTransport,
  DataLocation,
  DirectoryClient,
  DirectoryServer,
  DiscoveryClient,
  DiscoveryServer,
  RpcClient,
  RpcServer,
} from '../../src/index.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { nodeOf } from '../_support/discovery/masters.js';

test('machine defaults: parts that are given no environment work on the real machine', async (t) => {
  const server = new RpcServer({ host: '127.0.0.1' });
  new DirectoryServer().attach(server);
  const endpoint = { host: '127.0.0.1', port: await server.start() };
  t.teardown(() => server.stop());
  const rpc = new RpcClient();
  t.teardown(() => rpc.close());
  const ring = new ConsistentHashRing(160);
  ring.setNodes(['owner']);
  const directory = new DirectoryClient(ring, () => endpoint, 1, { rpc });
  const own = new DirectoryClient(ring, () => endpoint, 1);
  t.teardown(() => own.close());
  const location = new DataLocation({ nodeId: 'n', rdmaEndpoint: '127.0.0.1:1', remoteAddr: 1n, rkey: 1, length: 1 });
  t.deepEqual(await directory.put({ key: location }), [true]);
  t.deepEqual(await own.exists(['key', 'other']), [true, false]);

  const master = new DiscoveryServer('127.0.0.1', 0);
  const member = new DiscoveryClient(`127.0.0.1:${await master.start()}`, nodeOf('a'));
  t.teardown(() => master.stop());
  t.teardown(() => member.stop());
  await member.start();
  t.deepEqual([...master.members().keys()], ['a']);

  const transport = await createTransport({ protocol: 'tcp', tcpPort: 0 });
  t.is(transport.protocol, 'tcp');
  await transport.close();
});

test('machine defaults: an environment that is given is used', async (t) => {
  const counted: string[] = [];
  const env = systemEnvironment({ metrics: { ...noMetrics, count: (name) => void counted.push(name) } });
  const rpc = new RpcClient({ env });
  await t.throwsAsync(rpc.call({ host: '127.0.0.1', port: 1 }, 'nothing', {}), { code: 'ERR_UNREACHABLE' });
  await rpc.close();
  t.true(counted.includes('meshcache_rpc_calls_total'));
});
