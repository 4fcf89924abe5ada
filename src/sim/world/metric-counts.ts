import type { Labels, MetricsSink } from '../../base/environment/metrics-sink.js';

/** Keeps the counts of one process for later reading. */
export class CountedMetrics implements MetricsSink {
  readonly #counts = new Map<string, number>();
  readonly #providers = new Map<string, () => number>();

  count(name: string, amount = 1, labels?: Labels): void {
    const key = labels === undefined ? name : keyOf(name, labels);
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + amount);
  }

  setGaugeProvider(name: string, provider: () => number, labels?: Labels): void {
    this.#providers.set(keyOf(name, labels), provider);
  }

  setCounterProvider(name: string, provider: () => number, labels?: Labels): void {
    this.#providers.set(keyOf(name, labels), provider);
  }

  /** The count or gauge with these labels; without labels, the sum over all with that name. */
  value(name: string, labels?: Labels): number {
    if (labels !== undefined) return this.#value(keyOf(name, labels));
    let sum = 0;
    const keys = new Set([...this.#counts.keys(), ...this.#providers.keys()]);
    for (const key of keys) if (key === name || key.startsWith(`${name}{`)) sum += this.#value(key);
    return sum;
  }

  #value(key: string): number {
    return (this.#counts.get(key) ?? 0) + (this.#providers.get(key)?.() ?? 0);
  }
}

/** A key as Prometheus writes it. Labels keep their order, which is the same everywhere in the code. */
function keyOf(name: string, labels: Labels = {}): string {
  let pairs = '';
  for (const label in labels) pairs += `${pairs === '' ? '' : ','}${label}="${labels[label]}"`;
  return pairs === '' ? name : `${name}{${pairs}}`;
}
