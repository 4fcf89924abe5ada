/** When faults happened: while one lasts, and for a while after it, less is promised. */
export class FaultTimes {
  readonly #spans: { readonly fromMs: number; toMs: number }[] = [];

  /** A fault begins; the result ends it. */
  begin(atMs: number): (atMs: number) => void {
    const span = { fromMs: atMs, toMs: Number.POSITIVE_INFINITY };
    this.#spans.push(span);
    return (endMs) => {
      span.toMs = endMs;
    };
  }

  /** When the last fault that had begun by then ended: 0 when there was none, Infinity while one lasts. */
  calmSinceMs(atMs: number): number {
    let since = 0;
    for (const { fromMs, toMs } of this.#spans) if (fromMs <= atMs && toMs > since) since = toMs;
    return since;
  }
}
