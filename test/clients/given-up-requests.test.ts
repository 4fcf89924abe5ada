import test from 'ava';
import { MeshCacheClient } from '../../src/client/meshcache-client.js';
import { encodePin } from '../../src/clients/wire/care-messages.js';
import { encodeFingerprint } from '../../src/clients/wire/fingerprint-messages.js';
import {
  encodeExists,
  encodeKeyRequest,
  encodePools,
  encodeSetBytes,
  RequestType,
  Status,
} from '../../src/clients/wire/messages.js';
import { systemClock } from '../../src/system/system-clock.js';
import { attach } from '../_support/client/attached-nodes.js';
import { setBytes, setBytesBody, startNode, startServer } from '../_support/clients/client-fixture.js';
import { TestClient } from '../_support/clients/test-client.js';
import { ManualClock } from '../_support/clock.js';
import { patientClock } from '../_support/patient-clock.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { content, until } from '../_support/support.js';

const keys = (key: string) => encodeKeyRequest('', [key], { hasFlags: false });
const page = content(1, 1000);
/** A request that was asked 10 s ago, by a caller that waited for 5 s. */
const givenUp = () => ({ askedMs: patientClock.nowMs() - 10_000, deadlineMs: 5_000 });

test('given-up requests: none with an effect is begun', async (t) => {
  const store = await startNode(t);
  const client = await TestClient.attach(t, store.clientSocket);
  await setBytes(client, { kept: page });
  const late: readonly (readonly [type: number, body: Buffer, answer: number[] | number])[] = [
    [RequestType.setBytes, setBytesBody({ late: page }), [0]],
    [RequestType.setBytes, setBytesBody({ kept: content(2, 1000) }, { isNamed: true }), [0]],
    [RequestType.delete, keys('kept'), [0]],
    [RequestType.exists, encodeExists({ pool: '', wantsFlags: false, suffixes: [], keys: ['kept'] }), [0, 0, 0, 0]],
    [RequestType.pin, encodePin({ pool: '', forMs: 60_000, keys: ['kept'] }), [0]],
    [RequestType.unpin, keys('kept'), Status.tooLate],
    [RequestType.clear, encodePools([]), Status.tooLate],
    [RequestType.fingerprint, encodeFingerprint({ client: 'test', fingerprint: 'other' }), Status.tooLate],
    [RequestType.stats, Buffer.alloc(0), Status.tooLate],
  ];
  for (const [type, body, expected] of late) {
    const { header, body: answer } = await client.request(type, body, givenUp());
    t.deepEqual(header.status === 0 ? [...answer] : header.status, expected, `type ${type}`);
  }
  t.deepEqual(await store.get('kept'), page);
  t.is(await store.get('late'), null);
  // Letting go of memory is done at any time.
  t.is((await client.request(RequestType.unregion, Buffer.alloc(4), givenUp())).header.status, Status.noRegion);
  const inTime = { askedMs: patientClock.nowMs() - 10_000, deadlineMs: 29_000 };
  t.deepEqual([...(await client.ok(RequestType.setBytes, setBytesBody({ late: page }), inTime))], [1]);
});

test('given-up requests: an expiry counts from when the call was made', async (t) => {
  const store = await startNode(t);
  const client = await TestClient.attach(t, store.clientSocket);
  const body = (expiresInMs: number) =>
    encodeSetBytes({ pool: '', isNamed: true, expiresInMs, keys: ['k'], pages: [page] });
  const asked = () => ({ askedMs: patientClock.nowMs() - 10_000, deadlineMs: 30_000 });
  await client.ok(RequestType.setBytes, body(9_000), asked());
  t.is(await store.get('k'), null);
  await client.ok(RequestType.setBytes, body(600_000), asked());
  t.deepEqual(await store.get('k'), page);
});

test('given-up requests: of a client that does not say its instant, what may have been sent before a pause is as old as that', async (t) => {
  const env = { ...testEnvironment(), clock: new ManualClock() };
  const { store, path } = await startServer(t, { env });
  const client = await TestClient.attach(t, path);
  store.answer = ({ keys }) => keys.map(() => true);
  const { clock } = env;
  // Standing still for longer than the deadline, as in a process that is stopped.
  clock.stall(10_000);
  t.deepEqual([...(await client.ok(RequestType.delete, keys('k'), { deadlineMs: 5_000 }))], [0]);
  t.deepEqual([...(await client.ok(RequestType.delete, keys('k'), { deadlineMs: 20_000 }))], [1]);
  t.is(store.calls.length, 1);
  for (let i = 0; i < 10; i++) clock.advance(100);
  t.deepEqual([...(await client.ok(RequestType.delete, keys('k'), { deadlineMs: 5_000 }))], [1]);
});

test('given-up requests: what is begun before its time is over is told when that is', async (t) => {
  const { store, path } = await startServer(t, { env: { ...testEnvironment(), clock: systemClock } });
  const client = await TestClient.attach(t, path);
  const asked = systemClock.nowMs();
  const id = client.send(RequestType.delete, keys('k'), { askedMs: asked, deadlineMs: 200 });
  await until(() => store.calls.length === 1);
  const { time } = store.calls[0] ?? {};
  t.true(Math.abs((time?.askedMs ?? 0) - asked) < 1);
  await until(() => systemClock.nowMs() > asked + 200);
  t.true(time?.isOver());
  store.calls[0]?.end([true]);
  await client.answerTo(id);
});

test('given-up requests: a client whose clock is not that of the node does not say its instant', async (t) => {
  // Far ahead, so that this host's instants are long ago there.
  const env = { ...testEnvironment(), clock: new ManualClock(1e12) };
  const { store, path } = await startServer(t, { env });
  store.answer = ({ keys }) => keys.map(() => true);
  const client = await MeshCacheClient.connect({ socket: path, required: true });
  t.teardown(() => client.close());
  t.true((await client.delete(['k']))[0]);
  t.is(store.calls[0]?.time?.askedMs, env.clock.nowMs());
});

test('given-up requests: a client with the clock of the node says when the call was made', async (t) => {
  const { store, path } = await startServer(t, { env: { ...testEnvironment(), clock: systemClock } });
  const client = await attach(t, path);
  store.answer = ({ keys }) => keys.map(() => true);
  const before = systemClock.nowMs();
  t.true((await client.delete(['k']))[0]);
  const asked = store.calls[0]?.time?.askedMs ?? 0;
  t.true(asked >= before - 1 && asked <= systemClock.nowMs());
});
