import test from 'ava';
import { createStore } from '../node/store-fixture.js';
import { freePort } from '../support.js';
import { runCli } from './run-cli.js';

const SECRET = 'a secret of this cluster alone';

for (const command of ['status', 'doctor'] as const) {
  test.serial(
    `${command}: asks a cluster with a secret when it is told the secret, and else says what is missing`,
    async (t) => {
      const port = await freePort();
      const store = await createStore(port, { cluster_secret: SECRET, node_id: 'a-node-with-a-secret' });
      t.teardown(() => store.close());
      const args = [command, '--discovery-addr', `127.0.0.1:${port}`];

      const told = await runCli(args, { env: { MESHCACHE_CLUSTER_SECRET: SECRET } });
      t.regex(
        told.stdout,
        command === 'status' ? /a-node-with-a-secret/ : /ok +discovery +127\.0\.0\.1:\d+ answers and knows 1 nodes/,
      );
      t.false(`${told.stdout}${told.stderr}`.includes(SECRET));

      const untold = await runCli(args);
      t.is(untold.status, 1);
      t.regex(`${untold.stdout}${untold.stderr}`, /cluster_secret/);
      const wrong = await runCli(args, { env: { MESHCACHE_CLUSTER_SECRET: 'another secret altogether' } });
      t.is(wrong.status, 1);
      t.regex(`${wrong.stdout}${wrong.stderr}`, /secret/);
    },
  );
}

test('secret: an option with one is refused, for every user can read a command line', async (t) => {
  const run = await runCli(['node', '--discovery-addr', '127.0.0.1:1', '-o', `cluster_secret=${SECRET}`]);
  t.is(run.status, 2);
  t.regex(run.stderr, /MESHCACHE_CLUSTER_SECRET or cluster_secret_file/);
  t.false(run.stderr.includes(SECRET));
});
