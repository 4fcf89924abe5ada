import { Counter, Gauge, type Metric, Registry } from 'prom-client';
import type { Clock } from '../base/environment/clock.js';
import type { Host } from '../base/environment/host.js';
import type { Labels, MetricsSink } from '../base/environment/metrics-sink.js';
import { ArgumentError } from '../base/errors.js';
import { shown } from '../base/shown.js';
import { COUNTERS, countLookup, helpOf } from './metric-catalogue.js';
import { LATENCY_BOUNDS_S, LatencyHistogram, type LatencyLabel, metricsReport } from './metrics-report.js';
import type { MetricsReport } from './node-report.js';
import { ProcessMetrics } from './process-metrics.js';

/** One series of a counter and its total. */
interface CounterTotal {
  readonly labels: Labels;
  amount: number;
}

/**
 * A node of a tree over label values: the series that agree in the labels so far, by the value of the next label. Only
 * the branch of the last label has a total.
 */
interface Branch {
  readonly next: Map<string, Branch>;
  total: CounterTotal | undefined;
}

/** Where a page was read from: the own pool, another node's pool, the own disk, or the object store. */
export type ReadSource = 'local' | 'remote' | 'disk' | 'object';

/** Text format of Prometheus, or of OpenMetrics 1.0. */
export type MetricsFormat = 'text' | 'openmetrics';

/** Options of `Metrics`, apart from the node's id. */
export interface MetricsOptions {
  /** Version of this package, shown by `meshcache_build_info`. */
  readonly version?: string;
  readonly clock: Clock;
  /** Host whose event loop is observed. */
  readonly host: Host;
}

interface Provided {
  readonly type: 'gauge' | 'counter';
  readonly labelNames: readonly string[];
  readonly providers: { readonly provider: () => number; readonly labels: Labels }[];
}

const READ_SOURCES: readonly ReadSource[] = ['local', 'remote', 'disk', 'object'];
/** Valid metric names; colons are reserved for Prometheus rules. */
const METRIC_NAME = /^[a-zA-Z_][a-zA-Z0-9_]*$/;
/** Valid label names; two leading underscores are reserved for Prometheus itself. */
const LABEL_NAME = /^(?!__)[a-zA-Z_][a-zA-Z0-9_]*$/;

const CONTENT_TYPES: Readonly<Record<MetricsFormat, string>> = {
  text: Registry.PROMETHEUS_CONTENT_TYPE,
  openmetrics: Registry.OPENMETRICS_CONTENT_TYPE,
};

/**
 * One node's metrics in a registry of its own, with every sample labelled with the node's id. It observes the event
 * loop from {@link observe} or the first request for its numbers until it is closed. Observing does not keep the
 * process alive.
 */
export class Metrics implements MetricsSink {
  readonly nodeId: string;
  readonly #registry = new Registry();
  readonly #process: ProcessMetrics;
  readonly #counters = new Map<string, CounterTotals>();
  readonly #provided = new Map<string, Provided>();
  readonly #readSeconds: LatencyHistogram;
  readonly #writeSeconds: LatencyHistogram;

  constructor(nodeId: string, options: MetricsOptions) {
    if (typeof nodeId !== 'string') throw new ArgumentError(`the id of a node must be text, got ${shown(nodeId)}`);
    this.nodeId = nodeId;
    this.#registry.setDefaultLabels({ node_id: nodeId });
    for (const [name, { series }] of Object.entries(COUNTERS)) for (const labels of series) this.count(name, 0, labels);
    const label = { name: 'source', values: READ_SOURCES };
    this.#readSeconds = this.#histogram('meshcache_read_seconds', { help: 'Time of one read call, by source', label });
    this.#writeSeconds = this.#histogram('meshcache_write_seconds', { help: 'Time of one write call' });
    this.setGaugeProvider('meshcache_build_info', () => 1, { version: options.version ?? 'unknown' });
    this.#process = new ProcessMetrics(this.#registry, options.clock, options.host);
  }

  /**
   * Records one page that was read (`hit`) or not, and the `seconds` that it took. If it throws `ArgumentError`,
   * nothing is counted.
   */
  recordRead(hit: boolean, nbytes: number, seconds: number, source: ReadSource): void {
    if (!READ_SOURCES.includes(source)) {
      throw new ArgumentError(`source must be ${READ_SOURCES.join(', ')}, got ${shown(source)}`);
    }
    if (typeof hit !== 'boolean') throw new ArgumentError(`hit must be true or false, got ${shown(hit)}`);
    checkAmount('nbytes', nbytes);
    checkAmount('seconds', seconds);
    this.recordReads(source, { hits: hit ? 1 : 0, misses: hit ? 0 : 1, bytes: hit ? nbytes : 0, seconds });
  }

  /**
   * Records the pages of one batch that one source delivered or failed to deliver. The time is that of the whole batch.
   */
  recordReads(source: ReadSource, batch: { hits: number; misses: number; bytes: number; seconds: number }): void {
    if (batch.hits > 0) this.count('meshcache_reads_total', batch.hits, { result: 'hit', source });
    if (batch.misses > 0) this.count('meshcache_reads_total', batch.misses, { result: 'miss', source });
    if (batch.bytes > 0) this.count('meshcache_read_bytes_total', batch.bytes, { source });
    this.#readSeconds.observe(batch.seconds, source);
  }

  /** Records one published page. If it throws `ArgumentError`, nothing is counted. */
  recordWrite(nbytes: number, seconds: number): void {
    checkAmount('nbytes', nbytes);
    checkAmount('seconds', seconds);
    this.recordWrites({ pages: 1, bytes: nbytes, seconds });
  }

  /** Records the pages that one batch published. The time is that of the whole batch. */
  recordWrites(batch: { pages: number; bytes: number; seconds: number }): void {
    this.count('meshcache_writes_total', batch.pages);
    this.count('meshcache_written_bytes_total', batch.bytes);
    this.#writeSeconds.observe(batch.seconds);
  }

  /** Records a lookup of `asked` pages that found the first `found` of them before its first miss. */
  recordLookup(asked: number, found: number): void {
    countLookup(this, asked, found);
  }

  /**
   * Adds to a counter. The first call creates it with the labels given. Throws `ArgumentError` for an invalid name of a
   * new counter.
   */
  count(name: string, amount = 1, labels: Labels = {}): void {
    (this.#counters.get(name) ?? this.#newCounter(name, Object.keys(labels))).add(amount, labels);
  }

  /**
   * Adds a gauge; `provider` is called at every scrape. The same name may be given again with other label values. Names
   * begin with `meshcache_`, which is added if missing. Throws `ArgumentError` for an invalid name, for a name with
   * other labels, and for the name of another metric.
   */
  setGaugeProvider(name: string, provider: () => number, labels: Labels = {}): void {
    this.#setProvider('gauge', fullName(name), { provider, labels });
  }

  /**
   * Adds a counter whose total `provider` returns at every scrape; otherwise like {@link setGaugeProvider}. While the
   * provider fails, the sample is missing. Names end in `_total`.
   */
  setCounterProvider(name: string, provider: () => number, labels: Labels = {}): void {
    this.#setProvider('counter', fullName(name), { provider, labels });
  }

  /** Begins to observe the event loop. Idempotent; has no effect after {@link close}. */
  observe(): void {
    this.#process.observe();
  }

  /** Renders all metrics in the format of Prometheus or OpenMetrics. Never rejects because of a provider. */
  async renderPrometheus(format: MetricsFormat = 'text'): Promise<string> {
    this.observe();
    const text = await this.#registry.metrics();
    return format === 'text' ? text : openMetricsOf(text);
  }

  /** Returns the content type of {@link renderPrometheus}. */
  contentType(format: MetricsFormat): string {
    return CONTENT_TYPES[format];
  }

  /** Returns the counts of this class as a record, with the same numbers as {@link renderPrometheus}. */
  report(): Promise<MetricsReport> {
    this.observe();
    return metricsReport(this.#registry, this.#process.eventLoopDelay());
  }

  /** Stops observing the process; everything else continues. Idempotent. */
  close(): void {
    this.#process.close();
  }

  #histogram(name: string, what: { readonly help: string; readonly label?: LatencyLabel }): LatencyHistogram {
    const histogram = new LatencyHistogram({ name, boundsS: LATENCY_BOUNDS_S, ...what });
    this.#registry.registerMetric(histogram as unknown as Metric);
    return histogram;
  }

  #newCounter(name: string, labelNames: string[]): CounterTotals {
    this.#checkName(name, labelNames);
    const totals = new CounterTotals(name, labelNames);
    this.#counters.set(name, totals);
    new Counter({
      name,
      help: helpOf(name),
      labelNames,
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const { labels, amount } of totals.all) this.inc(labels, amount);
      },
    });
    return totals;
  }

  #setProvider(type: Provided['type'], name: string, given: Provided['providers'][number]): void {
    if (typeof given.provider !== 'function') {
      throw new ArgumentError(`metric ${name}: its provider must be a function, got ${shown(given.provider)}`);
    }
    const provided = this.#provided.get(name) ?? this.#provide(type, name, Object.keys(given.labels));
    const { providers, labelNames } = provided;
    const isSameKind = provided.type === type && labelNames.join() === Object.keys(given.labels).join();
    if (!isSameKind) {
      throw new ArgumentError(`metric ${name}: is a ${provided.type} with the labels ${labelNames.join()} already`);
    }
    const values = JSON.stringify(given.labels);
    const same = providers.findIndex(({ labels }) => JSON.stringify(labels) === values);
    providers.splice(same < 0 ? providers.length : same, 1, given);
  }

  /** Refuses names that the registry refuses, and names that a reader of the text could confuse with others. */
  #checkName(name: string, labelNames: readonly string[]): void {
    if (!METRIC_NAME.test(name)) {
      throw new ArgumentError(`metric ${shown(name)}: allowed are letters, digits and underscores, no digit first`);
    }
    for (const label of labelNames) {
      if (LABEL_NAME.test(label)) continue;
      const allowed = 'letters, digits and underscores, no digit and no two underscores first';
      throw new ArgumentError(`metric ${name}: label ${shown(label)}: allowed are ${allowed}`);
    }
    const histogram = name.replace(/_(bucket|count|sum)$/, '');
    const isTaken = this.#registry.getSingleMetric(name) !== undefined;
    if (
      isTaken ||
      (histogram !== name && (this.#registry.getSingleMetric(histogram) as unknown) instanceof LatencyHistogram)
    ) {
      throw new ArgumentError(`metric ${name}: is one that every node has; choose another name`);
    }
  }

  #provide(type: Provided['type'], name: string, labelNames: string[]): Provided {
    if (this.#counters.has(name)) throw new ArgumentError(`metric ${name}: is counted as it happens`);
    this.#checkName(name, labelNames);
    const provided: Provided = { type, labelNames, providers: [] };
    const settings = { name, help: helpOf(name), labelNames, registers: [this.#registry] };
    if (type === 'gauge') {
      new Gauge({
        ...settings,
        collect() {
          this.reset();
          for (const { labels, provider } of provided.providers) this.set(labels, sampleOf(provider));
        },
      });
    } else {
      new Counter({
        ...settings,
        collect() {
          this.reset();
          for (const { labels, provider } of provided.providers) {
            const sample = sampleOf(provider);
            if (sample >= 0 && sample < Number.POSITIVE_INFINITY) this.inc(labels, sample);
          }
        },
      });
    }
    this.#provided.set(name, provided);
    return provided;
  }
}

function checkAmount(what: string, given: number): void {
  if (!Number.isFinite(given) || given < 0)
    throw new ArgumentError(`${what} must be a number from 0 on, got ${shown(given)}`);
}

function fullName(name: string): string {
  if (typeof name !== 'string') throw new ArgumentError(`the name of a metric must be a text, got ${shown(name)}`);
  return name.startsWith('meshcache_') ? name : `meshcache_${name}`;
}

/** Returns the value of a provider. If the provider fails, only its own sample is affected. */
function sampleOf(provider: () => number): number {
  try {
    const sample: unknown = provider();
    return typeof sample === 'number' ? sample : Number.NaN;
  } catch {
    return Number.NaN;
  }
}

/**
 * Converts text for Prometheus to OpenMetrics. The registry itself can render OpenMetrics only by renaming its counters
 * permanently, even for concurrent readers of the text format. The formats differ in the names of counter families, in
 * empty lines (which separate families here), and in the end.
 */
function openMetricsOf(text: string): string {
  const families = text
    .trimEnd()
    .split('\n\n')
    .map((family) => (/^# TYPE \S+ counter$/m.test(family) ? family.replace(/^(# \S+ \S+)_total /gm, '$1 ') : family));
  return `${families.join('\n')}\n# EOF\n`;
}

/** The totals of one counter, series by series. Adding costs one lookup per label; no text is built from the labels. */
class CounterTotals {
  readonly labelNames: readonly string[];
  readonly #name: string;
  readonly #root: Branch = { next: new Map(), total: undefined };
  readonly #totals: CounterTotal[] = [];

  constructor(name: string, labelNames: readonly string[]) {
    this.#name = name;
    this.labelNames = labelNames;
    if (labelNames.length === 0) this.#root.total = this.#begin({});
  }

  /** All totals, in the order of their first amounts. A counter without labels has one series from the start. */
  get all(): readonly CounterTotal[] {
    return this.#totals;
  }

  /**
   * Adds `amount`. `labels` must have a value for each of `labelNames`. Throws `ArgumentError` for other labels, and
   * for an amount that is not a number from 0 on.
   */
  add(amount: number, labels: Labels): void {
    if (!Number.isFinite(amount) || amount < 0) {
      throw new ArgumentError(`counter ${this.#name}: its amounts are numbers from 0 on, got ${shown(amount)}`);
    }
    this.#totalOf(labels).amount += amount;
  }

  #totalOf(labels: Labels): CounterTotal {
    let given = 0;
    for (const _ in labels) given++;
    let branch: Branch | undefined = this.#root;
    for (const name of this.labelNames) branch = branch?.next.get(labels[name] as string);
    const isKnown = branch?.total !== undefined && given === this.labelNames.length;
    return isKnown ? (branch?.total as CounterTotal) : this.#newTotal(labels);
  }

  #newTotal(labels: Labels): CounterTotal {
    const names = Object.keys(labels);
    if (names.length !== this.labelNames.length || !names.every((name) => this.labelNames.includes(name))) {
      throw new ArgumentError(`counter ${this.#name}: its labels are ${this.labelNames.join()}, got ${names.join()}`);
    }
    let branch = this.#root;
    for (const name of this.labelNames) {
      const value = labels[name] as string;
      let next = branch.next.get(value);
      if (next === undefined) {
        next = { next: new Map(), total: undefined };
        branch.next.set(value, next);
      }
      branch = next;
    }
    branch.total ??= this.#begin({ ...labels });
    return branch.total;
  }

  #begin(labels: Labels): CounterTotal {
    const total = { labels, amount: 0 };
    this.#totals.push(total);
    return total;
  }
}
