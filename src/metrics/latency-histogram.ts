import { ArgumentError } from '../base/errors.js';
import { shown } from '../base/shown.js';

interface HistogramSample {
  readonly metricName: string;
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  /** Labels of the series, which the registry writes behind the sample's own. */
  readonly sharedLabels: Readonly<Record<string, string>>;
}

interface Observations {
  readonly labels: Readonly<Record<string, string>>;
  /** One a bound, and one for what is above all of them. */
  readonly buckets: Float64Array;
  sum: number;
}

/** A label of a histogram, and all its values. */
export interface LatencyLabel {
  readonly name: string;
  readonly values: readonly string[];
}

/** What {@link LatencyHistogram} takes. */
export interface LatencyHistogramOptions {
  readonly name: string;
  readonly help: string;
  /** Ascending. */
  readonly boundsS: readonly number[];
  /** Undefined: one series, without a label; the value of `observe` is `''`. */
  readonly label?: LatencyLabel;
}

/**
 * A histogram of seconds with at most one label, whose values are known from the start. A registry of prom-client takes
 * it for one of its own; those make texts of labels and bounds at each observation, which costs more than a small read.
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

  /** `value`: of the label. Throws `ArgumentError` for one that was not named, and for what is no finite number. */
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

  /** Asked by the registry for its text. */
  async getForPromString(): Promise<object> {
    return { ...this.#described(), values: this.#samples() };
  }

  /** The samples with all labels of each in one object, as whoever reads single metrics wants them. */
  async get(): Promise<{ readonly values: readonly Omit<HistogramSample, 'sharedLabels'>[] }> {
    const values = this.#samples().map(({ sharedLabels, labels, ...sample }) => ({
      ...sample,
      labels: { ...labels, ...sharedLabels },
    }));
    return { ...this.#described(), values };
  }

  /** Asked by a registry that forgets all its numbers. */
  reset(): void {
    for (const series of this.#series.values()) {
      series.buckets.fill(0);
      series.sum = 0;
    }
  }

  #described() {
    return { name: this.name, help: this.help, type: this.type, aggregator: this.aggregator };
  }

  /** A bucket's sample counts what the buckets before it count, too. */
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
