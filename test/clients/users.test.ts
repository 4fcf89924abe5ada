import { execFile } from 'node:child_process';
import { chmodSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { PREFETCH_LEAD_MS, WRONG_PASSWORDS_BURST_COUNT } from '../../src/base/limits.js';
import { REQUEST_RIGHTS } from '../../src/clients/requests/client-access.js';
import { encodeEndPins, encodePin, encodePrefetch, encodeTell } from '../../src/clients/wire/care-messages.js';
import { encodeEvents } from '../../src/clients/wire/events.js';
import { encodeFingerprint } from '../../src/clients/wire/fingerprint-messages.js';
import { encodeLookups } from '../../src/clients/wire/lookup-messages.js';
import {
  encodeExists,
  encodeFile,
  encodeKeyRequest,
  encodePools,
  encodeSetBytes,
  RequestType,
  Status,
} from '../../src/clients/wire/messages.js';
import { encodeGetStaged } from '../../src/clients/wire/page-messages.js';
import type { KeyNamespace } from '../../src/core/index.js';
import { loadNative } from '../../src/native/addon/loader.js';
import { regionBody, setBytesBody, startNode } from '../_support/clients/client-fixture.js';
import { frame, type HelloFields, helloBody, numberBody, TestClient } from '../_support/clients/test-client.js';
import { content, until } from '../_support/support.js';
import { unless } from '../_support/unless.js';
import { rightsBut, tokenOf, UsersFile, userNamed } from '../_support/users-file.js';

type RequestName = keyof typeof RequestType;

const PROTOCOL = readFileSync('src/clients/wire/PROTOCOL.md', 'utf8');
const { addon, reason } = loadNative();
const withAddon = unless(addon === null ? reason : '');

function of(tag: string): KeyNamespace {
  return { modelName: 'm', tag, tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
}

const keys = (hasFlags = false): Buffer => encodeKeyRequest('', ['k'], { hasFlags });
const miss = (answer: Buffer): boolean => answer.every((byte) => byte === 0);
const any = (): boolean => true;

/**
 * Each request as a client makes it that means the key `k`, and whether an answer is that of a client for whom there is
 * no such page.
 */
const REQUESTS: Readonly<Record<RequestName, readonly [body: Buffer, showsNothing: (answer: Buffer) => boolean]>> = {
  hello: [Buffer.alloc(0), any],
  file: [encodeFile({ regionId: 7, isWritable: true, length: 4096, pid: process.pid, fd: 1023 }), any],
  unregion: [numberBody(7), (answer) => answer.length === 0],
  exists: [encodeExists({ pool: '', wantsFlags: true, suffixes: [], keys: ['k'] }), miss],
  get: [regionBody(['k'], [[[0, 0, 100]]]), miss],
  set: [regionBody(['k'], [[[0, 0, 100]]]), any],
  getBytes: [keys(true), (answer) => answer.readUInt32LE() === 0xffffffff],
  setBytes: [encodeSetBytes({ pool: '', isNamed: true, keys: ['k'], pages: [content(2, 100)] }), any],
  fence: [numberBody(0), (answer) => answer.length === 0],
  cancel: [numberBody(99), any],
  delete: [keys(), any],
  clear: [encodePools([]), (answer) => answer.length === 0],
  stats: [Buffer.alloc(0), (answer) => JSON.parse(answer.toString()).client.hits === 0],
  ping: [Buffer.alloc(0), any],
  stat: [keys(), (answer) => answer.toString() === '[null]'],
  pin: [encodePin({ pool: '', forMs: 1000, keys: ['k'] }), miss],
  unpin: [keys(), miss],
  events: [encodeEvents({ position: '', pools: [''] }), any],
  fingerprint: [encodeFingerprint({ client: 'a', fingerprint: 'other' }), (answer) => answer.readUInt32LE() === 0],
  lookups: [encodeLookups({ asked: 1, found: 1 }), any],
  getStaged: [encodeGetStaged({ pool: '', offset: 0, roomBytes: 100, keys: ['k'] }), any],
  tell: [encodeTell({ pool: '', session: 's', ended: true, keys: ['k'] }), (answer) => answer.length === 0],
  prefetch: [encodePrefetch({ pool: '', inMs: 0, keys: ['k'] }), miss],
  endPins: [encodeEndPins('system'), (answer) => answer.readUInt32LE() === 0],
};
const NAMES = Object.keys(REQUESTS) as RequestName[];
/** Requests without an answer, and the one that a connection begins with. */
const UNANSWERED: ReadonlySet<RequestName> = new Set(['hello', 'cancel', 'lookups']);
const ASKED = NAMES.filter((name) => !UNANSWERED.has(name));

async function startWith(t: ExecutionContext, ...users: readonly unknown[]) {
  const file = new UsersFile(t, ...users);
  return { file, store: await startNode(t, { users_file: file.path }) };
}

/** Attaches as a user to the namespace with a tag. */
function attachAs(t: ExecutionContext, path: string, name: string, tag = name): Promise<TestClient> {
  return TestClient.attach(t, path, { name, token: tokenOf(name), namespace: of(tag) });
}

async function refusalOf(t: ExecutionContext, path: string, fields: HelloFields) {
  const client = await TestClient.connect(t, path);
  const { header, body } = await client.request(RequestType.hello, helloBody(fields));
  return [header.status, body.toString()];
}

const setOwn = (client: TestClient, seed: number) =>
  client.ok(RequestType.setBytes, setBytesBody({ k: content(seed, 100) }, { isNamed: true }));

test('client users: PROTOCOL.md names the right of each request', (t) => {
  t.deepEqual(NAMES, Object.keys(RequestType) as RequestName[], 'each request is tried');
  const upper = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
  for (const name of NAMES) {
    const right = REQUEST_RIGHTS[name] ?? 'none';
    t.regex(PROTOCOL, new RegExp(`^\\| ${right} \\| .*\\b${upper(name)}\\b`, 'm'), name);
  }
});

test('client users: tenants with the same keys do not meet by any request', async (t) => {
  const { store } = await startWith(t, userNamed('a'), userNamed('b'));
  const owner = await attachAs(t, store.clientSocket, 'a');
  await setOwn(owner, 1);
  for (const name of NAMES) {
    const other = await attachAs(t, store.clientSocket, 'b');
    const [body, showsNothing] = REQUESTS[name];
    if (UNANSWERED.has(name)) {
      if (name !== 'hello') other.send(RequestType[name], body);
    } else {
      const { header, body: answer } = await other.request(RequestType[name], body, { deadlineMs: 5000 });
      t.true(
        header.status !== 0 || showsNothing(answer),
        `${name} shows nothing of the other tenant: ${answer.toString()}`,
      );
    }
    const own = await owner.ok(RequestType.getBytes, keys(true));
    t.true(
      own.subarray(4).equals(Buffer.from(content(1, 100))),
      `${name} has not touched the page of the other tenant`,
    );
    await other.ok(RequestType.clear, encodePools([]));
    t.is((await owner.ok(RequestType.exists, REQUESTS.exists[0])).readUInt32LE(), 1, name);
  }
});

test('client users: a request needs its right, and no other', async (t) => {
  const { store } = await startWith(
    t,
    ...ASKED.map((name) => userNamed(`only-${name}`, { tags: ['*'], rights: [REQUEST_RIGHTS[name] ?? []].flat() })),
    ...ASKED.map((name) => userNamed(`but-${name}`, { tags: ['*'], rights: rightsBut(REQUEST_RIGHTS[name]) })),
  );
  for (const name of ASKED) {
    const [body] = REQUESTS[name];
    const allowed = await attachAs(t, store.clientSocket, `only-${name}`, 'm');
    t.not((await allowed.request(RequestType[name], body, { deadlineMs: 5000 })).header.status, Status.denied, name);
    const denied = await attachAs(t, store.clientSocket, `but-${name}`, 'm');
    const { header, body: answer } = await denied.request(RequestType[name], body, { deadlineMs: 5000 });
    const right = REQUEST_RIGHTS[name];
    if (right === undefined) t.not(header.status, Status.denied, name);
    else t.is(`${header.status} ${answer}`, `11 user but-${name} has no right "${right}"; nothing was done`);
  }
});

test('client users: a lookup is not counted for a client without the right to look up', async (t) => {
  const { store } = await startWith(t, userNamed('a', { rights: ['status'] }), userNamed('b'));
  for (const [name, count] of [
    ['a', 0],
    ['b', 1],
  ] as const) {
    const client = await attachAs(t, store.clientSocket, name);
    client.send(RequestType.lookups, REQUESTS.lookups[0]);
    t.is(JSON.parse((await client.ok(RequestType.stats)).toString()).client.lookups, count);
  }
});

test('client users: pages expected later are not fetched for a client that may not read any more', async (t) => {
  const { store, file } = await startWith(t, userNamed('a'), userNamed('b'));
  const [a, b] = [await attachAs(t, store.clientSocket, 'a'), await attachAs(t, store.clientSocket, 'b')];
  const later = encodePrefetch({ pool: '', inMs: PREFETCH_LEAD_MS + 8_000, keys: ['k'] });
  for (const client of [a, b]) t.deepEqual([...(await client.ok(RequestType.prefetch, later))], [0]);
  file.write(userNamed('a', { rights: rightsBut('read') }), userNamed('b'));
  await until(async () => (await a.request(RequestType.exists, REQUESTS.exists[0])).header.status === Status.denied);
  const fetched = async (): Promise<string | undefined> =>
    /meshcache_prefetched_pages_total\{[^}]*"absent"[^}]*\} (\d+)/.exec(await store.metrics.renderPrometheus())?.[1];
  await until(async () => (await fetched()) === '1');
  await setTimeout(200);
  t.is(await fetched(), '1', 'that of the other client');
});

test('client users: a client reaches the namespaces of its tags and no others', async (t) => {
  const { store } = await startWith(t, userNamed('a', { tags: ['a', 'a/*'] }), userNamed('all', { tags: ['*'] }));
  const path = store.clientSocket;
  for (const tag of ['a', 'a/1', 'a/']) await attachAs(t, path, 'a', tag);
  for (const tag of ['', 'a', 'b']) await attachAs(t, path, 'all', tag);
  await TestClient.attach(t, path, { token: tokenOf('all') });
  const token = tokenOf('a');
  for (const tag of ['b', 'a1', 'A', 'a ']) {
    const text = `user a may not use namespaces with the tag "${tag}"; nothing was done`;
    t.deepEqual(await refusalOf(t, path, { token, namespace: of(tag) }), [11, text]);
  }
  const untagged = 'user a may not use namespaces without a tag; nothing was done';
  t.deepEqual(await refusalOf(t, path, { token, namespace: of('') }), [11, untagged]);
  t.deepEqual(await refusalOf(t, path, { token }), [11, untagged]);
});

test('client users: a client that is denied uses up no namespaces of the tag', async (t) => {
  const { path: usersFile } = new UsersFile(t, userNamed('a'), userNamed('b'));
  const store = await startNode(t, { users_file: usersFile, namespace_quotas: { a: { max: 0.5 } } });
  const count = async () =>
    /^meshcache_namespace_prefixes\{.*namespace="a".*\} (\d+)$/m.exec(await store.metrics.renderPrometheus())?.[1];
  t.is((await refusalOf(t, store.clientSocket, { token: tokenOf('b'), namespace: of('a') }))[0], 11);
  t.is(await count(), '0');
  await attachAs(t, store.clientSocket, 'a');
  t.is(await count(), '1');
});

test('client users: a wrong token and none are refused, and after a few wrong ones no further one is looked at', async (t) => {
  const { store } = await startWith(t, userNamed('a'));
  const path = store.clientSocket;
  const nobody =
    'this node serves its users only: show a token (users_file has its digest), or be one of their os_users';
  t.deepEqual(await refusalOf(t, path, { namespace: of('a') }), [11, nobody]);
  const wrong = 'the token is of no user of this node; users_file has the digests of tokens';
  const guesses = Array.from({ length: 3 * WRONG_PASSWORDS_BURST_COUNT }, (_, i) =>
    refusalOf(t, path, { token: `guess ${i}`, namespace: of('a') }),
  );
  const answers = (await Promise.all(guesses)).map(String);
  t.true(answers.filter((answer) => answer === `11,${wrong}`).length >= WRONG_PASSWORDS_BURST_COUNT);
  t.true(answers.some((answer) => answer.startsWith('11,too many wrong tokens')));
});

test('client users: without a file everybody may do everything, and no token is right', async (t) => {
  const { clientSocket } = await startNode(t);
  await setOwn(await TestClient.attach(t, clientSocket, { namespace: of('a') }), 1);
  t.is((await refusalOf(t, clientSocket, { token: 'any' }))[0], 11);
});

test('client users: the user default is whoever shows no token', async (t) => {
  const { store } = await startWith(t, { name: 'default', tags: ['free'], rights: ['read'] }, userNamed('a'));
  const client = await TestClient.attach(t, store.clientSocket, { namespace: of('free') });
  t.true(miss(await client.ok(RequestType.exists, REQUESTS.exists[0])));
  t.is((await client.request(RequestType.setBytes, REQUESTS.setBytes[0])).header.status, Status.denied);
  t.is((await refusalOf(t, store.clientSocket, { namespace: of('a') }))[0], 11);
});

withAddon(
  'client users: a process is the user to whom its user of the host belongs, unless it shows a token',
  async (t) => {
    const uid = process.getuid?.();
    const { store } = await startWith(
      t,
      userNamed('a', { os_users: [uid] }),
      userNamed('b', { os_users: [12_345] }),
      userNamed('default', { tags: ['d'] }),
    );
    await setOwn(await TestClient.attach(t, store.clientSocket, { namespace: of('a') }), 1);
    await attachAs(t, store.clientSocket, 'b');
    for (const tag of ['b', 'd']) t.is((await refusalOf(t, store.clientSocket, { namespace: of(tag) }))[0], 11);
  },
);

/** Says a hello to a socket, and prints the status of the answer. */
const HELLO_PROGRAM = `
const socket = require('node:net').connect(process.argv[1]);
socket.write(Buffer.from(process.argv[2], 'base64'));
socket.once('data', (answer) => { console.log(answer.readUInt16LE(6)); process.exit(); });
`;

const asOthers = unless(
  process.getuid?.() === 0 ? (addon === null ? reason : '') : 'only root starts processes of other users',
);

asOthers('client users: processes of other users of the host are other users', async (t) => {
  const users = [userNamed('a', { os_users: [12_345] }), userNamed('b', { os_users: ['54321'] })];
  const store = await startNode(t, { users_file: new UsersFile(t, ...users).path, client_socket_mode: '0666' });
  const path = store.clientSocket;
  chmodSync(dirname(path), 0o755);
  const statusFor = async (uid: number, tag: string) => {
    const hello = frame(RequestType.hello, 1, helloBody({ namespace: of(tag) })).toString('base64');
    const { stdout } = await promisify(execFile)(process.execPath, ['-e', HELLO_PROGRAM, path, hello], {
      uid,
      cwd: '/',
    });
    return Number(stdout);
  };
  t.deepEqual(await Promise.all([statusFor(12_345, 'a'), statusFor(12_345, 'b')]), [0, 11]);
  t.deepEqual(await Promise.all([statusFor(54_321, 'a'), statusFor(54_321, 'b')]), [11, 0]);
  t.deepEqual(await Promise.all([statusFor(777, 'a'), statusFor(0, 'b')]), [11, 11]);
});

test('client users: open connections meet the present rights, and end with their user or its token', async (t) => {
  const { file, store } = await startWith(t, userNamed('a'), userNamed('b'), userNamed('c'));
  const [a, b, c] = await Promise.all(['a', 'b', 'c'].map((name) => attachAs(t, store.clientSocket, name)));
  await setOwn(a as TestClient, 1);
  const waiting = (a as TestClient).request(RequestType.events, REQUESTS.events[0], { deadlineMs: 30_000 });
  file.write(
    userNamed('a', { rights: ['write'] }),
    { ...userNamed('b'), token_sha256: [] },
    userNamed('c', { tags: ['other'] }),
  );
  const last = await b?.lastWords();
  t.deepEqual([last?.header.status, last?.body.toString()], [11, 'user b may not use this node any more']);
  const got = await a?.request(RequestType.getBytes, keys(true));
  t.is(`${got?.header.status} ${got?.body}`, '11 user a has no right "read"; nothing was done');
  await setOwn(a as TestClient, 2);
  const other = await c?.request(RequestType.exists, REQUESTS.exists[0]);
  t.is(`${other?.header.status} ${other?.body}`, '11 user c may not use namespaces with the tag "c"; nothing was done');
  await waiting;
  t.deepEqual(
    store.clients().map(({ name }) => name),
    ['a', 'c'],
  );
});

test('client users: a file that cannot be used leaves the former users, and a right one is used again', async (t) => {
  const { file, store } = await startWith(t, userNamed('a'));
  const client = await attachAs(t, store.clientSocket, 'a');
  file.writeText('{ "users": [ { "name": "a"');
  const isFailing = async () => /credential_files_failing\S* 1$/m.test(await store.metrics.renderPrometheus());
  await until(isFailing);
  await setOwn(client, 1);
  await attachAs(t, store.clientSocket, 'a');
  file.remove();
  file.write(userNamed('b'));
  await client.lastWords();
  await attachAs(t, store.clientSocket, 'b');
});
