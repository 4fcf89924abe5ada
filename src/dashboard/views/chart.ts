import uPlot from 'uplot';
import { make, setAttribute, setHidden, setText } from './dom.js';
import { formatClock, formatMinute, UNKNOWN } from './format.js';

const HEIGHT_PX = 180;
const X_AXIS_PX = 28;
/** Space next to the labels of the vertical axis, and minimum width of the axis. */
const Y_AXIS_GAP_PX = 14;
const Y_AXIS_MIN_PX = 40;
/** Half a label of the horizontal axis, which protrudes at the right end. */
const RIGHT_PX = 28;
/** Longest span whose times are shown with seconds. */
const MINUTES_FROM_S = 900;
/** Shortest time span of a chart, so that the first points do not jump around. */
const SPAN_MIN_S = 60;
/** Possible steps between the labels of the horizontal axis. */
const TIME_STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800] as const;
/** Most rows of the table behind a chart. */
const TABLE_ROWS_MAX_COUNT = 21;
/** Smallest upper end of an axis of bytes; below it, all labels would look the same. */
const BYTES_MIN = 1_024;
/** Possible steps between the labels of an axis of bytes: powers of two, like its units. */
const BYTE_STEPS = Array.from({ length: 50 }, (_, i) => 2 ** i);
const FONT = '11px system-ui, sans-serif';

interface SeriesSpec {
  readonly label: string;
  /** Custom property with the colour, such as `--read`. */
  readonly color: string;
  /** Dash pattern, so that lines can be told apart without colours. */
  readonly dash?: readonly number[];
}

interface ChartSpec {
  readonly title: string;
  /** Explains the values and the time over which they are computed. */
  readonly note: string;
  readonly series: readonly SeriesSpec[];
  readonly format: (value: number) => string;
  /** Whether the series are parts of a sum; they are then stacked, with the first at the bottom. */
  readonly isStacked?: boolean;
  readonly scale: 'bytes' | 'amount' | 'share' | 'time';
}

/** A time at which a node was lost, left or was restarted, which the lines cannot show. */
export interface Mark {
  readonly timeS: number;
  readonly isLoss: boolean;
}

export interface ChartData {
  /** Right end of the chart in seconds. */
  readonly nowS: number;
  /** Length of the covered time span in seconds; `words` says the same: `last 5 min`. */
  readonly spanS: number;
  readonly words: string;
  readonly marks: readonly Mark[];
  /** Names that replace those of the series; series without a name are hidden in the legend. */
  readonly labels?: readonly string[];
  /** Wall-clock seconds, ascending. */
  readonly timesS: readonly number[];
  /** One column per series with one value per time; null where nothing is known. */
  readonly columns: readonly (readonly (number | null)[])[];
}

/** A chart over the chosen time span with a legend, a description in words, and a table of its values. */
export class Chart {
  readonly element: HTMLElement;
  readonly #spec: ChartSpec;
  readonly #plot: uPlot;
  readonly #image: HTMLElement;
  readonly #values: readonly HTMLElement[];
  readonly #labels: readonly HTMLElement[];
  readonly #legendItems: readonly HTMLElement[];
  readonly #headers: readonly HTMLElement[];
  readonly #details: HTMLDetailsElement;
  readonly #rows: HTMLElement;
  #data: ChartData = { nowS: 0, spanS: SPAN_MIN_S, words: '', marks: [], timesS: [], columns: [] };
  #hovered: number | null = null;

  constructor(spec: ChartSpec) {
    this.#spec = spec;
    this.#image = make('div', { class: 'plot', attributes: { role: 'img' } });
    this.#values = spec.series.map(() => make('span', { class: 'legend-value', text: UNKNOWN }));
    const legend = make('ul', { class: 'legend' });
    this.#labels = spec.series.map(labelOf);
    this.#headers = spec.series.map(({ label }) => make('th', { text: label, attributes: { scope: 'col' } }));
    this.#legendItems = spec.series.map((series, i) =>
      make('li', {}, lineSample(series, spec.isStacked === true), this.#labels[i] as HTMLElement, this.#valueOf(i)),
    );
    legend.append(...this.#legendItems);
    this.#rows = make('tbody');
    this.#details = make(
      'details',
      { class: 'data' },
      make('summary', { text: 'Values as a table' }),
      this.#table(this.#rows),
    );
    this.#details.addEventListener('toggle', () => this.#fillTable());
    this.element = make(
      'figure',
      { class: 'card chart' },
      make('figcaption', {}, make('h3', { text: spec.title }), make('p', { class: 'note', text: spec.note })),
      legend,
      this.#image,
      this.#details,
    );
    this.#plot = new uPlot(this.#options(), [[], ...spec.series.map(() => [])], this.#image);
    new ResizeObserver(() => this.#resize()).observe(this.#image);
  }

  update(data: ChartData): void {
    this.#data = data;
    this.#showLabels();
    this.#plot.setData([[...data.timesS], ...this.#drawn(data.columns)]);
    this.#showValues();
    setAttribute(this.#image, 'aria-label', this.#describe());
    this.#fillTable();
  }

  #showLabels(): void {
    const { labels } = this.#data;
    if (labels === undefined) return;
    for (const [i, label] of this.#labels.entries()) {
      setText(label, labels[i] ?? '');
      setText(this.#headers[i] as HTMLElement, labels[i] ?? '');
      setHidden(this.#legendItems[i] as HTMLElement, labels[i] === undefined);
    }
  }

  /** Redraws the chart after the colours have changed. */
  redraw(): void {
    this.#plot.redraw(false);
  }

  #valueOf(index: number): HTMLElement {
    return this.#values[index] as HTMLElement;
  }

  #resize(): void {
    const width = this.#image.clientWidth;
    if (width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: HEIGHT_PX });
  }

  /**
   * The values to draw. Stacked series are summed up and drawn from the top down, so that lower ones cover part of
   * higher ones.
   */
  #drawn(columns: ChartData['columns']): (number | null)[][] {
    if (this.#spec.isStacked !== true) return columns.map((column) => [...column]);
    const sums: (number | null)[][] = [];
    for (const column of columns) {
      const below = sums.at(-1);
      sums.push(column.map((value, i) => (value === null ? null : value + (below?.[i] ?? 0))));
    }
    return sums.reverse();
  }

  #options(): uPlot.Options {
    const { isStacked, series } = this.#spec;
    const inOrder = isStacked === true ? [...series].reverse() : series;
    const filter = (_: uPlot, splits: number[]): (number | null)[] =>
      splits.map((value) => (this.#isNamed(value) ? value : null));
    const grid = { stroke: () => color('--grid'), width: 1 };
    const yGrid = { ...grid, filter };
    const axis = { stroke: () => color('--muted'), font: FONT, grid, ticks: { ...grid, size: 4 } };
    return {
      width: 400,
      height: HEIGHT_PX,
      padding: [8, RIGHT_PX, 0, 0],
      legend: { show: false },
      drawOrder: isStacked === true ? (['series', 'axes'] as uPlot.DrawOrderKey[]) : undefined,
      cursor: { sync: { key: 'meshcache' }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { x: { range: (_, min) => this.#timeRange(min) }, y: this.#scale() },
      axes: [
        {
          ...axis,
          size: X_AXIS_PX,
          space: 64,
          incrs: [...TIME_STEPS_S],
          values: (_, splits) => splits.map((s) => this.#time(s)),
        },
        {
          ...axis,
          grid: yGrid,
          ticks: { ...yGrid, size: 4 },
          size: (plot, values) => widthOf(plot, values),
          space: 32,
          ...(this.#spec.scale === 'bytes' ? { incrs: BYTE_STEPS } : {}),
          values: (_, splits) => splits.map((value) => this.#tick(value)),
        },
      ],
      series: [{}, ...inOrder.map((one): uPlot.Series => seriesOptions(one, isStacked === true))],
      hooks: {
        draw: [(plot) => drawMarks(plot, this.#data.marks)],
        setCursor: [
          ({ cursor }) => {
            this.#hovered = cursor.idx ?? null;
            this.#showValues();
          },
        ],
      },
    };
  }

  #timeRange(firstS: number | null): [number, number] {
    const { nowS, spanS } = this.#data;
    const startS = Math.max(firstS ?? nowS, nowS - spanS);
    return [Math.min(startS, nowS - SPAN_MIN_S), nowS];
  }

  #time(timeS: number): string {
    return this.#data.spanS > MINUTES_FROM_S ? formatMinute(timeS * 1000) : formatClock(timeS * 1000);
  }

  #scale(): uPlot.Scale {
    switch (this.#spec.scale) {
      case 'share':
        return { range: [0, 1] };
      case 'bytes':
        return { range: (_, _min, max) => [0, Math.max((max ?? 0) * 1.1, BYTES_MIN)] };
      case 'amount':
        return { range: (_, _min, max) => [0, Math.max((max ?? 0) * 1.1, 1)] };
      case 'time':
        return { distr: 3, log: 10, range: (_, min, max) => decades(min, max) };
    }
  }

  /** Whether a value gets a grid line and a label. On a logarithmic scale, only powers of ten do. */
  #isNamed(value: number): boolean {
    return this.#spec.scale !== 'time' || Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6;
  }

  /** The label of a tick, without trailing decimal zeros. */
  #tick(value: number | null): string {
    if (value === null || !this.#isNamed(value)) return '';
    return value === 0 ? '0' : this.#spec.format(value).replace(/\.0+(?= )|(?<=\.\d)0(?= )/, '');
  }

  /** Shows the values under the pointer, or the newest ones, in the legend. */
  #showValues(): void {
    const { timesS, columns } = this.#data;
    const index = this.#hovered ?? timesS.length - 1;
    for (const [i, column] of columns.entries()) setText(this.#valueOf(i), this.#format(column[index]));
  }

  #describe(): string {
    const { labels, words, columns } = this.#data;
    const names = labels ?? this.#spec.series.map(({ label }) => label);
    const now = names.map((name, i) => `${name} ${this.#format(columns[i]?.at(-1))}`);
    return `Line chart, ${this.#spec.title.toLowerCase()}, ${words}. Now: ${now.join(', ')}.`;
  }

  #format(value: number | null | undefined): string {
    return value === null || value === undefined ? UNKNOWN : this.#spec.format(value);
  }

  #table(rows: HTMLElement): HTMLElement {
    const head = make('tr', {}, make('th', { text: 'Time', attributes: { scope: 'col' } }));
    head.append(...this.#headers);
    const caption = make('caption', { class: 'visually-hidden', text: `${this.#spec.title}, newest first` });
    const table = make('table', { class: 'figures' }, caption, make('thead', {}, head), rows);
    const label = `${this.#spec.title}, table`;
    return make('div', { class: 'scroll', attributes: { role: 'region', tabindex: '0', 'aria-label': label } }, table);
  }

  #fillTable(): void {
    if (!this.#details.open) return;
    const { timesS, columns, spanS } = this.#data;
    const stepS = spanS / (TABLE_ROWS_MAX_COUNT - 1);
    const rows: HTMLElement[] = [];
    let nextS = Number.POSITIVE_INFINITY;
    for (let i = timesS.length - 1; i >= 0; i--) {
      const timeS = timesS[i] as number;
      if (timeS > nextS) continue;
      nextS = timeS - stepS;
      const cells = columns.map((column) => make('td', { text: this.#format(column[i]) }));
      rows.push(
        make('tr', {}, make('th', { text: formatClock(timeS * 1000), attributes: { scope: 'row' } }), ...cells),
      );
    }
    this.#rows.replaceChildren(...rows);
  }
}

function seriesOptions({ color: name, dash }: SeriesSpec, isFilled: boolean): uPlot.Series {
  return {
    stroke: () => color(name),
    width: 1.75,
    points: { show: false },
    ...(dash === undefined ? {} : { dash: [...dash] }),
    ...(isFilled ? { fill: () => color(`${name}-fill`) } : {}),
  };
}

function labelOf({ label }: SeriesSpec): HTMLElement {
  return make('span', { class: 'legend-label', text: label });
}

/** A sample of the line for the legend. */
function lineSample({ color: name, dash }: SeriesSpec, isFilled: boolean): HTMLElement {
  const pattern = dash === undefined ? 'solid' : (dash[0] as number) < 4 ? 'dotted' : 'dashed';
  return make('span', {
    class: `sample ${pattern} ${name.slice(2)}${isFilled ? ' filled' : ''}`,
    attributes: { 'aria-hidden': 'true' },
  });
}

/** Width of the vertical axis, with room for its longest label. */
function widthOf({ ctx }: uPlot, labels: readonly string[] | null): number {
  ctx.save();
  ctx.font = FONT;
  const longest = Math.max(0, ...(labels ?? []).map((label) => ctx.measureText(label ?? '').width));
  ctx.restore();
  return Math.max(Y_AXIS_MIN_PX, Math.ceil(longest) + Y_AXIS_GAP_PX);
}

/** Draws a vertical line for each mark within the chart. */
function drawMarks(plot: uPlot, marks: readonly Mark[]): void {
  const { ctx, bbox } = plot;
  const { min, max } = plot.scales.x ?? {};
  if (min == null || max == null) return;
  ctx.save();
  for (const { timeS, isLoss } of marks) {
    if (timeS < min || timeS > max) continue;
    const x = Math.round(plot.valToPos(timeS, 'x', true)) + 0.5;
    ctx.strokeStyle = color(isLoss ? '--bad' : '--muted');
    ctx.lineWidth = (isLoss ? 2 : 1) * devicePixelRatio;
    ctx.setLineDash(isLoss ? [] : [3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** The range of whole powers of ten that contains the values. */
function decades(min: number | null, max: number | null): [number, number] {
  if (min === null || max === null || min <= 0) return [1e-4, 1e-1];
  const low = 10 ** Math.floor(Math.log10(min));
  return [low, Math.max(10 ** Math.ceil(Math.log10(max)), low * 10)];
}

function color(property: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(property).trim();
}
