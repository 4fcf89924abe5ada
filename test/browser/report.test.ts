import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { reportPage } from '../../src/sim/report/page.js';
import { CHROMIUM_SUFFIX, HAS_CHROMIUM, serveFolder } from '../_support/browser/chromium.js';
import {
  LOOKS,
  openPage,
  screenshot,
  scrollsSideways,
  seriousFindings,
  startBrowser,
} from '../_support/dashboard/browser.js';
import { HOSTILE, sampleReport } from '../_support/sim/sample-report.js';

const withBrowser = HAS_CHROMIUM ? test : test.skip;

withBrowser(
  `browser: a simulation's report is readable in light and dark, wide and narrow${CHROMIUM_SUFFIX}`,
  async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'meshcache-report-'));
    writeFileSync(join(folder, 'index.html'), reportPage(sampleReport()));
    writeFileSync(join(folder, 'hostile.html'), reportPage(sampleReport(HOSTILE)));
    const site = await serveFolder(folder);
    const browser = await startBrowser();
    try {
      for (const look of LOOKS) {
        const { page, complaints, outside } = await openPage(browser, site.url, look);
        t.deepEqual(await seriousFindings(page), [], look.name);
        t.false(await scrollsSideways(page), look.name);
        t.deepEqual([complaints, outside], [[], []], look.name);
        const background = await page.evaluate('getComputedStyle(document.documentElement).backgroundColor');
        t.is(background, look.colorScheme === 'dark' ? 'rgb(14, 19, 24)' : 'rgb(244, 245, 247)');
        await screenshot(page, `report-${look.name}`);
        await page.close();
      }
      const { page, complaints } = await openPage(browser, new URL('hostile.html', site.url).href);
      t.is(await page.evaluate('document.querySelectorAll("script, img").length'), 0);
      t.is(await page.title(), `Report ${HOSTILE}`.replace(/\0|\u202e/g, '\ufffd'));
      t.deepEqual(complaints, []);
    } finally {
      await browser.close();
      site.close();
      rmSync(folder, { recursive: true });
    }
  },
);
