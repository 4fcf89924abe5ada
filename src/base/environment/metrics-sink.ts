/** Values of a metric's labels by name. */
export type Labels = Readonly<Record<string, string>>;

/**
 * Metrics as the layers below the metrics module see them. Counter names are Prometheus names
 * (`meshcache_..._total`); label values come from small fixed sets, and one name always has the same labels.
 */
export interface MetricsSink {
  /** Adds to a counter, which starts at 0. */
  count(name: string, amount?: number, labels?: Labels): void;
  /**
   * Registers a gauge, whose value `provider` gives at every scrape. A provider for the same labels replaces the former
   * one.
   */
  setGaugeProvider(name: string, provider: () => number, labels?: Labels): void;
  /** Registers a counter whose total since the start `provider` gives at every scrape. */
  setCounterProvider(name: string, provider: () => number, labels?: Labels): void;
}

export const noMetrics: MetricsSink = { count() {}, setGaugeProvider() {}, setCounterProvider() {} };
