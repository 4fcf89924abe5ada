import test from 'ava';
import { Authority, noCertificates } from '../_support/certificates.js';
import { runCli } from '../_support/cli/run-cli.js';
import { createStore } from '../_support/node/store-fixture.js';
import { freePort } from '../_support/support.js';

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
      for (const { stdout, stderr } of [untold, wrong]) {
        t.regex(
          `${stdout}${stderr}`,
          /set the cluster_secret \(or (the )?tls_\* files\) that the (other )?nodes have/i,
        );
        t.notRegex(`${stdout}${stderr}`, /Check the address|something that is no discovery master|choose another port/);
      }
    },
  );
}

(noCertificates === '' ? test.serial : test.serial.skip)(
  `doctor: certificates of another authority are named as what is wrong${noCertificates && ` (skipped: ${noCertificates})`}`,
  async (t) => {
    const [authority, other] = [new Authority(), new Authority()];
    t.teardown(() => {
      authority.remove();
      other.remove();
    });
    const { tlsCertFile, tlsKeyFile, tlsCaFile } = authority.issue('node');
    const port = await freePort();
    const files = { tls_cert_file: tlsCertFile, tls_key_file: tlsKeyFile, tls_ca_file: tlsCaFile };
    const store = await createStore(port, files);
    t.teardown(() => store.close());
    const strange = other.issue('stranger');
    const run = await runCli(['doctor', '--discovery-addr', `127.0.0.1:${port}`], {
      env: {
        MESHCACHE_TLS_CERT_FILE: strange.tlsCertFile,
        MESHCACHE_TLS_KEY_FILE: strange.tlsKeyFile,
        MESHCACHE_TLS_CA_FILE: strange.tlsCaFile,
      },
    });
    t.is(run.status, 1);
    t.regex(run.stdout, /a master answers and wants another cluster_secret or other certificates/);
    const without = await runCli(['doctor', '--discovery-addr', `127.0.0.1:${port}`]);
    t.regex(without.stdout, /set the tls_\* files/);
  },
);

test('secret: an option with one is refused, for every user can read a command line', async (t) => {
  for (const [key, advice] of [
    ['cluster_secret', /MESHCACHE_CLUSTER_SECRET or cluster_secret_file$/m],
    ['clusterSecret', /MESHCACHE_CLUSTER_SECRET or cluster_secret_file$/m],
    ['resp_password', /MESHCACHE_RESP_PASSWORD or resp_password_file$/m],
    ['metrics_token', /MESHCACHE_METRICS_TOKEN or metrics_token in the file of --config$/m],
    ['etcd_password', /MESHCACHE_ETCD_PASSWORD or etcd_password in the file of --config$/m],
    ['object_store_secret_access_key', /MESHCACHE_OBJECT_STORE_SECRET_ACCESS_KEY or object_store_secret_access_key in/],
    ['object_store_session_token', /MESHCACHE_OBJECT_STORE_SESSION_TOKEN or object_store_session_token in the file/],
  ] as const) {
    const run = await runCli(['node', '--discovery-addr', '127.0.0.1:1', '-o', `${key}=${SECRET}`]);
    t.is(run.status, 2, key);
    t.regex(run.stderr, advice);
    t.false(run.stderr.includes(SECRET));
  }
});
