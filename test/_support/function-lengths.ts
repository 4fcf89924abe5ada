/** A function of a source, and how long it is. */
export interface FunctionLength {
  /** The line on which its head begins, from 1 on. */
  readonly line: number;
  /** Lines from its head to its closing brace. */
  readonly lines: number;
  readonly name: string;
}

/** Beginnings of blocks that are no functions. */
const BLOCK =
  /^(?:\} )?(?:if|else|for|while|switch|try|catch|finally|do|namespace|(?:export )?(?:abstract )?(?:class|interface))\b/;
const MODIFIERS = /^(?:(?:export|static|async|override|private|protected|public|get|set|const|let|function) )+/;
/** The last line of a function's head: of an arrow function, a function or method, and of a head of several lines. */
const HEAD = /=> \{$|^[#\w$*[\].]+(?:<.*>)?\(.*\).* \{$|^\).* \{$/;

/**
 * The functions of a formatted source. Blocks are found by their indentation: a function begins on a line that ends
 * with a brace, and ends on the next line that is indented as much and begins with one.
 */
export function functionLengths(text: string): FunctionLength[] {
  const lines = text.split('\n').map((line) => ({ indent: line.length - line.trimStart().length, code: line.trim() }));
  const found: FunctionLength[] = [];
  for (const [i, { indent, code }] of lines.entries()) {
    if (!HEAD.test(code.replace(MODIFIERS, ''))) continue;
    const first = code.startsWith(')') || code.startsWith('}') ? headStart(lines, i) : i;
    const head = lines[first]?.code ?? '';
    if (BLOCK.test(head)) continue;
    const end = lines.findIndex((line, k) => k > i && line.indent === indent && line.code.startsWith('}'));
    const name = /^[#\w$]+/.exec(head.replace(MODIFIERS, ''))?.[0] ?? head;
    found.push({ name, line: first + 1, lines: end - first + 1 });
  }
  return found;
}

/**
 * Where the head of several lines begins that ends on line `last`: on the nearest one before it that is indented as
 * much.
 */
function headStart(lines: readonly { readonly indent: number; readonly code: string }[], last: number): number {
  const indent = lines[last]?.indent ?? 0;
  let first = last - 1;
  while (first > 0 && (lines[first]?.indent !== indent || /^$|^[)}\]]/.test(lines[first]?.code ?? ''))) first--;
  return first;
}
