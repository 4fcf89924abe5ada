/** Width of help where the terminal's is unknown, and the most that it uses of a wider one. */
const USUAL_COLUMNS = 80;
const MOST_COLUMNS = 120;
/** Help for narrower terminals is wrapped at this width, because commander wraps nothing below it. */
const FEWEST_COLUMNS = 40;
/** How much further a continued line is indented. */
const CONTINUATION = '    ';

/** Width at which help is wrapped. `columns`: those of the terminal, or undefined if they are unknown. */
export function helpWidth(columns: number | undefined): number {
  return Math.max(FEWEST_COLUMNS, Math.min(MOST_COLUMNS, columns ?? USUAL_COLUMNS));
}

/**
 * Wraps help. Lines without indentation that follow each other are one paragraph. An indented line is a command of the
 * shell, or two columns, such as an option and its description.
 */
export function wrapHelp(text: string, width: number): string {
  const lines: string[] = [];
  let paragraph: string[] = [];
  for (const line of [...text.split('\n'), '']) {
    if (/^\S/.test(line)) {
      paragraph.push(line);
      continue;
    }
    if (paragraph.length > 0) lines.push(...wrapWords(paragraph.join(' ').split(/ +/), { width, first: '' }));
    paragraph = [];
    lines.push(...wrapIndented(line, width));
  }
  return lines.slice(0, -1).join('\n');
}

function wrapIndented(line: string, width: number): string[] {
  if (line.length <= width) return [line];
  const indent = /^ */.exec(line)?.[0] ?? '';
  const columns = /^( +\S.*? {2,})(\S.*)$/.exec(line);
  if (columns === null) {
    // A command is continued as the shell needs it, so that it can be copied. An option stays with its value.
    const together = line.match(/(?:(?:-[\w-]+|>) (?=[^-\s]))?(?:'[^']*'|"[^"]*"|\S)+/g) ?? [];
    const room = width - indent.length - CONTINUATION.length - ' \\'.length;
    const words = together.flatMap((each) => (each.length > room ? each.split(/(?<=^[->]\S*) /) : [each]));
    return wrapWords(words, { width, first: indent, rest: indent + CONTINUATION, end: ' \\' });
  }
  const [, left = '', right = ''] = columns;
  const words = right.split(/ +/);
  if (left.length <= width / 2) return wrapWords(words, { width, first: left, rest: ' '.repeat(left.length) });
  const below = indent + CONTINUATION;
  const terms = left.trim().split(' ');
  return [
    ...wrapWords(terms, { width, first: indent, rest: below }),
    ...wrapWords(words, { width, first: below, rest: below }),
  ];
}

/**
 * Lines of at most `width` characters, unless a word alone is longer. `first` and `rest`: what the first line and the
 * others begin with; `end`: what a line ends with that another one follows.
 */
function wrapWords(
  words: readonly string[],
  { width, first, rest = '', end = '' }: { width: number; first: string; rest?: string; end?: string },
): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of words) {
    const start = lines.length === 0 ? first : rest;
    if (line !== '' && start.length + line.length + 1 + word.length + end.length > width) {
      lines.push(start + line + end);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, (lines.length === 0 ? first : rest) + line];
}
