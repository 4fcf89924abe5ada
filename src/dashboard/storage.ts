/**
 * A choice of the reader. If the browser keeps nothing for this page (its settings may forbid it), a reload forgets the
 * choice.
 */
export function recall(area: 'localStorage' | 'sessionStorage', key: string): string | null {
  try {
    return window[area].getItem(key);
  } catch {
    return null;
  }
}

/** Stores a choice; an empty value removes it. */
export function remember(area: 'localStorage' | 'sessionStorage', key: string, value: string): void {
  try {
    if (value === '') window[area].removeItem(key);
    else window[area].setItem(key, value);
  } catch {
    // Without storage the choice holds until the page is left.
  }
}
