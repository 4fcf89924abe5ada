import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { constants, gzip } from 'node:zlib';
import type { Context } from 'koa';
import { reduced } from '../base/assert.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';
import { within } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import {
  EVENT_STREAMS_MAX_COUNT,
  HISTORY_STEPS_S,
  METRICS_MAX_CONNECTIONS,
  METRICS_REQUEST_TIMEOUT_MS,
} from '../base/limits.js';
import { isDigestOf, PasswordCheck } from '../net/auth-failures.js';
import type { DoorTls } from '../net/credentials/door-tls.js';
import { EVERYBODY, type Identity, Users } from '../net/users.js';
import { eventStream, type PageEventSource } from './event-stream.js';
import type { MetricsFormat } from './metrics.js';
import type { HealthReport, NodeView } from './node-report.js';

/** Source of the content of `/metrics`; `Metrics` implements it. */
export interface MetricsSource {
  /** Id of the node, shown in `/healthz`. */
  readonly nodeId: string;
  /** All metrics as text. */
  renderPrometheus(format: MetricsFormat): Promise<string>;
  /** Value of the Content-Type header, with version and character set. */
  contentType(format: MetricsFormat): string;
  /** Adds a gauge of the server itself. */
  setGaugeProvider(name: string, provider: () => number): void;
}

/** Content of a {@link MetricsServer}, and its access rules. */
export interface MetricsServerOptions {
  /** Whether `/` shows the dashboard; default: true. */
  readonly dashboard?: boolean;
  /**
   * Bearer token that `/metrics` and `/api/*` require. Without it, anyone who can reach the port may read `/metrics`,
   * and anyone on this machine may read `/api/*`, except for `/api/events`, which names keys. On loopback, requests
   * must then name an IP address or `localhost`, so that pages of other sites cannot read them.
   */
  readonly token?: string;
  /** TLS instead of plain HTTP. The server closes it. */
  readonly tls?: DoorTls | undefined;
  /**
   * @internal The users of the node. A user with the right `status` may present its own token instead. A reader without
   * a token is the user `default`. Default: everyone may read.
   */
  readonly users?: Users | undefined;
  /** The node behind `/healthz` and `/api/*`. Without it, `/healthz` is always ok and `/api/*` does not exist. */
  readonly node?: NodeView;
  /** @internal Divides the time of the main loop between readers and other work. Default: only between readers. */
  readonly turns?: WorkTurns | undefined;
  /** Ports that must not be used, because other services of this host need them. */
  readonly avoidPorts?: readonly number[];
  readonly env: Environment;
}

/** A complete body, compressed or not. */
interface Content {
  readonly type: string;
  readonly body: string | Buffer;
  readonly encoding: 'identity' | 'gzip';
}

/**
 * Readers of a path. `open`: everyone. `figures`: if a token is set, only its holders. `reports`: as `figures`, but
 * only this machine if no token is set. `keys`: only holders of the token, and users who may use all namespaces; nobody
 * if no token is set.
 */
type Access = 'open' | 'figures' | 'reports' | 'keys';

/** A reader: a holder of the node's token, or one of its users. */
type Reader = Pick<Identity, 'name' | 'user'>;

const OPERATOR: Reader = { name: 'operator', user: EVERYBODY };

interface Route {
  readonly access: Access;
  /** Whether the answer is cheap and is given under any load. */
  readonly isProbe?: boolean;
  answer(ctx: Context): Promise<void> | void;
}

/**
 * Formats of the metrics, best first. The OpenMetrics variants differ only in how names would be escaped; our names
 * need no escaping.
 */
const FORMATS: ReadonlyMap<string, MetricsFormat> = new Map([
  ['text/plain; version=0.0.4; charset=utf-8', 'text'],
  ['text/plain; version=0.0.4', 'text'],
  ['application/openmetrics-text; version=1.0.0; charset=utf-8', 'openmetrics'],
  ['application/openmetrics-text; version=1.0.0', 'openmetrics'],
  ['application/openmetrics-text; version=1.0.0; escaping=allow-utf-8', 'openmetrics'],
  ['application/openmetrics-text; version=1.0.0; escaping=underscores', 'openmetrics'],
]);

const HTML = 'text/html; charset=utf-8';
const JSON_TYPE = 'application/json; charset=utf-8';
/** The bundler puts the page beside the code. */
const PAGE = new URL('./dashboard.html', import.meta.url);
/** Length below which an answer is not worth compressing. */
const COMPRESS_MIN_CHARACTERS = 1024;

const compress = promisify(gzip);

/** @internal Answers the requests of a metrics server. Answers never contain parts of a request or stack traces. */
export class HttpAnswers {
  /**
   * Whether the server listens on loopback, so that only programs and browsers of this machine can reach it. Set once
   * it listens.
   */
  isLocalOnly = false;
  readonly #metrics: MetricsSource;
  readonly #node: NodeView | undefined;
  /** Whether nothing can be read without a token. */
  readonly #isTokenNeeded: boolean;
  readonly #tokens: PasswordCheck<Reader>;
  readonly #users: Users;
  readonly #tls: DoorTls | undefined;
  readonly #env: Environment;
  readonly #routes: ReadonlyMap<string, Route>;
  /** Contents being created; concurrent requests for the same one share it. */
  readonly #making = new Map<string, Promise<Content>>();
  #underWay = 0;
  /** Streams of page events that are open. */
  #streams = 0;

  constructor(metrics: MetricsSource, options: MetricsServerOptions) {
    this.#metrics = metrics;
    this.#node = options.node;
    this.#tls = options.tls;
    this.#env = options.env;
    const { token, users = new Users() } = options;
    this.#isTokenNeeded = token !== undefined;
    this.#users = users;
    const isOperators = token === undefined ? () => false : isDigestOf(token);
    const ownerOf = (digest: string) => (isOperators(digest) ? OPERATOR : users.identify({ tokenDigest: digest }));
    this.#tokens = new PasswordCheck(ownerOf, 'metrics', options.env);
    this.#routes = this.#routesOf(options);
    if (options.node !== undefined) {
      metrics.setGaugeProvider('meshcache_healthy', () => Number(this.#health().status === 'ok'));
    }
  }

  /** Answers a request, as the last Koa middleware. */
  async answer(ctx: Context): Promise<void> {
    ctx.set(SECURITY_HEADERS);
    const { method, headers } = ctx.req;
    const isRead = method === 'GET' || method === 'HEAD';
    // Request bodies are neither used nor awaited.
    if (!isRead || 'content-length' in headers || 'transfer-encoding' in headers) ctx.set('Connection', 'close');
    const route = this.#routes.get(ctx.path);
    if (route === undefined) return say(ctx, 404, `not found; there are ${[...this.#routes.keys()].join(' ')}`);
    if (!isRead) {
      ctx.set('Allow', 'GET, HEAD');
      return say(ctx, 405, 'only GET and HEAD are allowed');
    }
    if (!this.#admits(ctx, route.access)) return;
    // A connection has one request in progress, but more if the client does not wait for its answers.
    if (this.#underWay >= METRICS_MAX_CONNECTIONS && !route.isProbe) {
      ctx.set('Retry-After', '1');
      return say(ctx, 503, 'too many requests at a time');
    }
    this.#underWay++;
    try {
      await route.answer(ctx);
    } finally {
      this.#underWay = reduced('http answers: under way', this.#underWay, 1);
    }
  }

  /** Whether the request may read. If not, it has been answered. */
  #admits(ctx: Context, access: Access): boolean {
    if (access === 'open') return true;
    if (this.#tls?.knows(ctx.req.socket) === false) {
      this.#refused(ctx, 'no certificate');
      say(ctx, 403, 'show a certificate that metrics_tls_ca_file of this node has signed');
      return false;
    }
    const given = this.#isTokenNeeded || this.#users.hasTokens ? bearerToken(ctx.req) : undefined;
    if (given !== undefined) return this.#admitsToken(ctx, access, given);
    const reader = this.#isTokenNeeded ? undefined : this.#users.identify({});
    if (reader?.user?.has('status') !== true) {
      this.#demandToken(ctx, 'no token');
      return false;
    }
    // A certificate takes the place of a token.
    return this.#tls?.wantsCertificates === true
      ? this.#admitsReader(ctx, access, reader)
      : this.#admitsAnyone(ctx, access);
  }

  #demandToken(ctx: Context, reason: string): void {
    this.#refused(ctx, reason);
    ctx.set('WWW-Authenticate', 'Bearer realm="meshcache"');
    const whose = this.#isTokenNeeded ? 'the metrics_token of this node' : 'the token of a user with the right status';
    say(ctx, 401, `send ${whose}: Authorization: Bearer <token>`);
  }

  #admitsToken(ctx: Context, access: Access, token: string): boolean {
    const verdict = this.#tokens.judge(token, ctx.req.socket.remoteAddress ?? '');
    if (verdict === 'paused') {
      this.#refused(ctx, 'too many wrong tokens');
      ctx.set('Retry-After', '1');
      say(ctx, 429, 'too many wrong tokens from this address; try again in a few seconds');
    } else if (verdict === 'wrong') {
      this.#demandToken(ctx, 'wrong token');
    } else {
      return this.#admitsReader(ctx, access, verdict);
    }
    return false;
  }

  /** Whether this reader may read. If not, the request has been answered. */
  #admitsReader(ctx: Context, access: Access, reader: Reader): boolean {
    if (mayRead(reader, access)) {
      ctx.state.reader = reader;
      return true;
    }
    this.#refused(ctx, 'no right', ctx.path, reader.name);
    const needed = access === 'keys' ? 'the right status, and "*" among its tags' : 'the right status';
    say(ctx, 403, `user ${reader.name} needs ${needed}`);
    return false;
  }

  /** Whether the request may read without a token. If not, it has been answered. */
  #admitsAnyone(ctx: Context, access: Access): boolean {
    const refusal = this.#refusal(ctx, access);
    if (refusal === undefined) return true;
    this.#refused(ctx, 'no token is set', refusal);
    say(ctx, 403, refusal);
    return false;
  }

  #refused({ req, path }: Context, reason: string, detail: string = path, user?: string): void {
    const actor = { user, address: req.socket.remoteAddress };
    this.#env.audit?.record({ action: 'status', door: 'http', outcome: 'refused', actor, reason, detail });
  }

  #refusal(ctx: Context, access: Access): string | undefined {
    if (access === 'keys') {
      return 'these events name keys, models and tags, and every user of this machine could read them here: set metrics_token on this node';
    }
    if (access === 'reports' && !this.isLocalOnly) {
      return 'this node listens beyond loopback, and anybody could read its reports: set metrics_token on this node, or metrics_host to 127.0.0.1';
    }
    if (this.isLocalOnly && !namesLocally(ctx.req)) {
      return 'without metrics_token, ask by an IP address or localhost: the name in the Host header is another';
    }
    return undefined;
  }

  #routesOf({ dashboard = true, node }: MetricsServerOptions): Map<string, Route> {
    const routes = new Map<string, Route>([
      ['/metrics', { access: 'figures', answer: (ctx) => this.#answerMetrics(ctx) }],
      // Health probes send no token.
      ['/healthz', { access: 'open', isProbe: true, answer: (ctx) => this.#answerHealth(ctx) }],
    ]);
    // The page contains no data; it asks for the token and sends it.
    if (dashboard) routes.set('/', { access: 'open', answer: (ctx) => this.#answerPage(ctx) });
    if (node === undefined) return routes;
    for (const [path, report] of [
      ['/api/node', () => node.report()],
      ['/api/cluster', () => node.cluster()],
    ] as const) {
      routes.set(path, { access: 'reports', answer: (ctx) => this.#answerReport(ctx, path, report) });
    }
    const history = node.history?.bind(node);
    if (history !== undefined) {
      routes.set('/api/history', { access: 'reports', answer: (ctx) => this.#answerHistory(ctx, history) });
    }
    const events = node.events?.bind(node);
    if (events !== undefined) {
      routes.set('/api/events', { access: 'keys', answer: (ctx) => this.#answerEvents(ctx, events) });
    }
    return routes;
  }

  async #answerMetrics(ctx: Context): Promise<void> {
    const format = FORMATS.get(ctx.accepts([...FORMATS.keys()]) || '') ?? 'text';
    ctx.vary('Accept');
    try {
      const render = () => this.#metrics.renderPrometheus(format);
      await this.#send(ctx, `metrics as ${format}`, { type: this.#metrics.contentType(format), make: render });
    } catch (error) {
      this.#complain(error, 'metrics could not be collected');
      say(ctx, 503, 'the metrics could not be collected');
    }
  }

  #answerHealth(ctx: Context): void {
    const { status, reasons } = this.#health();
    const node_id = this.#metrics.nodeId;
    ctx.status = status === 'ok' ? 200 : 503;
    ctx.set('Content-Type', JSON_TYPE);
    ctx.body = JSON.stringify({ status, node_id, ...(status === 'ok' ? {} : { reasons }) });
  }

  #health(): HealthReport {
    try {
      return this.#node?.health() ?? { status: 'ok', reasons: [] };
    } catch (error) {
      this.#complain(error, 'health could not be found out');
      return { status: 'degraded', reasons: ['the node cannot say how it is'] };
    }
  }

  async #answerHistory(ctx: Context, history: (stepS: number) => Promise<unknown>): Promise<void> {
    const stepS = HISTORY_STEPS_S.find((step) => ctx.querystring === `step_s=${step}`);
    if (stepS === undefined) return say(ctx, 400, `say ?step_s=, one of ${HISTORY_STEPS_S.join(', ')}`);
    await this.#answerReport(ctx, `history by ${stepS} s`, () => history(stepS));
  }

  /** Streams page events for as long as the client reads them. */
  async #answerEvents(ctx: Context, events: () => PageEventSource | undefined): Promise<void> {
    const source = events();
    if (source === undefined) return say(ctx, 503, 'the node is starting');
    if (this.#streams >= EVENT_STREAMS_MAX_COUNT) {
      ctx.set('Retry-After', '1');
      return say(ctx, 503, `${EVENT_STREAMS_MAX_COUNT} streams of events are open, no more are allowed`);
    }
    ctx.status = 200;
    ctx.set('Content-Type', 'text/event-stream; charset=utf-8');
    if (ctx.method === 'HEAD') return;
    const after = ctx.get('Last-Event-ID') || new URLSearchParams(ctx.querystring).get('after');
    const closed = new AbortController();
    this.#streams++;
    const { reader } = ctx.state as { readonly reader: Reader };
    const unwatch = this.#users.onRenewed(() => mayRead(reader, 'keys') || closed.abort());
    ctx.res.once('close', () => {
      this.#streams = reduced('http answers: streams', this.#streams, 1);
      unwatch();
      closed.abort();
    });
    const { clock } = this.#env;
    ctx.body = Readable.from(eventStream(source, { ...(after ? { after } : {}), signal: closed.signal, clock }));
  }

  async #answerReport(ctx: Context, name: string, report: () => Promise<unknown>): Promise<void> {
    const make = async () => {
      const text: unknown = JSON.stringify(await report());
      if (typeof text !== 'string') throw new Error('the report is none');
      return text;
    };
    try {
      await this.#send(ctx, name, { type: JSON_TYPE, make });
    } catch (error) {
      this.#complain(error, 'report failed');
      ctx.status = 503;
      ctx.set('Content-Type', JSON_TYPE);
      ctx.body = JSON.stringify({ error: textOf(error) });
    }
  }

  async #answerPage(ctx: Context): Promise<void> {
    let html: string;
    try {
      html = await readFile(PAGE, 'utf8');
    } catch (error) {
      this.#complain(error, 'dashboard page cannot be read');
      return say(ctx, 404, 'this build of meshcache has no dashboard; /metrics, /healthz and /api are there');
    }
    ctx.set('Content-Security-Policy', pagePolicy(html));
    await this.#send(ctx, 'page', { type: HTML, make: async () => html });
  }

  /** Creates and sends a content. `make` has as long as a request may take; if it takes longer, this rejects. */
  async #send(ctx: Context, name: string, source: { type: string; make(): Promise<string> }): Promise<void> {
    ctx.vary('Accept-Encoding');
    const encoding = ctx.acceptsEncodings('gzip', 'identity') === 'gzip' ? 'gzip' : 'identity';
    const content = await this.#once(`${name}, ${encoding}`, async () => {
      const text = await this.#inTime(source.make());
      if (encoding === 'identity' || text.length < COMPRESS_MIN_CHARACTERS) {
        return { type: source.type, body: text, encoding: 'identity' };
      }
      return { type: source.type, body: await compress(text, { level: constants.Z_BEST_SPEED }), encoding };
    });
    ctx.set('Content-Type', content.type);
    if (content.encoding !== 'identity') ctx.set('Content-Encoding', content.encoding);
    ctx.body = content.body;
  }

  #once(name: string, make: () => Promise<Content>): Promise<Content> {
    const underWay = this.#making.get(name);
    if (underWay !== undefined) return underWay;
    const made = make().finally(() => this.#making.delete(name));
    this.#making.set(name, made);
    return made;
  }

  async #inTime<T>(work: Promise<T>): Promise<T> {
    if (await within(this.#env.clock, METRICS_REQUEST_TIMEOUT_MS, work)) return work;
    throw new Error(`not ready within ${METRICS_REQUEST_TIMEOUT_MS / 1000} s`);
  }

  #complain(error: unknown, message: string): void {
    this.#env.log.log('debug', message, { error: textOf(error) });
  }
}

function mayRead({ user }: Reader, access: Access): boolean {
  return user?.has('status') === true && (access !== 'keys' || user.mayUseAll);
}

/** Returns the text of a thrown value. The value may have no text, or throw when asked for it. */
function textOf(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return 'unknown';
  }
}

function say(ctx: Context, status: number, text: string): void {
  ctx.status = status;
  ctx.set('Content-Type', 'text/plain; charset=utf-8');
  ctx.body = `${text}\n`;
}

/** Returns the token of a request (`Authorization: Bearer <token>`); undefined if it has none. */
function bearerToken(request: IncomingMessage): string | undefined {
  return /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '')?.[1];
}

/**
 * Whether the Host header is an IP address or `localhost`, with any port. Another site can let its own name point to
 * this machine; the browser then treats this server as that site. The Host header reveals that name.
 */
function namesLocally({ headers }: IncomingMessage): boolean {
  const host = (headers.host ?? '').replace(/:\d*$/, '');
  return host.toLowerCase() === 'localhost' || isIP(host.replace(/^\[(.*)\]$/, '$1')) !== 0;
}

/** Headers of every answer: no page of another site may frame, sniff, cache or read it. */
const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
};

/**
 * Returns a policy that lets a page run its own inline scripts and styles, identified by their hashes, and contact only
 * its own server.
 */
function pagePolicy(html: string): string {
  return [
    "default-src 'none'",
    `script-src ${inlineHashes(html, 'script')}`,
    `style-src ${inlineHashes(html, 'style')}`,
    "connect-src 'self'",
    'img-src data:',
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

/** Whether the address can be reached only from this machine. */
export function isLoopback(address: string): boolean {
  return /^(::ffff:)?127\./i.test(address) || address === '::1';
}

function inlineHashes(html: string, element: 'script' | 'style'): string {
  const elements = html.matchAll(new RegExp(`<${element}\\b[^>]*>([\\s\\S]*?)</${element}>`, 'gi'));
  const hashes = Array.from(
    elements,
    ([, text = '']) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`,
  );
  return hashes.length > 0 ? hashes.join(' ') : "'none'";
}
