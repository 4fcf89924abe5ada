import type { Registry } from 'prom-client';
import { ArgumentError } from '../base/errors.js';
import { shown } from '../base/shown.js';
import type { ByDistance, LatencyReport, MetricsReport } from './node-report.js';

/** Upper bounds of the buckets in seconds, from one small page in the own pool to a large batch over a slow network. */
export const LATENCY_BOUNDS_S: readonly number[] = [
  1e-6, 2.5e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25,
  0.5, 1, 2.5, 5, 10,
];

interface Sample {
  readonly value: number;
  readonly labels: Readonly<Partial<Record<string, string | number>>>;
  /** Name of the samples of a histogram. */
  readonly metricName?: string;
}

type ReadPlace = keyof MetricsReport['read_bytes'];
type Wanted = Readonly<Record<string, string>>;

/** Builds a node's report from its registry; missing samples count as 0. */
export async function metricsReport(
  registry: Registry,
  delay: MetricsReport['event_loop_delay'],
): Promise<MetricsReport> {
  const samplesOf = async (name: string): Promise<readonly Sample[]> => {
    const metric = registry.getSingleMetric(name);
    return metric === undefined ? [] : (await metric.get()).values;
  };
  const [reads, readBytes, writes, writtenBytes, lookups, checksumFailures, staleReads, skippedWrites] =
    await Promise.all([
      samplesOf('meshcache_reads_total'),
      samplesOf('meshcache_read_bytes_total'),
      samplesOf('meshcache_writes_total'),
      samplesOf('meshcache_written_bytes_total'),
      samplesOf('meshcache_lookup_pages_total'),
      samplesOf('meshcache_checksum_failures_total'),
      samplesOf('meshcache_stale_reads_total'),
      samplesOf('meshcache_skipped_writes_total'),
    ]);
  const [farPages, farBytes, farKeys] = await Promise.all([
    samplesOf('meshcache_remote_read_pages_total'),
    samplesOf('meshcache_remote_read_bytes_total'),
    samplesOf('meshcache_directory_asked_keys_total'),
  ]);
  const [readSeconds, writeSeconds] = await Promise.all([
    samplesOf('meshcache_read_seconds'),
    samplesOf('meshcache_write_seconds'),
  ]);
  return {
    reads: {
      ...bySource((source) => sum(reads, { result: 'hit', source })),
      misses: sum(reads, { result: 'miss' }),
    },
    read_bytes: bySource((source) => sum(readBytes, { source })),
    writes: { pages: sum(writes), bytes: sum(writtenBytes) },
    lookups: { asked: sum(lookups), found: sum(lookups, { result: 'found' }) },
    latency: {
      bounds_s: LATENCY_BOUNDS_S,
      read: bySource((source) => latency(readSeconds, { source })),
      write: latency(writeSeconds),
    },
    checksum_failures: sum(checksumFailures),
    stale_reads: sum(staleReads),
    skipped_writes: sum(skippedWrites),
    ...(sum(farPages) + sum(farKeys) === 0
      ? {}
      : {
          by_distance: {
            read_pages: byDistance(farPages),
            read_bytes: byDistance(farBytes),
            directory_keys: byDistance(farKeys),
          },
        }),
    event_loop_delay: delay,
  };
}

function bySource<T>(of: (source: string) => T): Readonly<Record<ReadPlace, T>> {
  return { local: of('local'), remote: of('remote'), disk: of('disk'), object: of('object') };
}

function byDistance(samples: readonly Sample[]): ByDistance {
  const of = (distance: string): number => sum(samples, { distance });
  return { host: of('host'), zone: of('zone'), other: of('other') };
}

function has({ labels }: Sample, wanted: Wanted): boolean {
  return Object.entries(wanted).every(([name, value]) => labels[name] === value);
}

function sum(samples: readonly Sample[], wanted: Wanted = {}): number {
  return samples.reduce((total, sample) => total + (has(sample, wanted) ? sample.value : 0), 0);
}

/**
 * Builds a latency report. Buckets of a histogram are cumulative; in the report each bucket holds only its own calls.
 */
function latency(samples: readonly Sample[], wanted: Wanted = {}): LatencyReport {
  const own = samples.filter((sample) => has(sample, wanted));
  const partOf = (suffix: string): Sample[] => own.filter(({ metricName }) => metricName?.endsWith(suffix));
  let before = 0;
  const buckets = [...LATENCY_BOUNDS_S, '+Inf'].map((bound) => {
    const upTo = partOf('_bucket').find(({ labels }) => labels.le === bound)?.value ?? before;
    const count = upTo - before;
    before = upTo;
    return count;
  });
  return { count: sum(partOf('_count')), sum_s: sum(partOf('_sum')), buckets };
}

interface HistogramSample {
  readonly metricName: string;
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  /** Labels of the series, which the registry writes after the sample's own. */
  readonly sharedLabels: Readonly<Record<string, string>>;
}

interface Observations {
  readonly labels: Readonly<Record<string, string>>;
  /** One bucket per bound, and one for values above all bounds. */
  readonly buckets: Float64Array;
  sum: number;
}

/** A label of a histogram, and all its values. */
export interface LatencyLabel {
  readonly name: string;
  readonly values: readonly string[];
}

/** Settings of a {@link LatencyHistogram}. */
interface LatencyHistogramOptions {
  readonly name: string;
  readonly help: string;
  /** Upper bounds of the buckets in seconds, ascending. */
  readonly boundsS: readonly number[];
  /** Undefined: one series without a label, observed with the value `''`. */
  readonly label?: LatencyLabel;
}

/**
 * A histogram of seconds with at most one label, whose values are known from the start. A prom-client registry accepts
 * it as one of its own histograms. Those build texts of labels and bounds at each observation, which costs more than a
 * small read.
 */
export class LatencyHistogram {
  readonly name: string;
  readonly help: string;
  readonly type = 'histogram';
  readonly aggregator = 'sum';
  readonly #bounds: Float64Array;
  readonly #series = new Map<string, Observations>();

  constructor({ name, help, boundsS, label }: LatencyHistogramOptions) {
    this.name = name;
    this.help = help;
    this.#bounds = Float64Array.from(boundsS);
    const begin = (value: string, labels: Record<string, string>): void => {
      this.#series.set(value, { labels, buckets: new Float64Array(boundsS.length + 1), sum: 0 });
    };
    if (label === undefined) begin('', {});
    else for (const value of label.values) begin(value, { [label.name]: value });
  }

  /**
   * Records a time. `value` is the value of the label. Throws `ArgumentError` for an unknown value, and for a time that
   * is not a finite number.
   */
  observe(seconds: number, value = ''): void {
    const series = this.#series.get(value);
    if (series === undefined) throw new ArgumentError(`histogram ${this.name}: no series ${shown(value)}`);
    if (!Number.isFinite(seconds)) {
      throw new ArgumentError(`histogram ${this.name}: a time must be a finite number, got ${shown(seconds)}`);
    }
    let bucket = 0;
    while (bucket < this.#bounds.length && seconds > (this.#bounds[bucket] as number)) bucket++;
    series.buckets[bucket] = (series.buckets[bucket] as number) + 1;
    series.sum += seconds;
  }

  /** Called by the registry when it renders text. */
  async getForPromString(): Promise<object> {
    return { ...this.#described(), values: this.#samples() };
  }

  /** Returns the samples, with all labels of each in one object, for readers of single metrics. */
  async get(): Promise<{ readonly values: readonly Omit<HistogramSample, 'sharedLabels'>[] }> {
    const values = this.#samples().map(({ sharedLabels, labels, ...sample }) => ({
      ...sample,
      labels: { ...labels, ...sharedLabels },
    }));
    return { ...this.#described(), values };
  }

  /** Called by a registry that resets all its numbers. */
  reset(): void {
    for (const series of this.#series.values()) {
      series.buckets.fill(0);
      series.sum = 0;
    }
  }

  #described() {
    return { name: this.name, help: this.help, type: this.type, aggregator: this.aggregator };
  }

  /** Returns cumulative samples: each bucket includes the buckets before it. */
  #samples(): HistogramSample[] {
    return [...this.#series.values()].flatMap(({ labels: sharedLabels, buckets, sum }) => {
      let count = 0;
      const sample = (suffix: string, value: number, labels = {}): HistogramSample => ({
        metricName: `${this.name}_${suffix}`,
        value,
        labels,
        sharedLabels,
      });
      const upTo = Array.from(buckets, (own, i) => {
        count += own;
        return sample('bucket', count, { le: this.#bounds[i] ?? '+Inf' });
      });
      return [...upTo, sample('sum', sum), sample('count', count)];
    });
  }
}
