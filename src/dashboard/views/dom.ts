/*
 * All text is inserted as text, never as markup, because names and messages come from other machines. Elements are
 * updated in place, which keeps focus, selection and scroll positions.
 */

interface ElementOptions {
  readonly class?: string;
  readonly text?: string;
  readonly attributes?: Readonly<Record<string, string>>;
}

export function make<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  options: ElementOptions = {},
  ...children: Node[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  if (options.class !== undefined) element.className = options.class;
  if (options.text !== undefined) element.textContent = options.text;
  for (const [name, value] of Object.entries(options.attributes ?? {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** The element with this id in page.html. Throws if it does not exist or has another type. */
export function part<Type extends HTMLElement>(id: string, type: new () => Type): Type {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`the page has no ${type.name} with the id ${id}`);
  return element;
}

/** Writes a text only if it differs, because most texts do not change from one second to the next. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element: HTMLElement, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export function setHidden(element: HTMLElement, isHidden: boolean): void {
  if (element.hidden !== isHidden) element.hidden = isHidden;
}

/** Sets the width as a share of the parent's, 0 to 1. */
export function setWidth(element: HTMLElement, share: number): void {
  const width = `${(share * 100).toFixed(2)}%`;
  if (element.style.width !== width) element.style.width = width;
}

/** A name from another machine inside a line of text; its writing direction does not affect the line. */
export function isolated(text: string): HTMLElement {
  return make('bdi', { text });
}
