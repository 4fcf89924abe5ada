import { copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { build } from 'esbuild';
import { type Browser, chromium } from 'playwright-core';
import { createServer, build as viteBuild } from 'vite';
import { ConsistentHashRing } from '../../src/core/index.js';
import { CHROMIUM, CHROMIUM_FLAGS, CHROMIUM_SUFFIX, HAS_CHROMIUM, serveFolder } from '../_support/browser/chromium.js';
import { createUser, type User } from '../_support/package/packed.js';
import { freePort } from '../_support/support.js';

const NODES = ['node-a', 'node-b', 'node-c', 'node-d', 'node-e'];
const KEYS = Array.from({ length: 500 }, (_, i) => `key ${i}`);

/** What a page does with the core; `load` gives a loaded one. */
const program = (load: string, imports = '') => `
  import { ConsistentHashRing, loadCore, PoolAllocator } from 'meshcache/core';
  ${imports}
  globalThis.owners = (async () => {
    ${load}
    const ring = new ConsistentHashRing(160);
    ring.setNodes(${JSON.stringify(NODES)});
    const pool = new PoolAllocator({ capacityBytes: 1 << 20 });
    if (pool.publish('page', 4096, 0).offset !== 0) throw new Error('wrong offset');
    return ${JSON.stringify(KEYS)}.map((key) => ring.getNodes(key, 2));
  })();
`;
const html = (script: string) =>
  `<!doctype html><title>app</title><link rel="icon" href="data:,"><script type="module" src="${script}"></script>`;

const withBrowser = HAS_CHROMIUM ? test.serial : test.serial.skip;
let user: User;
let browser: Browser;

test.before(async (t) => {
  t.timeout(120_000);
  if (!HAS_CHROMIUM) return;
  user = await createUser('unpacked');
  browser = await chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS });
});
test.after.always(async () => {
  await browser?.close();
  await user?.remove();
});

/** Opens a page; its owners are those of this process, and neither it nor the network says anything bad. */
async function assertOwners(t: ExecutionContext, url: string): Promise<void> {
  const page = await browser.newPage();
  const complaints: string[] = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  page.on('requestfailed', (request) => complaints.push(request.url()));
  await page.goto(url);
  await page.waitForFunction('globalThis.owners !== undefined');
  const owners = await page.evaluate('globalThis.owners');
  await page.close();
  const ring = new ConsistentHashRing(160);
  ring.setNodes(NODES);
  t.deepEqual(
    owners,
    KEYS.map((key) => ring.getNodes(key, 2)),
  );
  t.deepEqual(complaints, []);
}

async function assertSite(t: ExecutionContext, folder: string): Promise<void> {
  const site = await serveFolder(folder);
  try {
    await assertOwners(t, site.url);
  } finally {
    site.close();
  }
}

withBrowser(
  `browser: bundled by esbuild, with the module copied beside the bundle’s folder${CHROMIUM_SUFFIX}`,
  async (t) => {
    const folder = join(user.folder, 'esbuild-copied');
    await mkdir(join(folder, 'wasm'), { recursive: true });
    await user.write('copied.js', program('await loadCore();'));
    await user.write('esbuild-copied/index.html', html('/js/app.js'));
    const bundle = { bundle: true, minify: true, format: 'esm', target: 'es2022', logLevel: 'silent' } as const;
    const entry = { entryPoints: { app: join(user.folder, 'copied.js') }, outdir: join(folder, 'js') };
    const { warnings } = await build({ ...bundle, ...entry });
    t.deepEqual(warnings, []);
    // The bundle asks for `../wasm/meshcache.wasm`.
    const wasm = join(user.folder, 'node_modules/meshcache/build/wasm/meshcache.wasm');
    await copyFile(wasm, join(folder, 'wasm/meshcache.wasm'));
    await assertSite(t, folder);
  },
);

withBrowser(`browser: bundled by esbuild, with the module as a file of the bundle${CHROMIUM_SUFFIX}`, async (t) => {
  const folder = join(user.folder, 'esbuild-file');
  await mkdir(folder);
  const load = 'await loadCore(await fetch(new URL(wasm, import.meta.url)));';
  await user.write('file.js', program(load, `import wasm from 'meshcache/meshcache.wasm';`));
  await user.write('esbuild-file/index.html', html('/app.js'));
  const bundle = { bundle: true, minify: true, format: 'esm', target: 'es2022', logLevel: 'silent' } as const;
  const entry = { entryPoints: { app: join(user.folder, 'file.js') }, outdir: folder };
  const { warnings } = await build({ ...bundle, ...entry, loader: { '.wasm': 'file' } });
  t.deepEqual(warnings, []);
  await assertSite(t, folder);
});

withBrowser(`browser: bundled by Vite, which finds the module by itself${CHROMIUM_SUFFIX}`, async (t) => {
  t.timeout(60_000);
  const folder = join(user.folder, 'vite');
  await mkdir(folder);
  await user.write('vite/main.js', program('await loadCore();'));
  await user.write('vite/index.html', html('/main.js'));
  await viteBuild({ root: folder, configFile: false, logLevel: 'silent' });
  await assertSite(t, join(folder, 'dist'));
});

withBrowser(`browser: served by Vite while an application is written${CHROMIUM_SUFFIX}`, async (t) => {
  t.timeout(60_000);
  const folder = join(user.folder, 'vite-dev');
  await mkdir(folder);
  await user.write('vite-dev/main.js', program('await loadCore();'));
  await user.write('vite-dev/index.html', html('/main.js'));
  const server = await createServer({
    root: folder,
    configFile: false,
    logLevel: 'silent',
    server: { host: '127.0.0.1', port: await freePort() },
  });
  try {
    await server.listen();
    await assertOwners(t, server.resolvedUrls?.local[0] as string);
  } finally {
    await server.close();
  }
});
