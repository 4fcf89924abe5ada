// A program with a store of its own that sets pages and is told to end in the same moment; it ends as `meshcache node`
// does.
import { MeshCacheStore } from '../../../src/node/meshcache-store.js';
import { content } from '../../_support/support.js';

export interface LeavingNodeSetup {
  readonly config: Readonly<Record<string, unknown>>;
  readonly pages: number;
  readonly pageBytes: number;
  /** Whether to set pages; otherwise they are looked up. */
  readonly isSetting: boolean;
}

export interface LeavingNodeAnswer {
  /** Pages that were set, or found with every byte right. */
  readonly pages: number;
  /** Bytes that waited for the disk when the program was told to end. */
  readonly queueBytes: number;
}

process.once('message', async ({ config, pages, pageBytes, isSetting }: LeavingNodeSetup) => {
  const ranks = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
  const store = await MeshCacheStore.create({ ...ranks, extraConfig: config });
  process.once('SIGTERM', () => void store.close().then(() => process.exit(0)));
  const contents = Array.from({ length: pages }, (_, i) => content(i, pageBytes));
  // Together, so that the disk falls behind.
  const areGood = await Promise.all(
    contents.map(async (page, i) => {
      if (isSetting) return store.set(`page ${i}`, page);
      return Buffer.from((await store.get(`page ${i}`)) ?? []).equals(page);
    }),
  );
  const count = areGood.filter((isGood) => isGood).length;
  const queueBytes = store.stats().disk?.queueBytes ?? 0;
  process.send?.({ pages: count, queueBytes } satisfies LeavingNodeAnswer, () => process.kill(process.pid, 'SIGTERM'));
});
process.once('disconnect', () => process.exit(1));
