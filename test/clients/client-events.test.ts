import test from 'ava';
import { decodeEventsAnswer, type EventsAnswer, encodeEvents } from '../../src/clients/wire/events.js';
import { Capability, RequestType, Status } from '../../src/clients/wire/messages.js';
import type { PageEvent } from '../../src/store/events/page-events.js';
import { setBytes, setBytesBody, startNode, startServer } from '../_support/clients/client-fixture.js';
import { numberBody, TestClient } from '../_support/clients/test-client.js';
import { content, until } from '../_support/support.js';

const OTHER = { modelName: 'other', tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
const page = (seed: number): Buffer => Buffer.from(content(seed, 100));

/** A client that keeps its list by EVENTS alone. */
class Follower {
  readonly pages = new Map<string, string>();
  readonly kinds: string[] = [];
  position = '';

  constructor(
    readonly client: TestClient,
    readonly pools: readonly string[] = [''],
  ) {}

  async next(deadlineMs = 0): Promise<EventsAnswer> {
    const body = encodeEvents({ position: this.position, pools: this.pools });
    const answer = decodeEventsAnswer(
      await this.client.ok(RequestType.events, body, { deadlineMs }),
      this.pools.length,
    );
    this.position = answer.position;
    this.kinds.push(answer.kind);
    if (answer.kind === 'reset') this.pages.clear();
    for (const { pool, key, tier } of answer.changes) {
      if (tier === null) this.pages.delete(`${pool} ${key}`);
      else this.pages.set(`${pool} ${key}`, tier);
    }
    return answer;
  }

  /** Asks until the pages are these. */
  async until(...names: string[]): Promise<void> {
    while ([...this.pages.keys()].toSorted().join() !== names.toSorted().join()) await this.next();
  }
}

test('client events: a list of the pages of the own namespace, then each change, by pools and the own keys', async (t) => {
  const store = await startNode(t);
  const client = await TestClient.attach(t, store.clientSocket, { namespace: OTHER });
  t.true((client.hello.capabilities & Capability.events) !== 0);
  t.true(await store.set('of-another-namespace', page(1)));
  await setBytes(client, { a: page(1), 'with/slash': page(2), '': page(3) });
  await client.ok(RequestType.setBytes, setBytesBody({ m: page(4) }, { pool: 'mamba' }));
  await client.ok(RequestType.setBytes, setBytesBody({ n: page(4) }, { pool: 'not-asked-for' }));
  const follower = new Follower(await TestClient.attach(t, store.clientSocket, { namespace: OTHER }), ['kv', 'mamba']);
  t.like(await follower.next(), { kind: 'reset', changes: [] });
  while ((await follower.next()).kind === 'listed');
  t.deepEqual([...follower.pages.keys()].toSorted(), ['0 ', '0 a', '0 with/slash', '1 m']);
  t.deepEqual([...new Set(follower.pages.values())], ['memory']);
  await client.ok(RequestType.setBytes, setBytesBody({ b: page(5) }));
  t.true((await client.ok(RequestType.delete, Buffer.concat([Buffer.from([0, 0]), keysOf('a')])))[0] === 1);
  await follower.until('0 ', '0 b', '0 with/slash', '1 m');
  const changed = await (async () => {
    await client.ok(RequestType.setBytes, setBytesBody({ c: page(6) }, { pool: 'mamba' }));
    return follower.next();
  })();
  t.like(changed, { kind: 'changed', changes: [{ pool: 1, key: 'c', tier: 'memory' }] });
  t.true(Math.abs(changed.atMs - Date.now()) < 60_000);
});

function keysOf(...keys: string[]): Buffer {
  const body = Buffer.alloc(4 + 2 * keys.length);
  body.writeUInt32LE(keys.length, 0);
  for (const [i, key] of keys.entries()) body.writeUInt16LE(Buffer.byteLength(key), 4 + 2 * i);
  return Buffer.concat([body, ...keys.map((key) => Buffer.from(key))]);
}

test('client events: a client that comes back by another connection gets what it has missed, and no new list', async (t) => {
  const store = await startNode(t);
  const writer = await TestClient.attach(t, store.clientSocket);
  await setBytes(writer, { a: page(1) });
  const before = new Follower(await TestClient.attach(t, store.clientSocket));
  await before.until('0 a');
  while ((await before.next()).kind === 'listed');
  before.client.socket.destroy();
  await setBytes(writer, { b: page(2) });
  t.deepEqual(await store.delete(['a']), [true]);
  const after = new Follower(await TestClient.attach(t, store.clientSocket));
  after.position = before.position;
  after.pages.set('0 a', 'memory');
  await after.until('0 b');
  t.deepEqual([...new Set(after.kinds)], ['changed']);
});

test('client events: a list that was not taken whole begins anew on another connection', async (t) => {
  const store = await startNode(t);
  await setBytes(await TestClient.attach(t, store.clientSocket), { a: page(1) });
  const first = new Follower(await TestClient.attach(t, store.clientSocket));
  t.is((await first.next()).kind, 'reset');
  const second = new Follower(await TestClient.attach(t, store.clientSocket));
  t.is((await second.next()).kind, 'reset');
  second.position = 'list.7';
  t.is((await second.next()).kind, 'reset', 'a part that nobody has asked for is no part');
  const third = new Follower(await TestClient.attach(t, store.clientSocket));
  third.position = first.position;
  t.is((await third.next()).kind, 'reset');
  for (const position of ['x', '-', '0-0', '~'.repeat(1000)]) {
    third.position = position;
    t.is((await third.next()).kind, 'reset', position);
  }
});

test('client events: a wait ends at its deadline, by CANCEL and when the node closes', async (t) => {
  const store = await startNode(t);
  const follower = new Follower(await TestClient.attach(t, store.clientSocket));
  const { client } = follower;
  while ((await follower.next()).kind !== 'complete');
  const { position } = follower;
  t.like(await follower.next(30), { kind: 'nothing', position, atMs: 0, changes: [] });
  const body = encodeEvents({ position, pools: [''] });
  const id = client.send(RequestType.events, body);
  t.is((await client.request(RequestType.events, body)).header.status, Status.tooMuch);
  await client.ok(RequestType.fence, numberBody(0));
  client.send(RequestType.cancel, numberBody(id));
  t.is(decodeEventsAnswer((await client.answerTo(id)).body, 1).kind, 'nothing');
  const last = client.send(RequestType.events, body);
  await until(() => store.clients()[0]?.in_flight === 1);
  await store.close();
  t.like(await client.answerTo(last), { header: { status: Status.ok } });
  t.is((await client.lastWords())?.header.status, Status.closing);
});

test('client events: a wait takes none of the places of other requests, and keeps none of them waiting', async (t) => {
  const idle = async function* ({ signal }: { signal?: AbortSignal | undefined }): AsyncGenerator<PageEvent, void> {
    await new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve()));
  };
  const { server, store, path } = await startServer(t, { limits: { runningMaxCount: 1 }, events: idle });
  const client = await TestClient.attach(t, path);
  const waiting = client.send(RequestType.events, encodeEvents({ position: '1-1', pools: [''] }));
  const clearing = client.send(RequestType.clear, Buffer.alloc(2));
  await until(() => store.of('clear').length === 1);
  server.verify();
  const queued = client.send(RequestType.clear, Buffer.alloc(2));
  client.send(RequestType.cancel, numberBody(waiting));
  t.is(decodeEventsAnswer((await client.answerTo(waiting)).body, 1).kind, 'nothing');
  // With the only place taken, EVENTS still begins and ends.
  const again = client.send(RequestType.events, encodeEvents({ position: '1-1', pools: [''] }));
  client.send(RequestType.cancel, numberBody(again));
  t.is(decodeEventsAnswer((await client.answerTo(again)).body, 1).kind, 'nothing');
  t.is(store.of('clear').length, 1);
  store.of('clear')[0]?.end(undefined);
  t.is((await client.answerTo(clearing)).header.status, Status.ok);
  await until(() => store.of('clear').length === 2);
  store.of('clear')[1]?.end(undefined);
  await client.answerTo(queued);
  server.verify();
});

test('client events: what cannot be asked for is refused, and the connection goes on', async (t) => {
  const store = await startNode(t);
  const client = await TestClient.attach(t, store.clientSocket);
  const bodies: [Buffer, RegExp][] = [
    [Buffer.alloc(0), /the body ends/],
    [encodeEvents({ position: '', pools: [] }), /events of 0 pools, allowed are 1 to 16/],
    [encodeEvents({ position: '', pools: Array.from({ length: 17 }, (_, i) => `p${i}`) }), /events of 17 pools/],
    [encodeEvents({ position: '', pools: ['x'.repeat(257)] }), /name of a pool has 257 bytes/],
    [Buffer.concat([encodeEvents({ position: '', pools: [''] }), Buffer.alloc(1)]), /1 bytes after the end/],
  ];
  for (const [body, message] of bodies) {
    const answer = await client.request(RequestType.events, body);
    t.is(answer.header.status, Status.badRequest);
    t.regex(answer.body.toString(), message);
  }
  await client.ok(RequestType.ping);
});

test('client events: keys that are longer than the socket has are left out, and nothing is stuck', async (t) => {
  const store = await startNode(t);
  const [longest, tooLong] = ['x'.repeat(65_535), 'y'.repeat(65_536)];
  t.true(await store.set(longest, page(1)));
  t.true(await store.set(tooLong, page(2)));
  t.true(await store.set('ü'.repeat(32_768), page(2)));
  const follower = new Follower(await TestClient.attach(t, store.clientSocket));
  while ((await follower.next()).kind !== 'complete');
  t.deepEqual([...follower.pages.keys()], [`0 ${longest}`]);
  const many = Array.from({ length: 40 }, (_, i) => `${i}-`.padEnd(60_000, 'z'));
  for (const key of many) t.true(await store.set(key, page(3)));
  while (follower.pages.size < 41) await follower.next();
  t.deepEqual(
    await store.delete(many),
    many.map(() => true),
  );
  while (follower.pages.size > 1) await follower.next();
  t.deepEqual(await store.delete([tooLong]), [true]);
});
