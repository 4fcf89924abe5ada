import { quantileOf } from '../../base/quantile.js';
import { onTimesOf, slidingQuantile } from '../data/columns.js';
import { type Counts, readBytesOf, shareOf } from '../data/counts.js';
import { type Point, totalOf } from '../data/points.js';
import { Chart } from './chart.js';
import { type ChartTime, chartData, LATENCY_WINDOW_S } from './charts-view.js';
import { make, setText } from './dom.js';
import { formatByteRate, formatLatency, formatPageRate, formatShare } from './format.js';

/** Most lines, so that they can be told apart. */
const LINES_MAX_COUNT = 8;
const DASHES = [undefined, [8, 4], [2, 3], [12, 3, 2, 3]] as const;

interface Figure {
  readonly name: string;
  readonly label: string;
  readonly scale: 'bytes' | 'amount' | 'share' | 'time';
  readonly format: (value: number) => string;
  readonly valuesOf: (points: readonly Point[]) => (number | null)[];
  /** Rank over the whole range; the nodes with the highest ranks are shown. */
  readonly rankOf: (points: readonly Point[]) => number;
}

function rateFigure(name: string, label: string, of: (counts: Counts) => number): Omit<Figure, 'scale' | 'format'> {
  return {
    name,
    label,
    valuesOf: (points) => points.map(({ counts, seconds }) => counts && shareOf(of(counts), seconds)),
    rankOf: (points) => of(totalOf(points).counts),
  };
}

const FIGURES: readonly Figure[] = [
  {
    name: 'p99',
    label: 'Read latency p99',
    scale: 'time',
    format: formatLatency,
    valuesOf: (points) => slidingQuantile(points, 0.99, LATENCY_WINDOW_S),
    rankOf: (points) => quantileOf(totalOf(points).counts.readLatency, 0.99) ?? 0,
  },
  { ...rateFigure('read', 'Read', readBytesOf), scale: 'bytes', format: formatByteRate },
  { ...rateFigure('written', 'Written', (counts) => counts.writtenBytes), scale: 'bytes', format: formatByteRate },
  {
    name: 'prefix',
    label: 'Prefix hit',
    scale: 'share',
    format: formatShare,
    valuesOf: (points) => points.map(({ counts }) => counts && shareOf(counts.found, counts.asked)),
    rankOf: (points) => totalOf(points).counts.asked,
  },
  { ...rateFigure('evicted', 'Evicted', (counts) => counts.evictions), scale: 'amount', format: formatPageRate },
  {
    name: 'loop',
    label: 'Event loop delay p99',
    scale: 'time',
    format: formatLatency,
    valuesOf: (points) => points.map(({ loopP99S }) => (loopP99S > 0 ? loopP99S : null)),
    rankOf: (points) => points.reduce((max, { loopP99S }) => Math.max(max, loopP99S), 0),
  },
];

/** A chart of one figure with a line for each of several members. */
export class CompareView {
  readonly element: HTMLElement;
  readonly #select = make('select', { attributes: { id: 'compare' } });
  readonly #note = make('span', { class: 'note' });
  readonly #head: HTMLElement;
  readonly #charts = new Map<string, Chart>();
  #show: () => void = () => {};

  constructor() {
    for (const { name, label } of FIGURES)
      this.#select.append(make('option', { text: label, attributes: { value: name } }));
    this.#select.addEventListener('change', () => this.#show());
    const label = make('label', { text: 'Compare nodes by', attributes: { for: 'compare' } });
    this.#head = make('div', { class: 'compare-head' }, label, this.#select, this.#note);
    this.element = make('div', { class: 'compare' });
  }

  /** Draws the chosen figure of these nodes at the times of the points of `cluster`. */
  update(
    nodes: readonly { readonly nodeId: string; readonly points: readonly Point[] }[],
    cluster: readonly Point[],
    time: ChartTime,
  ): void {
    this.#show = () => {
      const figure = FIGURES.find(({ name }) => name === this.#select.value) ?? (FIGURES[0] as Figure);
      const ranked = nodes
        .filter(({ points }) => points.length > 0)
        .map((node) => ({ node, rank: figure.rankOf(node.points) }));
      const shown =
        ranked.length <= LINES_MAX_COUNT
          ? ranked
          : [...ranked].sort((a, b) => b.rank - a.rank).slice(0, LINES_MAX_COUNT);
      setText(this.#note, shown.length < ranked.length ? `the ${shown.length} highest of ${ranked.length} nodes` : '');
      const lines = shown.map(({ node: { points } }) => ({ points, values: figure.valuesOf(points) }));
      const { timesS, columns } = onTimesOf(cluster, lines);
      const unused = Array.from({ length: LINES_MAX_COUNT - columns.length }, () => timesS.map(() => null));
      const labels = shown.map(({ node: { nodeId } }) => nodeId);
      const chart = this.#chartOf(figure);
      if (this.element.firstChild !== chart.element) {
        const hadFocus = document.activeElement === this.#select;
        chart.element.prepend(this.#head);
        this.element.replaceChildren(chart.element);
        if (hadFocus) this.#select.focus();
      }
      chart.update({ ...chartData({ timesS, columns: [...columns, ...unused] }, time), labels });
    };
    this.#show();
  }

  redraw(): void {
    for (const chart of this.#charts.values()) chart.redraw();
  }

  #chartOf({ name, label, scale, format }: Figure): Chart {
    const known = this.#charts.get(name);
    if (known !== undefined) return known;
    const series = Array.from({ length: LINES_MAX_COUNT }, (_, i) => {
      const dash = DASHES[i % DASHES.length];
      return { label: '', color: `--line-${i + 1}`, ...(dash === undefined ? {} : { dash }) };
    });
    const chart = new Chart({ title: `${label}, by node`, note: '', scale, format, series });
    this.#charts.set(name, chart);
    return chart;
  }
}
