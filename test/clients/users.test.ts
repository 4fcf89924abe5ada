import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { RequestType, Status } from '../../src/clients/wire/messages.js';
import type { KeyNamespace } from '../../src/core/index.js';
import { digestOf } from '../../src/net/users/users.js';
import { folder, setBytesBody, startNode } from '../_support/clients/client-fixture.js';
import { helloBody, TestClient } from '../_support/clients/test-client.js';
import { content, until } from '../_support/support.js';

const [A, B] = ['token-of-a', 'token-of-b'];
const ALL = ['read', 'write', 'clear', 'pin', 'status', 'drain'];

function of(tag: string): KeyNamespace {
  return { modelName: 'm', tag, tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
}

const user = (name: string, token: string, more: Record<string, unknown> = {}) => ({
  name,
  token_sha256: [digestOf(token)],
  tags: [name],
  rights: ALL,
  ...more,
});

/** A file of users that a test changes. */
class UsersFile {
  readonly path: string;

  constructor(t: ExecutionContext) {
    this.path = join(folder(t), 'users.json');
  }

  write(...users: readonly unknown[]): void {
    writeFileSync(this.path, JSON.stringify({ users }));
  }
}

async function refusal(t: ExecutionContext, path: string, fields: Parameters<typeof helloBody>[0]) {
  const client = await TestClient.connect(t, path);
  const { header, body } = await client.request(RequestType.hello, helloBody(fields));
  return { status: header.status, text: body.toString() };
}

test('client users: a client with a token reaches the namespaces of its tags and no others', async (t) => {
  const file = new UsersFile(t);
  file.write(user('a', A), user('b', B));
  const { clientSocket } = await startNode(t, { users_file: file.path });
  const client = await TestClient.attach(t, clientSocket, { token: A, namespace: of('a') });
  t.deepEqual([...(await client.ok(RequestType.setBytes, setBytesBody({ k: content(1, 100) })))], [1]);
  const others = [
    await refusal(t, clientSocket, { token: A, namespace: of('b') }),
    await refusal(t, clientSocket, { token: A }),
    await refusal(t, clientSocket, { token: 'wrong', namespace: of('a') }),
    await refusal(t, clientSocket, { namespace: of('a') }),
  ];
  t.deepEqual(
    others.map(({ status }) => status),
    [Status.denied, Status.denied, Status.denied, Status.denied],
  );
  t.deepEqual(
    others.map(({ text }) => text),
    [
      'user a may not use namespaces with the tag "b"; nothing was done',
      'user a may not use namespaces without a tag; nothing was done',
      'the token is of no user of this node; users_file has the digests of tokens',
      'this node serves its users only: show a token (users_file has its digest), or be one of their os_users',
    ],
  );
});

test('client users: a user that is removed from the file is gone from open connections, too', async (t) => {
  const file = new UsersFile(t);
  file.write(user('a', A), user('b', B));
  const { clientSocket } = await startNode(t, { users_file: file.path });
  const client = await TestClient.attach(t, clientSocket, { token: A, namespace: of('a') });
  const other = await TestClient.attach(t, clientSocket, { token: B, namespace: of('b') });
  file.write(user('b', B));
  const last = await client.lastWords();
  t.is(last?.header.status, Status.denied);
  t.is(last?.body.toString(), 'user a may not use this node any more');
  await other.ok(RequestType.ping);
  await until(() => !other.isClosed);
});
