/** A comment of a source, as one line of text. */
export interface Comment {
  /** The line on which it begins, from 1 on. */
  readonly line: number;
  readonly text: string;
}

const COMMENT = /^[ \t]*\/\*[\s\S]*?\*\/|^[ \t]*\/\/[^\n]*(?:\n[ \t]*\/\/[^\n]*)*|\/\*\*[^\n]*?\*\//gm;

/** The comments that stand on lines of their own, and those for a tooltip. */
export function commentsOf(source: string): Comment[] {
  return [...source.matchAll(COMMENT)].map(({ index, 0: comment }) => ({
    line: source.slice(0, index).split('\n').length,
    text: comment.split('\n').map(withoutMarks).join(' ').trim(),
  }));
}

function withoutMarks(line: string): string {
  return line
    .replace(/\s*\*+\/$/, '')
    .replace(/^\s*(?:\/\*+|\/\/|\*)/, '')
    .trim();
}
