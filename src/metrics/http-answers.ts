import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { constants, gzip } from 'node:zlib';
import type { Context } from 'koa';
import { reduced } from '../base/assert.js';
import type { WorkTurns } from '../base/concurrency/work-turns.js';
import { within } from '../base/environment/clock.js';
import type { Environment } from '../base/environment/environment.js';
import { ArgumentError } from '../base/errors.js';
import {
  EVENT_STREAMS_MAX_COUNT,
  HISTORY_STEPS_S,
  METRICS_MAX_CONNECTIONS,
  METRICS_REQUEST_TIMEOUT_MS,
} from '../base/limits.js';
import type { DoorTls } from '../net/credentials/door-tls.js';
import type { Users } from '../net/users.js';
import { eventStream, type PageEventSource } from './event-stream.js';
import { type Access, HttpAccess, say } from './http-access.js';
import type { MetricsFormat } from './metrics.js';
import type { HealthReport, NodeView } from './node-report.js';
import { type PageAdvice, prefetchAsAdvised, readJson, tellAsAdvised } from './page-advice.js';

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

interface Route {
  readonly access: Access;
  /** Default: GET, and HEAD with it. */
  readonly method?: 'POST';
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
  readonly access: HttpAccess;
  readonly #metrics: MetricsSource;
  readonly #node: NodeView | undefined;
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
    this.#env = options.env;
    this.access = new HttpAccess(options);
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
    // A body may still be on its way when the request has been answered.
    if (!isRead || 'content-length' in headers || 'transfer-encoding' in headers) ctx.set('Connection', 'close');
    const route = this.#routes.get(ctx.path);
    if (route === undefined) return say(ctx, 404, `not found; there are ${[...this.#routes.keys()].join(' ')}`);
    if (route.method === undefined ? !isRead : method !== route.method) {
      ctx.set('Allow', route.method ?? 'GET, HEAD');
      return say(ctx, 405, `only ${route.method ?? 'GET and HEAD'} ${route.method ? 'is' : 'are'} allowed`);
    }
    if (!this.access.admits(ctx, route.access)) return;
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
    const advice = node.advice?.bind(node);
    if (advice !== undefined) {
      for (const [path, follow] of [
        ['/api/prefetch', prefetchAsAdvised],
        ['/api/sessions', tellAsAdvised],
      ] as const) {
        routes.set(path, { access: 'advice', method: 'POST', answer: (ctx) => this.#takeAdvice(ctx, advice, follow) });
      }
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
    const unwatch = this.access.onRevoked(ctx, () => closed.abort());
    ctx.res.once('close', () => {
      this.#streams = reduced('http answers: streams', this.#streams, 1);
      unwatch();
      closed.abort();
    });
    const { clock } = this.#env;
    ctx.body = Readable.from(eventStream(source, { ...(after ? { after } : {}), signal: closed.signal, clock }));
  }

  /** Follows advice in the body of a request; the answer does not wait for what comes of it. */
  async #takeAdvice(
    ctx: Context,
    advice: () => PageAdvice | undefined,
    follow: (advice: PageAdvice, body: unknown) => number,
  ): Promise<void> {
    const taker = advice();
    if (taker === undefined) return say(ctx, 503, 'the node is starting, or leaving');
    try {
      const pages = follow(taker, await readJson(ctx.req));
      ctx.status = 202;
      ctx.set('Content-Type', JSON_TYPE);
      ctx.body = JSON.stringify({ pages });
    } catch (error) {
      if (!(error instanceof ArgumentError)) throw error;
      say(ctx, 400, error.message);
    }
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

/** Returns the text of a thrown value. The value may have no text, or throw when asked for it. */
function textOf(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return 'unknown';
  }
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

function inlineHashes(html: string, element: 'script' | 'style'): string {
  const elements = html.matchAll(new RegExp(`<${element}\\b[^>]*>([\\s\\S]*?)</${element}>`, 'gi'));
  const hashes = Array.from(
    elements,
    ([, text = '']) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`,
  );
  return hashes.length > 0 ? hashes.join(' ') : "'none'";
}
