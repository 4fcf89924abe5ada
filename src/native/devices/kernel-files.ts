import { readdirSync, readFileSync } from 'node:fs';

/** The names in a folder in which the kernel describes something, sorted; empty if it cannot be read. */
export function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}

/** The text of such a file, without spaces around it; empty if it cannot be read, as devices can go at any time. */
export function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1').trim();
  } catch {
    return '';
  }
}
