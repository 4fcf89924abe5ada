import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { METHOD_CALLERS } from '../../src/node/runtime/operator-access.js';
import { RpcServer } from '../../src/rpc/server.js';
import { AttachedClient } from '../_support/attached-client.js';
import { rowsOf, textOf } from '../_support/docs/markdown.js';
import { createStore } from '../_support/node/store-fixture.js';
import { content, freePort } from '../_support/support.js';

/** Metrics of nodes that use RDMA. */
const ONLY_BY_RDMA = /^meshcache_rdma_/;

/**
 * A store with everything that a node can have: a disk tier, a door for Redis clients, and a client that has read and
 * written.
 */
async function busyStore(t: ExecutionContext): Promise<MeshCacheStore> {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-docs-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const client_socket = join(folder, 'node.sock');
  const audit_log_path = join(folder, 'audit', 'audit.log');
  const disk = { disk_enabled: true, disk_path: join(folder, 'disk'), disk_size: '8mb' };
  const store = await createStore(await freePort(), {
    ...disk,
    client_socket,
    audit_log_path,
    resp_port: 0,
    metrics_enabled: true,
    metrics_port: 0,
    namespace_quotas: { a: {} },
    role: 'storage',
    ...{ object_store: 's3://pages', object_store_endpoint: 'http://127.0.0.1:1' },
    ...{ object_store_access_key_id: 'key', object_store_secret_access_key: 'secret' },
  });
  t.teardown(() => store.close());
  await store.set('k', content(1, 1000));
  await store.get('k');
  const client = await AttachedClient.attach(client_socket, 'engine');
  t.teardown(() => client.close());
  await client.set({ 'of a client': content(2, 1000) });
  await client.get(['of a client']);
  return store;
}

async function scrape({ metricsEndpoint }: MeshCacheStore): Promise<string> {
  const answer = await fetch(`http://${metricsEndpoint}/metrics`);
  return answer.text();
}

/** The rows of a document whose first cell is a name in code. */
function namedRows(path: string, name: RegExp): { readonly name: string; readonly cells: readonly string[] }[] {
  const rows = rowsOf(textOf(path) ?? '').map((cells) => ({
    name: /^`([^`]+)`$/.exec(cells[0] ?? '')?.[1] ?? '',
    cells,
  }));
  return rows.filter((row) => name.test(row.name));
}

/** Names and types of the metrics in a Prometheus text, and the labels of each but `node_id`. */
function exposed(text: string): Map<string, { readonly type: string; readonly labels: ReadonlySet<string> }> {
  const types = new Map(
    [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name, type] as [string, string]),
  );
  const metrics = new Map([...types].map(([name, type]) => [name, { type, labels: new Set<string>() }]));
  for (const [, sample = '', labels = ''] of text.matchAll(/^(\w+)\{([^}]*)\}/gm)) {
    const metric = metrics.get(sample) ?? metrics.get(sample.replace(/_(bucket|sum|count)$/, ''));
    for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) {
      if (label !== 'node_id' && label !== 'le') metric?.labels.add(label);
    }
  }
  return metrics;
}

test.serial('docs: the metrics page has every metric of a node, with its type and labels, and no other', async (t) => {
  const rows = namedRows('docs/metrics.md', /^(meshcache|nodejs|process)_\w+$/);
  const names = rows.map(({ name }) => name);
  t.is(new Set(names).size, names.length);
  const metrics = exposed(await scrape(await busyStore(t)));
  t.true(metrics.size > 80);
  for (const name of metrics.keys()) t.true(names.includes(name), `${name} is missing`);
  const catalogue = readFileSync('src/metrics/metric-catalogue.ts', 'utf8');
  const known = [...catalogue.matchAll(/^ {2}(meshcache_\w+):/gm)].map(([, name]) => name as string);
  for (const name of known) t.true(names.includes(name), `${name} is missing`);
  for (const { name, cells } of rows) {
    const metric = metrics.get(name);
    if (metric === undefined) t.true(ONLY_BY_RDMA.test(name) && known.includes(name), `there is no ${name}`);
    else {
      t.is(cells[1], metric.type, name);
      const labels = [...(cells[2] ?? '').matchAll(/`(\w+)`/g)].map(([, label]) => label);
      t.deepEqual(labels.sort(), [...metric.labels].sort(), name);
    }
  }
});

test.serial('docs: the queries of the metrics page name metrics that exist', (t) => {
  const text = textOf('docs/metrics.md') ?? '';
  const names = new Set(namedRows('docs/metrics.md', /./).map(({ name }) => name));
  for (const path of [
    'docs/metrics.md',
    'docs/troubleshooting.md',
    'docs/guarantees.md',
    'docs/disk.md',
    'docs/eviction.md',
  ]) {
    for (const [name] of (path === 'docs/metrics.md' ? text : (textOf(path) ?? '')).matchAll(
      /\b(meshcache|nodejs)_[a-z_]+[a-z]\b/g,
    ))
      t.true(
        names.has(name) || names.has(name.replace(/_bucket$/, '')) || name.endsWith('_client'),
        `${path}: ${name}`,
      );
  }
});

test.serial('docs: the protocol page has every method that a node answers, and no other', async (t) => {
  const answered = new Set<string>();
  const { handle } = RpcServer.prototype;
  RpcServer.prototype.handle = function (this: RpcServer, ...args: Parameters<typeof handle>) {
    answered.add(args[0]);
    return handle.apply(this, args);
  };
  try {
    await busyStore(t);
  } finally {
    RpcServer.prototype.handle = handle;
  }
  const rows = namedRows('docs/protocol.md', /^[a-z]+\.[a-z]+$/);
  t.deepEqual(rows.map(({ name }) => name).sort(), [...answered].sort());
  t.deepEqual(Object.keys(METHOD_CALLERS).sort(), [...answered].sort());
  for (const { name, cells } of rows) {
    const [, , , answer, described = ''] = cells;
    t.not(answer, '', name);
    const [, path = ''] = /\]\(\.\.\/([^)#]+)/.exec(described) ?? /`(.+)`/.exec(described) ?? [];
    const there = textOf(path) ?? '';
    t.true(there.includes(name) || path.endsWith('.ts'), `${name}: ${path} does not describe it`);
  }
});
