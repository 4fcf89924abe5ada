import { barBlock } from './bar-chart.js';
import { lineBlock } from './line-chart.js';
import { type Markup, markup, trusted } from './markup.js';
import type { Report, ReportBlock, ReportSection } from './report.js';
import { STYLE } from './style.js';
import { tableBlock } from './table.js';

/** A report as one HTML page, which loads nothing and runs no script. The same report gives the same bytes. */
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
