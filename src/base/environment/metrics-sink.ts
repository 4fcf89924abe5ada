/** Values of a metric's labels by name. */
export type Labels = Readonly<Record<string, string>>;

/**
 * What the layers below the metrics module see of it. Counter names are Prometheus names
 * (`meshcache_..._total`); label values come from small fixed sets, and one name always has the same labels.
 */
export interface MetricsSink {
  /** Adds to a counter, which starts at 0. */
  count(name: string, amount?: number, labels?: Labels): void;
  /** `provider` is asked at every scrape; given again for the same labels, it takes the place of the former one. */
  setGaugeProvider(name: string, provider: () => number, labels?: Labels): void;
  /** The same for what only grows: `provider` tells how much there has been since the start. */
  setCounterProvider(name: string, provider: () => number, labels?: Labels): void;
}

export const noMetrics: MetricsSink = { count() {}, setGaugeProvider() {}, setCounterProvider() {} };
