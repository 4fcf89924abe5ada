import { createHash } from 'node:crypto';
import { readFileSync, renameSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { type LogFields, silentLogger } from '../../src/base/environment/log.js';
import { seededRandom } from '../../src/base/environment/random.js';
import {
  METRICS_IDLE_CONNECTIONS_MAX_COUNT,
  METRICS_MAX_CONNECTIONS,
  METRICS_PORTS_MAX_COUNT,
} from '../../src/base/limits.js';
import type { ClusterHistory } from '../../src/metrics/history-report.js';
import type { MetricsSource } from '../../src/metrics/metrics-server.js';
import type { ClusterReport, HealthReport, NodeReport, NodeView } from '../../src/metrics/node-report.js';
import { Metrics, MetricsServer, type MetricsServerOptions } from '../../src/node/machine/machine-node.js';
import { systemEnvironment } from '../../src/system/system-environment.js';
import { systemRandom } from '../../src/system/system-random.js';
import { ManualClock } from '../_support/clock.js';
import { patientClock } from '../_support/patient-clock.js';
import { until } from '../_support/support.js';

const LOOPBACK = '127.0.0.1';
const PAGE = fileURLToPath(new URL('./dashboard.html', import.meta.url));

interface LogRecord {
  readonly level: string;
  readonly message: string;
  readonly fields: LogFields;
}

/** A node of which a test says how it is. */
class FakeNode implements NodeView {
  state: HealthReport = { status: 'ok', reasons: [] };
  failure: Error | undefined;
  reports = 0;
  histories = 0;
  release: () => void = () => {};
  #gate: Promise<void> | undefined;

  health(): HealthReport {
    if (this.failure !== undefined) throw this.failure;
    return this.state;
  }

  async report(): Promise<NodeReport> {
    this.reports++;
    await this.#gate;
    if (this.failure !== undefined) throw this.failure;
    return { node_id: 'node-a', members: 3 } as NodeReport;
  }

  async cluster(): Promise<ClusterReport> {
    return { node_id: 'node-a', time_ms: 1, heartbeat_interval_s: 2, nodes: [] };
  }

  async history(stepS: number): Promise<ClusterHistory> {
    this.histories++;
    return { node_id: 'node-a', time_ms: 1, step_s: stepS, nodes: [] };
  }

  /** Reports wait for `release()`. */
  hold(): void {
    this.#gate = new Promise((resolve) => {
      this.release = resolve;
    });
  }
}

interface Started {
  readonly server: MetricsServer;
  readonly port: number;
  readonly url: string;
  readonly records: LogRecord[];
}

interface Choices extends Partial<MetricsServerOptions> {
  readonly metrics?: MetricsSource;
  readonly host?: string;
  readonly port?: number;
}

async function start(t: ExecutionContext, choices: Choices = {}): Promise<Started> {
  const { metrics = new Metrics('node-a'), host = LOOPBACK, port: wanted = 0, ...options } = choices;
  const records: LogRecord[] = [];
  const env = systemEnvironment({
    log: { log: (level, message, fields = {}) => void records.push({ level, message, fields }) },
  });
  const server = new MetricsServer(metrics, host, wanted, { dashboard: true, env, ...options });
  t.teardown(() => server.stop());
  const port = await server.start();
  return { server, port, url: `http://${LOOPBACK}:${port}`, records };
}

/** Says what is sent, and collects what comes back until the server ends the connection. */
class RawClient {
  received = '';
  readonly socket: Socket;
  readonly ended: Promise<void>;

  constructor(port: number) {
    this.socket = connect(port, LOOPBACK);
    this.socket.setEncoding('latin1').on('data', (text: string) => {
      this.received += text;
    });
    this.socket.on('error', () => {});
    this.ended = new Promise((resolve) => this.socket.once('close', () => resolve()));
  }

  static async opened(t: ExecutionContext, port: number): Promise<RawClient> {
    const client = new RawClient(port);
    t.teardown(() => client.socket.destroy());
    await new Promise<void>((resolve) => client.socket.once('connect', resolve));
    return client;
  }
}

/** Takes ports one after the other; undefined when one of them is somebody else's. */
async function occupy(t: ExecutionContext, first: number, count: number): Promise<Server[] | undefined> {
  const taken: Server[] = [];
  t.teardown(() => {
    for (const server of taken) server.close();
  });
  for (let port = first; port < first + count; port++) {
    const server = createServer();
    const listens = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, LOOPBACK, () => resolve(true));
    });
    if (!listens) {
      for (const other of taken) other.close();
      return undefined;
    }
    taken.push(server);
  }
  return taken;
}

/** The first of `count` ports that are taken by the test itself. */
async function occupiedPorts(t: ExecutionContext, count: number): Promise<number> {
  for (let attempt = 0; attempt < 50; attempt++) {
    const first = 20_000 + (systemRandom.u32() % 10_000);
    if ((await occupy(t, first, count)) !== undefined) return first;
  }
  throw new Error('no free row of ports found');
}

test('metrics server: /metrics is Prometheus text, and OpenMetrics for those who prefer it', async (t) => {
  const metrics = new Metrics('node-a');
  const { url } = await start(t, { metrics });
  metrics.recordWrite(4096, 0.001);
  const asked = async (accept?: string): Promise<string> => {
    const answer = await fetch(`${url}/metrics`, accept === undefined ? {} : { headers: { accept } });
    t.is(answer.status, 200);
    const text = await answer.text();
    t.regex(text, /meshcache_writes_total\{[^}]*node_id="node-a"[^}]*\} 1/);
    const type = answer.headers.get('content-type') ?? '';
    t.is(text.endsWith('# EOF\n'), type.startsWith('application/openmetrics-text'));
    return type;
  };
  const plain = 'text/plain; version=0.0.4; charset=utf-8';
  const open = 'application/openmetrics-text; version=1.0.0; charset=utf-8';
  t.is(await asked(), plain);
  t.is(await asked('text/html,application/xhtml+xml,*/*;q=0.8'), plain);
  t.is(await asked('image/png'), plain);
  t.is(await asked(', ;;=,q=/'), plain);
  t.is(await asked('application/openmetrics-text'), open);
  t.is(await asked('application/openmetrics-text;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.5'), plain);
  t.is(await asked('application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1'), plain);
  // What Prometheus 2.42 and 3.1 send.
  t.is(
    await asked(
      'application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1',
    ),
    open,
  );
  t.is(
    await asked(
      'application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1',
    ),
    open,
  );
});

test('metrics server: many requests at once are one collection; a later one collects again', async (t) => {
  let renders = 0;
  let release = (): void => {};
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const metrics: MetricsSource = {
    nodeId: 'node-a',
    async renderPrometheus() {
      const text = `collection ${++renders}\n`;
      await gate;
      return text;
    },
    contentType: () => 'text/plain; charset=utf-8',
    setGaugeProvider() {},
  };
  const { port, url } = await start(t, { metrics });
  const client = await RawClient.opened(t, port);
  client.socket.write('GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n'.repeat(20));
  await until(() => renders > 0);
  release();
  await until(() => client.received.split('\ncollection 1\n').length === 21);
  t.is(renders, 1);
  t.is(await (await fetch(`${url}/metrics`)).text(), 'collection 2\n');
});

test('metrics server: metrics that cannot be collected are a 503 without a stack', async (t) => {
  const metrics: MetricsSource = {
    nodeId: 'node-a',
    renderPrometheus: () => Promise.reject(new Error('secret place')),
    contentType: () => 'text/plain',
    setGaugeProvider() {},
  };
  const { url, records } = await start(t, { metrics });
  const answer = await fetch(`${url}/metrics`);
  t.is(answer.status, 503);
  t.notRegex(await answer.text(), /secret|at /);
  t.true(records.some(({ level, fields }) => level === 'debug' && fields.error === 'secret place'));
});

test('metrics server: /healthz says what is wrong', async (t) => {
  const node = new FakeNode();
  const { url } = await start(t, { node });
  const health = async (): Promise<[number, unknown]> => {
    const answer = await fetch(`${url}/healthz`);
    t.is(answer.headers.get('content-type'), 'application/json; charset=utf-8');
    return [answer.status, await answer.json()];
  };
  const gauge = async (): Promise<string | undefined> =>
    /^meshcache_healthy\{.*\} (\d)$/m.exec(await (await fetch(`${url}/metrics`)).text())?.[1];
  t.deepEqual(await health(), [200, { status: 'ok', node_id: 'node-a' }]);
  t.is(await gauge(), '1');
  node.state = { status: 'degraded', reasons: ['no discovery master is reachable', 'the disk cannot be written'] };
  t.deepEqual(await health(), [503, { ...node.state, node_id: 'node-a' }]);
  t.is(await gauge(), '0');
  node.failure = new Error('broken');
  t.like(await health(), [503, { status: 'degraded', reasons: ['the node cannot say how it is'] }]);
});

test('metrics server: without a node it is healthy and has no reports', async (t) => {
  const { url } = await start(t, { metrics: new Metrics('node-x') });
  const answer = await fetch(`${url}/healthz`);
  t.is(answer.status, 200);
  t.deepEqual(await answer.json(), { status: 'ok', node_id: 'node-x' });
  t.is((await fetch(`${url}/api/node`)).status, 404);
  t.is((await fetch(`${url}/api/cluster`)).status, 404);
});

test('metrics server: reports are JSON; one that fails is a 503 with its reason', async (t) => {
  const node = new FakeNode();
  const { url } = await start(t, { node });
  const report = await fetch(`${url}/api/node`);
  t.is(report.status, 200);
  t.deepEqual(await report.json(), { node_id: 'node-a', members: 3 });
  t.deepEqual(await (await fetch(`${url}/api/cluster`)).json(), await node.cluster());
  node.failure = new Error('the pool is closed');
  const failed = await fetch(`${url}/api/node`);
  t.is(failed.status, 503);
  t.is(failed.headers.get('content-type'), 'application/json; charset=utf-8');
  t.deepEqual(await failed.json(), { error: 'the pool is closed' });
});

test('metrics server: the history is served in steps that there are, and nothing else is computed', async (t) => {
  const node = new FakeNode();
  const { url } = await start(t, { node });
  const answer = await fetch(`${url}/api/history?step_s=10`);
  t.is(answer.status, 200);
  t.deepEqual(await answer.json(), await node.history(10));
  const asked = node.histories;
  for (const query of [
    '',
    '?step_s=3',
    '?step_s=10&step_s=2',
    '?step_s=10.0',
    '?step_s[]=10',
    '?step_s=1e9',
    '?STEP_S=10',
  ]) {
    const refused = await fetch(`${url}/api/history${query}`);
    t.is(refused.status, 400, query);
    t.is(await refused.text(), 'say ?step_s=, one of 2, 10, 60\n');
  }
  t.is(node.histories, asked);
});

test('metrics server: the dashboard may run its own script and style, and nothing else', async (t) => {
  const { url } = await start(t);
  const answer = await fetch(url);
  t.is(answer.status, 200);
  t.is(answer.headers.get('content-type'), 'text/html; charset=utf-8');
  const html = await answer.text();
  t.is(html, readFileSync(PAGE, 'utf8'));
  const policy = answer.headers.get('content-security-policy') ?? '';
  for (const directive of [
    "default-src 'none'",
    "connect-src 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ]) {
    t.true(policy.split('; ').includes(directive), directive);
  }
  t.notRegex(policy, /unsafe/);
  for (const element of ['script', 'style']) {
    const start = html.indexOf('>', html.indexOf(`<${element}`)) + 1;
    const text = html.slice(start, html.indexOf(`</${element}>`, start));
    const hash = createHash('sha256').update(text).digest('base64');
    t.regex(policy, new RegExp(`${element}-src [^;]*'sha256-${hash.replaceAll(/[+/]/g, '\\$&')}'`));
  }
});

test('metrics server: every answer forbids sniffing, caching and reading by other sites', async (t) => {
  const { url } = await start(t, { node: new FakeNode() });
  for (const path of ['/', '/metrics', '/healthz', '/api/node', '/api/cluster', '/api/history?step_s=2', '/nowhere']) {
    const { headers } = await fetch(url + path);
    t.is(headers.get('x-content-type-options'), 'nosniff', path);
    t.is(headers.get('referrer-policy'), 'no-referrer', path);
    t.is(headers.get('cache-control'), 'no-store', path);
    t.is(headers.get('cross-origin-resource-policy'), 'same-origin', path);
    t.regex(headers.get('content-security-policy') ?? '', /default-src 'none'.*frame-ancestors 'none'/, path);
    t.is(headers.get('access-control-allow-origin'), null, path);
  }
});

test('metrics server: needs no options, and has a dashboard then', async (t) => {
  const server = new MetricsServer(new Metrics('node-a'), LOOPBACK, 0);
  t.teardown(() => server.stop());
  const url = `http://${LOOPBACK}:${await server.start()}`;
  for (const path of ['/', '/metrics', '/healthz']) t.is((await fetch(url + path)).status, 200, path);
});

test('metrics server: without a dashboard there is no page', async (t) => {
  const { url } = await start(t, { dashboard: false });
  const answer = await fetch(url);
  t.is(answer.status, 404);
  t.is(await answer.text(), 'not found; there are /metrics /healthz\n');
});

test.serial('metrics server: a build without the page says so', async (t) => {
  renameSync(PAGE, `${PAGE}.away`);
  t.teardown(() => renameSync(`${PAGE}.away`, PAGE));
  const { url } = await start(t);
  const answer = await fetch(url);
  t.is(answer.status, 404);
  t.regex(await answer.text(), /this build of meshcache has no dashboard/);
});

test('metrics server: the token is asked for where data is, and for nothing else', async (t) => {
  let { url } = await start(t, { node: new FakeNode(), token: 'tok-123' });
  const status = async (path: string, authorization?: string): Promise<number> => {
    const answer = await fetch(url + path, authorization === undefined ? {} : { headers: { authorization } });
    await answer.arrayBuffer();
    t.is(answer.headers.get('www-authenticate') !== null, answer.status === 401);
    return answer.status;
  };
  for (const path of ['/metrics', '/api/node', '/api/cluster', '/api/history?step_s=2']) {
    // Few wrong tokens for each server.
    ({ url } = await start(t, { node: new FakeNode(), token: 'tok-123' }));
    t.is(await status(path, 'Bearer tok-123'), 200, path);
    t.is(await status(path, 'bearer tok-123'), 200, path);
    for (const wrong of [
      undefined,
      '',
      'Bearer',
      'Bearer ',
      'Bearer tok-12',
      'Bearer tok-1234',
      'Bearer TOK-123',
      'tok-123',
      'Basic dG9rLTEyMw==',
      'Bearer tok-123 tok-123',
      'xBearer tok-123',
    ]) {
      t.is(await status(path, wrong), 401, `${path} with ${wrong}`);
    }
  }
  t.is(await status('/'), 200);
  t.is(await status('/healthz'), 200);
  t.is(await status('/nowhere'), 404);
  t.is(await status('/metrics?token=tok-123'), 401);
});

test('metrics server: after ten wrong tokens of an address none is looked at until time has passed', async (t) => {
  const clock = new ManualClock();
  const env = { ...systemEnvironment({ log: silentLogger }), clock };
  const { url } = await start(t, { token: 'tok-123', env });
  const status = async (token: string): Promise<number> =>
    (await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${token}` } })).status;
  for (let i = 0; i < 10; i++) t.is(await status(`guess-${i}`), 401);
  t.is(await status('tok-123'), 429);
  t.is((await fetch(`${url}/metrics`)).status, 401, 'a request without a token is no guess');
  clock.advance(1000);
  t.is(await status('tok-123'), 200);
  t.is(await status('guess'), 401);
  t.is(await status('tok-123'), 429);
});

test('metrics server: beyond loopback without a token there are figures, and no reports', async (t) => {
  const { url } = await start(t, { node: new FakeNode(), host: '0.0.0.0' });
  for (const path of ['/api/node', '/api/cluster', '/api/history?step_s=2']) {
    const answer = await fetch(url + path);
    t.is(answer.status, 403);
    t.regex(await answer.text(), /set metrics_token on this node, or metrics_host to 127\.0\.0\.1/);
  }
  for (const path of ['/metrics', '/healthz', '/']) t.is((await fetch(url + path)).status, 200, path);
});

test('metrics server: HEAD has the headers of GET and no body; other methods are refused', async (t) => {
  const { url, port } = await start(t, { node: new FakeNode() });
  for (const path of ['/', '/metrics', '/healthz', '/api/node', '/api/cluster']) {
    const head = await fetch(url + path, { method: 'HEAD', headers: { 'accept-encoding': 'identity' } });
    t.is(head.status, 200, path);
    t.true(Number(head.headers.get('content-length')) > 0, path);
    t.is(await head.text(), '');
    for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
      const answer = await fetch(url + path, { method, body: method === 'OPTIONS' ? null : 'x'.repeat(100_000) });
      t.is(answer.status, 405, `${method} ${path}`);
      t.is(answer.headers.get('allow'), 'GET, HEAD');
    }
  }
  const trace = await RawClient.opened(t, port);
  trace.socket.write('TRACE /metrics HTTP/1.1\r\nhost: x\r\nx-secret: s\r\n\r\n');
  await trace.ended;
  t.regex(trace.received, /^HTTP\/1\.1 405 /);
  t.notRegex(trace.received, /x-secret/);
});

test('metrics server: unknown paths list the known ones and echo nothing', async (t) => {
  const { url, port } = await start(t, { node: new FakeNode() });
  const answer = await fetch(`${url}/%3Cscript%3E?a=%3Cscript%3E`);
  t.is(answer.status, 404);
  t.is(answer.headers.get('content-type'), 'text/plain; charset=utf-8');
  t.is(await answer.text(), 'not found; there are /metrics /healthz / /api/node /api/cluster /api/history\n');
  for (const path of ['/../../etc/passwd', '//metrics', '/metrics/', '/metrics%00', '/%', '*', 'x', '/<script>']) {
    const client = await RawClient.opened(t, port);
    client.socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`);
    await client.ended;
    t.regex(client.received, /^HTTP\/1\.1 40[04] /, path);
    t.notRegex(client.received, /script>|passwd/, path);
  }
});

test('metrics server: answers are compressed for those who take it', async (t) => {
  const { url } = await start(t);
  for (const path of ['/', '/metrics']) {
    const plain = await fetch(url + path, { headers: { 'accept-encoding': 'identity' } });
    const packed = await fetch(url + path, { headers: { 'accept-encoding': 'gzip' } });
    const length = ({ headers }: Response): number => Number(headers.get('content-length'));
    if (length(plain) < 1024) continue;
    t.is(plain.headers.get('content-encoding'), null);
    t.is(packed.headers.get('content-encoding'), 'gzip', path);
    t.regex(packed.headers.get('vary') ?? '', /Accept-Encoding/);
    t.true(length(packed) < length(plain) / 2, path);
    if (path === '/') t.is(await packed.text(), await plain.text());
  }
});

test('metrics server: ports that are taken are passed over; when all are, the key is named', async (t) => {
  const first = await occupiedPorts(t, 3);
  const { port } = await start(t, { port: first });
  t.true(port > first + 2 && port < first + METRICS_PORTS_MAX_COUNT);
  const second = await start(t, { port: first });
  t.true(second.port > port);

  const row = await occupiedPorts(t, METRICS_PORTS_MAX_COUNT);
  const error = await t.throwsAsync(start(t, { port: row }), { name: 'ConfigError', code: 'ERR_CONFIG' });
  t.regex(
    error?.message ?? '',
    new RegExp(`^metrics_port: ${row} and all up to ${row + METRICS_PORTS_MAX_COUNT - 1} `),
  );
});

test('metrics server: ports to be avoided are not taken, asked for or not', async (t) => {
  const first = await occupiedPorts(t, 2);
  // Free themselves, as far as is known.
  const avoidPorts = [first + 2, first + 3];
  const { port } = await start(t, { port: first, avoidPorts });
  t.true(port > first + 3 && port < first + METRICS_PORTS_MAX_COUNT, `${port} after ${first}`);
  const own = await start(t, { port: first + 2, avoidPorts });
  t.true(own.port > first + 3 && own.port !== port);
  t.is((await fetch(`${own.url}/healthz`)).status, 200);
  const all = Array.from({ length: METRICS_PORTS_MAX_COUNT }, (_, i) => first + i);
  const message = /^metrics_port: \d+ and all up to \d+ are taken on "127\.0\.0\.1", or to be avoided/;
  await t.throwsAsync(start(t, { port: first, avoidPorts: all }), { name: 'ConfigError', message });
  await t.throwsAsync(start(t, { port: 65_535, avoidPorts: [65_535] }), { name: 'ConfigError', message });
});

test('metrics server: any free port is none of those to be avoided', async (t) => {
  // Three of four: without a look at them one of ten would be taken, all but surely.
  const avoidPorts = Array.from({ length: 65_536 }, (_, port) => port).filter((port) => (port >> 1) % 4 !== 0);
  const avoided = new Set(avoidPorts);
  for (let i = 0; i < 10; i++) {
    const { port, url } = await start(t, { avoidPorts });
    t.false(avoided.has(port), `${port}`);
    t.is((await fetch(`${url}/healthz`)).status, 200);
  }
});

test('metrics server: on loopback without a token, another name than localhost gets no numbers', async (t) => {
  const ask = async (port: number, path: string, host: string): Promise<number> => {
    const client = await RawClient.opened(t, port);
    client.socket.write(`GET ${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\n\r\n`);
    await client.ended;
    const status = Number(/^HTTP\/1\.1 (\d+) /.exec(client.received)?.[1]);
    if (status === 403) t.regex(client.received, /without metrics_token, ask by an IP address or localhost/);
    return status;
  };
  const node = new FakeNode();
  const { port } = await start(t, { node });
  const names = [
    'evil.example',
    'evil.example:9090',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '[::1',
    '',
    '1',
  ];
  for (const path of ['/metrics', '/api/node', '/api/cluster', '/api/history?step_s=2']) {
    for (const host of ['127.0.0.1', `127.0.0.1:${port}`, 'localhost:1', 'LocalHost', '[::1]:80', '10.0.0.7']) {
      t.is(await ask(port, path, host), 200, `${path} by ${host}`);
    }
    for (const host of names) t.is(await ask(port, path, host), 403, `${path} by ${host}`);
  }
  for (const path of ['/', '/healthz']) t.is(await ask(port, path, 'evil.example'), 200, path);
  const everywhere = await start(t, { node, host: '0.0.0.0' });
  t.is(await ask(everywhere.port, '/metrics', 'gpu-7.rack'), 200);
  const locked = await start(t, { node, token: 'tok-123' });
  t.is(await ask(locked.port, '/metrics', 'evil.example'), 401);
});

test('metrics server: a report that is no JSON is a 503, whatever it is', async (t) => {
  const cyclic: { self?: unknown } = {};
  cyclic.self = cyclic;
  const thrown = (error: unknown) => ({
    toJSON() {
      throw error;
    },
  });
  const reports = [
    1n,
    { n: 1n },
    cyclic,
    undefined,
    () => 1,
    thrown(new Error('no')),
    thrown(Object.create(null)),
    thrown({ n: 1n }),
  ];
  const node = new FakeNode();
  const { url } = await start(t, { node });
  for (const [i, report] of reports.entries()) {
    node.report = async () => report as NodeReport;
    for (const encoding of ['identity', 'gzip']) {
      const answer = await fetch(`${url}/api/node`, { headers: { 'accept-encoding': encoding } });
      t.is(answer.status, 503, `${i}`);
      t.is(typeof ((await answer.json()) as { error: unknown }).error, 'string', `${i}`);
    }
  }
});

test('metrics server: a host that is not this machine’s is refused with the key', async (t) => {
  for (const host of ['192.0.2.1', '2001:db8::1', 'no-such-host.invalid']) {
    const error = await t.throwsAsync(start(t, { host }), { name: 'ConfigError' });
    t.regex(error?.message ?? '', /^metrics_host: /);
    t.true(error?.message.includes(`"${host}"`));
  }
});

test('metrics server: hosts and ports that none can be are refused', (t) => {
  for (const port of [-1, 65_536, 1.5, Number.NaN, 1n as never, Object.create(null)]) {
    const create = (): MetricsServer => new MetricsServer(new Metrics('a'), LOOPBACK, port, { dashboard: true });
    t.throws(create, { code: 'ERR_ARGUMENT', message: /port must be 0 to 65535/ });
  }
  const create = (): MetricsServer => new MetricsServer(new Metrics('a'), '', 0, { dashboard: true });
  t.throws(create, { code: 'ERR_ARGUMENT', message: /host must be/ });
  const text = (): MetricsServer => new MetricsServer(new Metrics('a'), LOOPBACK, '80' as never);
  t.throws(text, { code: 'ERR_ARGUMENT', message: 'port must be 0 to 65535, got "80"' });
});

test.serial('metrics server: a port that needs a privilege is refused with the key', async (t) => {
  const port = 81;
  if (Number(readFileSync('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'utf8')) <= port) {
    t.log('skipped: everybody may listen on every port here');
    t.pass();
    return;
  }
  // Root may; nobody may not.
  const isRoot = process.geteuid?.() === 0;
  if (isRoot) process.seteuid?.(65_534);
  try {
    const message = /^metrics_port: 81 needs a privilege .* choose one above 1023$/;
    await t.throwsAsync(start(t, { port }), { name: 'ConfigError', message });
  } finally {
    if (isRoot) process.seteuid?.(0);
  }
});

test('metrics server: says where it listens, and warns when everybody may read', async (t) => {
  const quiet = await start(t);
  const listens = { level: 'info', message: 'metrics server listening', fields: { url: `${quiet.url}/` } };
  t.deepEqual(quiet.records, [listens]);
  const open = await start(t, { host: '0.0.0.0' });
  t.deepEqual(
    open.records.map(({ level }) => level),
    ['info', 'warn'],
  );
  t.regex(open.records[1]?.message ?? '', /metrics_token/);
  const closed = await start(t, { host: '0.0.0.0', token: 'tok-123' });
  t.deepEqual(
    closed.records.map(({ level }) => level),
    ['info'],
  );
  t.false(JSON.stringify(closed.records).includes('tok-123'));
});

test('metrics server: stop ends every connection at once, the port is free, and it may be called again', async (t) => {
  const node = new FakeNode();
  node.hold();
  const { server, port, url } = await start(t, { node });
  const waiting = fetch(`${url}/api/node`).catch((error: Error) => error);
  const silent = await RawClient.opened(t, port);
  const begun = await RawClient.opened(t, port);
  begun.socket.write('GET /metrics HTT');
  const idle = await RawClient.opened(t, port);
  idle.socket.write('GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n');
  await until(() => idle.received.includes('"ok"') && node.reports === 1);
  const startedMs = patientClock.nowMs();
  await Promise.all([server.stop(), server.stop()]);
  await Promise.all([silent.ended, begun.ended, idle.ended]);
  t.true(patientClock.nowMs() - startedMs < 1_000);
  t.true((await waiting) instanceof Error);
  await server.stop();
  t.is((await start(t, { port })).port, port);
  await t.throwsAsync(server.start(), { code: 'ERR_CLOSED' });
  node.release();
});

test('metrics server: one that was stopped while it started does not listen', async (t) => {
  const server = new MetricsServer(new Metrics('a'), LOOPBACK, 0, { dashboard: false });
  const starting = server.start();
  await server.stop();
  await t.throwsAsync(starting, { code: 'ERR_CLOSED' });
  await t.throwsAsync(server.start(), { code: 'ERR_CLOSED' });
});

test('metrics server: clients that send nothing, or never end, are given up', async (t) => {
  const { port, url } = await start(t);
  const silent = await RawClient.opened(t, port);
  const slow = await RawClient.opened(t, port);
  slow.socket.write('GET /metrics HTTP/1.1\r\nhost: x\r\nx: ');
  const body = await RawClient.opened(t, port);
  body.socket.write('POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n');
  t.is((await fetch(`${url}/healthz`)).status, 200);
  await Promise.all([silent.ended, slow.ended, body.ended]);
  t.regex(slow.received, /^HTTP\/1\.1 408 /);
  t.regex(body.received, /^HTTP\/1\.1 405 /);
});

test('metrics server: however many clients are silent, a scrape finds room', async (t) => {
  const { port, url } = await start(t);
  const count = METRICS_MAX_CONNECTIONS + 8;
  const clients: RawClient[] = [];
  let ended = 0;
  for (let i = 0; i < count; i++) {
    const client = await RawClient.opened(t, port);
    void client.ended.then(() => ended++);
    clients.push(client);
  }
  await until(() => ended >= count - METRICS_IDLE_CONNECTIONS_MAX_COUNT);
  t.is((await fetch(`${url}/healthz`)).status, 200);
  t.is((await fetch(`${url}/metrics`)).status, 200);
  // The last one to come is still there.
  const last = clients.at(-1);
  last?.socket.write('GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n');
  await until(() => last?.received.includes('"ok"') === true);
});

test('metrics server: however many clients do not read their answers, probes and scrapes find room', async (t) => {
  const node = new FakeNode();
  node.hold();
  const { port, url } = await start(t, { node });
  for (let i = 0; i < METRICS_MAX_CONNECTIONS; i++) {
    const client = await RawClient.opened(t, port);
    client.socket.write('GET /api/node HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
    if (i === 0) await until(() => node.reports === 1);
  }
  for (let i = 0; i < 20; i++) {
    const answer = await fetch(`${url}/healthz`, { headers: { connection: 'close' } });
    t.is(answer.status, 200);
    await answer.text();
  }
  node.release();
});

test('metrics server: requests that come without waiting for answers are bounded', async (t) => {
  const node = new FakeNode();
  node.hold();
  const { port, url } = await start(t, { node });
  const client = await RawClient.opened(t, port);
  const count = 1000;
  client.socket.write('GET /api/node HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n'.repeat(count));
  await until(() => node.reports === 1);
  await until(async () => (await fetch(`${url}/metrics`)).status === 503);
  t.is((await fetch(`${url}/healthz`)).status, 200);
  node.release();
  const answers = (): number => client.received.split('HTTP/1.1 ').length - 1;
  await until(() => answers() === count);
  const of = (status: number): number => client.received.split(`HTTP/1.1 ${status} `).length - 1;
  t.true(of(200) >= METRICS_MAX_CONNECTIONS);
  t.is(of(200) + of(503), count);
  t.is((await fetch(`${url}/metrics`)).status, 200);
});

// Cause: Node's HTTP server carries out everything that it has read at once, well over a thousand requests.
test('metrics server: requests of one connection are carried out a few in a turn of the loop', async (t) => {
  const node = new FakeNode();
  const { port } = await start(t, { node });
  let asked = 0;
  let inThisTurn = 0;
  let most = 0;
  node.health = () => {
    asked++;
    most = Math.max(most, ++inThisTurn);
    return node.state;
  };
  const client = await RawClient.opened(t, port);
  const count = 1000;
  client.socket.write('GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n'.repeat(count));
  await until(async () => {
    await new Promise((resolve) => setImmediate(resolve));
    inThisTurn = 0;
    return asked === count;
  });
  t.true(most < count / 2, `${most} requests in one turn`);
  await until(() => client.received.split('HTTP/1.1 200 ').length - 1 === count);
});

test('metrics server: a report that takes too long is a 503', async (t) => {
  const node = new FakeNode();
  node.hold();
  const { url } = await start(t, { node });
  const answer = await fetch(`${url}/api/node`);
  t.is(answer.status, 503);
  t.deepEqual(await answer.json(), { error: 'not ready within 5 s' });
  node.release();
});

test('metrics server: noise and broken requests harm nobody and reach no console', async (t) => {
  const seed = systemRandom.u32();
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const { port, url, records } = await start(t);
  const written: string[] = [];
  const original = process.stderr.write;
  process.stderr.write = ((text: string) => written.push(String(text)) > 0) as typeof process.stderr.write;
  t.teardown(() => {
    process.stderr.write = original;
  });
  const pieces = [
    'GET ',
    '/metrics',
    ' HTTP/1.1\r\n',
    'host: x\r\n',
    'host: [::1]:7\r\n',
    '\r\n',
    'Content-Length: -1\r\n',
    'Transfer-Encoding: chunked\r\n',
    'zz\r\n',
    'Expect: 100-continue\r\n',
    'Upgrade: websocket\r\nConnection: upgrade\r\n',
    'CONNECT a:1 HTTP/1.1\r\n\r\n',
    '\0\xff\xfe',
    'a'.repeat(20_000),
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    'Accept: ;q=2,,\r\n',
    'Accept-Encoding: gzip;q=x\r\n',
  ];
  const clients: RawClient[] = [];
  for (let round = 0; round < 150; round++) {
    const client = await RawClient.opened(t, port);
    const count = 1 + (random.u32() % 8);
    for (let i = 0; i < count; i++) client.socket.write(pieces[random.u32() % pieces.length] as string, 'latin1');
    if (random.u32() % 2 === 0) client.socket.resetAndDestroy();
    else client.socket.end();
    clients.push(client);
    await client.ended;
  }
  t.is((await fetch(`${url}/metrics`)).status, 200);
  t.deepEqual(
    written.filter((text) => /Error|at /.test(text)),
    [],
  );
  t.false(clients.some(({ received }) => /node_modules|\.js:\d/.test(received)));
  t.deepEqual(
    records.filter(({ level }) => level === 'error'),
    [],
  );
});
