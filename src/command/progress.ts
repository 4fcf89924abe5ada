import type { Clock } from '../base/environment/clock.js';
import { columnsOf, type TerminalStream } from './terminal.js';

/** Shows what a command is doing. */
export interface Progress {
  /** Replaces the text. Cheap: may be called for every request. */
  update(text: string): void;
  /** Removes the line, so that the command's own output can follow. */
  end(): void;
}

/** Milliseconds of work about which nothing is shown. */
const SILENCE_MS = 1_000;
const TERMINAL_INTERVAL_MS = 100;
const PLAIN_INTERVAL_MS = 2_000;
/** Assumed width of a terminal that does not know its own. */
const DEFAULT_COLUMNS = 80;

/** The part of a writable stream that progress needs. */
export interface ProgressStream extends TerminalStream {
  write(text: string): unknown;
}

/**
 * Shows progress: on a terminal as one line that changes, elsewhere as plain lines now and then; silent in the first
 * second. A text that comes too soon is written later, unless another one has replaced it.
 */
export function streamProgress(stream: ProgressStream, clock: Clock): Progress {
  const isTerminal = stream.isTTY === true;
  const intervalMs = isTerminal ? TERMINAL_INTERVAL_MS : PLAIN_INTERVAL_MS;
  let dueMs = clock.nowMs() + SILENCE_MS;
  let lastText = '';
  let latestText = '';
  let isShown = false;
  let cancel: (() => void) | undefined;
  const show = (): void => {
    cancel?.();
    cancel = undefined;
    if (latestText === lastText) return;
    dueMs = clock.nowMs() + intervalMs;
    lastText = latestText;
    if (isTerminal) stream.write(`\r\x1b[2K${lastText.slice(0, (columnsOf(stream) ?? DEFAULT_COLUMNS) - 1)}`);
    else stream.write(`${lastText}\n`);
    isShown = true;
  };
  return {
    update(text) {
      latestText = text;
      const waitMs = dueMs - clock.nowMs();
      if (waitMs <= 0) show();
      else cancel ??= clock.after(waitMs, show);
    },
    end() {
      cancel?.();
      cancel = undefined;
      latestText = lastText;
      if (isShown && isTerminal) stream.write('\r\x1b[2K');
      isShown = false;
    },
  };
}

export const silentProgress: Progress = { update() {}, end() {} };
