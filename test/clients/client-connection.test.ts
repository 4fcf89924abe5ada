import test, { type ExecutionContext } from 'ava';
import { ClosedError } from '../../src/base/errors.js';
import { CLIENT_STEP_KEYS } from '../../src/base/limits.js';
import { encodeExists, encodeKeyRequest, RequestType } from '../../src/clients/wire/messages.js';
import { setBytesBody, startServer } from '../_support/clients/client-fixture.js';
import { frame, helloBody, numberBody, TestClient } from '../_support/clients/test-client.js';
import { ManualClock } from '../_support/clock.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';

const exists = (key: string): Buffer => encodeExists({ pool: '', wantsFlags: false, suffixes: [], keys: [key] });
const getBytes = (key: string): Buffer => encodeKeyRequest('', [key], { hasFlags: true });
/** In the order in which they were answered. */
const answered = (client: TestClient): number[] => client.answers.map(({ header }) => header.requestId);

async function start(t: ExecutionContext, limits = {}) {
  const clock = new ManualClock();
  const env = testEnvironment({ clock });
  const started = await startServer(t, { limits, env });
  return { ...started, clock, client: await TestClient.attach(t, started.path) };
}

test('client connection: answers overtake one another', async (t) => {
  const { client, store } = await start(t);
  const [first, second] = [client.send(RequestType.exists, exists('a')), client.send(RequestType.exists, exists('b'))];
  await until(() => store.calls.length === 2);
  store.calls[1]?.end([true]);
  await client.answerTo(second);
  t.false(answered(client).includes(first));
  store.calls[0]?.end([false]);
  t.is((await client.answerTo(first)).body.readUInt32LE(), 0);
});

test('client connection: FENCE of one, of all, of none and of what has failed', async (t) => {
  const { client, store } = await start(t);
  const [one, two] = [client.send(RequestType.exists, exists('a')), client.send(RequestType.exists, exists('b'))];
  const ofTwo = client.send(RequestType.fence, numberBody(two));
  const ofAll = client.send(RequestType.fence, numberBody(0));
  const ofFence = client.send(RequestType.fence, numberBody(ofAll));
  const later = client.send(RequestType.exists, exists('c'));
  t.is((await client.request(RequestType.fence, numberBody(999))).header.status, 0, 'one that is not in flight');
  await until(() => store.calls.length === 3);
  t.deepEqual(answered(client).length, 2, 'HELLO and the last FENCE');
  store.calls[1]?.fail(new Error('address 140737488355328'));
  t.like(await client.answerTo(two), {
    header: { status: 8 },
    body: Buffer.from('the node has failed; its log says more'),
  });
  await client.answerTo(ofTwo);
  await client.ok(RequestType.ping);
  t.false(answered(client).includes(ofAll));
  store.calls[0]?.end([true]);
  await client.answerTo(ofFence);
  t.deepEqual(answered(client).slice(-3), [one, ofAll, ofFence]);
  t.is((await client.request(RequestType.fence, Buffer.alloc(3))).header.status, 1);
  store.calls[2]?.end([true]);
  await client.answerTo(later);
});

test('client connection: a request that is cancelled ends as a miss', async (t) => {
  const { client, store } = await start(t);
  const id = client.send(RequestType.exists, exists('a'));
  await until(() => store.calls.length === 1);
  client.send(RequestType.cancel, numberBody(id));
  t.is((await client.answerTo(id)).body.readUInt32LE(), 0);
  client.send(RequestType.cancel, numberBody(id));
  client.send(RequestType.cancel, numberBody(12_345));
  await client.ok(RequestType.ping);
});

test('client connection: a request ends at its deadline, one without at the longest', async (t) => {
  const { client, store, clock } = await start(t, { deadlineMs: 5_000 });
  const [short, long, none] = [100, 1_000_000, 0].map((deadlineMs) =>
    client.send(RequestType.exists, exists('a'), { deadlineMs }),
  ) as [number, number, number];
  await until(() => store.calls.length === 3);
  clock.advance(100);
  await client.answerTo(short);
  clock.advance(4_899);
  await client.ok(RequestType.ping);
  t.false(answered(client).includes(none) || answered(client).includes(long));
  clock.advance(1);
  await client.answerTo(none);
  await client.answerTo(long);
});

test('client connection: what waits for its turn ends at its deadline, too, and is not done then', async (t) => {
  // Cause: requests that had not begun were answered when others had ended, however late.
  const { client, store, clock } = await start(t, { runningMaxCount: 1 });
  const running = client.send(RequestType.exists, exists('a'));
  const body = setBytesBody({ k: new Uint8Array(10) });
  const set = client.send(RequestType.setBytes, body, { deadlineMs: 50 });
  const get = client.send(RequestType.getBytes, getBytes('k'), { deadlineMs: 50 });
  const cancelled = client.send(RequestType.delete, encodeKeyRequest('', ['k'], { hasFlags: false }));
  await client.ok(RequestType.ping);
  client.send(RequestType.cancel, numberBody(cancelled));
  clock.advance(50);
  t.deepEqual([...(await client.answerTo(set)).body], [0]);
  t.is((await client.answerTo(get)).body.readUInt32LE(), 0xffffffff);
  t.deepEqual([...(await client.answerTo(cancelled)).body], [0]);
  t.is(store.calls.length, 1, 'nothing of it was done');
  store.calls[0]?.end([true]);
  await client.answerTo(running);
});

test('client connection: a SET that has begun says what it has set, cancelled or not', async (t) => {
  const { client, store } = await start(t);
  const pages = Object.fromEntries(Array.from({ length: 4 }, (_, i) => [`k${i}`, new Uint8Array(8)]));
  const id = client.send(RequestType.setBytes, setBytesBody(pages));
  await until(() => store.of('set').length === 1);
  client.send(RequestType.cancel, numberBody(id));
  await client.ok(RequestType.ping);
  t.false(answered(client).includes(id), 'it is under way');
  store.calls[0]?.end([true, true, false, true]);
  t.deepEqual([...(await client.answerTo(id)).body], [1, 1, 0, 1]);
});

test('client connection: no more than so many requests are under way at once, and PING is none of them', async (t) => {
  const { client, store } = await start(t, { runningMaxCount: 4, inFlightMaxCount: 10 });
  const ids = Array.from({ length: 10 }, (_, i) => client.send(RequestType.exists, exists(`k${i}`)));
  const refused = await client.request(RequestType.exists, exists('one more'));
  t.is(refused.header.status, 4);
  await client.ok(RequestType.ping);
  t.is(store.calls.length, 4);
  // The id of what was refused is free again.
  client.socket.write(frame(RequestType.ping, refused.header.requestId));
  const fence = client.request(RequestType.fence, numberBody(0));
  for (let i = 0; i < ids.length; i++) {
    await until(() => store.calls.length > i);
    store.calls[i]?.end([true]);
  }
  t.is((await fence).header.status, 0);
  t.is(store.calls.length, 10);
});

test('client connection: other clients are served while a request with many keys is worked on', async (t) => {
  // Cause: EXISTS, GET, SET and DELETE of 65,536 keys were done in one go, for up to 830 ms.
  const { client, store, path, clock } = await start(t);
  const other = await TestClient.attach(t, path);
  let pingedAt: number | undefined;
  let pinged: Promise<void> | undefined;
  store.answer = () => {
    clock.advance(1);
    pinged ??= other.ok(RequestType.ping).then(() => {
      pingedAt = store.calls.length;
    });
    return new Array<boolean>(CLIENT_STEP_KEYS).fill(true);
  };
  const keys = Array.from({ length: 64 * CLIENT_STEP_KEYS }, (_, i) => `key ${i}`);
  const body = encodeExists({ pool: '', wantsFlags: false, suffixes: [], keys });
  t.is((await client.ok(RequestType.exists, body)).readUInt32LE(), keys.length);
  await pinged;
  t.is(store.calls.length, 64);
  t.true(Number(pingedAt) < 32, `PING was answered after ${pingedAt} of 64 steps`);
});

test('client connection: fences are bounded', async (t) => {
  // Cause: each FENCE held something of every request in flight, and was none itself.
  const { client, store } = await start(t, { inFlightMaxCount: 10 });
  const id = client.send(RequestType.exists, exists('a'));
  const fences = Array.from({ length: 15 }, () => client.send(RequestType.fence, numberBody(id)));
  await client.ok(RequestType.ping);
  t.is(client.answers.filter(({ header }) => header.status === 4).length, 5);
  await until(() => store.calls.length === 1);
  store.calls[0]?.end([true]);
  for (const fence of fences) await client.answerTo(fence);
});

test('client connection: small bodies in flight are bounded', async (t) => {
  const { client, store } = await start(t, { smallBodiesMaxBytes: 10_000, runningMaxCount: 1 });
  const body = exists('k'.repeat(3_000));
  const ids = [1, 2, 3].map(() => client.send(RequestType.exists, body));
  t.is((await client.request(RequestType.exists, body)).header.status, 4);
  await until(() => store.calls.length === 1);
  store.answer = () => [true];
  store.calls[0]?.end([true]);
  for (const id of ids) await client.answerTo(id);
  t.is((await client.request(RequestType.exists, body)).header.status, 0, 'what was answered counts no more');
});

test('client connection: what comes before HELLO is answered waits for it', async (t) => {
  const { store, path } = await startServer(t);
  store.answer = () => [true];
  const client = await TestClient.connect(t, path);
  client.socket.write(
    Buffer.concat([
      frame(RequestType.hello, 7, helloBody()),
      frame(RequestType.fence, 8, numberBody(7)),
      frame(RequestType.exists, 9, exists('a')),
      frame(RequestType.ping, 10),
      frame(RequestType.fence, 11, numberBody(0)),
    ]),
  );
  await Promise.all([7, 8, 9, 10, 11].map((id) => client.answerTo(id)));
  t.deepEqual(answered(client).slice(0, 2), [7, 8]);
  t.true(client.answers.every(({ header }) => header.status === 0));
});

test('client connection: the id of HELLO is in use until it is answered', async (t) => {
  const { path } = await startServer(t);
  const client = await TestClient.connect(t, path);
  client.socket.write(Buffer.concat([frame(RequestType.hello, 7, helloBody()), frame(RequestType.ping, 7)]));
  t.is((await client.lastWords())?.header.status, 1);
});

test('client connection: HELLO waits for what an ended connection of the same process has under way', async (t) => {
  const { client, store, path, server, clock } = await start(t, { handshakeTimeoutMs: 1_000 });
  store.answer = undefined;
  client.send(RequestType.setBytes, setBytesBody({ k: new Uint8Array(8) }));
  await until(() => store.calls.length === 1);
  client.socket.destroy();
  await until(() => server.clients().length === 0);
  const again = await TestClient.connect(t, path);
  const hello = again.send(RequestType.hello, helloBody());
  const other = await TestClient.attach(t, path, { pid: 2 });
  await other.ok(RequestType.ping);
  // The time for HELLO is that until it has come.
  clock.advance(10_000);
  await other.ok(RequestType.ping);
  t.is(again.answers.length, 0);
  store.calls[0]?.end([true]);
  t.is((await again.answerTo(hello)).header.status, 0);
});

test('client connection: a client that goes while it waits for its former connection leaves nothing', async (t) => {
  // Cause: the token of its attachment stayed.
  const { client, store, path, server } = await start(t);
  client.send(RequestType.setBytes, setBytesBody({ k: new Uint8Array(8) }));
  await until(() => store.calls.length === 1);
  client.socket.destroy();
  await until(() => server.clients().length === 0);
  const again = await TestClient.connect(t, path);
  again.send(RequestType.hello, helloBody());
  const other = await TestClient.attach(t, path, { pid: 2 });
  again.socket.destroy();
  await other.ok(RequestType.ping);
  store.calls[0]?.end([true]);
  await other.ok(RequestType.ping);
  t.deepEqual(
    server.clients().map(({ pid }) => pid),
    [2],
  );
});

test('client connection: a connection without HELLO is closed in time', async (t) => {
  const { path, clock } = await start(t);
  const [silent, half] = await Promise.all([TestClient.connect(t, path), TestClient.connect(t, path)]);
  half.socket.write(frame(RequestType.hello, 1, helloBody()).subarray(0, 30));
  const attached = await TestClient.attach(t, path);
  clock.advance(5_000);
  await Promise.all([silent.closed, half.closed]);
  await attached.ok(RequestType.ping);
});

test('client connection: half a body that does not go on ends the connection', async (t) => {
  const { client, clock } = await start(t, { receivingWindowMs: 1_000 });
  const bytes = frame(RequestType.setBytes, 9, setBytesBody({ k: new Uint8Array(200_000) }));
  const timersBefore = clock.pendingCount;
  client.socket.write(bytes.subarray(0, 100_000));
  await until(() => clock.pendingCount > timersBefore);
  await until(() => {
    clock.advance(1_000);
    return client.isClosed;
  });
});

test('client connection: bodies of many clients share a budget, and small ones do not wait for it', async (t) => {
  const limits = { bodyMaxBytes: 200_000, bodiesMaxBytes: 400_000, receivingWindowMs: 1_000 };
  const { client, path, store, clock } = await start(t, limits);
  store.answer = ({ keys }) => keys.map(() => true);
  const large = (id: number): Buffer => frame(RequestType.setBytes, id, setBytesBody({ k: new Uint8Array(150_000) }));
  const slow = await Promise.all([2, 3].map((pid) => TestClient.attach(t, path, { pid })));
  const timersBefore = clock.pendingCount;
  for (const one of slow) one.socket.write(large(100).subarray(0, 80_000));
  await until(() => clock.pendingCount === timersBefore + 2);
  // A process has half of the budget, so there is no room for a third: it comes when the slow ones have gone.
  client.socket.write(large(100));
  const other = await TestClient.attach(t, path, { pid: 4 });
  const small = frame(RequestType.setBytes, 50, setBytesBody({ s: new Uint8Array(50_000) }));
  other.socket.write(small.subarray(0, 20_000));
  other.socket.write(small.subarray(20_000));
  t.is((await other.answerTo(50)).header.status, 0);
  t.is(client.answers.length, 1, 'that to HELLO');
  for (const one of slow) one.socket.destroy();
  t.is((await client.answerTo(100)).header.status, 0);
});

test('client connection: bodies that are promised and do not come keep nobody else out', async (t) => {
  const { client, path, store, clock } = await start(t);
  store.answer = ({ keys }) => keys.map(() => true);
  const hostile = await Promise.all(Array.from({ length: 40 }, () => TestClient.attach(t, path)));
  const promise = frame(RequestType.setBytes, 9, Buffer.alloc(0));
  promise.writeUInt32LE(2 ** 26, 0);
  for (const one of hostile) one.socket.write(Buffer.concat([promise, Buffer.alloc(100_000)]));
  for (let i = 0; i < 20; i++) await client.ok(RequestType.setBytes, setBytesBody({ k: new Uint8Array(2 ** 20) }));
  await until(() => {
    clock.advance(10_000);
    return hostile.every(({ isClosed }) => isClosed);
  });
  const told = hostile[0]?.answers.at(-1)?.body.toString();
  t.regex(told ?? '', /^a body of which less than 1048576 bytes a second have come for 10 s/);
  await client.ok(RequestType.ping);
});

test('client connection: nothing more is taken from a client that does not take its answers, and it goes in time', async (t) => {
  const { client, path, store, server, clock } = await start(t, { outputMaxBytes: 2 ** 20, stallTimeoutMs: 1_000 });
  store.answer = ({ method }) => (method === 'getCopyWithin' ? new Uint8Array(2 ** 20) : undefined);
  client.socket.pause();
  const total = 400;
  for (let i = 0; i < total; i++) client.send(RequestType.getBytes, getBytes('k'));
  const other = await TestClient.attach(t, path, { pid: 2 });
  await until(() => store.calls.length > 1);
  for (let i = 0; i < 20; i++) await other.ok(RequestType.ping);
  t.true(store.calls.length < 20, `${store.calls.length} of ${total} were read`);
  t.is(server.clients().length, 2);
  clock.advance(1_000);
  await until(() => {
    clock.advance(1_000);
    return server.clients().length === 1;
  });
  await other.ok(RequestType.ping);
});

test('client connection: pages of answers that are being made count, so that all clients together make no more than the node has for them', async (t) => {
  // Cause: only what waited in a socket counted, and that was looked at before the pages were read.
  const page = 2 ** 20;
  const { client, path, store } = await start(t, { allOutputMaxBytes: 8 * page });
  let takenBytes = 0;
  store.answer = ({ method, mayTake }) => {
    if (method !== 'getCopyWithin') return undefined;
    if (mayTake?.(page) !== true) return 'too-large';
    takenBytes += page;
    return undefined;
  };
  const others: TestClient[] = [];
  for (let pid = 2; pid < 6; pid++) others.push(await TestClient.attach(t, path, { pid }));
  const all = [client, ...others];
  const keys = encodeKeyRequest('', ['a', 'b', 'c'], { hasFlags: true });
  for (const each of all) for (let n = 0; n < 4; n++) each.send(RequestType.getBytes, keys);
  const isRefused = (): boolean => all.some(({ answers }) => answers.some(({ header }) => header.status === 4));
  await until(isRefused);
  await client.ok(RequestType.ping);
  t.true(
    takenBytes > 0 && takenBytes <= 6 * page,
    `${takenBytes}: a process may have half of what is there, a user three quarters`,
  );
  for (const call of store.calls) call.end(Buffer.alloc(page));
  const refused = all.flatMap(({ answers }) => answers).find(({ header }) => header.status === 4);
  t.is(refused?.body.toString(), 'too many unread answers of this client, its process or its user');
  store.answer = ({ method, mayTake }) =>
    method === 'getCopyWithin' ? (mayTake?.(page) ? Buffer.alloc(page) : 'too-large') : undefined;
  await until(async () => {
    const id = client.send(RequestType.getBytes, getBytes('k'));
    return (await client.answerTo(id)).header.status === 0;
  });
});

test('client connection: answers of any kind that are not read count for all clients together', async (t) => {
  // Cause: each of hundreds of connections could leave 16 MiB of small answers.
  const total = 2 ** 20;
  const { path, server, store } = await start(t, { allOutputMaxBytes: total });
  store.answer = ({ method, keys }) => (method === 'exists' ? keys.map(() => true) : undefined);
  const many = Array.from({ length: 8192 }, (_, i) => `key-${i}`);
  const body = encodeExists({ pool: '', wantsFlags: true, suffixes: [], keys: many });
  const silent: TestClient[] = [];
  for (let pid = 2; pid < 20; pid++) silent.push(await TestClient.attach(t, path, { pid }));
  for (const client of silent) {
    client.socket.pause();
    for (let n = 0; n < 200; n++) client.send(RequestType.exists, body);
  }
  const other = await TestClient.attach(t, path, { pid: 100 });
  let before = -1;
  await until(async () => {
    for (let i = 0; i < 20; i++) await other.ok(RequestType.ping);
    const calls = store.calls.length;
    const isStill = calls === before;
    before = calls;
    return isStill;
  });
  const wholeCount = (silent.length * 200 * many.length) / CLIENT_STEP_KEYS;
  t.true(before < wholeCount / 2, `${before} of ${wholeCount} steps were taken`);
  for (const client of silent) client.socket.resume();
  await until(() => silent.every(({ answers }) => answers.length === 201));
  t.is(server.clients().length, silent.length + 2);
});

test('client connection: what needs no turn is not answered without end to a client that takes nothing', async (t) => {
  // Cause: answers to FENCE, and those with status 4, were written however many of them waited.
  const { client, path, server, clock } = await start(t, { outputMaxBytes: 50_000, stallTimeoutMs: 1_000 });
  client.socket.pause();
  const flood = Buffer.concat(Array.from({ length: 100_000 }, (_, i) => frame(RequestType.ping, i + 10)));
  client.socket.write(flood);
  const other = await TestClient.attach(t, path, { pid: 2 });
  for (let i = 0; i < 20; i++) await other.ok(RequestType.ping);
  await until(() => {
    const figures = server.clients().find(({ pid }) => pid === 1);
    if (figures !== undefined) t.true(figures.requests < 30_000, `${figures.requests} requests were taken`);
    clock.advance(1_000);
    return figures === undefined;
  });
  await other.ok(RequestType.ping);
});

test('client connection: a client that takes its answers slowly is served to the end', async (t) => {
  const { client, store } = await start(t, { outputMaxBytes: 2 ** 16 });
  store.answer = ({ method }) => (method === 'getCopyWithin' ? new Uint8Array(2 ** 20) : undefined);
  client.socket.pause();
  const ids = Array.from({ length: 30 }, () => client.send(RequestType.getBytes, getBytes('k')));
  await until(() => store.calls.length > 0);
  client.socket.resume();
  for (const id of ids) t.is((await client.answerTo(id)).body.length, 4 + 2 ** 20);
});

test('client connection: a closed store is no failure of the node', async (t) => {
  const { client, store } = await start(t);
  const id = client.send(RequestType.exists, exists('a'));
  await until(() => store.calls.length === 1);
  store.calls[0]?.fail(new ClosedError('the store'));
  t.is((await client.answerTo(id)).header.status, 5);
});

test('client connection: connections without HELLO keep nobody out, attached ones are bounded', async (t) => {
  const { path } = await startServer(t, { limits: { clientsMaxCount: 2, greetingMaxCount: 5 } });
  const silent: TestClient[] = [];
  for (let i = 0; i < 20; i++) silent.push(await TestClient.connect(t, path));
  const one = await TestClient.attach(t, path, { pid: 1 });
  await until(() => silent.filter(({ isClosed }) => !isClosed).length <= 5);
  const three = await TestClient.connect(t, path);
  t.is((await three.request(RequestType.hello, helloBody({ pid: 3 }))).header.status, 4);
  await one.ok(RequestType.ping);
  one.socket.destroy();
  await until(async () => {
    const four = await TestClient.connect(t, path);
    return (await four.request(RequestType.hello, helloBody({ pid: 4 }))).header.status === 0;
  });
});

test('client connection: frames are found however the stream is cut', async (t) => {
  const { path, store } = await startServer(t);
  store.answer = ({ keys }) => keys.map(() => true);
  const stream = Buffer.concat([
    frame(RequestType.hello, 1, helloBody()),
    frame(RequestType.exists, 2, exists('a')),
    frame(RequestType.setBytes, 3, setBytesBody({ k: new Uint8Array(700) })),
    frame(RequestType.ping, 4),
    frame(RequestType.fence, 5, numberBody(0)),
  ]);
  for (const cut of [1, 2, 15, 16, 17, 33, 100]) {
    const client = await TestClient.connect(t, path);
    client.socket.setNoDelay(true);
    for (let at = 0; at < stream.length; at += cut) {
      const piece = stream.subarray(at, at + cut);
      await new Promise<void>((resolve) => client.socket.write(piece, () => resolve()));
    }
    await Promise.all([1, 2, 3, 4, 5].map((id) => client.answerTo(id)));
    t.true(
      client.answers.every(({ header }) => header.status === 0),
      `pieces of ${cut} bytes`,
    );
  }
});
