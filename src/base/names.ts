const NATURAL_ORDER = new Intl.Collator('en', { numeric: true });

/** Converts `fooBar` to `foo_bar`. */
export function toSnakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Converts `foo_bar` to `fooBar`. */
export function toCamelCase(key: string): string {
  return key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** The one of `names`, at least one, that is the most like `name`. */
export function nearestName(name: string, names: readonly string[]): string {
  const distances = names.map((each) => [editDistance(name, each), each] as const);
  return distances.reduce((best, next) => (next[0] < best[0] ? next : best))[1];
}

/** Levenshtein distance: the number of letters to add, drop or replace to turn one word into the other. */
export function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = (previous[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(substitution, (previous[j] as number) + 1, (row[j - 1] as number) + 1));
    }
    previous = row;
  }
  return previous[b.length] as number;
}

/** Orders names as people do: `node-2` before `node-10`. */
export function compareNames(a: string, b: string): number {
  return NATURAL_ORDER.compare(a, b) || (a < b ? -1 : Number(a > b));
}
