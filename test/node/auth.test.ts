import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import type { Logger } from '../../src/base/environment/log.js';
import { ConfigError } from '../../src/base/errors.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { createTransport } from '../../src/transport/create-transport.js';
import { Authority, noCertificates } from '../_support/certificates.js';
import { patientClock } from '../_support/patient-clock.js';
import { content, freePort, until } from '../_support/support.js';

const SECRET = 'hush-hush the secret of this cluster';
const NEXT = 'hush-hush the next one of this cluster';
const PAGE = content(1, 50_000);

const folder = mkdtempSync(join(tmpdir(), 'meshcache-auth-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

/** The path of a file with these secrets. */
function secretFile(...secrets: readonly string[]): string {
  const path = join(folder, `${secrets.map((secret) => secret.split(' ')[2]).join('-')}-${secrets.length}`);
  writeFileSync(path, secrets.join('\n'), { mode: 0o600 });
  return path;
}

/** Every line that any of its stores logs. */
class Cluster {
  readonly lines: string[] = [];
  readonly #stores = new Set<MeshCacheStore>();
  readonly #t: ExecutionContext;
  readonly #port: number;

  static async begin(t: ExecutionContext): Promise<Cluster> {
    return new Cluster(t, await freePort());
  }

  private constructor(t: ExecutionContext, port: number) {
    this.#t = t;
    this.#port = port;
    t.teardown(() => Promise.all([...this.#stores].map((store) => store.close())));
  }

  async store(extra: Record<string, unknown>): Promise<MeshCacheStore> {
    const log: Logger = { log: (...record) => this.lines.push(inspect(record, { depth: 9 })) };
    const store = await MeshCacheStore.create(
      {
        ...{ tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, modelName: 'test' },
        extraConfig: {
          discovery_addr: `127.0.0.1:${this.#port}`,
          protocol: 'tcp',
          global_segment_size: '16mb',
          heartbeat_interval: 0.2,
          member_ttl: 1,
          ...extra,
        },
      },
      { log, clock: patientClock },
    );
    this.#stores.add(store);
    return store;
  }

  async stores(count: number, extra: Record<string, unknown>): Promise<MeshCacheStore[]> {
    const stores: MeshCacheStore[] = [];
    for (let i = 0; i < count; i++) stores.push(await this.store(extra));
    await until(() => stores.every((store) => store.stats().members === count));
    return stores;
  }

  async close(store: MeshCacheStore): Promise<void> {
    this.#stores.delete(store);
    await store.close();
  }

  /** A page that `owner` has set is read by every other one. */
  async assertShares(owner: MeshCacheStore, readers: readonly MeshCacheStore[], key: string): Promise<void> {
    this.#t.true(await owner.set(key, PAGE), key);
    for (const reader of readers) {
      if (reader !== owner) this.#t.deepEqual(await reader.get(key), PAGE, key);
    }
  }
}

/** The first page of `owner`'s pool, read past discovery and directory by a transport of these settings. */
async function isReadBy(t: ExecutionContext, owner: MeshCacheStore, security: object): Promise<boolean> {
  const reader = await createTransport({ protocol: 'tcp', tcpPort: 0, ...security }, systemEnvironment());
  t.teardown(() => reader.close());
  const [target, source] = [HostRegion.allocate(1000), HostRegion.allocate(1000)];
  t.teardown(() => {
    target.free();
    source.free();
  });
  const { rkey } = owner.runtime.transport.registerMr(source.addr, source.length);
  const op = { remoteAddr: source.addr, rkey, localAddr: target.addr, length: source.length };
  const [isRead] = await reader.batchRead([{ ...op, remoteEndpoint: owner.runtime.transport.localEndpoint() }]);
  return isRead as boolean;
}

test.serial(
  'node authentication: a cluster with a secret works, and who does not know it is never a member nor reads',
  async (t) => {
    const cluster = await Cluster.begin(t);
    const security = { cluster_secret_file: secretFile(SECRET) };
    const stores = await cluster.stores(3, security);
    for (const [i, store] of stores.entries()) await cluster.assertShares(store, stores, `page ${i}`);
    const [owner] = stores as [MeshCacheStore, ...MeshCacheStore[]];
    t.true(await isReadBy(t, owner, { clusterSecretFile: security.cluster_secret_file }));

    for (const wrong of [{}, { cluster_secret: NEXT }, { cluster_secret: [NEXT, 'hush-hush and another'] }]) {
      const stranger = await cluster.store(wrong);
      t.is(await stranger.get('page 0'), null);
      t.deepEqual([...stranger.runtime.members().keys()], [stranger.runtime.nodeId]);
      for (const store of stores) t.is(store.stats().members, 3);
      await cluster.close(stranger);
    }
    t.false(await isReadBy(t, owner, {}));
    t.false(await isReadBy(t, owner, { clusterSecretFile: secretFile(NEXT) }));
    t.true(cluster.lines.some((line) => line.includes('authentication failed')));

    const counted = /meshcache_auth_failures_total\{.*plane="data".*reason="missing".*\} [1-9]/;
    await until(async () => counted.test(await owner.metrics.renderPrometheus()));
    t.regex(
      await owner.metrics.renderPrometheus(),
      /meshcache_auth_failures_total\{.*plane="rpc".*reason="wrong".*\} [1-9]/,
    );
  },
);

test.serial(
  'node authentication: the secret is in no log, metric, report, error or configuration that is shown',
  async (t) => {
    const cluster = await Cluster.begin(t);
    const [a, b] = (await cluster.stores(2, { cluster_secret: [SECRET, NEXT], metrics_token: 'hush-hush-token' })) as [
      MeshCacheStore,
      MeshCacheStore,
    ];
    await cluster.assertShares(a, [b], 'a page');
    const stranger = await cluster.store({ cluster_secret: 'hush-hush of somebody else' });
    const pages: string[] = [];
    for (const path of ['/metrics', '/healthz', '/api/node', '/api/cluster', '/']) {
      const headers = { authorization: 'Bearer hush-hush-token' };
      pages.push(await (await fetch(`http://${a.metricsEndpoint}${path}`, { headers })).text());
    }
    const shown = {
      log: cluster.lines.join('\n'),
      pages: pages.join('\n'),
      reports: JSON.stringify([await a.runtime.report(), await a.runtime.cluster(), await stranger.runtime.report()]),
      stats: inspect([a.stats(), stranger.stats()], { depth: 9 }),
      configuration: inspect(a.runtime.config, { depth: 9, showHidden: true }) + JSON.stringify(a.runtime.config),
      objects: inspect([a, b, stranger], { depth: 12, showHidden: true, maxArrayLength: 20 }),
      process: JSON.stringify([process.argv, process.env, process.execArgv]),
    };
    for (const [name, text] of Object.entries(shown)) {
      t.true(text.length > 0, name);
      t.notRegex(text, /hush-hush/, name);
    }
    t.true(shown.pages.includes('meshcache_auth_failures_total'));
  },
);

test.serial(
  'node authentication: the secret is changed in a live cluster, node by node, without an outage',
  async (t) => {
    const cluster = await Cluster.begin(t);
    const stores = await cluster.stores(3, { cluster_secret_file: secretFile(SECRET) });
    for (const secrets of [[SECRET, NEXT], [NEXT, SECRET], [NEXT]]) {
      for (let i = 0; i < stores.length; i++) {
        const others = stores.filter((_, j) => j !== i) as [MeshCacheStore, MeshCacheStore];
        await cluster.assertShares(others[0], others, `before ${secrets.length} ${i}`);
        await cluster.close(stores[i] as MeshCacheStore);
        await until(() => others.every((store) => store.stats().members === 2));
        await cluster.assertShares(others[1], others, `meanwhile ${secrets.length} ${i}`);
        stores[i] = await cluster.store({ cluster_secret_file: secretFile(...secrets) });
        await until(() => stores.every((store) => store.stats().members === 3));
        for (const [j, store] of stores.entries()) {
          await cluster.assertShares(store, stores, `after ${secrets.length} ${secrets[0]} ${i} ${j}`);
        }
      }
    }
    t.deepEqual(
      cluster.lines.filter((line) => line.includes('authentication failed')),
      [],
    );
    t.false(await isReadBy(t, stores[0] as MeshCacheStore, { clusterSecretFile: secretFile(SECRET) }));
  },
);

test.serial('node authentication: a node takes a new secret from its file while it runs', async (t) => {
  const cluster = await Cluster.begin(t);
  const path = secretFile(SECRET);
  const owner = await cluster.store({ cluster_secret_file: path });
  t.false(await isReadBy(t, owner, { clusterSecret: NEXT }));
  writeFileSync(path, `${SECRET}\n${NEXT}`);
  await until(() => cluster.lines.some((line) => line.includes('new credentials are in use')));
  // Its serving thread hears of it a moment later.
  await until(() => isReadBy(t, owner, { clusterSecret: NEXT }));
});

if (noCertificates === '') {
  const authority = new Authority();
  const stranger = new Authority();
  test.after.always(() => {
    authority.remove();
    stranger.remove();
  });
  const keysOf = ({ tlsCertFile, tlsKeyFile, tlsCaFile }: ReturnType<Authority['issue']>) => ({
    tls_cert_file: tlsCertFile,
    tls_key_file: tlsKeyFile,
    tls_ca_file: tlsCaFile,
  });

  test.serial(
    'node authentication: a cluster over TLS works, with and without a secret, and takes nobody else',
    async (t) => {
      for (const secret of [{}, { cluster_secret: SECRET }]) {
        const cluster = await Cluster.begin(t);
        const stores: MeshCacheStore[] = [];
        for (const name of ['a', 'b', 'c']) {
          stores.push(await cluster.store({ ...keysOf(authority.issue(name)), ...secret }));
        }
        await until(() => stores.every((store) => store.stats().members === 3));
        for (const [i, store] of stores.entries()) await cluster.assertShares(store, stores, `page ${i}`);
        for (const wrong of [{}, keysOf(stranger.issue('a'))]) {
          const outside = await cluster.store({ ...wrong, ...secret });
          t.is(await outside.get('page 0'), null);
          t.deepEqual([...outside.runtime.members().keys()], [outside.runtime.nodeId]);
          for (const store of stores) t.is(store.stats().members, 3);
          await cluster.close(outside);
        }
        const [owner] = stores as [MeshCacheStore, ...MeshCacheStore[]];
        const secretFor = 'cluster_secret' in secret ? { clusterSecretFile: secretFile(SECRET) } : {};
        t.false(await isReadBy(t, owner, secretFor));
        t.false(await isReadBy(t, owner, { ...stranger.issue('b'), ...secretFor }));
        t.true(await isReadBy(t, owner, { ...authority.issue('d'), ...secretFor }));
        await Promise.all(stores.map((store) => cluster.close(store)));
      }
    },
  );

  test.serial(
    'node authentication: a node with a certificate that cannot be used does not start, and names the key',
    async (t) => {
      const cluster = await Cluster.begin(t);
      const expired = keysOf(authority.issue('old', -1));
      const message = /"tls_cert_file": .* has expired/;
      await t.throwsAsync(cluster.store(expired), { instanceOf: ConfigError, message });
      const mixed = { ...keysOf(authority.issue('x')), tls_key_file: authority.issue('y').tlsKeyFile };
      await t.throwsAsync(cluster.store(mixed), { instanceOf: ConfigError, message: /"tls_key_file"/ });
    },
  );
} else {
  test.skip(`node authentication: TLS (skipped: ${noCertificates})`, () => {});
}
