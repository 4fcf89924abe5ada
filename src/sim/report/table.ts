import { type Markup, markup } from './markup.js';
import type { ReportColumn, ReportTable } from './report.js';

/** A table with a heading of its own. */
export function tableBlock({ title, note, columns, rows }: ReportTable): Markup {
  return markup`<section class="card block wide">
<h3>${title}</h3>${note === undefined ? undefined : markup`<p class="note">${note}</p>`}
${figures(title, columns, rows)}
</section>`;
}

/** The values of a chart as a table, for readers who cannot see it or want to copy them. */
export function chartValues(
  title: string,
  columns: readonly ReportColumn[],
  rows: readonly (readonly string[])[],
): Markup {
  return markup`<details class="data"><summary>Values as a table</summary>${figures(`${title}, values`, columns, rows)}</details>`;
}

function figures(caption: string, columns: readonly ReportColumn[], rows: readonly (readonly string[])[]): Markup {
  const kind = (i: number) => (columns[i]?.isNumeric === true ? 'number' : 'text');
  const head = columns.map(({ name }, i) => markup`<th scope="col" class="${kind(i)}">${name}</th>`);
  const body = rows.map((row) => {
    const cells = row.map((cell, i) => {
      if (i === 0) return markup`<th scope="row" class="${kind(i)}">${cell}</th>`;
      return markup`<td class="${kind(i)}">${cell}</td>`;
    });
    return markup`<tr>${cells}</tr>\n`;
  });
  return markup`<div class="scroll" role="region" tabindex="0" aria-label="${caption}"><table>
<caption class="visually-hidden">${caption}</caption>
<thead><tr>${head}</tr></thead>
<tbody>
${body}</tbody></table></div>`;
}
