import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Clock } from '../../src/base/clock.js';
import { silentLogger } from '../../src/base/log.js';
import { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { patientClock } from '../patient-clock.js';
import { content, freePort, until } from '../support.js';

const DAY_MS = 86_400_000;
const PAGE_BYTES = 4096;

/** The machine's clock, but for the date, which an operator sets. */
class SetClock implements Clock {
  aheadMs = 0;

  nowMs(): number {
    return patientClock.nowMs();
  }

  wallMs(): number {
    return patientClock.wallMs() + this.aheadMs;
  }

  after(delayMs: number, fn: () => void, options?: { keepAlive?: boolean }): () => void {
    return patientClock.after(delayMs, fn, options);
  }

  yield(): Promise<void> {
    return patientClock.yield();
  }

  soon(fn: () => void): void {
    patientClock.soon(fn);
  }
}

function createStore(port: number, nodeId: string, clock: Clock): Promise<MeshCacheStore> {
  const extraConfig = {
    discovery_addr: `127.0.0.1:${port}`,
    protocol: 'tcp',
    node_id: nodeId,
    global_segment_size: '16mb',
    heartbeat_interval: 0.1,
    member_ttl: 0.8,
    reuse_quarantine_ms: 50,
    metrics_port: 0,
  };
  const ranks = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
  return MeshCacheStore.create({ ...ranks, extraConfig }, { log: silentLogger, clock });
}

async function startCluster(t: ExecutionContext, clocks: readonly Clock[]) {
  const port = await freePort();
  const stores: MeshCacheStore[] = [];
  t.teardown(() => Promise.all(stores.map((store) => store.close())));
  for (const [i, clock] of clocks.entries()) stores.push(await createStore(port, `node-${i}`, clock));
  await until(() => stores.every((store) => store.stats().members === clocks.length));
  return { port, stores };
}

test('clock: dates that jump by a day, forth and back, change nothing: no member is lost, no read missed', async (t) => {
  const clocks = [new SetClock(), new SetClock(), new SetClock()];
  const { stores } = await startCluster(t, clocks);
  const incarnations = () => stores.map(({ runtime }) => runtime.incarnation);
  const before = incarnations();
  let pages = 0;
  for (const aheadMs of [DAY_MS, -DAY_MS, 0, 365 * DAY_MS, -365 * DAY_MS]) {
    for (const [i, clock] of clocks.entries()) {
      clock.aheadMs = i === 0 ? -aheadMs : aheadMs;
      const untilMs = performance.now() + 300;
      while (performance.now() < untilMs) {
        const key = `page ${pages}`;
        const [writer, reader] = [stores[pages % 3], stores[(pages + 1) % 3]] as [MeshCacheStore, MeshCacheStore];
        t.true(await writer.set(key, content(pages, PAGE_BYTES)));
        t.deepEqual(await reader.get(key), content(pages, PAGE_BYTES));
        t.is(reader.stats().members, 3);
        pages++;
      }
    }
  }
  t.deepEqual(incarnations(), before, 'nobody had to join again');
  t.log(`${pages} pages set and read`);
});

test('clock: a node that starts again with its date a day back joins, and what it sets is found', async (t) => {
  const clock = new SetClock();
  const { port, stores } = await startCluster(t, [patientClock, clock]);
  const [stays, leaves] = stores as [MeshCacheStore, MeshCacheStore];
  t.true(await leaves.set('early', content(1, PAGE_BYTES)));
  await leaves.close();
  clock.aheadMs = -DAY_MS;
  const again = await createStore(port, 'node-1', clock);
  stores.push(again);
  await until(() => stays.stats().members === 2);
  t.true(again.runtime.incarnation < leaves.runtime.incarnation);
  t.is(await stays.get('early'), null);
  await until(async () => again.set('late', content(2, PAGE_BYTES)));
  t.deepEqual(await stays.get('late'), content(2, PAGE_BYTES));
});

test('clock: the date is asked for only where it is shown, or tells one start of a node, or one content of a key, from another', (t) => {
  const allowed = [
    'base/clock.ts',
    'base/hybrid-clock.ts',
    'base/log.ts',
    'base/secured-environment.ts',
    'directory/client.ts',
    'node/cluster-reporter.ts',
    'node/node-runtime.ts',
    'node/recent-events.ts',
  ];
  const asking = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !/^(cli|bench|dashboard|sim)\//.test(file))
    .filter((file) => /\bwallMs\(\)|\bDate\.now\(|\bnew Date\(/.test(readFileSync(join('src', file), 'utf8')));
  t.deepEqual(asking.sort(), allowed);
});
