import { chartValues, type Markup, markup } from './markup.js';
import type { Axis, ChartMark, LineChart, LineSeries } from './report.js';

/** Maps values to positions from 0 to 1 on an axis, and has the axis's ticks. */
interface Scale {
  readonly ticks: readonly number[];
  place(value: number): number;
}

/** A scale with room for all values, and with about `ticksCount` round ticks. */
export function scaleOf(axis: Axis, values: readonly number[], ticksCount = 5): Scale {
  return axis.scale === 'log' ? logScale(axis, values) : linearScale(axis, values, ticksCount);
}

function linearScale(axis: Axis, values: readonly number[], ticksCount: number): Scale {
  const min = lowest(values, axis.min ?? 0);
  const highestValue = highest(values, axis.max ?? Number.NEGATIVE_INFINITY);
  const max = highestValue > min ? highestValue : min + 1;
  const step = roundStep((max - min) / ticksCount);
  // A fixed end stays; an open one moves to the next tick.
  const end = axis.max !== undefined && axis.max >= max ? axis.max : Math.ceil(max / step - 1e-9) * step;
  const ticks: number[] = [];
  for (let i = Math.ceil(min / step - 1e-9); i * step <= end + step * 1e-9; i++)
    ticks.push(Number((i * step).toPrecision(12)));
  return { ticks: axis.ticks ?? ticks, place: (value) => (value - min) / (end - min) };
}

function logScale(axis: Axis, values: readonly number[]): Scale {
  const positive = values.filter((value) => value > 0);
  const low = Math.log10(
    positive.length === 0 ? (axis.min ?? 1) : lowest(positive, axis.min ?? Number.POSITIVE_INFINITY),
  );
  const high = Math.log10(positive.length === 0 ? (axis.max ?? 10) : highest(positive, axis.max ?? 0));
  const ticks: number[] = [];
  for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; power++) ticks.push(10 ** power);
  // A single value lies in the middle.
  const place = (value: number): number => (high - low < 1e-9 ? 0.5 : (Math.log10(value) - low) / (high - low));
  return { ticks: axis.ticks ?? ticks, place };
}

/** The next number not below `step` that is 1, 2 or 5 times a power of ten. */
function roundStep(step: number): number {
  const power = 10 ** Math.floor(Math.log10(step));
  const factor = [1, 2, 5, 10].find((candidate) => candidate * power >= step * (1 - 1e-9)) ?? 10;
  return factor * power;
}

function lowest(values: readonly number[], start: number): number {
  return values.reduce((least, value) => Math.min(least, value), start);
}

function highest(values: readonly number[], start: number): number {
  return values.reduce((most, value) => Math.max(most, value), start);
}

/** Number of colours and dashes in the style sheet. */
const STYLES_COUNT = 8;
/** Height in units of the picture, each of which is about a pixel. */
const HEIGHT = 236;
const MARGIN = { top: 12, right: 26, bottom: 44, left: 54 };
const WIDTH = 460;
const WIDE_WIDTH = 1180;
const X_TICKS_COUNT = { usual: 5, wide: 12 };
const TICK_LABELS_MAX_COUNT = { usual: 8, wide: 16 };
/** Most points of a line that are drawn as dots. */
const DOTS_MAX_COUNT = 24;
/** Most points of a line that react to the pointer. */
const HOVERED_MAX_COUNT = 400;

interface Frame {
  readonly width: number;
  readonly x: (value: number) => number;
  readonly y: (value: number) => number;
}

/** A figure with lines, axes, legend, marks and a collapsed table of the values. */
export function lineBlock(chart: LineChart): Markup {
  const { title, note, series, marks = [], isWide = false } = chart;
  const xs = series.flatMap(({ points }) => points.map(([x]) => x));
  const markXs = marks.flatMap(({ x, endX }) => (endX === undefined ? [x] : [x, endX]));
  const ys = series.flatMap(({ points }) => points.flatMap(([, y]) => (y === null ? [] : [y])));
  const xScale = scaleOf(chart.x, [...xs, ...markXs], isWide ? X_TICKS_COUNT.wide : X_TICKS_COUNT.usual);
  const yScale = scaleOf(chart.y, ys);
  const frame = frameOf(xScale, yScale, isWide ? WIDE_WIDTH : WIDTH);
  return markup`<figure class="card block${isWide ? ' wide' : ''}">
<figcaption><h3>${title}</h3>${note === undefined ? undefined : markup`<p class="note">${note}</p>`}</figcaption>
<ul class="legend">${series.map((line, i) => markup`<li>${sample(line, i)}${line.name}</li>`)}</ul>
<div class="picture" role="group" tabindex="0" aria-label="${title}"><svg viewBox="0 0 ${frame.width} ${HEIGHT}" role="img" aria-label="${description(chart)}">
${grid(chart, { xScale, yScale, frame, labelsMax: isWide ? TICK_LABELS_MAX_COUNT.wide : TICK_LABELS_MAX_COUNT.usual })}
${marks.map((mark, i) => markOf(mark, i, frame))}
${series.map((line, i) => lineOf(line, { index: i, chart, frame }))}
</svg></div>
${marks.length === 0 ? undefined : marksList(chart, marks)}
${valuesOf(chart)}
</figure>`;
}

function frameOf(xScale: Scale, yScale: Scale, width: number): Frame {
  const plot = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
  return {
    width,
    x: (value) => rounded(MARGIN.left + xScale.place(value) * plot.width),
    y: (value) => rounded(MARGIN.top + (1 - yScale.place(value)) * plot.height),
  };
}

function grid(
  { x, y }: LineChart,
  { xScale, yScale, frame, labelsMax }: { xScale: Scale; yScale: Scale; frame: Frame; labelsMax: number },
): Markup {
  const [left, right, bottom] = [MARGIN.left, frame.width - MARGIN.right, HEIGHT - MARGIN.bottom];
  const rows = yScale.ticks.map((tick) => {
    const at = frame.y(tick);
    return markup`<line class="grid" x1="${left}" x2="${right}" y1="${at}" y2="${at}"/><text class="tick" x="${left - 7}" y="${at + 4}" text-anchor="end">${y.format(tick)}</text>`;
  });
  const step = Math.ceil(xScale.ticks.length / labelsMax);
  const columns = xScale.ticks
    .filter((_, i) => i % step === 0)
    .map((tick) => {
      const at = frame.x(tick);
      return markup`<line class="grid" x1="${at}" x2="${at}" y1="${MARGIN.top}" y2="${bottom}"/><text class="tick" x="${at}" y="${bottom + 17}" text-anchor="middle">${x.format(tick)}</text>`;
    });
  const middle = rounded((left + right) / 2);
  return markup`${rows}${columns}<text class="axis" x="${middle}" y="${HEIGHT - 8}" text-anchor="middle">${x.label}</text>`;
}

function lineOf(line: LineSeries, { index, chart, frame }: { index: number; chart: LineChart; frame: Frame }): Markup {
  const known = line.points.filter((point): point is [number, number] => point[1] !== null);
  const style = styleOf(line, index);
  const dots =
    known.length > HOVERED_MAX_COUNT
      ? []
      : known.map(([x, y]) => {
          const isDrawn = known.length <= DOTS_MAX_COUNT && line.isBound !== true;
          const text = `${line.name}: ${chart.y.format(y)} at ${chart.x.format(x)}`;
          return markup`<circle class="${isDrawn ? 'dot' : 'spot'} ${style}" cx="${frame.x(x)}" cy="${frame.y(y)}" r="${isDrawn ? 3 : 6}"><title>${text}</title></circle>`;
        });
  return markup`<g class="series"><path class="line ${style}" d="${pathOf(line, frame)}"/>${dots}</g>\n`;
}

function pathOf({ points }: LineSeries, frame: Frame): string {
  let isDown = false;
  return points
    .map(([x, y]) => {
      if (y === null) {
        isDown = false;
        return '';
      }
      const step = `${isDown ? 'L' : 'M'}${frame.x(x)} ${frame.y(y)}`;
      isDown = true;
      return step;
    })
    .join('');
}

function markOf({ x, endX, label, kind = 'change' }: ChartMark, index: number, frame: Frame): Markup {
  const [from, to] = [frame.x(x), frame.x(endX ?? x)];
  const [top, bottom] = [MARGIN.top, HEIGHT - MARGIN.bottom];
  const stretch =
    to > from
      ? markup`<rect class="stretch" x="${from}" y="${top}" width="${rounded(to - from)}" height="${bottom - top}"/>`
      : undefined;
  return markup`<g class="mark ${kind}"><title>${label}</title>${stretch}<line x1="${from}" x2="${from}" y1="${top}" y2="${bottom}"/><text x="${from + 3}" y="${top + 9}">${index + 1}</text></g>\n`;
}

function marksList({ title, x }: LineChart, marks: readonly ChartMark[]): Markup {
  const items = marks.map(({ x: from, endX, label }) => {
    const time = endX === undefined ? x.format(from) : `${x.format(from)} to ${x.format(endX)}`;
    return markup`<li><span class="when">${time}</span> ${label}</li>`;
  });
  return markup`<ol class="marks" aria-label="Marks of the chart: ${title}">${items}</ol>`;
}

function valuesOf({ title, x, y, series }: LineChart): Markup {
  const byX = new Map<number, string[]>();
  for (const [i, { points }] of series.entries()) {
    for (const [at, value] of points) {
      const row = byX.get(at) ?? new Array<string>(series.length).fill('');
      if (value !== null) row[i] = y.format(value);
      byX.set(at, row);
    }
  }
  const rows = [...byX].sort(([a], [b]) => a - b).map(([at, row]) => [x.format(at), ...row]);
  const columns = [{ name: x.label, isNumeric: true }, ...series.map(({ name }) => ({ name, isNumeric: true }))];
  return chartValues(title, columns, rows);
}

function description({ title, y, series }: LineChart): string {
  const ends = series.map(({ name, points }) => {
    const last = points.findLast(([, value]) => value !== null)?.[1];
    return last === undefined || last === null ? `${name} has no values` : `${name} ends at ${y.format(last)}`;
  });
  return `Line chart: ${title}. ${y.label}: ${ends.join(', ')}.`;
}

function sample(line: LineSeries, index: number): Markup {
  return markup`<svg class="sample" viewBox="0 0 26 10" aria-hidden="true"><path class="line ${styleOf(line, index)}" d="M1 5L25 5"/></svg>`;
}

function styleOf({ isBound }: LineSeries, index: number): string {
  return isBound === true ? `bound b${index % 2}` : `s${index % STYLES_COUNT}`;
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
