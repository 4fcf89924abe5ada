/** Times of faults. While a fault lasts, and for a while after it, less is promised. */
export class FaultTimes {
  readonly #spans: { readonly fromMs: number; toMs: number }[] = [];
  readonly #deaths: { readonly node: number; readonly atMs: number }[] = [];

  /** Notes that a process of the node has ended, and lost its memory. */
  died(node: number, atMs: number): void {
    this.#deaths.push({ node, atMs });
  }

  /** The number of nodes of which a process ended in that time. */
  deathsCount(fromMs: number, toMs: number): number {
    const nodes = new Set<number>();
    for (const { node, atMs } of this.#deaths) if (atMs >= fromMs && atMs <= toMs) nodes.add(node);
    return nodes.size;
  }

  /** Begins a fault; the result ends it. */
  begin(atMs: number): (atMs: number) => void {
    const span = { fromMs: atMs, toMs: Number.POSITIVE_INFINITY };
    this.#spans.push(span);
    return (endMs) => {
      span.toMs = endMs;
    };
  }

  /** When the last fault that had begun by then ended: 0 if there was none, Infinity while one lasts. */
  calmSinceMs(atMs: number): number {
    let since = 0;
    for (const { fromMs, toMs } of this.#spans) if (fromMs <= atMs && toMs > since) since = toMs;
    return since;
  }
}
