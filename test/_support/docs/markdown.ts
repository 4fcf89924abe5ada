import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

/** A fenced block of a document. */
export interface Fence {
  /** The word after the fence: `sh`, `js`, `text`. */
  readonly language: string;
  /** Further words after it. */
  readonly words: readonly string[];
  readonly text: string;
  /** The last line with text before the fence. */
  readonly before: string;
}

/** All documents of the repository: paths from its root. */
export function documents(): string[] {
  const roots = ['docs', 'examples', 'src', 'deploy', 'native', 'assembly'];
  const below = roots.flatMap((root) =>
    readdirSync(root, { recursive: true, encoding: 'utf8' }).map((file) => join(root, file)),
  );
  return [...readdirSync('.'), ...below].filter((path) => path.endsWith('.md')).sort();
}

/** The fenced blocks of a document, in order. */
export function fencesOf(text: string): Fence[] {
  const fences: Fence[] = [];
  let open: { info: string[]; lines: string[]; before: string } | undefined;
  let before = '';
  for (const line of text.split('\n')) {
    const [, info] = /^```(.*)$/.exec(line) ?? [];
    if (open === undefined && info !== undefined) open = { info: info.split(' '), lines: [], before };
    else if (open !== undefined && info === '') {
      const [language = '', ...words] = open.info;
      fences.push({ language, words, text: `${open.lines.join('\n')}\n`, before: open.before });
      open = undefined;
    } else if (open !== undefined) open.lines.push(line);
    else if (line.trim() !== '') before = line;
  }
  return fences;
}

/** The document without its fenced blocks. */
export function proseOf(text: string): string {
  return text.replaceAll(/^```.*?^```$/gms, '');
}

/** The anchors of a document's headings, as GitHub makes them. */
export function anchorsOf(text: string): Set<string> {
  const anchors = new Set<string>();
  const counts = new Map<string, number>();
  for (const [, heading = ''] of proseOf(text).matchAll(/^#{1,6} +(.*)$/gm)) {
    const words = heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .trim()
      .toLowerCase();
    const slug = words.replaceAll(/[^\p{L}\p{N}\p{M}_ -]/gu, '').replaceAll(' ', '-');
    const count = counts.get(slug) ?? 0;
    counts.set(slug, count + 1);
    anchors.add(count === 0 ? slug : `${slug}-${count}`);
  }
  return anchors;
}

/** The targets of a document's links to files, and to its own headings: `path#anchor`. */
export function linksOf(text: string): string[] {
  const links = [...proseOf(text).matchAll(/\]\(([^()\s]+)\)/g)].map(([, target]) => target as string);
  return links.filter((target) => !/^[a-z]+:/.test(target));
}

/** The links of a document that lead nowhere; `read` gives the text of a path, undefined if there is none. */
export function deadLinks(path: string, read: (path: string) => string | undefined): string[] {
  return linksOf(read(path) ?? '').filter((link) => {
    const [file = '', anchor] = link.split('#');
    const target = file === '' ? path : normalize(join(dirname(path), file));
    const text = read(target);
    if (text === undefined) return true;
    return anchor !== undefined && !anchorsOf(text).has(anchor);
  });
}

/** The rows of all tables of a document, without headings: the text of each cell. */
export function rowsOf(text: string): string[][] {
  const rows: string[][] = [];
  const lines = proseOf(text).split('\n');
  for (const [i, line] of lines.entries()) {
    if (!line.startsWith('|') || /^\|[\s|:-]+$/.test(line) || /^\|[\s|:-]+$/.test(lines[i + 1] ?? '')) continue;
    rows.push(
      line
        .slice(1, line.lastIndexOf('|'))
        .split(/(?<!\\)\|/)
        .map((cell) => cell.trim()),
    );
  }
  return rows;
}

/** The text of a file of the repository; undefined if it is a folder or does not exist. */
export function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    // A link may lead to a folder.
    return (error as NodeJS.ErrnoException).code === 'EISDIR' ? '' : undefined;
  }
}
