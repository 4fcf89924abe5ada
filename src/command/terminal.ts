import { styleText } from 'node:util';

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
