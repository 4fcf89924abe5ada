import test, { type ExecutionContext } from 'ava';
import { createStore } from '../_support/node/store-fixture.js';
import { freePort } from '../_support/support.js';
import { tokenOf, UsersFile, userNamed } from '../_support/users-file.js';

const PATHS = ['/metrics', '/api/node', '/api/events'] as const;

async function startNode(t: ExecutionContext, file: UsersFile, more: Record<string, unknown> = {}) {
  const extra = { metrics_enabled: true, metrics_port: 0, users_file: file.path, ...more };
  const store = await createStore(await freePort(), extra);
  t.teardown(() => store.close());
  return {
    ask(path: string, token?: string) {
      const headers: Record<string, string> = token === undefined ? {} : { Authorization: `Bearer ${token}` };
      return fetch(`http://${store.metricsEndpoint}${path}`, { headers });
    },
    async statuses(token?: string) {
      const answers = await Promise.all(PATHS.map((path) => this.ask(path, token)));
      await Promise.all(answers.map(({ body }) => body?.cancel()));
      return answers.map(({ status }) => status);
    },
  };
}

test('metrics users: the token of a user with the right status is accepted, for keys of one of all namespaces', async (t) => {
  const file = new UsersFile(
    t,
    userNamed('all', { tags: ['*'], rights: ['status'] }),
    userNamed('one', { rights: ['status'] }),
    userNamed('none', { tags: ['*'], rights: ['read'] }),
  );
  const node = await startNode(t, file);
  t.deepEqual(await node.statuses(tokenOf('all')), [200, 200, 200]);
  t.deepEqual(await node.statuses(tokenOf('one')), [200, 200, 403]);
  t.deepEqual(await node.statuses(tokenOf('none')), [403, 403, 403]);
  t.deepEqual(await node.statuses(), [401, 401, 401]);
  t.deepEqual(await node.statuses('wrong'), [401, 401, 401]);
  t.is((await node.ask('/healthz')).status, 200);
  const { status, headers } = await node.ask('/api/node');
  t.is(`${status} ${headers.get('www-authenticate')}`, '401 Bearer realm="meshcache"');
});

test('metrics users: without a token a reader is the user default, and the token of the node is as good as ever', async (t) => {
  const file = new UsersFile(t, userNamed('a'), { name: 'default', tags: [], rights: ['status'] });
  t.deepEqual(await (await startNode(t, file)).statuses(), [200, 200, 403]);
  const node = await startNode(t, file, { metrics_token: 'the-token-of-the-node' });
  t.deepEqual(await node.statuses(), [401, 401, 401]);
  t.deepEqual(await node.statuses('the-token-of-the-node'), [200, 200, 200]);
  t.deepEqual(await node.statuses(tokenOf('a')), [200, 200, 403]);
});

test('metrics users: a stream of events ends when its reader has lost the right', async (t) => {
  const file = new UsersFile(t, userNamed('a', { tags: ['*'] }));
  const node = await startNode(t, file);
  const { status, body } = await node.ask('/api/events', tokenOf('a'));
  t.is(status, 200);
  file.write(userNamed('a', { tags: ['*'], rights: ['read'] }));
  for await (const _ of body ?? []);
  t.is((await node.ask('/api/events', tokenOf('a'))).status, 403);
});
