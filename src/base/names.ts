const NATURAL_ORDER = new Intl.Collator('en', { numeric: true });

/** Converts `fooBar` to `foo_bar`. */
export function toSnakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Converts `foo_bar` to `fooBar`. */
export function toCamelCase(key: string): string {
  return key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** Largest share of letters that may differ for a name to count as a misspelling; the longer name is the whole. */
const MISSPELT_MAX_SHARE = 0.4;
/** Fewest letters of a name that counts as the beginning of another one. */
const BEGINNING_MIN_LENGTH = 3;

/**
 * The one of `names` that `name` probably meant: it begins with `name`, or is the most similar. Undefined: none is
 * similar.
 */
export function nearestName(name: string, names: readonly string[]): string | undefined {
  const shares = names.map((each) => [shareOf(name, each), each] as const);
  const [best] = shares.filter(([share]) => share <= MISSPELT_MAX_SHARE).sort(([a], [b]) => a - b);
  return best?.[1];
}

function shareOf(name: string, other: string): number {
  if (name.length >= BEGINNING_MIN_LENGTH && other.startsWith(name)) return 0;
  return editDistance(name, other) / Math.max(name.length, other.length);
}

/** The hint for somebody who gave an unknown name: the name that was probably meant, or nothing. */
export function meantName(near: string | undefined): string {
  return near === undefined ? '' : `; did you mean "${near}"?`;
}

/** Levenshtein distance: the number of letters to add, drop or replace to turn one word into the other. */
function editDistance(a: string, b: string): number {
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
