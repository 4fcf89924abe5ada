import type { Clock } from '../base/clock.js';

/** What a command says while it works. */
export interface Progress {
  /** Replaces what was said before. Cheap: may be called for every request. */
  update(text: string): void;
  /** Takes the line away; the command's own output can follow. */
  end(): void;
}

/** Nothing is said about work that is shorter. */
const SILENCE_MS = 1_000;
const TERMINAL_INTERVAL_MS = 100;
const PLAIN_INTERVAL_MS = 2_000;

/** The part of a writable stream that progress needs. */
export interface ProgressStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

/** On a terminal one line that changes, elsewhere plain lines now and then; silent in the first second. */
export function streamProgress(stream: ProgressStream, clock: Clock): Progress {
  const startedMs = clock.nowMs();
  const isTerminal = stream.isTTY === true;
  let lastMs = startedMs + SILENCE_MS - (isTerminal ? TERMINAL_INTERVAL_MS : PLAIN_INTERVAL_MS);
  let lastText = '';
  let isShown = false;
  return {
    update(text) {
      const nowMs = clock.nowMs();
      if (nowMs - lastMs < (isTerminal ? TERMINAL_INTERVAL_MS : PLAIN_INTERVAL_MS) || text === lastText) return;
      lastMs = nowMs;
      lastText = text;
      if (isTerminal) stream.write(`\r\x1b[2K${text.slice(0, (stream.columns ?? 80) - 1)}`);
      else stream.write(`${text}\n`);
      isShown = true;
    },
    end() {
      if (isShown && isTerminal) stream.write('\r\x1b[2K');
      isShown = false;
    },
  };
}

export const silentProgress: Progress = { update() {}, end() {} };
