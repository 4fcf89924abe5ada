import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import { chromium } from 'playwright-core';
import * as api from '../../src/core/index.js';
import { placements } from '../_programs/core/placement-trace.js';
import { CHROMIUM, CHROMIUM_FLAGS, CHROMIUM_SUFFIX, HAS_CHROMIUM, serveFolder } from '../_support/browser/chromium.js';
import { freshCore } from '../_support/core/binaries.js';

const withBrowser = HAS_CHROMIUM ? test : test.skip;

withBrowser(
  `browser: the packed core gives the golden vectors and the same placements in Chromium${CHROMIUM_SUFFIX}`,
  async (t) => {
    // `build/` as the package has it: dist/core.js with its chunks beside wasm/meshcache.wasm.
    const site = await serveFolder(fileURLToPath(new URL('../', import.meta.url)));
    const browser = await chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS });
    try {
      const page = await browser.newPage();
      await page.goto(site.url);
      const urlOf = (name: string) => new URL(name, import.meta.url).pathname.split('/').slice(-2).join('/');
      const run = `(async () => {
      const api = await import('/dist/core.js');
      let refusal = '';
      try { new api.ConsistentHashRing(1); } catch (error) { refusal = error.message; }
      const { computeGolden } = await import('/${urlOf('./core-golden-vectors.js')}');
      const { placements } = await import('/${urlOf('./core-placement-trace.js')}');
      const core = await api.loadCore();
      const vectors = JSON.stringify(computeGolden(api, core));
      return { refusal, vectors, nodes: new api.ConsistentHashRing(1).nodes, placements: placements(api, core) };
    })()`;
      const answer = (await page.evaluate(run)) as {
        refusal: string;
        vectors: string;
        nodes: string[];
        placements: unknown;
      };
      t.regex(answer.refusal, /loadCore/, 'before loading, constructors say what to do');
      t.deepEqual(answer.nodes, []);
      t.deepEqual(JSON.parse(answer.vectors), JSON.parse(readFileSync('test/data/golden.json', 'utf8')));
      t.deepEqual(answer.placements, placements(api, freshCore()));
    } finally {
      await browser.close();
      site.close();
    }
  },
);
