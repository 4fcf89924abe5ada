import { connect } from 'node:net';
import type { ClusterHistory } from '../../../src/metrics/history-report.js';
import type { MetricsSource } from '../../../src/metrics/metrics-server.js';
import type { ClusterReport, NodeReport, NodeView } from '../../../src/metrics/node-report.js';
import { MetricsServer } from '../../../src/node/machine/machine-node.js';
import { systemClock } from '../../../src/system/system-clock.js';
import { systemEnvironment } from '../../../src/system/system-environment.js';
import { check, type Fuzzer } from '../fuzzer.js';
import { inPieces, piecesOf } from '../pieces.js';

const TOKEN = 'fuzz-token-0123456789';
const LOOPBACK = '127.0.0.1';
/** Stands in requests where an answer could repeat it. */
const MARK = 'repeated-9876';
const HOST_LINE = /^host:[ \t]*(.*?)[ \t]*\r?$/gim;
/** What an address or `localhost` may look like, more or less. */
const LOCAL = /^(localhost|\[?[0-9a-f.:]+(%[^\]]*)?\]?)(:\d*)?$/i;
const END_TIMEOUT_MS = 800;
/** What Node's own parser answers; the others are ours, with our headers. */
const PARSER_STATUSES = [100, 400, 408, 413, 417, 431];
const OWN_STATUSES = [200, 401, 403, 404, 405, 429];

/** A server, and what it was asked for and has logged. */
class ServedNode implements MetricsSource, NodeView {
  readonly nodeId = 'node-a';
  told = 0;
  readonly troubles: string[] = [];
  runs = 0;
  readonly #server: MetricsServer;
  #port: Promise<number> | undefined;

  constructor(token: string | undefined) {
    const env = systemEnvironment({
      // No wrong token of a run keeps the right one of a later run out.
      clock: { ...systemClock, nowMs: () => systemClock.nowMs() + 60_000 * this.runs },
      log: {
        log: (level, message, fields) => {
          // Wrong tokens are what this is about.
          if (message === 'authentication failed') return;
          if (level === 'warn' || level === 'error') this.troubles.push(`${message} ${JSON.stringify(fields)}`);
        },
      },
    });
    this.#server = new MetricsServer(this, LOOPBACK, 0, { node: this, env, ...(token === undefined ? {} : { token }) });
  }

  port(): Promise<number> {
    this.#port ??= this.#server.start();
    return this.#port;
  }

  stop(): Promise<void> {
    return this.#server.stop();
  }

  async renderPrometheus(): Promise<string> {
    this.told++;
    return `meshcache_pages 1\n`.repeat(100);
  }

  contentType(): string {
    return 'text/plain';
  }

  async history(stepS: number): Promise<ClusterHistory> {
    this.told++;
    return { node_id: this.nodeId, time_ms: 1, step_s: stepS, nodes: [] };
  }

  setGaugeProvider(): void {}

  health() {
    return { status: 'ok' as const, reasons: [] };
  }

  async report(): Promise<NodeReport> {
    this.told++;
    return { node_id: this.nodeId } as NodeReport;
  }

  async cluster(): Promise<ClusterReport> {
    this.told++;
    return { node_id: this.nodeId, time_ms: 1, heartbeat_interval_s: 2, nodes: [] };
  }
}

let nodes: { readonly secret: ServedNode; readonly local: ServedNode } | undefined;

/** [0: with a token, else on loopback without one][how it is cut][bytes of the connection, to its end] */
export const metricsHttp: Fuzzer = {
  name: 'metrics-http',
  what: 'the metrics server: whatever comes, an answer of ours or none; nothing without token or local name; nothing repeated',
  form: 'bytes',
  tokens: [
    'GET /metrics HTTP/1.1\r\n',
    'HEAD /api/node HTTP/1.1\r\n',
    'OPTIONS * HTTP/1.1\r\n',
    'GET http://evil/metrics?a=%zz#x HTTP/1.1\r\n',
    'CONNECT a:1 HTTP/1.1\r\n',
    `GET //${MARK}%2f..;/api/cluster HTTP/1.0\r\n`,
    'Host: localhost\r\n',
    'Host: [::1%lo]:9\r\n',
    'Host: evil.example\r\n',
    `Authorization: Bearer ${TOKEN}\r\n`,
    `Authorization: Bearer  ${MARK} \r\n`,
    'Accept: application/openmetrics-text;version=1.0.0;q=0.5,*/*\r\n',
    'Accept-Encoding: gzip;q=2,identity;q=0\r\n',
    'Transfer-Encoding: chunked\r\n',
    'Content-Length: 5\r\n',
    'Expect: 100-continue\r\n',
    'Connection: upgrade\r\nUpgrade: h2c\r\n',
    'Cookie: a\r\n',
    '\r\n',
    '\r\n\r\n',
  ].map((text) => Buffer.from(text)),
  seeds: () => {
    const get = (path: string, ...headers: string[]) =>
      Buffer.from([`GET ${path} HTTP/1.1`, ...headers, '', ''].join('\r\n'));
    const bearer = `Authorization: Bearer ${TOKEN}`;
    return [0, 1].flatMap((which) =>
      [
        inPieces(0, get('/metrics', 'Host: localhost:9', bearer, 'Accept-Encoding: gzip')),
        inPieces(140, get('/api/cluster?x=1', 'Host: 127.0.0.1', bearer)),
        inPieces(
          0,
          get('/healthz', 'Host: a'),
          get('/api/node', 'Host: evil.example', `X: ${MARK}`),
          get(`/${MARK}`, 'Host: a'),
        ),
        inPieces(9, Buffer.from(`POST /metrics HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 5\r\n\r\n12345`)),
        inPieces(
          0,
          get('/', 'Host: ::1', 'Accept: text/html'),
          get('/metrics', `Host: ${MARK}`, `Authorization: Bearer ${MARK}`),
        ),
      ].map((bytes) => Buffer.concat([Buffer.from([which]), bytes])),
    );
  },
  async run(input) {
    nodes ??= { secret: new ServedNode(TOKEN), local: new ServedNode(undefined) };
    const { stream, pieces } = piecesOf(input.subarray(1));
    const isSecret = input[0] === 0;
    const node = isSecret ? nodes.secret : nodes.local;
    node.told = 0;
    node.runs++;
    node.troubles.length = 0;
    const text = stream.toString('latin1');
    const answer = await conversation(await node.port(), pieces);
    check(!answer.includes(MARK), 'a part of the request in the answer');
    check(!answer.includes(TOKEN), 'the token in the answer');
    const statuses = [...answer.matchAll(/HTTP\/1\.[01] (\d{3}) /g)].map(([, status]) => Number(status));
    for (const status of statuses) check([...OWN_STATUSES, ...PARSER_STATUSES].includes(status), `status ${status}`);
    const own = statuses.filter((status) => OWN_STATUSES.includes(status)).length;
    check(answer.split('X-Content-Type-Options: nosniff\r\n').length - 1 >= own, 'an answer without our headers');
    const isAllowed = isSecret
      ? text.includes(TOKEN)
      : [...text.matchAll(HOST_LINE)].some(([, host = '']) => LOCAL.test(host));
    check(isAllowed || node.told === 0, 'told who may not know');
    check(node.troubles.length === 0, () => node.troubles.join());
  },
  async close() {
    await nodes?.secret.stop();
    await nodes?.local.stop();
    nodes = undefined;
  },
};

/** Sends it all, ends its own side, and resolves with what has come when the server has ended its side. */
function conversation(port: number, pieces: readonly Buffer[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const received: Buffer[] = [];
    const socket = connect({ host: LOOPBACK, port, allowHalfOpen: true, noDelay: true });
    socket.setTimeout(END_TIMEOUT_MS, () => {
      socket.destroy();
      reject(new Error('the connection is kept though its other side has ended'));
    });
    socket.on('data', (chunk: Buffer) => received.push(chunk));
    // Ended by the server while there was more to send.
    socket.on('error', () => {});
    socket.once('close', () => resolve(Buffer.concat(received).toString('latin1')));
    for (const piece of pieces) socket.write(piece);
    socket.end();
  });
}
