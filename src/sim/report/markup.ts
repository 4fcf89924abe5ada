/** Text that is HTML. Only {@link markup} makes it, so that nothing gets in unescaped. */
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
export type MarkupPart = Markup | string | number | undefined | readonly MarkupPart[];

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
  // Control characters are not allowed in HTML, and those for the direction of text would move their surroundings.
  const text = String(part).replace(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu, (char) =>
    /\s/.test(char) ? ' ' : '\ufffd',
  );
  return text.replace(/[&<>"']/g, (char) => ENTITIES[char] as string);
}
