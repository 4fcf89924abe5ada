/** Text that is HTML. Made by {@link markup} alone, so that nothing gets there unescaped. */
export class Markup {
  readonly html: string;

  /** @internal */
  constructor(html: string) {
    this.html = html;
  }
}

/** What stands in a template: nested markup as it is, everything else escaped; lists one element after the other, undefined as nothing. */
export type MarkupPart = Markup | string | number | undefined | readonly MarkupPart[];

/** A template of HTML or SVG: `markup\`<td>${text}</td>\``. Attributes must be quoted. */
export function markup(template: TemplateStringsArray, ...parts: readonly MarkupPart[]): Markup {
  return new Markup(template.map((html, i) => html + (i < parts.length ? htmlOf(parts[i]) : '')).join(''));
}

/** HTML that stands in the source of the program, as it is: style sheets. */
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
  // Control characters are no part of HTML; those that change the direction of text would move what stands beside.
  const text = String(part).replace(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu, (char) =>
    /\s/.test(char) ? ' ' : '\ufffd',
  );
  return text.replace(/[&<>"']/g, (char) => ENTITIES[char] as string);
}
