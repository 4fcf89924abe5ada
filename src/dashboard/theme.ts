import { recall, remember } from './storage.js';
import { setText } from './views/dom.js';

const THEME_KEY = 'meshcache.theme';

type Theme = 'light' | 'dark';

/** Follows the system until the reader chooses; the choice is kept. `onChange` is called after every change. */
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
