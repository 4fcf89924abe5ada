import test from 'ava';
import type { Browser, Page } from 'playwright-core';
import { Metrics, MetricsServer } from '../../src/node/machine/machine-node.js';
import { CHROMIUM_SUFFIX, HAS_CHROMIUM } from '../_support/browser/chromium.js';
import {
  LOOKS,
  metric,
  openPage,
  poll,
  screenshot,
  scrollsSideways,
  seriousFindings,
  startBrowser,
} from '../_support/dashboard/browser.js';
import { FakeCluster, FakeNode, fakeClient } from '../_support/dashboard/fake-cluster.js';
import { until } from '../_support/support.js';

const withBrowser = HAS_CHROMIUM ? test.serial : test.serial.skip;
let browser: Browser;

test.before(async () => {
  if (HAS_CHROMIUM) browser = await startBrowser();
});
test.after.always(() => browser?.close());

/** Serves the built page with what `cluster` says. */
async function serve(
  cluster: FakeCluster,
  options: { port?: number; token?: string } = {},
): Promise<{ server: MetricsServer; port: number; url: string }> {
  const server = new MetricsServer(new Metrics('node-1'), '127.0.0.1', options.port ?? 0, {
    dashboard: true,
    node: cluster,
    token: options.token,
  });
  const port = await server.start();
  return { server, port, url: `http://127.0.0.1:${port}/` };
}

/** Colour of the text of the first element that the selector finds. */
async function textColor(page: Page, selector: string): Promise<string> {
  const color = await page.evaluate(`getComputedStyle(document.querySelector(${JSON.stringify(selector)})).color`);
  return String(color);
}

function threeNodes(): FakeCluster {
  const cluster = new FakeCluster([
    new FakeNode('node-1', 1),
    new FakeNode('node-2', 1.3),
    new FakeNode('node-3', 0.8, false),
  ]);
  const [first, second, third] = cluster.nodes;
  for (const node of cluster.nodes) node.ticks = 5_000;
  const busiest = [
    fakeClient('sglang-llama-3-70b-tp0'),
    fakeClient('vllm@scheduler', { pid: 4712, mode: 'staged', errors: 2 }),
  ];
  first!.overrides = { clients: { socket: '/run/meshcache/node.sock', attached: 2, busiest } };
  first!.log({
    time_ms: cluster.timeMs - 65_000,
    level: 'info',
    message: 'member joined',
    fields: { node_id: 'node-3' },
  });
  second!.log({
    time_ms: cluster.timeMs - 40_000,
    level: 'warn',
    message: 'data connection lost, trying again',
    fields: { peer: 'node-3', attempt: 2 },
  });
  third!.log({
    time_ms: cluster.timeMs - 20_000,
    level: 'error',
    message: 'disk tier cannot write: no space left on device',
  });
  return cluster;
}

for (const look of LOOKS) {
  withBrowser(
    `dashboard: ${look.name} shows everything, without complaint, findings or sideways scrolling${CHROMIUM_SUFFIX}`,
    async (t) => {
      const cluster = threeNodes();
      cluster.stepS = 5;
      const { server, url } = await serve(cluster);
      t.teardown(() => server.stop());
      const { page, complaints, outside } = await openPage(browser, url, look);
      t.teardown(() => page.close());
      await poll(page, 60);
      cluster.nodes[2]!.health = {
        status: 'degraded',
        reasons: ['The disk tier cannot write: no space left on device. Pages stay in memory only.'],
      };
      await poll(page, 2);
      await screenshot(page, `cluster-${look.name}`);
      t.deepEqual(await seriousFindings(page), []);
      t.false(await scrollsSideways(page));
      t.deepEqual(complaints, []);
      t.deepEqual(outside, []);
      t.is(
        await metric(page, 'reads.local'),
        cluster.now().nodes.reduce((sum, node) => sum + (node.state === 'up' ? node.report.reads.local : 0), 0),
      );
    },
  );
}

withBrowser(`dashboard: names and messages from outside are text, whatever they say${CHROMIUM_SUFFIX}`, async (t) => {
  const evil = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`;
  const cluster = new FakeCluster([
    new FakeNode('node-1', 1),
    new FakeNode(evil, 1),
    new FakeNode(`${'long'.repeat(60)}\u202e`, 1),
  ]);
  const [, hostile] = cluster.nodes;
  hostile!.log({ time_ms: cluster.timeMs, level: evil as never, message: evil, fields: { [evil]: evil } });
  hostile!.health = { status: 'degraded', reasons: [evil] };
  hostile!.overrides = {
    metrics_endpoint: 'javascript:window.pwned=1',
    data_protocol: evil,
    transport: { wanted: evil, reason: evil },
    version: evil,
    clients: { socket: evil, attached: 1, busiest: [fakeClient(evil, { mode: evil })] },
  };
  const { server, url } = await serve(cluster);
  t.teardown(() => server.stop());
  const { page, complaints, outside } = await openPage(browser, `${url}#node=${encodeURIComponent(evil)}`, LOOKS[2]);
  t.teardown(() => page.close());
  await poll(page, 2);
  t.is(await page.evaluate('window.pwned'), undefined);
  t.is(await page.locator('main img').count(), 0);
  t.is(await page.locator('#scope').inputValue(), `node=${evil}`);
  t.true((await page.locator('.events li').textContent())?.includes(evil));
  t.is(await page.locator(`a[href^="javascript"]`).count(), 0);
  t.false(await scrollsSideways(page));
  t.deepEqual([complaints, outside], [[], []]);
});

withBrowser(
  `dashboard: one node's figures are its own, chosen by list, by table and by address${CHROMIUM_SUFFIX}`,
  async (t) => {
    const cluster = threeNodes();
    const { server, url } = await serve(cluster);
    t.teardown(() => server.stop());
    const { page } = await openPage(browser, url);
    t.teardown(() => page.close());
    await poll(page, 3);
    const localOf = async (index: number): Promise<number> => (await cluster.nodes[index]!.report(3)).reads.local;
    await page.getByLabel('Show', { exact: true }).selectOption('node=node-2');
    t.is(await metric(page, 'reads.local'), await localOf(1));
    await page.locator('[data-node="node-3"] button').focus();
    await page.keyboard.press('Enter');
    t.is(await metric(page, 'reads.local'), await localOf(2));
    t.is(await metric(page, 'disk.entries'), 0);
    t.regex(page.url(), /#node=node-3$/);
    await page.reload();
    await poll(page, 1);
    t.is(await page.locator('#scope').inputValue(), 'node=node-3');
    t.is(await metric(page, 'reads.local'), await localOf(2));
    t.is(await page.locator('.events li').count(), 1);
  },
);

withBrowser(
  `dashboard: a node that does not answer, comes back, leaves: shown at the next poll and said${CHROMIUM_SUFFIX}`,
  async (t) => {
    const cluster = threeNodes();
    const { server, url } = await serve(cluster);
    t.teardown(() => server.stop());
    const { page } = await openPage(browser, url);
    t.teardown(() => page.close());
    await poll(page, 3);
    const row = page.locator('[data-node="node-2"]');
    const said = page.locator('#announcements');
    t.is(await row.getAttribute('data-state'), 'up');
    t.is(await said.textContent(), '');
    const node = cluster.nodes[1]!;
    node.state = 'unreachable';
    await poll(page, 1);
    t.is(await row.getAttribute('data-state'), 'unreachable');
    t.true((await row.textContent())?.includes(node.error));
    t.is(await said.textContent(), 'node-2 does not answer.');
    t.is(await page.locator('.verdict').getAttribute('data-status'), 'lost');
    t.is(await page.locator('#scope-note').textContent(), 'Sum of the 2 of 3 nodes that answer.');
    t.deepEqual(await seriousFindings(page), []);
    node.state = 'up';
    await poll(page, 1);
    t.is(await row.getAttribute('data-state'), 'up');
    t.is(await said.textContent(), 'node-2 answers again.');
    cluster.lose('node-2', 'left');
    await poll(page, 2);
    t.is(await row.getAttribute('data-state'), 'left');
    t.regex((await row.textContent()) ?? '', /since [\w :]+, with a good-bye/);
    t.is(await said.textContent(), 'node-2 has left.');
    const verdict = page.locator('.verdict');
    t.regex((await verdict.textContent()) ?? '', /^2 nodes answer; 1 has left at [\w ]*\d\d:\d\d:\d\d$/);
    t.is(await verdict.getAttribute('data-status'), 'fewer');
    cluster.nodes[0]!.health = { status: 'degraded', reasons: ['The disk is full.'] };
    await poll(page, 1);
    t.regex((await verdict.textContent()) ?? '', /^1 degraded; 2 of 2 nodes answer; 1 has left/);
    t.is(await page.locator('.troubles li').count(), 1);
    await row.getByRole('button').click();
    t.regex((await page.locator('#scope-note').textContent()) ?? '', /^This node has left since .*; totals are from /);
    await screenshot(page, 'gone-light-1280');
  },
);

for (const look of LOOKS) {
  withBrowser(
    `dashboard: ${look.name}: a node that was lost before the page was opened is red, in words, and an event${CHROMIUM_SUFFIX}`,
    async (t) => {
      const cluster = threeNodes();
      cluster.lose('node-3', 'lost');
      cluster.lose('node-2', 'left');
      cluster.nodes.push(new FakeNode('node-10', 0.7), new FakeNode('node-9', 0.9));
      for (const node of cluster.nodes) node.ticks = 5_000;
      cluster.timeMs += 60_000;
      const { server, url } = await serve(cluster);
      t.teardown(() => server.stop());
      const { page, complaints } = await openPage(browser, url, look);
      t.teardown(() => page.close());
      await poll(page, 3);
      // Five minutes of the nodes that are there, although the page has just been opened.
      await page.locator('.chart summary').first().click();
      await until(async () => {
        await poll(page, 1);
        return (await page.locator('.chart').first().locator('tbody tr').count()) >= 15;
      });
      await page.locator('.chart summary').first().click();
      const lost = page.locator('[data-node="node-3"]');
      t.is(await lost.getAttribute('data-state'), 'lost');
      t.regex((await lost.locator('.state-cell').textContent()) ?? '', /^lostsince [\w :]+, without a good-bye$/);
      t.is(await page.locator('[data-node="node-2"]').getAttribute('data-state'), 'left');
      const verdict = page.locator('.verdict');
      t.is(await verdict.getAttribute('data-status'), 'lost');
      t.regex((await verdict.textContent()) ?? '', /^1 lost; 3 of 4 nodes answer; 1 has left at /);
      const words =
        /^node-3lost since [\w :]+: no heartbeat for 6 s, no good-bye\. Its pages are misses until it is back\.$/;
      t.regex((await page.locator('.troubles .loss').textContent()) ?? '', words);
      const colorOf = (selector: string) => textColor(page, selector);
      t.not(await colorOf('[data-node="node-3"] .state'), await colorOf('[data-node="node-2"] .state'));
      t.not(await colorOf('[data-node="node-3"] .state'), await colorOf('[data-node="node-1"] .state'));
      const events = page.locator('.events li');
      t.is(await events.filter({ hasText: 'lost: no heartbeat for 6 s' }).count(), 1);
      t.is(await events.filter({ hasText: 'lost' }).first().getAttribute('data-level'), 'error');
      t.is(await events.filter({ hasText: /left$/ }).getAttribute('data-level'), 'info');
      t.is(
        await page.locator('#charts-note').textContent(),
        'last 5 min; a red line marks the time at which a node was lost; a dashed line marks the time at which a node left',
      );
      const names = await page.locator('.members-scroll tbody .node-name').allTextContents();
      t.deepEqual(
        names,
        ['node-1', 'node-3', 'node-9', 'node-10', 'node-2'],
        'natural order, and who has left is last',
      );
      t.deepEqual(await seriousFindings(page), []);
      t.false(await scrollsSideways(page));
      t.deepEqual(complaints, []);
      await screenshot(page, `incident-${look.name}`);
    },
  );
}

withBrowser(
  `dashboard: members are sorted by any figure, compared in a chart, and shown over an hour; a reload keeps the range${CHROMIUM_SUFFIX}`,
  async (t) => {
    const cluster = threeNodes();
    cluster.nodes.push(new FakeNode('node-10', 0.5));
    for (const node of cluster.nodes) node.ticks = 5_000;
    cluster.nodes[3]!.overrides = { recent: undefined, version: '0.5.0' } as never;
    const { server, url } = await serve(cluster);
    t.teardown(() => server.stop());
    const { page, complaints } = await openPage(browser, url);
    t.teardown(() => page.close());
    await poll(page, 2);
    const names = () => page.locator('.members-scroll tbody .node-name').allTextContents();
    const header = page.locator('.members-scroll thead th').filter({ hasText: 'Read p99' });
    await header.getByRole('button').click();
    t.deepEqual(await names(), ['node-2', 'node-1', 'node-3', 'node-10'], 'slowest first, unknown last');
    t.is(await header.getAttribute('aria-sort'), 'descending');
    await header.getByRole('button').click();
    t.deepEqual(await names(), ['node-3', 'node-1', 'node-2', 'node-10']);
    t.is(await page.locator('[data-node="node-10"] [data-column="read_p99_s"]').textContent(), '–');
    // What nodes differ in is a column, and what they share is a line.
    t.is(await page.locator('[data-node="node-10"] [data-column="version"]').textContent(), '0.5.0');
    t.true(await page.locator('[data-node="node-10"] [data-column="protocol"]').isHidden());
    t.regex(
      (await page.locator('.shared').textContent()) ?? '',
      /^All nodes: reads over tcp, not rdma: no active RDMA device/,
    );
    await page.getByLabel('Compare nodes by').selectOption('evicted');
    t.is(await page.locator('.compare h3').textContent(), 'Evicted, by node');
    const lines = page.locator('.compare .legend li:visible .legend-label');
    t.deepEqual(await lines.allTextContents(), ['node-1', 'node-2', 'node-3', 'node-10']);
    const hour = page.getByRole('button', { name: '1 h' });
    const answered = page.waitForResponse('**/api/history?step_s=60');
    await hour.click();
    await answered;
    await poll(page, 2);
    t.is(await hour.getAttribute('aria-pressed'), 'true');
    t.regex((await page.locator('.tile.hero').first().textContent()) ?? '', /last hour/);
    await screenshot(page, 'hour-light-1280');
    await page.reload();
    await poll(page, 1);
    t.is(await hour.getAttribute('aria-pressed'), 'true');
    await page.locator('[data-node="node-2"] button').click();
    t.true(await page.locator('.node-facts').isVisible());
    t.regex((await page.locator('.facts').textContent()) ?? '', /Version0\.6\.0.*Control endpoint10\.0\.0\.7:40123/);
    await screenshot(page, 'node-light-1280');
    t.deepEqual(await seriousFindings(page), []);
    t.deepEqual(complaints, []);
  },
);

withBrowser(
  `dashboard: a serving node that is gone is said within two polls, and its return ends that${CHROMIUM_SUFFIX}`,
  async (t) => {
    const cluster = threeNodes();
    const { server, url, port } = await serve(cluster);
    const { page } = await openPage(browser, url);
    t.teardown(() => page.close());
    await poll(page, 3);
    const banner = page.getByRole('alert');
    t.false(await banner.isVisible());
    const total = await metric(page, 'reads.local');
    await server.stop();
    for (let i = 0; i < 2; i++) {
      const failed = page.waitForEvent('requestfailed');
      await page.clock.runFor(1_000);
      await failed;
    }
    await banner.waitFor();
    t.regex(
      (await banner.textContent()) ?? '',
      /^This node does not answer since \d\d:\d\d:\d\d; what is below is from then\.$/,
    );
    t.is(await metric(page, 'reads.local'), total);
    t.regex(await page.title(), /^No answer/);
    const verdict = page.locator('.verdict');
    t.regex((await verdict.textContent()) ?? '', /^Not known: no answer since \d\d:\d\d:\d\d$/);
    t.is(await verdict.getAttribute('data-status'), 'unknown');
    const state = page.locator('[data-node="node-1"] .state');
    t.is(await state.textContent(), 'was up');
    t.is(await textColor(page, '[data-node="node-1"] .state'), await textColor(page, '.note'), 'dimmed');
    t.deepEqual(await seriousFindings(page), []);
    await screenshot(page, 'lost-light-1280');
    const again = await serve(cluster, { port });
    t.teardown(() => again.server.stop());
    await poll(page, 2);
    t.false(await banner.isVisible());
    t.true((await metric(page, 'reads.local')) > total);
    t.is(await verdict.textContent(), 'All is well: 3 nodes answer.');
    t.is(await state.textContent(), 'up');
  },
);

withBrowser(
  `dashboard: a token is asked for, refused when wrong, and kept for the tab${CHROMIUM_SUFFIX}`,
  async (t) => {
    const { server, url } = await serve(threeNodes(), { token: 'open-sesame' });
    t.teardown(() => server.stop());
    const { page } = await openPage(browser, url, LOOKS[5], { isLive: true });
    t.teardown(() => page.close());
    const input = page.getByLabel(/^Token/);
    await input.waitFor();
    t.false(await page.locator('#report').isVisible());
    t.deepEqual(await seriousFindings(page), []);
    await screenshot(page, 'token-dark-390');
    await input.fill('wrong');
    await page.keyboard.press('Enter');
    await page.getByText('did not accept this token').waitFor();
    await input.fill('open-sesame');
    await page.keyboard.press('Enter');
    await page.locator('#report').waitFor();
    t.false(await input.isVisible());
    await page.reload();
    await page.locator('#report').waitFor();
    t.false(await input.isVisible());
  },
);

withBrowser(
  `dashboard: without disks and clients, all figures of a member fit into a window of 1280 pixels, also when one is lost${CHROMIUM_SUFFIX}`,
  async (t) => {
    const cluster = threeNodes();
    const nodes = [0, 1, 2].map((i) => new FakeNode(`node-36a1303c8146fb9${i}`, 1 - i / 4, false));
    for (const node of nodes) node.overrides = { clients: undefined } as never;
    cluster.nodes.splice(0, cluster.nodes.length, ...nodes);
    const { server, url } = await serve(cluster);
    t.teardown(() => server.stop());
    const { page } = await openPage(browser, url);
    t.teardown(() => page.close());
    await poll(page, 2);
    const widths = (): Promise<[number, number]> =>
      page.locator('.members-scroll').evaluate((element) => [element.scrollWidth, element.clientWidth]);
    for (const state of ['up', 'unreachable'] as const) {
      cluster.nodes[2]!.state = state;
      await poll(page, 1);
      const titles = await page.locator('.members thead th:visible').allTextContents();
      t.true(
        ['Node', 'Read p99', 'Page lifetime', 'Loop delay p99', 'Uptime'].every((title) => titles.includes(title)),
      );
      const [needed, shown] = await widths();
      t.is(needed, shown, state);
    }
  },
);

withBrowser(
  `dashboard: no word of the table of members is broken in two, however wide the window${CHROMIUM_SUFFIX}`,
  async (t) => {
    const cluster = threeNodes();
    cluster.nodes[1]!.health = { status: 'degraded', reasons: ['The disk is full.'] };
    const { server, url } = await serve(cluster);
    t.teardown(() => server.stop());
    const { page } = await openPage(browser, url);
    t.teardown(() => page.close());
    await poll(page, 2);
    // A word that is broken has boxes on two lines.
    const broken = `[...document.querySelectorAll('.members td')].flatMap((cell) => {
    const found = [];
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text !== null; text = texts.nextNode()) {
      for (const { index, 0: word } of text.data.matchAll(/[\\p{L}\\d]+/gu)) {
        const range = new Range();
        range.setStart(text, index);
        range.setEnd(text, index + word.length);
        if (new Set([...range.getClientRects()].map(({ top }) => top)).size > 1) found.push(word);
      }
    }
    return found;
  })`;
    for (const state of ['up', 'unreachable'] as const) {
      cluster.nodes[2]!.state = state;
      await poll(page, 1);
      for (const width of [390, 600, 761, 800, 1024, 1280, 1560]) {
        await page.setViewportSize({ width, height: 900 });
        t.deepEqual(await page.evaluate(broken), [], `${state}, ${width} pixels wide`);
        t.false(await scrollsSideways(page));
      }
    }
  },
);

withBrowser(`dashboard: an idle cluster's axes name different values${CHROMIUM_SUFFIX}`, async (t) => {
  const cluster = threeNodes();
  cluster.stepS = 0;
  for (const node of cluster.nodes) node.ticks = 0;
  const drawn: string[] = [];
  const { server, url } = await serve(cluster);
  t.teardown(() => server.stop());
  const { page } = await openPage(browser, url);
  t.teardown(() => page.close());
  await page.evaluate(`{
    window.drawn = [];
    const fillText = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
      window.drawn.push([...document.querySelectorAll('canvas')].indexOf(this.canvas) + ': ' + text);
      return fillText.call(this, text, ...rest);
    };
  }`);
  // Time goes by, nothing is done.
  for (let i = 0; i < 3; i++) {
    cluster.timeMs += 1_000;
    drawn.length = 0;
    await page.evaluate('window.drawn.length = 0');
    await poll(page, 1);
    drawn.push(...((await page.evaluate('window.drawn')) as string[]));
  }
  const rates = drawn.filter((text) => text.endsWith('B/s'));
  t.true(rates.length >= 2, drawn.join());
  t.is(new Set(rates).size, rates.length, rates.join());
});

withBrowser(`dashboard: fifty nodes, of which some know less, fit${CHROMIUM_SUFFIX}`, async (t) => {
  const cluster = new FakeCluster(
    Array.from({ length: 50 }, (_, i) => new FakeNode(`gpu-${i}.rack-${i % 4}.example`, 1 + (i % 3), i % 2 === 0)),
  );
  const cut = {
    latency: undefined,
    health: undefined,
    transport: undefined,
    lookups: undefined,
    disk: undefined,
    events: undefined,
  };
  cluster.nodes[7]!.overrides = cut as never;
  const { server, url } = await serve(cluster);
  t.teardown(() => server.stop());
  for (const look of [LOOKS[1], LOOKS[2]]) {
    const { page, complaints } = await openPage(browser, url, look);
    await poll(page, 5);
    t.is(await page.locator('.members-scroll tbody tr').count(), 50);
    t.false(await scrollsSideways(page));
    t.deepEqual(await seriousFindings(page), []);
    t.deepEqual(complaints, []);
    await screenshot(page, `fifty-${look.name}`);
    await page.close();
  }
});

withBrowser(
  `dashboard: everything is reached by keyboard, and each chart has its values as a table${CHROMIUM_SUFFIX}`,
  async (t) => {
    const { server, url } = await serve(threeNodes());
    t.teardown(() => server.stop());
    const { page } = await openPage(browser, url);
    t.teardown(() => page.close());
    await poll(page, 40);
    const theme = page.locator('#theme');
    t.is(await theme.textContent(), 'Dark theme');
    const reached: string[] = [];
    const focused = 'document.activeElement.id || document.activeElement.textContent.slice(0, 40)';
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press('Tab');
      const name = String(await page.evaluate(focused));
      reached.push(name);
      if (name === 'theme' && reached.indexOf(name) === reached.length - 1) await page.keyboard.press('Enter');
      if (name === 'Values as a table' && reached.filter((one) => one === name).length <= 6)
        await page.keyboard.press('Enter');
    }
    t.is(await theme.textContent(), 'Light theme');
    t.is(await page.evaluate('document.documentElement.dataset.theme'), 'dark');
    for (const name of ['Skip to the figures', 'scope', '30 min', 'Read p99', 'node-1', 'node-2', 'node-3', 'compare'])
      t.true(reached.includes(name), `${name} in ${reached}`);
    t.is(await page.locator('.data[open]').count(), 6);
    t.true((await page.locator('.data tbody tr').count()) >= 8);
    const words = await page
      .getByRole('img', { name: /^Line chart/ })
      .first()
      .getAttribute('aria-label');
    t.regex(words ?? '', /^Line chart, prefix hit, last 5 min\. Now: found [\d.]+ %\.$/);
    t.deepEqual(await seriousFindings(page), []);
  },
);

withBrowser(
  `dashboard: attached processes are shown by node, and nothing of them where there are none${CHROMIUM_SUFFIX}`,
  async (t) => {
    const cluster = threeNodes();
    const [first, second] = cluster.nodes;
    const { server, url } = await serve(cluster);
    t.teardown(() => server.stop());
    const { page, complaints } = await openPage(browser, url);
    t.teardown(() => page.close());
    await poll(page, 2);
    const section = page.locator('#clients-section');
    const names = () => page.locator('.clients tbody th bdi').allTextContents();
    t.true(await section.isVisible());
    t.deepEqual(await names(), ['sglang-llama-3-70b-tp0', 'vllm@scheduler']);
    t.deepEqual(await page.locator('[data-client="vllm@scheduler"] td').allTextContents(), [
      'node-1',
      'staged',
      '12,345',
      '3',
      '75.0 %',
      '58.1 MiB',
      '31.3 MiB',
      '2',
      '64.0 GiB',
    ]);
    await page.getByLabel('Show', { exact: true }).selectOption('node=node-2');
    t.true(await section.isHidden());
    const many = Array.from({ length: 32 }, (_, i) => fakeClient(`engine-${i}`));
    second!.overrides = { clients: { socket: '', attached: 40, busiest: many } };
    await poll(page, 1);
    t.true(await section.isVisible());
    t.is((await names()).length, 32);
    t.is((await names())[31], 'engine-31');
    t.is(await section.locator('.note').textContent(), '8 more are attached, which have moved fewer bytes.');
    await page.getByLabel('Show', { exact: true }).selectOption('cluster');
    t.is((await names()).length, 34);

    // The node's last report is not what is attached now.
    second!.state = 'unreachable';
    const last = fakeClient('last', { lookups: 0, found: 0, hits: 0, misses: 0 });
    first!.overrides = { clients: { socket: '', attached: 1, busiest: [last] } };
    await poll(page, 1);
    t.deepEqual(await names(), ['last']);
    t.is(await page.locator('[data-client="last"] [data-label="Prefix hit"]').textContent(), '–');
    first!.overrides = {};
    await poll(page, 1);
    t.true(await section.isHidden());
    t.deepEqual(complaints, []);
  },
);
