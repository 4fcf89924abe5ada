import type { DiskStore } from '../disk/disk-store.js';
import type { PublishedPool } from '../pool/published-pool.js';
import { diskStatus } from './disk-wiring.js';
import type { Drain } from './drain.js';
import type { StoreReporter } from './node-reporting.js';

/** What a store has, as its node reports it. */
export function storeReporter(pool: PublishedPool, disk: DiskStore | null, drain: Drain): StoreReporter {
  return {
    report() {
      const { entries, usedBytes, capacityBytes, quarantinedBytes, evictions } = pool.stats();
      return {
        pool: {
          entries,
          used_bytes: usedBytes,
          capacity_bytes: capacityBytes,
          quarantined_bytes: quarantinedBytes,
          evictions,
        },
        disk: disk === null ? null : diskStatus(disk.info()),
      };
    },
    troubles() {
      const failure = disk?.info().failure ?? null;
      return [
        ...(drain.isDraining ? ['the node is being drained'] : []),
        ...(failure === null ? [] : [`the disk tier fails: ${failure}`]),
      ];
    },
  };
}
