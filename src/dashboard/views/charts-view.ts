import { columnsOf, type Range, slidingQuantile } from '../data/columns.js';
import { shareOf } from '../data/counts.js';
import { fillShare, type Point } from '../data/points.js';
import { Chart, type ChartData, type Mark } from './chart.js';
import { formatByteRate, formatLatency, formatShare } from './format.js';

/** Seconds before a point over which its latency is computed. A meaningful latency needs several calls. */
export const LATENCY_WINDOW_S = 10;

const DASHED = [8, 4];
const DOTTED = [2, 3];

/** The time axis and marks that all charts share. */
export interface ChartTime {
  readonly range: Range;
  /** Clock of the answering node. */
  readonly nowMs: number;
  readonly marks: readonly Mark[];
}

/** The charts of the selected nodes. */
export class ChartsView {
  readonly #prefix = new Chart({
    title: 'Prefix hit',
    note: 'of the pages looked up, from the first on without a gap',
    scale: 'share',
    format: formatShare,
    series: [{ label: 'found', color: '--found' }],
  });
  readonly #saved = new Chart({
    title: 'Prefill saved',
    note: 'bytes of pages read a second, by where they were',
    scale: 'bytes',
    format: formatByteRate,
    isStacked: true,
    series: [
      { label: 'own pool', color: '--local' },
      { label: 'other nodes', color: '--remote', dash: DASHED },
      { label: 'own disk', color: '--disk', dash: DOTTED },
    ],
  });
  readonly #latency = new Chart({
    title: 'Read latency',
    note: `of one read call, all sources, over ${LATENCY_WINDOW_S} s or one step of the range`,
    scale: 'time',
    format: formatLatency,
    series: [
      { label: 'p50', color: '--read' },
      { label: 'p99', color: '--write', dash: DASHED },
    ],
  });
  readonly #written = new Chart({
    title: 'Written',
    note: 'bytes of pages set a second',
    scale: 'bytes',
    format: formatByteRate,
    series: [{ label: 'written', color: '--write', dash: DASHED }],
  });
  readonly #fill = new Chart({
    title: 'Pool and disk fill',
    note: 'of their capacity',
    scale: 'share',
    format: formatShare,
    series: [
      { label: 'pool', color: '--local' },
      { label: 'disk', color: '--disk', dash: DASHED },
    ],
  });

  constructor(section: HTMLElement) {
    for (const chart of this.#all()) section.append(chart.element);
  }

  update(points: readonly Point[], time: ChartTime): void {
    const draw = (chart: Chart, valuesOf: readonly ((point: Point, index: number) => number | null)[]): void =>
      chart.update(chartData(columnsOf(points, time.range.stepS, valuesOf), time));
    const rate =
      (of: 'localBytes' | 'remoteBytes' | 'diskBytes' | 'writtenBytes') =>
      ({ counts, seconds, isPartial }: Point): number | null =>
        isPartial ? null : counts && shareOf(counts[of], seconds);
    draw(this.#prefix, [({ counts }) => counts && shareOf(counts.found, counts.asked)]);
    draw(this.#saved, [rate('localBytes'), rate('remoteBytes'), rate('diskBytes')]);
    const [p50, p99] = [0.5, 0.99].map((quantile) => slidingQuantile(points, quantile, LATENCY_WINDOW_S));
    draw(this.#latency, [(_, i) => p50?.[i] ?? null, (_, i) => p99?.[i] ?? null]);
    draw(this.#written, [rate('writtenBytes')]);
    draw(this.#fill, [({ pool }) => fillShare(pool), ({ disk }) => fillShare(disk)]);
  }

  redraw(): void {
    for (const chart of this.#all()) chart.redraw();
  }

  #all(): Chart[] {
    return [this.#prefix, this.#saved, this.#latency, this.#written, this.#fill];
  }
}

/** Adds the time that the chart covers to its columns. */
export function chartData(
  columns: Pick<ChartData, 'timesS' | 'columns'>,
  { range, nowMs, marks }: ChartTime,
): ChartData {
  return { ...columns, nowS: nowMs / 1000, spanS: range.minutes * 60, words: range.words, marks };
}
