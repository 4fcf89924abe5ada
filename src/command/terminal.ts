import { stripVTControlCharacters, styleText } from 'node:util';

/** What a piece of text means to its reader; the meaning decides its colour. */
export type Tone = 'good' | 'warning' | 'bad' | 'faint' | 'strong';

/** Gives text the colour of its tone, or returns it unchanged where there are no colours. */
export type Paint = (tone: Tone, text: string) => string;

const STYLES = { good: 'green', warning: 'yellow', bad: 'red', faint: 'dim', strong: 'bold' } as const;

/** The part of a writable stream that says what its terminal is like. */
export interface TerminalStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

/**
 * Width of the stream's terminal; undefined if it is none, or does not know its width: such a terminal reports 0
 * columns.
 */
export function columnsOf({ isTTY, columns = 0 }: TerminalStream): number | undefined {
  return isTTY && columns > 0 ? columns : undefined;
}

/** Paints text for a stream: in colours on a terminal that has them. NO_COLOR turns them off, FORCE_COLOR on. */
export function paintFor(stream: NodeJS.WritableStream): Paint {
  return (tone, text) => styleText(STYLES[tone], text, { stream });
}

export const plainPaint: Paint = (_tone, text) => text;

const ESC = '\u001b[';
/** The terminal's second screen, without a cursor; what was there before comes back at the end. */
const ENTER = `${ESC}?1049h${ESC}?25l`;
const LEAVE = `${ESC}?25h${ESC}?1049l`;
/** A terminal that knows these shows a frame when it is complete, others ignore them. */
const BEGIN_FRAME = `${ESC}?2026h`;
const END_FRAME = `${ESC}?2026l`;
const TOP_LEFT = `${ESC}H`;
const CLEAR_LINE_END = `${ESC}K`;
const CLEAR_BELOW = `${ESC}J`;

/** The part of a terminal's stream that a screen needs. */
interface ScreenStream {
  readonly columns?: number;
  readonly rows?: number;
  write(text: string): unknown;
}

/**
 * A terminal that shows one text after the other in place. A new text overwrites the old one without clearing it first,
 * so that nothing flickers.
 */
export class Screen {
  readonly #stream: ScreenStream;
  #isOpen = false;
  readonly #onExit = (): void => this.close();

  constructor(stream: ScreenStream) {
    this.#stream = stream;
  }

  /** Shows a text; lines that have no room are cut. Empty and 0 sizes count as unknown. */
  draw(text: string): void {
    const columns = this.#stream.columns || Number.POSITIVE_INFINITY;
    const rows = this.#stream.rows || Number.POSITIVE_INFINITY;
    const lines = text
      .split('\n')
      .slice(0, rows)
      .map((line) => cut(line, columns));
    const frame = lines.map((line) => `${line}${CLEAR_LINE_END}`).join('\n');
    this.#stream.write(`${this.#open()}${BEGIN_FRAME}${TOP_LEFT}${frame}${CLEAR_BELOW}${END_FRAME}`);
  }

  /** Gives the terminal back as it was. Idempotent; the end of the process does it too. */
  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    process.off('exit', this.#onExit);
    this.#stream.write(LEAVE);
  }

  #open(): string {
    if (this.#isOpen) return '';
    this.#isOpen = true;
    process.once('exit', this.#onExit);
    return ENTER;
  }
}

/** A line of at most that many characters; a line that is cut loses its colours. */
function cut(line: string, columns: number): string {
  const plain = stripVTControlCharacters(line);
  return plain.length <= columns ? line : plain.slice(0, columns);
}
