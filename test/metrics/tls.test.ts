import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { join } from 'node:path';
import tls from 'node:tls';
import { promisify } from 'node:util';
import type { ExecutionContext } from 'ava';
import { METRICS_IDLE_CONNECTIONS_MAX_COUNT } from '../../src/base/limits.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { type CertificateFiles, noCertificates } from '../_support/certificates.js';
import { missingProgram, PrometheusServer } from '../_support/deploy/files.js';
import { authorityOf, clientOf, doorFiles, HOST } from '../_support/door-certificates.js';
import { metricOf } from '../_support/metrics/metric-of.js';
import { startRecorded } from '../_support/node/recorded-node.js';
import { until } from '../_support/support.js';
import { unless } from '../_support/unless.js';
import { UsersFile } from '../_support/users-file.js';

const run = promisify(execFile);
const noCurl = spawnSync('curl', ['--version']).status === 0 ? '' : 'no curl';
const withCertificates = unless(noCertificates);
const TOKEN = 'a-token';

interface Asked {
  readonly status: number;
  readonly body: string;
}

function startServer(t: ExecutionContext, extra: Record<string, unknown>) {
  return startRecorded(t, { metrics_enabled: true, metrics_port: 0, ...extra });
}

const portOf = ({ metricsEndpoint }: MeshCacheStore): number => Number(metricsEndpoint.split(':').at(-1));

/** Asks on a connection of its own. Rejects if the handshake fails. */
function ask(store: MeshCacheStore, path: string, options: https.RequestOptions): Promise<Asked> {
  return new Promise((resolve, reject) => {
    const request = https.get({ host: HOST, port: portOf(store), path, agent: false, ...options }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (text: string) => {
        body += text;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
    });
    request.on('error', reject);
  });
}

async function statusOf(store: MeshCacheStore, path: string, options: https.RequestOptions): Promise<number> {
  return (await ask(store, path, options)).status;
}

const refusals = (store: MeshCacheStore): Promise<number> =>
  metricOf(store, 'meshcache_auth_failures_total', { plane: 'metrics', reason: 'tls' });

const withCurl = unless(noCertificates || noCurl);

withCurl('metrics tls: curl reads the health, the page, and with the token the rest', async (t) => {
  const door = authorityOf(t).issue('door', 30, HOST);
  const { store, lines } = await startServer(t, { ...doorFiles('metrics', door), metrics_token: TOKEN });
  const curl = async (path: string, ...more: string[]): Promise<string> => {
    const url = `https://${HOST}:${portOf(store)}${path}`;
    return (await run('curl', ['-sS', '--cacert', door.tlsCaFile, '-w', '%{http_code}', ...more, url])).stdout;
  };
  const token = ['-H', `Authorization: Bearer ${TOKEN}`];
  t.regex(await curl('/healthz'), /"status":"ok".*200$/s);
  t.regex(await curl('/'), /<html.*200$/s);
  t.regex(await curl('/metrics'), /401$/);
  t.regex(await curl('/metrics', ...token), /meshcache_build_info.*200$/s);
  t.regex(await curl('/api/cluster', ...token, '--tls-max', '1.2'), /"metrics_tls":true.*200$/s);
  await t.throwsAsync(run('curl', ['-sS', `https://${HOST}:${portOf(store)}/healthz`]), { message: /certificate/ });
  t.true(lines.some((line) => line.includes(`https://${HOST}:`)));
});

const withPrometheus = unless(noCertificates || (missingProgram('prometheus') ?? ''));

withPrometheus('metrics tls: Prometheus scrapes with a certificate of its own', async (t) => {
  const authority = authorityOf(t);
  const [door, scraper] = [authority.issue('door', 30, HOST), authority.issue('prometheus')];
  const { store } = await startServer(t, doorFiles('metrics', door, door.tlsCaFile));
  const files = { ca_file: door.tlsCaFile, cert_file: scraper.tlsCertFile, key_file: scraper.tlsKeyFile };
  const prometheus = await PrometheusServer.start(`
global: { scrape_interval: 500ms, scrape_timeout: 500ms }
scrape_configs:
  - job_name: meshcache
    scheme: https
    tls_config: ${JSON.stringify(files)}
    static_configs: [{ targets: [${JSON.stringify(store.metricsEndpoint)}] }]
`);
  t.teardown(() => prometheus.stop());
  await until(async () => (await prometheus.query('meshcache_build_info')).length === 1);
  t.is(await prometheus.number('meshcache_tls_certificate_expiry_seconds{plane="metrics"} > bool time()'), 1);
});

withCertificates(
  'metrics tls: with an authority only the health and the page are open to clients without a certificate',
  async (t) => {
    const authority = authorityOf(t);
    const [door, reader, expired] = [authority.issue('door', 30, HOST), authority.issue('r'), authority.issue('x', -1)];
    const stranger = authorityOf(t, 'another authority').issue('reader');
    const { ca } = clientOf(door, false);
    // Beyond loopback a certificate stands for a token.
    const { store, lines } = await startServer(t, {
      ...doorFiles('metrics', door, door.tlsCaFile),
      metrics_host: '0.0.0.0',
    });
    const paths = ['/metrics', '/api/node', '/api/cluster', '/api/history?step_s=2'];
    for (const path of paths) t.is(await statusOf(store, path, clientOf(reader)), 200, path);
    for (const options of [{ ca }, { ...clientOf(stranger), ca }, clientOf(expired)] as https.RequestOptions[]) {
      for (const path of ['/healthz', '/']) t.is(await statusOf(store, path, options), 200, path);
      for (const path of [...paths, '/api/events']) t.is(await statusOf(store, path, options), 403, path);
    }
    t.is(await refusals(store), 3 * (paths.length + 1));
    t.true(lines.some((line) => /metrics_tls_ca_file wants one/.test(line)));
    t.false(lines.some((line) => /has no token/.test(line)));
  },
);

withCertificates('metrics tls: who had no certificate in one handshake has none in the next one', async (t) => {
  const door = authorityOf(t).issue('door', 30, HOST);
  const { store } = await startServer(t, doorFiles('metrics', door, door.tlsCaFile));
  const { ca } = clientOf(door, false);
  for (const maxVersion of ['TLSv1.3', 'TLSv1.2'] as const) {
    let session: Buffer | undefined;
    const first = tls.connect({ host: HOST, port: portOf(store), ca, maxVersion });
    t.teardown(() => first.destroy());
    first.on('session', (ticket) => {
      session = ticket;
    });
    first.write('GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n');
    await new Promise<void>((resolve) => first.on('close', resolve).resume());
    const options = { ca, maxVersion, ...(session === undefined ? {} : { session }) };
    t.is(await statusOf(store, '/metrics', options), 403, maxVersion);
  }
});

withCertificates('metrics tls: certificate and token are both asked for where both are set', async (t) => {
  const authority = authorityOf(t);
  const [door, reader] = [authority.issue('door', 30, HOST), authority.issue('reader')];
  const { store } = await startServer(t, { ...doorFiles('metrics', door, door.tlsCaFile), metrics_token: TOKEN });
  const headers = { authorization: `Bearer ${TOKEN}` };
  t.is(await statusOf(store, '/metrics', clientOf(reader)), 401);
  t.is(await statusOf(store, '/metrics', { ...clientOf(reader, false), headers }), 403);
  t.is(await statusOf(store, '/metrics', { ...clientOf(reader), headers }), 200);
});

withCertificates(
  'metrics tls: a certificate makes a client the user default, who reads keys only of all namespaces',
  async (t) => {
    const authority = authorityOf(t);
    const [door, reader] = [authority.issue('door', 30, HOST), authority.issue('reader')];
    const file = new UsersFile(t, { name: 'default', tags: ['*'], rights: ['status'] });
    const settings = { ...doorFiles('metrics', door, door.tlsCaFile), users_file: file.path };
    const { store, lines } = await startServer(t, settings);
    const stream = https.get({
      ...clientOf(reader),
      host: HOST,
      port: portOf(store),
      path: '/api/events',
      agent: false,
    });
    const [response] = (await once(stream, 'response')) as [http.IncomingMessage];
    t.is(response.statusCode, 200);
    file.write({ name: 'default', tags: ['a'], rights: ['status'] });
    await once(response.resume(), 'end');
    t.is(await statusOf(store, '/metrics', clientOf(reader)), 200);
    t.is(await statusOf(store, '/api/events', clientOf(reader)), 403);
    file.write({ name: 'default', tags: ['*'], rights: [] });
    await until(async () => (await statusOf(store, '/metrics', clientOf(reader))) === 401);
    t.false(lines.some((line) => line.includes('cannot be read anew')));
  },
);

withCertificates('metrics tls: without token and authority the rules are those of the plain server', async (t) => {
  const door = authorityOf(t).issue('door', 30, HOST);
  const { ca } = clientOf(door, false);
  const { store, lines } = await startServer(t, { ...doorFiles('metrics', door), metrics_host: '0.0.0.0' });
  t.is(await statusOf(store, '/metrics', { ca }), 200);
  t.is(await statusOf(store, '/api/node', { ca }), 403);
  t.true(lines.some((line) => /has no token/.test(line)));
});

withCertificates(
  'metrics tls: plain clients are refused and named, and silent ones leave room for a probe',
  async (t) => {
    const door = authorityOf(t).issue('door', 30, HOST);
    const { store, lines } = await startServer(t, doorFiles('metrics', door));
    const port = portOf(store);
    const { ca } = clientOf(door, false);
    await t.throwsAsync(
      new Promise((resolve, reject) => http.get({ host: HOST, port, path: '/healthz' }, resolve).on('error', reject)),
    );
    await until(async () => (await refusals(store)) === 1);
    t.true(lines.some((line) => /the client speaks no TLS.*https:\/\//.test(line)));
    const count = METRICS_IDLE_CONNECTIONS_MAX_COUNT + 20;
    const sockets: net.Socket[] = [];
    t.teardown(() => sockets.forEach((socket) => void socket.destroy()));
    const closed: Promise<void>[] = [];
    for (let i = 0; i < count; i++) {
      const [silent, shaken] = [net.connect(port, HOST), tls.connect({ host: HOST, port, ca })];
      sockets.push(silent, shaken);
      for (const socket of [silent, shaken]) {
        socket.on('error', () => {}).resume();
        closed.push(new Promise((resolve) => socket.once('close', () => resolve())));
      }
    }
    t.is(await statusOf(store, '/healthz', { ca }), 200);
    // Those that have shaken hands and ask for nothing, and those that have not, have a deadline.
    await Promise.all(closed);
    t.is(await statusOf(store, '/healthz', { ca }), 200);
  },
);

withCertificates('metrics tls: the certificate is renewed while the server runs', async (t) => {
  const [former, next] = [authorityOf(t, 'former'), authorityOf(t, 'next')];
  const used = {
    tlsCertFile: join(former.folder, 'used.pem'),
    tlsKeyFile: join(former.folder, 'used.key'),
    tlsCaFile: '',
  };
  const put = (files: CertificateFiles): void => {
    copyFileSync(files.tlsCertFile, used.tlsCertFile);
    copyFileSync(files.tlsKeyFile, used.tlsKeyFile);
  };
  const [old, later] = [former.issue('door', 30, HOST), next.issue('door', 30, HOST)];
  put(old);
  const { store, lines } = await startServer(t, doorFiles('metrics', used));
  t.is(await statusOf(store, '/healthz', clientOf(old, false)), 200);
  await t.throwsAsync(ask(store, '/healthz', clientOf(later, false)));
  put(later);
  await until(() => lines.some((line) => /new credentials are in use.*metrics.*certificate/.test(line)));
  t.is(await statusOf(store, '/healthz', clientOf(later, false)), 200);
  await t.throwsAsync(ask(store, '/healthz', clientOf(old, false)));
});

withCertificates('metrics tls: a file that cannot be used is refused by its key', async (t) => {
  const door = authorityOf(t).issue('door');
  const files = doorFiles('metrics', { ...door, tlsKeyFile: '/nowhere/key.pem' });
  await t.throwsAsync(startServer(t, files), { message: /"metrics_tls_key_file": \/nowhere\/key.pem cannot be read/ });
});
