import type { ReportColumn, ReportTable } from './report.js';

/** HTML text. Only {@link markup} and {@link trusted} make it, so that nothing gets in unescaped. */
export class Markup {
  readonly html: string;

  /** @internal */
  constructor(html: string) {
    this.html = html;
  }
}

/**
 * A value in a template: nested markup stays as it is, other values are escaped; lists are joined, undefined is empty.
 */
type MarkupPart = Markup | string | number | undefined | readonly MarkupPart[];

/** Builds HTML or SVG from a template: `markup\`<td>${text}</td>\``. Attributes must be quoted. */
export function markup(template: TemplateStringsArray, ...parts: readonly MarkupPart[]): Markup {
  return new Markup(template.map((html, i) => html + (i < parts.length ? htmlOf(parts[i]) : '')).join(''));
}

/** Marks HTML from the program's own source, such as style sheets, as markup. */
export function trusted(html: string): Markup {
  return new Markup(html);
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function htmlOf(part: MarkupPart): string {
  if (part === undefined) return '';
  if (part instanceof Markup) return part.html;
  if (typeof part === 'object') return part.map(htmlOf).join('');
  // Control characters are not allowed in HTML, and those for the direction of text would reorder the text around them.
  const text = String(part).replace(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu, (char) =>
    /\s/.test(char) ? ' ' : '\ufffd',
  );
  return text.replace(/[&<>"']/g, (char) => ENTITIES[char] as string);
}

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
  const kind = (i: number) =>
    columns[i]?.isNumeric === true ? 'number' : columns[i]?.isProse === true ? 'prose' : 'text';
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
