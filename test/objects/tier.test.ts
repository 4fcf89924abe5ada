import test from 'ava';
import { OBJECT_HEADER_BYTES } from '../../src/base/limits.js';
import { decodeHeader, encodeHeader, type ObjectHeader } from '../../src/objects/object-format.js';
import {
  all,
  getPages,
  keysOf,
  metric,
  objectNode,
  PAGE,
  setPages,
  settled,
  storePages,
} from '../_support/objects/object-nodes.js';
import { type Fault, S3Server, type SeenRequest } from '../_support/objects/s3-server.js';
import { content, freePort, until } from '../_support/support.js';

test.serial('objects: a second cluster reads what the first has written', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 40);
  await first.store.close();
  const second = await objectNode(t, s3);
  t.is(await second.store.batchExists(keysOf(0, 60)), 40);
  t.deepEqual(await getPages(second, 0, 60), [...all(40, true), ...all(20, false)]);
  t.is(second.store.stats().hits.object, 40);
  t.deepEqual(await getPages(second, 0, 40), all(40, true));
  t.is(second.store.stats().hits.object, 40);
  t.deepEqual(Buffer.from((await second.store.get('page-7')) as Uint8Array), Buffer.from(content(7, PAGE)));
});

test.serial('objects: a page that nobody reads is not sent, and one that is there is not sent again', async (t) => {
  const s3 = await S3Server.start(t);
  const port = await freePort();
  const one = await objectNode(t, s3, {}, port);
  await setPages(one, 0, 20);
  await storePages(one, s3, 20, 24);
  t.is(s3.count('PUT', /pages/), 4);
  await getPages(one, 20, 24);
  await settled(one);
  t.is(s3.count('PUT', /pages/), 4);
  // A node that reads from this one lets this one send.
  const other = await objectNode(t, s3, {}, port);
  await until(() => other.store.stats().members === 2);
  await until(async () => {
    t.deepEqual(await getPages(other, 0, 2), all(2, true));
    return s3.count('PUT', /pages/) === 6;
  });
});

test.serial('objects: pages are brought from the store before they are read, and to be pinned', async (t) => {
  const s3 = await S3Server.start(t);
  await storePages(await objectNode(t, s3), s3, 0, 12);
  const { store } = await objectNode(t, s3);
  t.deepEqual(await store.prefetch([...keysOf(0, 8), 'absent']), [...all(8, true), false]);
  t.deepEqual(await store.pin(keysOf(6, 13), { forMs: 60_000 }), [...all(6, true), false]);
  const asked = s3.count('GET', /pages/);
  for (const [i, key] of keysOf(0, 12).entries()) t.deepEqual(await store.get(key), content(i, PAGE), key);
  t.is(s3.count('GET', /pages/), asked, 'all of them were in the pool');
  t.like(store.stats().hits, { local: 12, object: 0 });
  t.is(store.stats().pinnedEntries, 6);
});

test.serial('objects: named entries do not go to the store', async (t) => {
  const s3 = await S3Server.start(t);
  const node = await objectNode(t, s3);
  await node.store.set('page-0', content(0, PAGE));
  await getPages(node, 0, 1);
  await storePages(node, s3, 1, 2);
  t.is(s3.count('PUT', /pages/), 1);
});

test.serial('objects: an entry that was set by name is not overtaken by an older page of the store', async (t) => {
  const s3 = await S3Server.start(t);
  const node = await objectNode(t, s3);
  await storePages(node, s3, 0, 1);
  // The named content is the newest one, and is evicted then.
  await node.store.set('page-0', content(77, PAGE));
  for (let from = 1; node.store.stats().evictions < 64; from += 64) await setPages(node, from, from + 64);
  t.deepEqual(await getPages(node, 0, 1), [false]);
  t.is(await node.store.get('page-0'), null);
});

test.serial('objects: a page that was asked for with a wrong length is read with the right one', async (t) => {
  const s3 = await S3Server.start(t);
  await storePages(await objectNode(t, s3), s3, 0, 4);
  const second = await objectNode(t, s3);
  const wrong = keysOf(0, 4).map(() => new Uint8Array(PAGE / 2));
  for (const [i, key] of keysOf(0, 4).entries()) t.false(await second.store.get(key, wrong[i] as Uint8Array));
  // The same wrong length costs no further request.
  const requests = s3.requests.length;
  t.false(await second.store.get('page-0', wrong[0] as Uint8Array));
  t.is(s3.requests.length, requests);
  t.deepEqual(await getPages(second, 0, 4), all(4, true));
});

/** Damage of an object, by what is wrong with it; none of it says anything about other objects. */
const DAMAGE: Readonly<Record<string, Fault>> = {
  'another magic': { kind: 'flipped', at: 0 },
  'another version': { kind: 'flipped', at: 8 },
  'another kind': { kind: 'flipped', at: 10 },
  'a changed byte of the header': { kind: 'flipped', at: 40 },
  'a changed byte of the key': { kind: 'flipped', at: 70 },
  'a changed byte of the writer': { kind: 'flipped', at: 770 },
  'a changed first byte': { kind: 'flipped', at: OBJECT_HEADER_BYTES },
  'a changed last byte': { kind: 'flipped', at: OBJECT_HEADER_BYTES + PAGE - 1 },
  'a missing end': { kind: 'short', bytes: OBJECT_HEADER_BYTES + PAGE - 1 },
  'a header alone': { kind: 'short', bytes: OBJECT_HEADER_BYTES },
  'no bytes': { kind: 'short', bytes: 0 },
  'other text': { kind: 'body', body: Buffer.from('<html>a proxy says hello</html>') },
  'more bytes': { kind: 'body', body: Buffer.alloc(OBJECT_HEADER_BYTES + PAGE + 1) },
};

/** Ways in which the store fails as a whole. */
const FAILURES: Readonly<Record<string, (seen: SeenRequest) => Fault | undefined>> = {
  'the connection ends within it': onPages({ kind: 'cut', bytes: OBJECT_HEADER_BYTES + 100 }),
  'it is forbidden': onPages({ kind: 'error', status: 403, code: 'AccessDenied' }),
  'the store is busy': onPages({ kind: 'error', status: 503, code: 'SlowDown' }),
  'the marker of its writer cannot be read': onWriters({ kind: 'error', status: 500, code: 'InternalError' }),
  'something before the store says that there is no marker of its writer': onWriters({
    ...{ kind: 'error', status: 404, code: '' },
  }),
  'something before the store refuses to read the marker of its writer': onWriters({
    ...{ kind: 'error', status: 412, code: '' },
  }),
  'the marker of its writer is damaged': onWriters({ kind: 'body', body: Buffer.from('no marker') }),
};

function onPages(fault: Fault): (seen: SeenRequest) => Fault | undefined {
  return ({ name }) => (name.includes('/pages/') ? fault : undefined);
}

function onWriters(fault: Fault): (seen: SeenRequest) => Fault | undefined {
  return ({ name }) => (name.includes('/writers/') ? fault : undefined);
}

test.serial('objects: a damaged object is a miss, whatever is wrong with it', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  const count = Object.keys(DAMAGE).length;
  await storePages(first, s3, 0, 3 * count);
  const second = await objectNode(t, s3);
  for (const [i, [what, fault]] of Object.entries(DAMAGE).entries()) {
    s3.fault = onPages(fault);
    t.is(await second.store.get(`page-${3 * i}`), null, what);
    t.deepEqual(await getPages(second, 3 * i + 1, 3 * i + 3), [false, false], what);
  }
  s3.fault = () => undefined;
  const third = await objectNode(t, s3);
  t.deepEqual(await getPages(third, 0, 3 * count), all(3 * count, true));
});

test.serial('objects: a page is a miss while the store fails', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 3);
  await first.store.namespace({ tag: 'other' }).clear();
  for (const [what, fault] of Object.entries(FAILURES)) {
    const second = await objectNode(t, s3);
    s3.fault = fault;
    t.deepEqual(await getPages(second, 0, 3), all(3, false), what);
    t.is(await second.store.batchExists(keysOf(0, 3)), 0, what);
    s3.fault = () => undefined;
    await until(async () => (await getPages(second, 0, 3)).every((isRead) => isRead));
  }
});

test.serial('objects: an object under the name of another page is a miss', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 2);
  const [one = '', other = ''] = await s3.names('test/v1/pages/');
  const bytes = await s3.read(one);
  await s3.write(one, await s3.read(other));
  await s3.write(other, bytes);
  const second = await objectNode(t, s3);
  t.is(await second.store.batchExists(keysOf(0, 2)), 0);
  t.deepEqual(await getPages(second, 0, 2), all(2, false));
});

/** Changes fields in the header of the first object that has a page. Returns the header as it was. */
async function changeFirst(
  s3: S3Server,
  change: (header: ObjectHeader) => Partial<ObjectHeader>,
): Promise<ObjectHeader> {
  const [name = ''] = await s3.names('test/v1/pages/');
  const object = await s3.read(name);
  const header = decodeHeader(object) as ObjectHeader;
  const changed = encodeHeader({ ...header, ...change(header) });
  await s3.write(name, Buffer.concat([changed, object.subarray(OBJECT_HEADER_BYTES)]));
  return header;
}

test.serial('objects: a page that has expired is a miss', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 2);
  // The object is as before, but for its expiry, which has passed.
  const header = await changeFirst(s3, ({ version }) => ({ expires: version }));
  const second = await objectNode(t, s3);
  const key = header.key.slice(-'page-0'.length);
  const index = Number(key.slice(-1));
  t.is(await second.store.batchExists([key]), 0);
  t.deepEqual(await getPages(second, index, index + 1), [false]);
  t.deepEqual(await getPages(second, 1 - index, 2 - index), [true]);
});

for (const field of ['version', 'expires'] as const) {
  test.serial(`objects: a page whose ${field} is of a clock far ahead is a miss, and spoils nothing`, async (t) => {
    const s3 = await S3Server.start(t);
    const first = await objectNode(t, s3);
    await storePages(first, s3, 0, 2);
    const header = await changeFirst(s3, () => ({ [field]: 2 ** 53 - 2 ** 45 }));
    const second = await objectNode(t, s3);
    const index = Number(header.key.slice(-1));
    t.deepEqual(await getPages(second, index, index + 1), [false]);
    t.deepEqual(await getPages(second, 1 - index, 2 - index), [true]);
    t.true(await second.store.set('other', content(9, PAGE), { expiresInMs: 60_000 }));
    t.deepEqual(Buffer.from((await second.store.get('other')) as Uint8Array), Buffer.from(content(9, PAGE)));
  });
}

test.serial('objects: a store that is silent costs one deadline, and is used again when it answers', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 4);
  const second = await objectNode(t, s3);
  s3.fault = () => ({ kind: 'silence' });
  t.deepEqual(await getPages(second, 0, 4), all(4, false));
  const asked = s3.requests.length;
  const startMs = performance.now();
  for (let i = 0; i < 20; i++) await getPages(second, 0, 4);
  t.true(performance.now() - startMs < 2_000, 'a silent store is skipped');
  t.true(s3.requests.length - asked <= 2);
  t.true((await metric(second, 'meshcache_object_errors_total', 'reason="timed_out"')) >= 1);
  s3.fault = () => undefined;
  await until(async () => (await getPages(second, 0, 4)).every((isRead) => isRead));
});

test.serial('objects: a page that comes too slowly is a miss', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 2);
  const second = await objectNode(t, s3);
  s3.fault = onPages({ kind: 'drip' });
  const results = await second.store.batchGetV1(keysOf(0, 2), second.host.indices(0, 2), { timeoutMs: 1_500 });
  t.deepEqual(results, all(2, false));
});

test.serial('objects: a damaged object is replaced when its page is read again', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 1);
  const [name = ''] = await s3.names('test/v1/pages/');
  const bytes = await s3.read(name);
  bytes[OBJECT_HEADER_BYTES + 5] = (bytes[OBJECT_HEADER_BYTES + 5] as number) ^ 8;
  await s3.write(name, bytes);
  const second = await objectNode(t, s3);
  t.deepEqual(await getPages(second, 0, 1), [false]);
  await setPages(second, 0, 1);
  await until(async () => {
    await getPages(second, 0, 1);
    return (await metric(second, 'meshcache_object_writes_total', 'result="done"')) === 1;
  });
  const third = await objectNode(t, s3);
  t.deepEqual(await getPages(third, 0, 1), [true]);
});

test.serial('objects: nothing is written to a store that ignores conditions, and pages are read from it', async (t) => {
  const s3 = await S3Server.start(t);
  await storePages(await objectNode(t, s3), s3, 0, 2);
  for (const conditions of [[], ['if-none-match']]) {
    const careless = await S3Server.start(t, { conditions });
    const node = await objectNode(t, careless);
    await setPages(node, 0, 2);
    await until(async () => {
      await getPages(node, 0, 2);
      return (await metric(node, 'meshcache_object_writes_total', 'result="unsupported"')) >= 2;
    });
    t.is(careless.count('PUT', /pages/), 0);
  }
});

test.serial(
  'objects: the report of a node says what it has read and sent, and why the store is not asked',
  async (t) => {
    const s3 = await S3Server.start(t);
    const node = await objectNode(t, s3);
    await storePages(node, s3, 0, 3);
    const other = await objectNode(t, s3);
    t.deepEqual(await getPages(other, 0, 3), all(3, true));
    const sent = (await node.store.runtime.report()).object_store;
    t.like(sent, { sent_pages: 3, read_pages: 0, queue_pages: 0, errors: 0, failure: null });
    const report = await other.store.runtime.report();
    t.like(report.object_store, { read_pages: 3, sent_pages: 0, failure: null });
    t.is(report.reads.object, 3);
    s3.fault = () => ({ kind: 'error', status: 403, code: 'SignatureDoesNotMatch' });
    t.deepEqual(await getPages(other, 3, 4), [false]);
    t.regex((await other.store.runtime.report()).object_store?.failure ?? '', /^wrong_key: SignatureDoesNotMatch/);
  },
);
