import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout } from 'node:timers/promises';
import { type Browser, chromium, type Page, type Request, type ViewportSize } from 'playwright-core';
import { CHROMIUM, CHROMIUM_FLAGS } from '../browser/chromium.js';

const SCREENSHOTS = new URL('../screenshots/', import.meta.url);
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

/** How a page is looked at. */
export interface Look {
  readonly name: string;
  readonly colorScheme: 'light' | 'dark';
  readonly viewport: ViewportSize;
}

/** Colour schemes and window sizes: light and dark, desktop and phone, and a tablet. */
export const LOOKS = [
  { name: 'light-1280', colorScheme: 'light', viewport: { width: 1280, height: 900 } },
  { name: 'dark-1280', colorScheme: 'dark', viewport: { width: 1280, height: 900 } },
  { name: 'light-390', colorScheme: 'light', viewport: { width: 390, height: 844 } },
  { name: 'light-820', colorScheme: 'light', viewport: { width: 820, height: 1180 } },
  { name: 'dark-820', colorScheme: 'dark', viewport: { width: 820, height: 1180 } },
  { name: 'dark-390', colorScheme: 'dark', viewport: { width: 390, height: 844 } },
] as const satisfies readonly Look[];

/** Path of what a page asks for again and again. */
const POLLED = '/api/cluster';
/** What each page has asked for of {@link POLLED} and has no answer to yet. */
const UNANSWERED = new WeakMap<Page, Set<Request>>();

/** A page with all complaints and foreign requests. */
export interface Watched {
  readonly page: Page;
  /** Console errors and warnings, and uncaught errors. */
  readonly complaints: string[];
  /** Requested addresses of other origins. */
  readonly outside: string[];
}

export function startBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS });
}

/** Opens a page. With `isLive` its clock runs; otherwise only as far as the test turns it ({@link poll}). */
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
  const unanswered = new Set<Request>();
  UNANSWERED.set(page, unanswered);
  page.on('requestfinished', (request) => unanswered.delete(request));
  page.on('requestfailed', (request) => unanswered.delete(request));
  page.on('request', (request) => {
    const address = request.url();
    if (address.endsWith(POLLED)) unanswered.add(request);
    if (!address.startsWith('data:') && new URL(address).origin !== new URL(url).origin) outside.push(address);
  });
  await page.clock.install();
  await page.goto(url);
  if (!isLive) await page.clock.pauseAt(Date.now() + 5_000);
  return { page, complaints, outside };
}

/**
 * Lets the page poll until it has `count` answers or more, and none is under way: one that it asked for as it was
 * loaded may arrive in the first second. On a busy machine some polls may run into their deadline.
 */
export async function poll(page: Page, count: number): Promise<void> {
  let lateLeft = 5;
  for (let answers = 0; answers < count; ) {
    const answered = page.waitForResponse(`**${POLLED}`, { timeout: 5_000 }).then((response) => response.finished());
    const isAnswered = answered.then(
      () => true,
      () => false,
    );
    await page.clock.runFor(1_000);
    if (await isAnswered) answers++;
    else if (lateLeft-- === 0) throw new Error('the page does not poll, or is not answered');
  }
  while ((UNANSWERED.get(page)?.size ?? 0) > 0) await setTimeout(5);
  // Time for the page to show the answer.
  await page.clock.runFor(50);
}

/** Serious and critical findings of axe: rule and first place. */
export async function seriousFindings(page: Page): Promise<string[]> {
  await page.evaluate(readFileSync(AXE, 'utf8'));
  let isDone = false;
  const running = page.evaluate('axe.run()').finally(() => {
    isDone = true;
  });
  // axe waits for the page's clock.
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

/** Whether an element makes the page wider than the window. */
export function scrollsSideways(page: Page): Promise<boolean> {
  return page.evaluate(
    'document.documentElement.scrollWidth > document.documentElement.clientWidth',
  ) as Promise<boolean>;
}
