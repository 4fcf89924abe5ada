import type { Clock } from '../../base/environment/clock.js';
import type { Logger } from '../../base/environment/log.js';
import type { MissReason, RefusalReason } from './call-options.js';

/** Time between two lines for the same reason. */
const LINE_INTERVAL_MS = 60_000;

interface Line {
  /** Pages since the last line. */
  pages: number;
  /** Time from which on the next line may be written. */
  nextMs: number;
}

/** Logs why pages have not been read or set: for each reason one line a minute at most, with the number of pages since the last one. */
export class ReasonLog<Reason extends MissReason | RefusalReason> {
  readonly #event: string;
  readonly #parts: { readonly clock: Clock; readonly log: Logger };
  readonly #lines = new Map<Reason, Line>();

  /** `event` is the text of the lines. */
  constructor(event: string, parts: { readonly clock: Clock; readonly log: Logger }) {
    this.#event = event;
    this.#parts = parts;
  }

  note(reason: Reason, pages = 1): void {
    const { clock, log } = this.#parts;
    let line = this.#lines.get(reason);
    if (line === undefined) {
      line = { pages: 0, nextMs: 0 };
      this.#lines.set(reason, line);
    }
    line.pages += pages;
    const nowMs = clock.nowMs();
    if (nowMs < line.nextMs) return;
    log.log('warn', this.#event, { reason, pages: line.pages });
    line.pages = 0;
    line.nextMs = nowMs + LINE_INTERVAL_MS;
  }
}
