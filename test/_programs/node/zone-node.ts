// A node of its own process, in a cluster with zones: it sets pages, reads those of others, and tells what left its
// zone.
import { createStore } from '../../_support/node/store-fixture.js';
import { countZoneShares } from '../../_support/node/zone-shares.js';
import { content, until } from '../../_support/support.js';

export interface ZoneNodeSetup {
  readonly discoveryPort: number;
  readonly config: Readonly<Record<string, unknown>>;
  readonly members: number;
  /** Pages that this node sets. */
  readonly set: readonly string[];
  /** Pages that it reads, when it is told to. */
  readonly read: readonly string[];
  readonly pageBytes: number;
}

process.once('message', async (setup: ZoneNodeSetup) => {
  const { discoveryPort, config, members, set, read, pageBytes } = setup;
  const store = await createStore(discoveryPort, config);
  await until(() => store.stats().members === members);
  for (const key of set) await store.set(key, content(key.length, pageBytes));
  // Lookups go to the nearest owner when no former ring counts any more.
  await until(() => store.runtime.directory.rings().length === 1);
  process.once('message', async () => {
    const shares = countZoneShares(store);
    const pages = await Promise.all(read.map((key) => store.get(key)));
    const right = pages.filter((page, i) => {
      return page !== null && Buffer.compare(page, content((read[i] as string).length, pageBytes)) === 0;
    }).length;
    process.send?.({ ...shares, right });
  });
  process.send?.('ready');
});
process.once('disconnect', () => process.exit());
