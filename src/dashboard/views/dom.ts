/*
 * All text reaches the page as text: names and messages come from other machines, and are never treated as markup.
 * Elements are updated in place, so that focus, selection and scroll positions stay.
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

/** The element of page.html with this id. */
export function part<Type extends HTMLElement>(id: string, type: new () => Type): Type {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`the page has no ${type.name} with the id ${id}`);
  return element;
}

/** Writes a text only if it differs: most texts stay the same from one second to the next. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element: HTMLElement, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export function setHidden(element: HTMLElement, isHidden: boolean): void {
  if (element.hidden !== isHidden) element.hidden = isHidden;
}

/** Sets the width relative to the parent's, 0 to 1. */
export function setWidth(element: HTMLElement, share: number): void {
  const width = `${(share * 100).toFixed(2)}%`;
  if (element.style.width !== width) element.style.width = width;
}

/** A name from another machine inside a line of text; its writing direction does not affect the line. */
export function isolated(text: string): HTMLElement {
  return make('bdi', { text });
}
