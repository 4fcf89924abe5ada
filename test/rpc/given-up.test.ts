import test from 'ava';
import { parseEndpoint } from '../../src/base/environment/network.js';
import { CallAges } from '../../src/rpc/call-ages.js';
import { RpcClient } from '../../src/rpc/client.js';
import { encodeHello, FRAME_HEADER_BYTES, FrameType, writeFrameHeader } from '../../src/rpc/frame.js';
import { MessageCodec } from '../../src/rpc/message.js';
import { startStore } from '../_support/node/simulated-stores.js';
import { newClient, rawConnection, startServer, testEnvironment } from '../_support/rpc/server.js';
import { simulated } from '../_support/simulated.js';
import { until } from '../_support/support.js';

test('call ages: a call is as old as it is later than the fastest one, whatever the zeros and paces of the two clocks', (t) => {
  const ages = new CallAges();
  t.is(ages.ageMs(1_000_000, 50), 0);
  t.is(ages.ageMs(1_000_010, 60), 0);
  t.true(Math.abs(ages.ageMs(1_000_020, 570) - 500) < 1, 'it has waited somewhere');
  t.is(Math.round(ages.ageMs(1_000_620, 670)), 0);
  t.is(ages.ageMs(1_000_650, 690), 0, 'a faster one');
  let aheadMs = 690 - 1_000_650;
  for (let nowMs = 1_000; nowMs < 10_000_000; nowMs += 1_000) {
    aheadMs += 0.5;
    t.true(ages.ageMs(nowMs - aheadMs, nowMs) < 1, 'half a millisecond a second is the pace of the clocks');
  }
});

simulated(
  'rpc: a node that was stopped does not drain, because who has asked for it has given up',
  async (t, world) => {
    // Cause: calls that had come while a node was stopped were begun when it went on, although their callers had been
    // told that they had failed.
    const store = await startStore(world);
    const rpc = new RpcClient({ env: world.operator.environment });
    world.teardown(() => rpc.close());
    const { control_endpoint } = (await store.runtime.report()) as { control_endpoint: string };
    const endpoint = parseEndpoint(control_endpoint)!;
    await rpc.call(endpoint, 'node.status', {});
    const { host } = store.process;
    host.freeze();
    await t.throwsAsync(rpc.call(endpoint, 'node.drain', {}, { timeoutMs: 1_000 }), { code: 'ERR_TIMEOUT' });
    host.thaw();
    await rpc.call(endpoint, 'node.status', {});
    await world.sleep(3_000);
    t.true(await store.set('still', new Uint8Array(10)));
    t.is(
      ((await rpc.call(endpoint, 'node.status', {})) as { drain?: { state: string } }).drain?.state ?? 'serving',
      'serving',
    );
    t.true((await store.metric('meshcache_rpc_errors_total', { kind: 'given_up' })) > 0);
  },
);

test('rpc: a caller whose clock has stood still is refused once, and then compared anew', async (t) => {
  const env = testEnvironment();
  let behindMs = 0;
  const clock = { ...env.clock, nowMs: () => env.clock.nowMs() - behindMs };
  const { server, endpoint } = await startServer(t, env);
  const client = newClient(t, { ...env, clock });
  await client.call(endpoint, 'echo', {});
  behindMs = 3_600_000;
  await t.throwsAsync(client.call(endpoint, 'echo', {}), { code: 'ERR_OVERLOADED', message: /given it up/ });
  await until(async () => (await client.call(endpoint, 'echo', {}).catch(() => undefined)) !== undefined);
  t.is(server.stats().errors.given_up, 1);
});

test('rpc: a call without times is always begun, and one with half of them ends the connection', async (t) => {
  const { server, endpoint } = await startServer(t);
  const codec = new MessageCodec();
  const frame = (id: number, call: unknown): Buffer => {
    const bytes = codec.encode(call, FRAME_HEADER_BYTES);
    writeFrameHeader(bytes, FrameType.call, id);
    return bytes;
  };
  let echoed = 0;
  server.handle('count', () => ++echoed);
  const raw = await rawConnection(t, endpoint.port);
  raw.socket.write(Buffer.concat([encodeHello(), frame(1, ['count', {}]), frame(2, ['count', {}, 5, 1_000])]));
  await until(() => echoed === 2);
  for (const [i, times] of [[5], [5, 'soon'], [Number.NaN, 5], [5, 5, 5]].entries()) {
    const other = await rawConnection(t, endpoint.port);
    other.socket.write(Buffer.concat([encodeHello(), frame(1, ['count', {}, ...times])]));
    await until(() => server.stats().errors.bad_message === i + 1);
  }
  t.is(echoed, 2);
});
