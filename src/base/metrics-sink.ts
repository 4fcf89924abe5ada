export type Labels = Readonly<Record<string, string>>;

/**
 * What the layers below the metrics module see of it. Counter names are Prometheus names
 * (`meshcache_..._total`); label values come from small fixed sets.
 */
export interface MetricsSink {
  count(name: string, amount?: number, labels?: Labels): void;
  setGaugeProvider(name: string, provider: () => number, labels?: Labels): void;
}

export const noMetrics: MetricsSink = { count() {}, setGaugeProvider() {} };
