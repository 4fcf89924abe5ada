import { type Markup, markup } from './markup.js';
import type { Bar, BarChart } from './report.js';
import { chartValues } from './table.js';

/** Number of patterns for parts in the style sheet. */
const PARTS_COUNT = 5;

/** Bars of stacked parts with their names, a legend and, folded, the values as a table. */
export function barBlock(chart: BarChart): Markup {
  const { title, note, parts, bars, isWide = false } = chart;
  const longest = bars.reduce((most, { values }) => Math.max(most, sumOf(values)), 0);
  return markup`<figure class="card block${isWide ? ' wide' : ''}">
<figcaption><h3>${title}</h3>${note === undefined ? undefined : markup`<p class="note">${note}</p>`}</figcaption>
<ul class="legend">${parts.map((part, i) => markup`<li><span class="swatch ${partStyle(chart, i)}"></span>${part}</li>`)}</ul>
<div class="bars">
${bars.map((bar) => barOf(bar, chart, longest))}</div>
${valuesOf(chart)}
</figure>`;
}

function barOf({ name, values }: Bar, chart: BarChart, longest: number): Markup {
  const label = chart.parts.map((part, i) => `${part} ${chart.format(values[i] ?? 0)}`).join(', ');
  let x = 0;
  const pieces = values.map((value, i) => {
    const width = longest === 0 ? 0 : (100 * value) / longest;
    const left = x;
    x += width;
    if (width === 0) return undefined;
    const title = `${name}: ${chart.parts[i] ?? ''} ${chart.format(value)}`;
    return markup`<span class="piece ${partStyle(chart, i)}" style="left:${left.toFixed(3)}%;width:${width.toFixed(3)}%" title="${title}"></span>`;
  });
  return markup`<div class="bar-name">${name}</div><div class="bar" role="img" aria-label="${name}: ${label}">${pieces}</div>
`;
}

function valuesOf({ title, parts, bars, format }: BarChart): Markup {
  const columns = [{ name: 'Of' }, ...parts.map((name) => ({ name, isNumeric: true }))];
  return chartValues(
    title,
    columns,
    bars.map(({ name, values }) => [name, ...values.map(format)]),
  );
}

function partStyle({ parts, isLastRest }: BarChart, index: number): string {
  return isLastRest === true && index === parts.length - 1 ? 'rest' : `p${index % PARTS_COUNT}`;
}

function sumOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}
