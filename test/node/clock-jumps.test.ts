import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { PAGE_BYTES, startCluster, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const DAY_MS = 86_400_000;
/** Dates that differ by twice as much are those of members. */
const MINUTES_MS = 140_000;

/** The date of a host, which an operator sets. */
class HostDate {
  readonly #world: TestWorld;
  readonly #host: string;
  #aheadMs = 0;

  constructor(world: TestWorld, host: string) {
    this.#world = world;
    this.#host = host;
  }

  setAhead(ms: number): void {
    this.#world.hosts.get(this.#host)?.time.jump(ms - this.#aheadMs);
    this.#aheadMs = ms;
  }
}

simulated(
  'clock: dates that jump by minutes, forth and back, change nothing: no member is lost, no read missed',
  async (t, world) => {
    // Another master would make up for one that loses members.
    const stores = await startCluster(world, 3, { max_masters: 1 });
    const clocks = ['10.0.0.1', '10.0.0.2', '10.0.0.3'].map((host) => new HostDate(world, host));
    const incarnations = () => stores.map(({ runtime }) => runtime.incarnation);
    const before = incarnations();
    let pages = 0;
    for (const aheadMs of [MINUTES_MS, -MINUTES_MS, 0, MINUTES_MS / 2]) {
      for (const [i, clock] of clocks.entries()) {
        clock.setAhead(i === 0 ? -aheadMs : aheadMs);
        const untilMs = world.nowMs + 300;
        while (world.nowMs < untilMs) {
          const key = `page ${pages}`;
          const [writer, reader] = [stores[pages % 3], stores[(pages + 1) % 3]] as [MeshCacheStore, MeshCacheStore];
          t.true(await writer.set(key, content(pages, PAGE_BYTES)));
          t.deepEqual(await reader.get(key), content(pages, PAGE_BYTES));
          t.is(reader.stats().members, 3);
          pages++;
          await world.sleep(5);
        }
      }
    }
    t.deepEqual(incarnations(), before, 'nobody had to join again');
    t.log(`${pages} pages set and read`);
  },
);

simulated(
  'clock: a node that starts again with its date a day back joins, and what it sets is found',
  async (t, world) => {
    const stays = await startStore(world);
    const setup = { host: '10.0.0.2', config: { node_id: 'node-1' } };
    const leaves = await startStore(world, setup);
    await world.until(() => stays.stats().members === 2);
    t.true(await leaves.set('early', content(1, PAGE_BYTES)));
    await leaves.close();
    world.hosts.get(setup.host)?.time.jump(-DAY_MS);
    const again = await startStore(world, setup);
    await world.until(() => stays.runtime.members().get('node-1')?.incarnation === again.runtime.incarnation);
    t.true(again.runtime.incarnation < leaves.runtime.incarnation);
    t.is(await stays.get('early'), null);
    await world.until(async () => again.set('late', content(2, PAGE_BYTES)));
    t.deepEqual(await stays.get('late'), content(2, PAGE_BYTES));
  },
);

test('clock: the date is asked for only where it is shown, or tells one start of a node, or one content of a key, from another', (t) => {
  const allowed = [
    'base/concurrency/hybrid-clock.ts',
    'base/environment/clock.ts',
    'directory/client.ts',
    'discovery/messages/cluster-settings.ts',
    'discovery/messages/wire.ts',
    'discovery/server.ts',
    'net/credentials/credential-files.ts',
    'net/credentials/door-tls.ts',
    'net/credentials/secured-environment.ts',
    'node/audit/audit-log.ts',
    'node/reporting/cluster-reporter.ts',
    'node/reporting/member-events.ts',
    'node/reporting/recent-events.ts',
    'node/runtime/own-record.ts',
    // In place of a count that cannot be read any more, and in signatures.
    'objects/clear-marker.ts',
    'objects/object-client.ts',
    // Redis clients give and ask for expiries as dates.
    'resp/resp-server.ts',
    'store/events/page-events.ts',
    'system/system-clock.ts',
    'system/system-log.ts',
  ];
  const asking = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !/^(cli|bench|dashboard|sim)\//.test(file))
    .filter((file) => /\bwallMs\(\)|\bDate\.now\(|\bnew Date\(/.test(readFileSync(join('src', file), 'utf8')));
  t.deepEqual(asking.sort(), allowed);
});
