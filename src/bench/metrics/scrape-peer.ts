import type { ExecuteCommand } from '../measuring/peer-process.js';

export interface ScrapeCommand {
  readonly url: string;
  /** Milliseconds from the start of one scrape to the start of the next. */
  readonly intervalMs: number;
  readonly forMs: number;
}

export interface ScrapeAnswer {
  readonly error?: string;
  readonly scrapes: number;
  /** Length of the last answer, uncompressed. */
  readonly bytes: number;
}

/** The scraper of the metrics benchmark: asks for a page again and again, as Prometheus does. */
export function scrapePeer(): ExecuteCommand<ScrapeCommand, ScrapeAnswer> {
  return async ({ url, intervalMs, forMs }) => {
    const endMs = performance.now() + forMs;
    let scrapes = 0;
    let bytes = 0;
    for (let nextMs = performance.now(); nextMs < endMs; nextMs += intervalMs) {
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, nextMs - performance.now())));
      const response = await fetch(url);
      if (!response.ok) throw new Error(`${url}: ${response.status}`);
      bytes = (await response.text()).length;
      scrapes++;
    }
    return { scrapes, bytes };
  };
}
