import test from 'ava';
import {
  all,
  getPages,
  keysOf,
  metric,
  objectNode,
  setPages,
  settled,
  storePages,
} from '../_support/objects/object-nodes.js';
import { S3Server } from '../_support/objects/s3-server.js';
import { freePort, until } from '../_support/support.js';

test.serial('objects: a deleted page is not read any more, by no cluster', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  const second = await objectNode(t, s3);
  await storePages(first, s3, 0, 4);
  t.deepEqual(await first.store.delete(keysOf(0, 2)), all(2, true));
  t.deepEqual(await getPages(first, 0, 4), [false, false, true, true]);
  t.is(await second.store.batchExists(keysOf(0, 2)), 0);
  t.deepEqual(await getPages(second, 0, 2), all(2, false));
  t.deepEqual(await getPages(second, 2, 4), all(2, true));
});

test.serial('objects: a page that was deleted and set again is stored again', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 1);
  t.deepEqual(await first.store.delete(['page-0']), [true]);
  await storePages(first, s3, 0, 1);
  const second = await objectNode(t, s3);
  t.deepEqual(await getPages(second, 0, 1), [true]);
});

test.serial('objects: delete is false while the store does not confirm it', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 1);
  s3.fault = ({ method }) => (method === 'PUT' ? { kind: 'error', status: 503, code: 'SlowDown' } : undefined);
  t.deepEqual(await first.store.delete(['page-0']), [false]);
  s3.fault = () => undefined;
  await until(async () => (await first.store.delete(['page-0']))[0] === true);
  const second = await objectNode(t, s3);
  t.deepEqual(await getPages(second, 0, 1), [false]);
});

test.serial(
  'objects: what something before the store answers to a write confirms no deletion and no clearing',
  async (t) => {
    const s3 = await S3Server.start(t);
    const first = await objectNode(t, s3);
    await storePages(first, s3, 0, 2);
    const page = Buffer.from('<html>please log in</html>');
    s3.fault = ({ method }) => (method === 'PUT' ? { kind: 'held', until: Promise.resolve(), body: page } : undefined);
    t.deepEqual(await first.store.delete(['page-0']), [false]);
    await t.throwsAsync(first.store.clear(), { code: 'ERR_OBJECT_STORE' });
    s3.fault = () => undefined;
    await first.store.clear();
    const second = await objectNode(t, s3);
    t.deepEqual(await getPages(second, 0, 2), all(2, false));
  },
);

test.serial('objects: a write that arrives after the deletion of its page does not bring it back', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 9, 10);
  let letGo = (): void => {};
  const arrives = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  // The first write of a page is held on its way, and carried out later.
  let held = 0;
  s3.fault = ({ method, name }) => {
    if (method !== 'PUT' || !name.includes('/pages/') || held++ > 0) return undefined;
    return { kind: 'late', until: arrives };
  };
  await setPages(first, 0, 1);
  await getPages(first, 0, 1);
  await until(() => held === 1);
  t.deepEqual(await first.store.delete(['page-0']), [true]);
  letGo();
  await settled(first);
  t.is(await metric(first, 'meshcache_object_writes_total', 'result="conflict"'), 1);
  const second = await objectNode(t, s3);
  t.deepEqual(await getPages(second, 0, 1), [false]);
});

test.serial('objects: a page that is on its way to the pool when it is deleted does not get there', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 1);
  await first.store.close();
  const port = await freePort();
  const reader = await objectNode(t, s3, {}, port);
  const deleter = await objectNode(t, s3, {}, port);
  await until(() => [reader, deleter].every(({ store }) => store.stats().members === 2));
  let letGo = (): void => {};
  const answers = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  // The answer is taken from the store before the deletion, and arrives after it.
  let isAsked = false;
  const [name = ''] = await s3.names('test/v1/pages/');
  const object = await s3.read(name);
  s3.fault = ({ method, name: asked }) => {
    if (method !== 'GET' || asked !== name || isAsked) return undefined;
    isAsked = true;
    return { kind: 'held', until: answers, body: object };
  };
  const reading = getPages(reader, 0, 1);
  await until(() => isAsked);
  t.deepEqual(await deleter.store.delete(['page-0']), [true]);
  letGo();
  await reading;
  t.deepEqual(await getPages(reader, 0, 1), [false]);
  t.deepEqual(await getPages(deleter, 0, 1), [false]);
});

test.serial('objects: cleared pages are not read any more, those of other writers are', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  const second = await objectNode(t, s3);
  await storePages(first, s3, 0, 3);
  await storePages(second, s3, 3, 6);
  await first.store.clear();
  t.deepEqual(await getPages(first, 0, 3), all(3, false));
  const third = await objectNode(t, s3);
  t.is(await third.store.batchExists(keysOf(0, 3)), 0);
  t.deepEqual(await getPages(third, 0, 3), all(3, false));
  t.deepEqual(await getPages(third, 3, 6), all(3, true));
  // What is set again is stored again.
  await storePages(first, s3, 0, 3);
  const fourth = await objectNode(t, s3);
  t.deepEqual(await getPages(fourth, 0, 3), all(3, true));
});

test.serial('objects: clear of a namespace leaves the other ones', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  const other = first.store.namespace({ modelName: 'test', tag: 'other' });
  await storePages(first, s3, 0, 2);
  await other.clear();
  const second = await objectNode(t, s3);
  t.deepEqual(await getPages(second, 0, 2), all(2, true));
  await first.store.namespace({ modelName: 'test' }).clear();
  const third = await objectNode(t, s3);
  t.deepEqual(await getPages(third, 0, 2), all(2, false));
});

test.serial('objects: a write that arrives after clear stays void, also when its node has restarted', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3, { node_id: 'writer' });
  await storePages(first, s3, 9, 10);
  let letGo = (): void => {};
  const arrives = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  let held = 0;
  s3.fault = ({ method, name }) => {
    if (method !== 'PUT' || !name.includes('/pages/') || held++ > 0) return undefined;
    return { kind: 'late', until: arrives };
  };
  await setPages(first, 0, 1);
  await getPages(first, 0, 1);
  await until(() => held === 1);
  await first.store.clear();
  letGo();
  await settled(first);
  await first.store.close();
  const second = await objectNode(t, s3, { node_id: 'reader' });
  t.deepEqual(await getPages(second, 0, 1), [false]);
  const again = await objectNode(t, s3, { node_id: 'writer' });
  t.deepEqual(await getPages(again, 0, 1), [false]);
  await storePages(again, s3, 0, 1);
  const third = await objectNode(t, s3);
  t.deepEqual(await getPages(third, 0, 1), [true]);
  await again.store.clear();
  const fourth = await objectNode(t, s3);
  t.deepEqual(await getPages(fourth, 0, 1), [false]);
});

test.serial('objects: clear says when its marker cannot be written, and nothing is stored until it is', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3);
  await storePages(first, s3, 0, 1);
  s3.fault = ({ method, name }) =>
    method === 'PUT' && name.includes('/writers/') ? { kind: 'error', status: 403, code: 'AccessDenied' } : undefined;
  await t.throwsAsync(first.store.clear(), { code: 'ERR_OBJECT_STORE', message: /does not confirm/ });
  const puts = s3.count('PUT', /pages/);
  await setPages(first, 0, 1);
  await getPages(first, 0, 1);
  await settled(first);
  t.is(s3.count('PUT', /pages/), puts);
  s3.fault = () => undefined;
  await until(async () => {
    await getPages(first, 0, 1);
    await settled(first);
    return s3.count('PUT', /pages/) > puts;
  });
});

test.serial('objects: a writer whose marker is damaged writes it anew, and what it had stored is void', async (t) => {
  const s3 = await S3Server.start(t);
  const first = await objectNode(t, s3, { node_id: 'writer' });
  await storePages(first, s3, 0, 1);
  await first.store.clear();
  await storePages(first, s3, 0, 2);
  await first.store.close();
  const [name = ''] = await s3.names('test/v1/writers/');
  const marker = await s3.read(name);
  marker[20] = 0xff;
  await s3.write(name, marker);
  const again = await objectNode(t, s3, { node_id: 'writer' });
  t.deepEqual(await getPages(again, 0, 2), all(2, false));
  await storePages(again, s3, 0, 1);
  const second = await objectNode(t, s3);
  t.deepEqual(await getPages(second, 0, 1), [true]);
  t.deepEqual(await getPages(second, 1, 2), [false]);
});
