import type { ExecutionContext } from 'ava';
import type { Clock } from '../../../src/base/environment/clock.js';
import { noMetrics } from '../../../src/base/environment/metrics-sink.js';
import { crc32 } from '../../../src/memory/checksum.js';
import { HostRegion } from '../../../src/memory/host-region.js';
import { PublishedPool, type PublishedPoolOptions } from '../../../src/node/machine/machine-node.js';
import type { HoldOutcome } from '../../../src/store/ground/other-holders.js';
import { Promoter } from '../../../src/store/holding/promoter.js';
import { DataLocation } from '../../../src/types.js';
import { patientClock } from '../patient-clock.js';
import { content } from '../support.js';
import { verifiedEnd } from '../verified.js';
import { DiskPages } from './disk-pages.js';

export const PAGE = 4096;

export interface OwnerOptions extends PublishedPoolOptions {
  readonly nodeId?: string;
  readonly poolPages: number;
  readonly diskPages: number;
  /** Which pages are good on the disk; default: all. */
  readonly isGood?: (key: string) => boolean;
  readonly pageBytes?: number;
  /** Bytes of the pool that are pinned; default: none. */
  readonly pinnedBytes?: number;
}

/**
 * A node with a small pool and pages `k0`, `k1`, ... on its disk, whose contents are {@link content} of their numbers.
 */
export async function newOwner(t: ExecutionContext, options: OwnerOptions) {
  const { nodeId = 'owner', poolPages, diskPages, pageBytes = PAGE, ...poolOptions } = options;
  const clock: Clock = options.clock ?? patientClock;
  const region = HostRegion.allocate(poolPages * pageBytes);
  const pool = new PublishedPool(region.addr, region.length, 7, { ...poolOptions, clock });
  const disk = await DiskPages.create(t);
  const keys = Array.from({ length: diskPages }, (_, i) => `k${i}`);
  for (const [i, key] of keys.entries()) await disk.write(key, content(i, pageBytes));
  const announced: string[] = [];
  const promoter = new Promoter({
    disk,
    pool,
    pinnedBytes: () => options.pinnedBytes ?? 0,
    confirm: async (some) => some.map((key) => options.isGood?.(key) ?? true),
    announce: async (some) => {
      announced.push(...some);
    },
    locationsOf: (some) =>
      pool.peekBatch(some).map((page) =>
        page === null
          ? null
          : new DataLocation({
              nodeId,
              rdmaEndpoint: '127.0.0.1:1',
              remoteAddr: pool.baseAddr + BigInt(page.offset),
              rkey: 7,
              length: page.length,
              checksum: page.checksum,
              incarnation: 5,
            }),
      ),
    clock,
    metrics: noMetrics,
  });
  t.teardown(async () => {
    await verifiedEnd([promoter, pool], () => promoter.close());
    promoter.verify();
    await pool.end();
    pool.free();
    region.free();
  });
  /** Reads like a one-sided read: the bytes that lie there now, if they match their checksum. */
  const readAt = (location: DataLocation): Uint8Array | null => {
    const bytes = Uint8Array.from(region.bytes(Number(location.remoteAddr - region.addr), location.length));
    return crc32(bytes) === location.checksum ? bytes : null;
  };
  return { pool, disk, keys, promoter, announced, readAt };
}

export function located(outcome: HoldOutcome | undefined): DataLocation {
  if (outcome instanceof DataLocation) return outcome;
  throw new Error(`not promoted: ${outcome}`);
}

/** Outcomes as letters: `p` promoted, `l` later, `-` absent. */
export function summary(outcomes: readonly HoldOutcome[]): string {
  return outcomes.map((outcome) => (outcome === 'absent' ? '-' : outcome === 'later' ? 'l' : 'p')).join('');
}
