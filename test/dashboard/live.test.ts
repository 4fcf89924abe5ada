import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import type { Browser, Page } from 'playwright-core';
import { quantileOf } from '../../src/base/quantile.js';
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
  `dashboard live: one of three is killed under load: a page opened after that tells it right, and so do all nodes${CHROMIUM_SUFFIX}`,
  async (t) => {
    const [head, serving, victim] = cluster.agents as readonly ClusterAgent[] as [
      ClusterAgent,
      ClusterAgent,
      ClusterAgent,
    ];
    const { page: early } = await openPage(browser, urlOf(serving), LOOKS[0], { isLive: true });
    const victimId = await nodeIdOf(victim);
    const rowOf = (page: Page) => page.locator(`[data-node="${victimId}"]`);
    await rowOf(early).waitFor();
    t.is(await rowOf(early).getAttribute('data-state'), 'up');
    let isLoaded = true;
    const load = Promise.all([head, serving].map((agent) => keepBusy(agent, () => isLoaded)));
    process.kill(victim.pid, 'SIGKILL');
    const killedMs = patientClock.nowMs();
    await until(async () => (await rowOf(early).getAttribute('data-state')) !== 'up');
    const shownS = (patientClock.nowMs() - killedMs) / 1000;
    t.log(`shown after ${shownS.toFixed(2)} s`);
    t.true(shownS <= 2 * HEARTBEAT_S, `${shownS} s`);
    await until(async () => (await rowOf(early).getAttribute('data-state')) === 'lost');
    for (const [agent, look] of [
      [serving, LOOKS[0]],
      [head, LOOKS[2]],
    ] as const) {
      const { page, complaints } = await openPage(browser, urlOf(agent), look, { isLive: true });
      await rowOf(page).waitFor();
      await until(async () => (await rowOf(page).getAttribute('data-state')) === 'lost');
      t.is(await page.locator('.verdict').getAttribute('data-status'), 'lost');
      t.regex((await page.locator('.verdict').textContent()) ?? '', /^1 lost; 2 of 3 nodes answer$/);
      const troubles = (await page.locator('.troubles .loss').textContent()) ?? '';
      t.regex(troubles, /lost since \d\d:\d\d:\d\d: no heartbeat for 6 s, no good-bye\./);
      const lost = page.locator('.events li').filter({ hasText: 'lost: no heartbeat' });
      t.is(await lost.count(), 1, 'two nodes have seen it, it is one event');
      t.is(await lost.getAttribute('data-level'), 'error');
      t.is(await lost.locator('.event-node').textContent(), victimId);
      t.regex((await page.locator('#charts-note').textContent()) ?? '', /a red line marks the time/);
      // The charts begin before the page was opened.
      await page.locator('.chart summary').first().click();
      await until(async () => (await page.locator('.chart').first().locator('tbody tr').count()) >= 2);
      t.deepEqual(complaints, []);
      await screenshot(page, `live-incident-${look.name}`);
      await page.close();
    }
    isLoaded = false;
    await load;
    const exposed = await (await fetch(`${urlOf(head)}metrics`)).text();
    t.is(sumOf(exposed, 'meshcache_member_changes_total', ['change="lost"']), 1);
    t.is(sumOf(exposed, 'meshcache_member_changes_total', ['change="left"']), 0);
    t.is(sumOf(exposed, 'meshcache_lost_members', []), 1);
    process.kill(serving.pid, 'SIGKILL');
    const banner = early.getByRole('alert');
    await banner.waitFor({ timeout: PATIENCE_MS });
    const silent = /^This node does not answer since \d\d:\d\d:\d\d; what is below is from then\.$/;
    t.regex((await banner.textContent()) ?? '', silent);
    await screenshot(early, 'live-lost');
    t.is((await fetch(`${urlOf(head)}healthz`)).status, 200, 'the others live on');
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
    const asked = sumOfAll(expositions, 'meshcache_lookup_pages_total');
    const found = sumOfAll(expositions, 'meshcache_lookup_pages_total', ['result="found"']);
    if (misses !== (await metric(page, 'reads.misses'))) differences.push('reads.misses');
    if (asked !== (await metric(page, 'lookups.asked'))) differences.push('lookups.asked');
    // The headline is of the last five minutes, in which everything has happened here.
    const saved = sumOfAll(expositions, 'meshcache_read_bytes_total');
    for (const [name, exposed] of [
      ['prefill_saved_bytes', saved],
      ['prefix_hit_rate', found / asked],
      ['read_p50_s', readQuantile(expositions, 0.5)],
      ['read_p99_s', readQuantile(expositions, 0.99)],
    ] as const) {
      const shown = await metric(page, name);
      if (!isAlmost(shown, exposed)) differences.push(`${name}: ${shown} is shown, ${exposed} exposed`);
    }
    for (const text of expositions) differences.push(...(await memberDifferences(page, text)));
    return differences.length === 0;
  };
  await until(agree).catch(() => {
    throw new Error(`the page and /metrics differ: ${differences.join('; ')}`);
  });
}

/** Figures of the table of members, each with the sample of the same number. */
const MEMBER_SAMPLES: Readonly<Record<string, readonly [name: string, digits: number]>> = {
  event_loop_p99_s: ['nodejs_eventloop_lag_p99_seconds', 1e-2],
  rss_bytes: ['process_resident_memory_bytes', 0.1],
  uptime_s: ['meshcache_uptime_seconds', 0.2],
};

/** What the row of a node says otherwise than the node's metrics; these change from one second to the next. */
async function memberDifferences(page: Page, exposition: string): Promise<string[]> {
  const [, nodeId = ''] = /meshcache_uptime_seconds\{[^}]*node_id="([^"]*)"/.exec(exposition) ?? [];
  const row = page.locator(`[data-node="${nodeId}"]`);
  const shownOf = (column: string) => row.locator(`[data-column="${column}"]`).getAttribute('data-value');
  const differences: string[] = [];
  for (const [column, [name, tolerance]] of Object.entries(MEMBER_SAMPLES)) {
    const [shown, exposed] = [Number(await shownOf(column)), sumOf(exposition, name, [])];
    if (Math.abs(shown - exposed) > tolerance * Math.max(1e-3, exposed) + 0.02)
      differences.push(`${column} of ${nodeId}: ${shown}, ${exposed}`);
  }
  const used =
    sumOf(exposition, 'meshcache_pool_used_bytes', []) / sumOf(exposition, 'meshcache_pool_capacity_bytes', []);
  if (!isAlmost(Number(await shownOf('pool')), used)) differences.push(`pool of ${nodeId}`);
  return differences;
}

/** A quantile of the read calls of all nodes, as Prometheus would compute it from the histograms. */
function readQuantile(expositions: readonly string[], quantile: number): number {
  const upTo = new Map<number, number>();
  for (const line of expositions.flatMap((text) => text.split('\n'))) {
    const [, le] = /^meshcache_read_seconds_bucket\{.*le="([^"]+)"/.exec(line) ?? [];
    if (le === undefined) continue;
    const bound = le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le);
    upTo.set(bound, (upTo.get(bound) ?? 0) + Number(line.slice(line.lastIndexOf(' ') + 1)));
  }
  const bounds = [...upTo.keys()].sort((a, b) => a - b);
  const counts = bounds.map((bound, i) => (upTo.get(bound) ?? 0) - (upTo.get(bounds[i - 1] ?? -1) ?? 0));
  return quantileOf({ boundsS: bounds.slice(0, -1), counts }, quantile) ?? Number.NaN;
}

function isAlmost(shown: number, exposed: number): boolean {
  return Math.abs(shown - exposed) <= 1e-6 * Math.abs(exposed);
}

function sumOfAll(expositions: readonly string[], name: string, labels: readonly string[] = []): number {
  return expositions.reduce((sum, text) => sum + sumOf(text, name, labels), 0);
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
