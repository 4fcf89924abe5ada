import { setText } from './views/dom.js';

/**
 * A stored choice of the reader; null if there is none. If the browser's settings forbid storage, a reload forgets the
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
    // Without storage, the choice lasts until the reader leaves the page.
  }
}

const THEME_KEY = 'meshcache.theme';

type Theme = 'light' | 'dark';

/** Follows the system's theme until the reader chooses one, which is stored. Calls `onChange` after every change. */
export function startTheme(button: HTMLButtonElement, onChange: () => void): void {
  const prefersDark = matchMedia('(prefers-color-scheme: dark)');
  const stored = recall('localStorage', THEME_KEY);
  let chosen: Theme | null = stored === 'light' || stored === 'dark' ? stored : null;
  const current = (): Theme => chosen ?? (prefersDark.matches ? 'dark' : 'light');
  const apply = (): void => {
    document.documentElement.dataset.theme = current();
    setText(button, current() === 'dark' ? 'Light theme' : 'Dark theme');
  };
  button.addEventListener('click', () => {
    chosen = current() === 'dark' ? 'light' : 'dark';
    remember('localStorage', THEME_KEY, chosen);
    apply();
    onChange();
  });
  prefersDark.addEventListener('change', () => {
    apply();
    onChange();
  });
  apply();
}
