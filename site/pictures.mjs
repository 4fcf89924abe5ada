// Puts pictures into the pages of the site, with Chromium: the diagrams of the documents, and the dashboard.
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

const CHROMIUM = process.env.MESHCACHE_CHROMIUM ?? '/usr/bin/chromium';
const MERMAID = createRequire(import.meta.url).resolve('@mermaid-js/tiny');
/** A block of Mermaid as TypeDoc writes it. */
const DIAGRAM = /<pre><code class="mermaid">(.*?)<\/code>.*?<\/pre>/gs;
/** Where a document wants the picture of the dashboard. Elsewhere than on the site, nothing is seen of it. */
const DASHBOARD = '<!-- picture: dashboard -->';
/** A small demo, which leaves its three nodes running. */
const DEMO = ['build/dist/cli.js', 'demo', '--keep', '--json', '--conversations', '20', '--page-bytes', '256kb'];

/** Without Chromium, the site shows diagrams as text, and no dashboard. */
export async function addPictures(folder) {
  if (!existsSync(CHROMIUM)) return console.warn(`There is no ${CHROMIUM}: the site has no pictures.`);
  mkdirSync(join(folder, 'pictures'), { recursive: true });
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
  try {
    for (const path of readdirSync(folder, { recursive: true }).map((name) => join(folder, name))) {
      if (path.endsWith('.html')) await addTo(path, { folder, browser });
    }
    await photographDashboard(browser, join(folder, 'pictures/dashboard.png'));
  } finally {
    await browser.close();
  }
}

/** Replaces the diagrams and the mark of one page. */
async function addTo(path, { folder, browser }) {
  const html = readFileSync(path, 'utf8');
  let changed = html;
  const pictures = relative(dirname(path), join(folder, 'pictures'));
  const picture = (file, text) =>
    `<a class="picture" href="${pictures}/${file}"><img src="${pictures}/${file}" alt="${text}"></a>`;
  for (const [i, [block, source]] of [...html.matchAll(DIAGRAM)].entries()) {
    const file = `${basename(path, '.html')}-${i + 1}.svg`;
    writeFileSync(join(folder, 'pictures', file), await drawn(browser, source));
    const heading = [...html.slice(0, html.indexOf(block)).matchAll(/<h\d[^>]*>([^<]*)/g)].at(-1)?.[1];
    changed = changed.replace(block, () => picture(file, `Diagram: ${heading}`));
  }
  changed = changed.replace(DASHBOARD, () => picture('dashboard.png', 'The dashboard of a cluster of three nodes'));
  if (changed !== html) writeFileSync(path, changed);
}

/** A diagram as SVG that stands alone: labels are text of SVG, because a picture has no HTML in it. */
async function drawn(browser, source) {
  const page = await browser.newPage();
  await page.addScriptTag({ path: MERMAID });
  const svg = await page.evaluate(async (escaped) => {
    const { documentElement } = new DOMParser().parseFromString(escaped, 'text/html');
    const { mermaid } = globalThis;
    mermaid.initialize({ startOnLoad: false, htmlLabels: false, flowchart: { htmlLabels: false } });
    return (await mermaid.render('diagram', documentElement.textContent)).svg;
  }, source);
  await page.close();
  return svg;
}

/** The dashboard of a real cluster, which ends afterwards. */
async function photographDashboard(browser, path) {
  const { stdout } = await promisify(execFile)(process.execPath, DEMO);
  const { kept } = JSON.parse(stdout);
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 1130 } });
    await page.goto(kept.dashboards[0]);
    await page.getByLabel('Show', { exact: true }).selectOption('cluster');
    await page.locator('[data-node]').nth(2).waitFor();
    // Time for the charts to be drawn.
    await page.waitForTimeout(3_000);
    await page.screenshot({ path });
  } finally {
    for (const pid of kept.pids) process.kill(pid);
  }
}
