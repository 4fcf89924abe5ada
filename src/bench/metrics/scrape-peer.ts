/*
 * The scraper of the metrics benchmark, in a process of its own: asks for a page again and again, as Prometheus does. It lives as long as
 * its IPC channel.
 */
import { serveCommands } from '../../processes/serving-process.js';

export interface ScrapeCommand {
  readonly url: string;
  /** From the start of one scrape to the start of the next. */
  readonly intervalMs: number;
  readonly forMs: number;
}

export interface ScrapeAnswer {
  readonly error?: string;
  readonly scrapes: number;
  /** Of the last answer, uncompressed. */
  readonly bytes: number;
}

async function execute({ url, intervalMs, forMs }: ScrapeCommand): Promise<ScrapeAnswer> {
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
}

serveCommands(execute);
