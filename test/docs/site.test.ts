import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import test from 'ava';
import type { Browser } from 'playwright-core';
import { CHROMIUM, HAS_CHROMIUM, serveFolder } from '../_support/browser/chromium.js';
import { openPage, scrollsSideways, seriousFindings, startBrowser } from '../_support/dashboard/browser.js';
import { unless } from '../_support/unless.js';

const { deadLinks } = (await import(pathToFileURL('site/links.mjs').href)) as {
  deadLinks(folder: string): string[];
};

const SITE = 'build/site';
const NO_SITE = existsSync(SITE) ? '' : `no ${SITE}: run npm run site`;
const withSite = unless(NO_SITE);
const withBrowser = unless(NO_SITE || (HAS_CHROMIUM ? '' : `no ${CHROMIUM}, see MESHCACHE_CHROMIUM`), test.serial);

const LOOKS = [
  { name: 'phone', colorScheme: 'light', viewport: { width: 360, height: 740 } },
  { name: 'tablet', colorScheme: 'dark', viewport: { width: 768, height: 1024 } },
  { name: 'desktop', colorScheme: 'light', viewport: { width: 1440, height: 900 } },
] as const;

/** One page of each kind, and those with the widest tables, blocks of code and pictures. */
const PAGES = [
  'index.html',
  'modules.html',
  'classes/meshcache.HostRegion.html',
  'documents/docs_architecture.html',
  'documents/docs_configuration.html',
  'documents/docs_guides_llm-server.html',
  'documents/docs_kubernetes.html',
  'documents/docs_metrics.html',
  'documents/src_rpc_PROTOCOL.html',
  'documents/CHANGELOG.html',
];

/** The address of a page on the disk: a reader needs no server. */
function addressOf(page: string): string {
  return pathToFileURL(resolve(SITE, page)).href;
}

async function inBrowser(work: (browser: Browser) => Promise<void>): Promise<void> {
  const browser = await startBrowser();
  try {
    await work(browser);
  } finally {
    await browser.close();
  }
}

test('site: links to a missing file, a missing anchor and a folder are found', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'meshcache-site-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const links = ['', '#here', 'b.html#there', 'b.html#gone', 'c.html', '.', 'https://example.org/', '#a&amp;b'];
  const tags = links.map((link) => `<a class="x" href="${link}">text</a>`);
  writeFileSync(join(folder, 'a.html'), `<p id="here"></p><p id="a&amp;b"></p>${tags.join('')}<img src="d.png"/>`);
  writeFileSync(join(folder, 'b.html'), '<h1 id="there">&lt;a href="none.html"&gt;</h1>');
  t.deepEqual(
    deadLinks(folder),
    ['b.html#gone', 'c.html', '.', 'd.png'].map((link) => `a.html -> ${link}`),
  );
});

withSite('site: no link leads nowhere', (t) => {
  t.deepEqual(deadLinks(SITE), []);
});

for (const look of LOOKS) {
  withBrowser(`site: pages are readable on a ${look.name}, and load nothing from outside`, async (t) => {
    const site = await serveFolder(SITE);
    t.teardown(() => site.close());
    await inBrowser(async (browser) => {
      for (const path of PAGES) {
        const { page, complaints, outside } = await openPage(browser, site.url + path, look, { isLive: true });
        t.false(await scrollsSideways(page), path);
        t.deepEqual(await seriousFindings(page), [], path);
        t.deepEqual([complaints, outside], [[], []], path);
        await page.close();
      }
    });
  });
}

withBrowser('site: the search finds words of documents and names of the reference, without a server', async (t) => {
  await inBrowser(async (browser) => {
    const { page, outside } = await openPage(browser, addressOf('index.html'), LOOKS[2], { isLive: true });
    for (const [word, found] of [
      ['kustomize', 'Kubernetes'],
      // Its title begins with the word, and is long.
      ['eviction', 'Eviction, hints'],
      ['HostRegion', 'HostRegion'],
    ] as const) {
      await page.getByRole('button', { name: 'Search' }).click();
      await page.locator('#tsd-search-input').fill(word);
      await page.locator('#tsd-search-results a', { hasText: found }).first().click();
      await page.getByRole('heading', { level: 1, name: found }).waitFor();
      t.true((await page.getByRole('main').innerText()).includes(word), page.url());
    }
    t.deepEqual(outside, []);
  });
});

withBrowser('site: diagrams and the dashboard are pictures with a description', async (t) => {
  await inBrowser(async (browser) => {
    for (const [path, count] of [
      ['documents/docs_architecture.html', 2],
      ['documents/docs_metrics.html', 1],
      ['index.html', 1],
    ] as const) {
      const { page } = await openPage(browser, addressOf(path), LOOKS[2], { isLive: true });
      const pictures = await page
        .locator('.picture img')
        .evaluateAll((images) =>
          (images as HTMLImageElement[]).map(({ alt, naturalWidth }) => alt !== '' && naturalWidth > 0),
        );
      t.deepEqual(pictures, Array(count).fill(true), path);
      t.is(await page.locator('code.mermaid').count(), 0, path);
      await page.close();
    }
  });
});
