import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Browser, chromium, type Page } from 'playwright-core';
import { CHROMIUM, CHROMIUM_FLAGS } from '../browser/chromium.js';

const SCREENSHOTS = new URL('../screenshots/', import.meta.url);
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

/** Light and dark, on a desk and in a hand. */
export const LOOKS = [
  { name: 'light-1280', colorScheme: 'light', viewport: { width: 1280, height: 900 } },
  { name: 'dark-1280', colorScheme: 'dark', viewport: { width: 1280, height: 900 } },
  { name: 'light-390', colorScheme: 'light', viewport: { width: 390, height: 844 } },
  { name: 'dark-390', colorScheme: 'dark', viewport: { width: 390, height: 844 } },
] as const;

export type Look = (typeof LOOKS)[number];

/** A page with everything that it complained of or asked for elsewhere. */
export interface Watched {
  readonly page: Page;
  /** Console errors and warnings, and errors that nobody caught. */
  readonly complaints: string[];
  /** Addresses of other origins that were asked for. */
  readonly outside: string[];
}

export function startBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS });
}

/** With `isLive` the page's time goes by as ours does; otherwise only as far as the test says ({@link poll}). */
export async function openPage(
  browser: Browser,
  url: string,
  look: Look = LOOKS[0],
  { isLive = false } = {},
): Promise<Watched> {
  const { colorScheme, viewport } = look;
  const page = await browser.newPage({ colorScheme, viewport, reducedMotion: 'reduce' });
  const complaints: string[] = [];
  const outside: string[] = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => {
    const address = request.url();
    if (!address.startsWith('data:') && new URL(address).origin !== new URL(url).origin) outside.push(address);
  });
  await page.clock.install();
  await page.goto(url);
  if (!isLive) await page.clock.pauseAt(Date.now() + 5_000);
  return { page, complaints, outside };
}

/** Lets the page poll until it has been answered `count` times. A busy machine may let a few polls run into their deadline. */
export async function poll(page: Page, count: number): Promise<void> {
  let lateLeft = 5;
  for (let answers = 0; answers < count; ) {
    const answered = page.waitForResponse('**/api/cluster', { timeout: 5_000 }).then((response) => response.finished());
    const isAnswered = answered.then(
      () => true,
      () => false,
    );
    await page.clock.runFor(1_000);
    if (await isAnswered) answers++;
    else if (lateLeft-- === 0) throw new Error('the page does not poll, or is not answered');
  }
  // What the answer is shown by.
  await page.clock.runFor(50);
}

/** What axe finds that is serious or critical: rule and first place. */
export async function seriousFindings(page: Page): Promise<string[]> {
  await page.evaluate(readFileSync(AXE, 'utf8'));
  let isDone = false;
  const running = page.evaluate('axe.run()').finally(() => {
    isDone = true;
  });
  // It waits for the page's clock.
  while (!isDone) await page.clock.runFor(1);
  const found = (await running) as {
    violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[];
  };
  return found.violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`);
}

export async function screenshot(page: Page, name: string): Promise<void> {
  mkdirSync(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: new URL(`${name}.png`, SCREENSHOTS).pathname, fullPage: true });
}

/** The exact number of an element with this `data-metric`. */
export async function metric(page: Page, name: string): Promise<number> {
  return Number(await page.locator(`[data-metric="${name}"]`).getAttribute('data-value'));
}

/** Whether something makes the page wider than the window. */
export function scrollsSideways(page: Page): Promise<boolean> {
  return page.evaluate(
    'document.documentElement.scrollWidth > document.documentElement.clientWidth',
  ) as Promise<boolean>;
}
