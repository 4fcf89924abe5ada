import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import type { Browser, Page } from 'playwright-core';
import { Cluster, type ClusterAgent } from '../../src/cli/cluster/cluster.js';
import { CHROMIUM_SUFFIX, HAS_CHROMIUM } from '../_support/browser/chromium.js';
import {
  LOOKS,
  metric,
  openPage,
  screenshot,
  scrollsSideways,
  seriousFindings,
  startBrowser,
} from '../_support/dashboard/browser.js';
import { patientClock } from '../_support/patient-clock.js';
import { PATIENCE_MS, until } from '../_support/support.js';

const withBrowser = HAS_CHROMIUM ? test.serial : test.serial.skip;
const HEARTBEAT_S = 2;
/** Metrics that are compared, with the sample of the exposition that has the same number: its name and a label. */
const SAMPLES: Readonly<Record<string, readonly [name: string, label: string]>> = {
  'reads.local': ['meshcache_reads_total', 'source="local"'],
  'reads.remote': ['meshcache_reads_total', 'source="remote"'],
  'reads.disk': ['meshcache_reads_total', 'source="disk"'],
  'read_bytes.local': ['meshcache_read_bytes_total', 'source="local"'],
  'read_bytes.remote': ['meshcache_read_bytes_total', 'source="remote"'],
  'read_bytes.disk': ['meshcache_read_bytes_total', 'source="disk"'],
  'writes.pages': ['meshcache_writes_total', ''],
  'writes.bytes': ['meshcache_written_bytes_total', ''],
  'lookups.found': ['meshcache_lookup_pages_total', 'result="found"'],
  'pool.entries': ['meshcache_pool_entries', ''],
  'pool.evictions': ['meshcache_pool_evictions_total', ''],
  'disk.entries': ['meshcache_disk_keys', ''],
};

const folder = mkdtempSync(join(tmpdir(), 'meshcache-dashboard-'));
let browser: Browser;
let cluster: Cluster;

test.before(async () => {
  if (!HAS_CHROMIUM) return;
  browser = await startBrowser();
  cluster = await Cluster.start({
    nodes: 3,
    pageBytes: 16_384,
    components: 2,
    config: { global_segment_size: '4mb', heartbeat_interval: HEARTBEAT_S },
    nodeConfig: (index) => {
      if (index > 0) return {};
      return { disk_enabled: true, disk_path: join(folder, 'disk'), disk_size: '64mb' };
    },
  });
});
test.after.always(async () => {
  await browser?.close();
  await cluster?.close();
  rmSync(folder, { recursive: true, force: true });
});

withBrowser(
  `dashboard live: three processes under load, the numbers are those of /metrics${CHROMIUM_SUFFIX}`,
  async (t) => {
    const [serving] = cluster.agents;
    for (const look of LOOKS) {
      let isLoaded = true;
      const load = Promise.all(cluster.agents.map((agent) => keepBusy(agent, () => isLoaded)));
      const watched = await openPage(browser, urlOf(serving!), look, { isLive: true });
      const { page } = watched;
      await until(async () => (await metric(page, 'read_bytes_per_s').catch(() => 0)) > 0);
      await until(async () => (await metric(page, 'reads.disk')) > 0);
      // Enough for the charts to have a line.
      await page.waitForEvent('response', { predicate: after(6) });
      await screenshot(page, `live-${look.name}`);
      isLoaded = false;
      await load;
      t.deepEqual(await seriousFindings(page), []);
      t.false(await scrollsSideways(page));
      t.is(await page.locator('.members [data-state="up"] .state').count(), 3);
      await sameAsMetrics(page, cluster.agents);
      await page.locator('#scope').selectOption({ index: 1 });
      const chosen = (await page.locator('#scope').inputValue()).slice('node='.length);
      const agent = await agentOf(chosen);
      await sameAsMetrics(page, [agent]);
      t.deepEqual(watched.complaints, []);
      t.deepEqual(watched.outside, []);
      await page.close();
    }
  },
);

withBrowser(
  `dashboard live: a killed node is shown within two heartbeats, the serving one by the banner${CHROMIUM_SUFFIX}`,
  async (t) => {
    const [head, serving, victim] = cluster.agents;
    const { page } = await openPage(browser, urlOf(serving!), LOOKS[0], { isLive: true });
    const victimId = await nodeIdOf(victim!);
    const row = page.locator(`[data-node="${victimId}"]`);
    await row.waitFor();
    t.is(await row.getAttribute('data-state'), 'up');
    process.kill(victim!.pid, 'SIGKILL');
    const killedMs = patientClock.nowMs();
    await until(async () => (await row.getAttribute('data-state')) !== 'up');
    const shownS = (patientClock.nowMs() - killedMs) / 1000;
    t.log(`shown after ${shownS.toFixed(2)} s`);
    t.true(shownS <= 2 * HEARTBEAT_S, `${shownS} s`);
    await until(async () => (await row.getAttribute('data-state')) === 'gone');
    process.kill(serving!.pid, 'SIGKILL');
    const banner = page.getByRole('alert');
    await banner.waitFor({ timeout: PATIENCE_MS });
    t.regex(
      (await banner.textContent()) ?? '',
      /^This node does not answer since \d\d:\d\d:\d\d; what is below is from then\.$/,
    );
    await screenshot(page, 'live-lost');
    t.is((await fetch(`${urlOf(head!)}healthz`)).status, 200, 'the others live on');
  },
);

/** Reads and writes what it and the others have, a part of it missed. */
async function keepBusy(agent: ClusterAgent, goesOn: () => boolean): Promise<void> {
  const keyOf = (i: number): string => i.toString(16).padStart(16, '0').repeat(4);
  for (let turn = 0; goesOn(); turn++) {
    const first = ((turn * 7 + agent.index * 13) % 90) * 20;
    await agent.run([Array.from({ length: 40 }, (_, i) => keyOf(first + i))]);
  }
}

function urlOf(agent: ClusterAgent): string {
  return `http://${agent.metricsEndpoint}/`;
}

function after(count: number): () => boolean {
  let left = count;
  return () => --left <= 0;
}

/** Waits until the page and /metrics of these nodes agree in every number; fails with those that differ. */
async function sameAsMetrics(page: Page, agents: readonly ClusterAgent[]): Promise<void> {
  let differences: string[] = [];
  const agree = async (): Promise<boolean> => {
    const expositions = await Promise.all(agents.map(async (agent) => (await fetch(`${urlOf(agent)}metrics`)).text()));
    differences = [];
    for (const [name, [sample, label]] of Object.entries(SAMPLES)) {
      const isReads = sample === 'meshcache_reads_total';
      const labels = isReads ? [label, 'result="hit"'] : [label];
      const exposed = expositions.reduce((sum, text) => sum + sumOf(text, sample, labels), 0);
      const shown = await metric(page, name);
      if (exposed !== shown) differences.push(`${name}: ${shown} is shown, ${exposed} exposed`);
    }
    const misses = expositions.reduce((sum, text) => sum + sumOf(text, 'meshcache_reads_total', ['result="miss"']), 0);
    const asked = expositions.reduce((sum, text) => sum + sumOf(text, 'meshcache_lookup_pages_total', []), 0);
    if (misses !== (await metric(page, 'reads.misses'))) differences.push('reads.misses');
    if (asked !== (await metric(page, 'lookups.asked'))) differences.push('lookups.asked');
    return differences.length === 0;
  };
  await until(agree).catch(() => {
    throw new Error(`the page and /metrics differ: ${differences.join('; ')}`);
  });
}

function sumOf(exposition: string, name: string, labels: readonly string[]): number {
  return exposition
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`) && labels.every((label) => line.includes(label)))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
}

async function nodeIdOf(agent: ClusterAgent): Promise<string> {
  const report = (await (await fetch(`${urlOf(agent)}api/node`)).json()) as { node_id: string };
  return report.node_id;
}

async function agentOf(nodeId: string): Promise<ClusterAgent> {
  for (const agent of cluster.agents) if ((await nodeIdOf(agent)) === nodeId) return agent;
  throw new Error(`no agent is ${nodeId}`);
}
