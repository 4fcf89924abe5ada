/** What the reader chose. A browser that keeps nothing for this page (its settings may forbid it) forgets it on reload. */
export function recall(area: 'localStorage' | 'sessionStorage', key: string): string | null {
  try {
    return window[area].getItem(key);
  } catch {
    return null;
  }
}

/** An empty value is forgotten. */
export function remember(area: 'localStorage' | 'sessionStorage', key: string, value: string): void {
  try {
    if (value === '') window[area].removeItem(key);
    else window[area].setItem(key, value);
  } catch {
    // It holds until the page is left.
  }
}
