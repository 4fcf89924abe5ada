import { lineBlock } from './line-chart.js';
import { chartValues, type Markup, markup, tableBlock, trusted } from './markup.js';
import type { Bar, BarChart, Report, ReportBlock, ReportSection } from './report.js';

/**
 * The style sheet of a report. The contrast to the background is at least 4.5 for text, and at least 3 for lines and
 * parts of bars. Lines also differ in their dashes, parts in their patterns.
 */
const STYLE = `
:root {
  --page: #f4f5f7; --card: #ffffff; --edge: #d9dde3; --text: #16202c; --muted: #566372; --grid: #e6e9ee; --accent: #1c5d9c;
  --s0: #1f6cb0; --s1: #b55a06; --s2: #0b7a66; --s3: #8d3a9c; --s4: #b3261e; --s5: #6a6a00; --s6: #4a57c4; --s7: #765540;
  --rest: #e9edf2; --rest-line: #8a94a1; --stripe: rgb(255 255 255 / 55%); --fault: #ab1f2b; --bound: #68747f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1318; --card: #161d24; --edge: #2a343f; --text: #e4e9ee; --muted: #9dabb9; --grid: #26303a; --accent: #7db8ee;
    --s0: #6bb0ee; --s1: #efa552; --s2: #4fc6a9; --s3: #d58fdb; --s4: #ff9a95; --s5: #c9c65a; --s6: #a3adff; --s7: #cfb5a3;
    --rest: #222c36; --rest-line: #6d7986; --stripe: rgb(0 0 0 / 40%); --fault: #ff9a95; --bound: #93a0ad;
  }
}
* { box-sizing: border-box; }
html { background: var(--page); -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 1320px; padding: 0 20px 40px; background: var(--page); color: var(--text);
  font: 14px / 1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
h1, h2, h3, p, ul, ol, dl, dd, figure { margin: 0; padding: 0; }
ul, ol { list-style: none; }
header { padding: 26px 0 6px; }
h1 { font-size: 24px; font-weight: 650; letter-spacing: -0.015em; line-height: 1.25; }
h2 { margin: 30px 0 4px; font-size: 17px; font-weight: 650; letter-spacing: -0.01em; }
h3 { font-size: 14px; font-weight: 600; }
.summary { margin-top: 6px; max-width: 78ch; color: var(--muted); }
.note { color: var(--muted); font-size: 12.5px; max-width: 90ch; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.visually-hidden { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.card { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 12px; margin-top: 18px; }
.tile { padding: 12px 16px 14px; }
.tile dt { color: var(--muted); }
.tile .value { margin: 2px 0; font-size: 28px; font-weight: 620; letter-spacing: -0.02em; line-height: 1.2; }
.blocks { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 12px; margin-top: 12px; }
.block { min-width: 0; padding: 14px 16px 10px; }
.wide { grid-column: 1 / -1; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin-top: 8px; font-size: 12.5px; }
.legend li { display: flex; align-items: center; gap: 7px; }
.sample { flex: none; width: 26px; height: 10px; }
.picture { overflow-x: auto; margin-top: 4px; }
.picture svg { display: block; width: 100%; min-width: 300px; height: auto; }
.wide .picture svg { min-width: 680px; }
.grid { stroke: var(--grid); stroke-width: 1; }
.tick, .axis { fill: var(--muted); font-size: 11px; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.series:hover .line { stroke-width: 3.2; }
.spot { fill: transparent; }
.s0 { stroke: var(--s0); color: var(--s0); }
.s1 { stroke: var(--s1); color: var(--s1); stroke-dasharray: 7 4; }
.s2 { stroke: var(--s2); color: var(--s2); stroke-dasharray: 2 4; }
.s3 { stroke: var(--s3); color: var(--s3); stroke-dasharray: 9 3 2 3; }
.s4 { stroke: var(--s4); color: var(--s4); stroke-dasharray: 4 3; }
.s5 { stroke: var(--s5); color: var(--s5); stroke-dasharray: 12 4; }
.s6 { stroke: var(--s6); color: var(--s6); stroke-dasharray: 9 3 2 3 2 3; }
.s7 { stroke: var(--s7); color: var(--s7); stroke-dasharray: 1 5; }
.bound { stroke: var(--bound); color: var(--bound); stroke-width: 1.4; stroke-dasharray: 3 3; }
.bound.b1 { stroke-dasharray: 9 3; }
.dot { fill: currentColor; stroke: none; }
.spot { stroke: none; }
.mark line { stroke: var(--muted); stroke-width: 1.3; stroke-dasharray: 3 2; }
.mark text { fill: var(--muted); font-size: 10px; }
.mark .stretch { fill: var(--muted); opacity: 0.13; }
.mark.fault line { stroke: var(--fault); }
.mark.fault text { fill: var(--fault); }
.mark.fault .stretch { fill: var(--fault); }
.marks { max-height: 11em; overflow: auto; margin: 4px 0; padding-left: 2.2em; font-size: 12.5px; list-style: decimal; }
.when { color: var(--muted); }
.bars { display: grid; grid-template-columns: minmax(90px, max-content) minmax(120px, 1fr); gap: 7px 14px; align-items: center; margin: 12px 0 8px; }
.bar-name { font-size: 12.5px; }
.bar { position: relative; height: 16px; overflow: hidden; border-radius: 3px; background: var(--grid); }
.piece { position: absolute; top: 0; bottom: 0; }
.swatch { flex: none; width: 12px; height: 12px; border-radius: 2px; }
.p0 { background: var(--s0); }
.p1 { background: repeating-linear-gradient(135deg, var(--stripe) 0 2px, transparent 2px 7px) var(--s1); }
.p2 { background: radial-gradient(circle, var(--stripe) 1.2px, transparent 1.6px) 0 0 / 6px 5px var(--s2); }
.p3 { background: repeating-linear-gradient(90deg, var(--stripe) 0 2px, transparent 2px 6px) var(--s3); }
.p4 { background: repeating-linear-gradient(45deg, var(--stripe) 0 1px, transparent 1px 5px) var(--s4); }
.rest { background: var(--rest); border: 1px solid var(--rest-line); }
.piece.rest { border-width: 0 0 0 1px; }
.data { margin-top: 4px; font-size: 12.5px; }
.data summary { width: fit-content; padding: 3px 0; color: var(--accent); cursor: pointer; }
.scroll { max-height: 70vh; overflow: auto; }
.block > .scroll { margin-top: 8px; }
table { width: 100%; border-collapse: collapse; font-size: 12.5px; }
th, td { padding: 4px 10px; border-bottom: 1px solid var(--grid); text-align: left; white-space: nowrap; font-weight: 400; }
thead th { position: sticky; top: 0; background: var(--card); color: var(--muted); font-weight: 600; }
.number { text-align: right; }
.prose { min-width: 26ch; white-space: normal; }
tbody tr:hover { background: var(--grid); }
.parameters { display: grid; grid-template-columns: repeat(auto-fit, minmax(260px, 1fr)); gap: 2px 28px; margin-top: 12px; padding: 12px 16px; }
.parameters div { display: flex; justify-content: space-between; gap: 16px; }
.parameters dt { color: var(--muted); }
.parameters dd { text-align: right; }
@media print { .card { break-inside: avoid; } .data:not([open]) { display: none; } }
`;

/** Number of patterns for parts of bars in the style sheet. */
const PARTS_COUNT = 5;

/** A report as one self-contained HTML page without scripts. The same report gives the same bytes. */
export function reportPage(report: Report): string {
  const { title, summary, parameters, highlights, sections } = report;
  const page = markup`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>${title}</title>
<style>
${trusted(STYLE)}</style>
</head>
<body>
<header>
<h1>${title}</h1>
<p class="summary">${summary}</p>
</header>
<main>
${highlights.length === 0 ? undefined : highlightTiles(highlights)}
${sections.map(sectionOf)}
${parameters.length === 0 ? undefined : parameterList(parameters)}
</main>
</body>
</html>
`;
  return page.html;
}

function highlightTiles(highlights: Report['highlights']): Markup {
  const tiles = highlights.map(
    ({ label, value, note }) =>
      markup`<div class="card tile"><dt>${label}</dt><dd class="value">${value}</dd><dd class="note">${note}</dd></div>`,
  );
  return markup`<dl class="tiles">${tiles}</dl>`;
}

function sectionOf({ title, note, blocks }: ReportSection): Markup {
  return markup`<section>
<h2>${title}</h2>${note === undefined ? undefined : markup`<p class="note">${note}</p>`}
<div class="blocks">
${blocks.map(blockOf)}
</div>
</section>
`;
}

function blockOf(block: ReportBlock): Markup {
  switch (block.kind) {
    case 'lines':
      return lineBlock(block);
    case 'bars':
      return barBlock(block);
    case 'table':
      return tableBlock(block);
  }
}

function parameterList(parameters: Report['parameters']): Markup {
  const rows = parameters.map(({ name, value }) => markup`<div><dt>${name}</dt><dd>${value}</dd></div>`);
  return markup`<section>
<h2>Parameters</h2>
<dl class="card parameters">${rows}</dl>
</section>`;
}

/** A figure with bars of stacked parts, a legend and a collapsed table of the values. */
function barBlock(chart: BarChart): Markup {
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
