import { existsSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import test from 'ava';
import { chromium } from 'playwright-core';

const CHROMIUM = process.env.MESHCACHE_CHROMIUM ?? '/usr/bin/chromium';
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const TYPES: Record<string, string> = { js: 'text/javascript', wasm: 'application/wasm', html: 'text/html' };

const withBrowser = existsSync(CHROMIUM) ? test : test.skip;
const suffix = existsSync(CHROMIUM) ? '' : ` (skipped: no ${CHROMIUM}, see MESHCACHE_CHROMIUM)`;

/** Serves `build/` as the package has it: dist/core.js with its chunks beside wasm/meshcache.wasm. */
async function serveBuild(): Promise<Server> {
  const build = new URL('../', import.meta.url);
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? '/', 'http://host').pathname;
    if (path === '/')
      return void response.setHeader('content-type', 'text/html').end('<!doctype html><title>core</title>');
    const file = new URL(`.${path}`, build);
    if (!existsSync(file)) return void response.writeHead(404).end();
    response.setHeader('content-type', TYPES[path.split('.').at(-1) ?? ''] ?? 'application/octet-stream');
    response.end(readFileSync(file));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

withBrowser(`browser: the packed core gives the golden vectors in Chromium${suffix}`, async (t) => {
  const server = await serveBuild();
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    const vectorsUrl = new URL('./core-golden-vectors.js', import.meta.url).pathname.split('/').slice(-2).join('/');
    const run = `(async () => {
      const api = await import('/dist/core.js');
      let refusal = '';
      try { new api.ConsistentHashRing(1); } catch (error) { refusal = error.message; }
      const { computeGolden } = await import('/${vectorsUrl}');
      return { refusal, vectors: JSON.stringify(computeGolden(api, await api.loadCore())), nodes: new api.ConsistentHashRing(1).nodes };
    })()`;
    const answer = (await page.evaluate(run)) as { refusal: string; vectors: string; nodes: string[] };
    t.regex(answer.refusal, /loadCore/, 'before loading, constructors say what to do');
    t.deepEqual(answer.nodes, []);
    t.deepEqual(JSON.parse(answer.vectors), JSON.parse(readFileSync('test/data/golden.json', 'utf8')));
  } finally {
    await browser.close();
    server.close();
  }
});
