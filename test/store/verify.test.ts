import test, { type ExecutionContext } from 'ava';
import { noMetrics } from '../../src/base/environment/metrics-sink.js';
import { WANTED_PAGES_MAX_COUNT } from '../../src/base/limits.js';
import { Removals } from '../../src/directory/shard/removals.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool } from '../../src/node/machine/machine-node.js';
import { DiskTier, type TierDisk } from '../../src/store/disk/disk-tier.js';
import { PageStatements } from '../../src/store/ground/page-statements.js';
import { HotReads } from '../../src/store/holding/hot-reads.js';
import { Promoter } from '../../src/store/holding/promoter.js';
import { WantedPages } from '../../src/store/holding/wanted-pages.js';
import { ManualClock } from '../_support/clock.js';
import { locationOf } from '../_support/directory/locations.js';
import { assertAsks, assertFound, lose, losing } from '../_support/planted.js';
import { groundOf } from '../_support/store/ground.js';
import { content } from '../_support/support.js';

const PAGE = 4096;

/** A pool with pages `a` and `b`. */
function newPool(t: ExecutionContext): PublishedPool {
  const region = HostRegion.allocate(64 * PAGE);
  const pool = new PublishedPool(region.addr, region.length, 1);
  t.teardown(() => {
    pool.free();
    region.free();
  });
  for (const key of ['a', 'b']) pool.publishBatch([key], [{ views: [content(1, PAGE)], length: PAGE }]);
  return pool;
}

test.serial('verify: wanted pages', async (t) => {
  const wanted = new WantedPages();
  wanted.read(['a', 'bc']);
  await assertFound(t, wanted, /wanted pages: characters: 3 by what is kept, 1/, () =>
    losing(Set.prototype, 'add', () => wanted.read(['bc'])),
  );
  const unbounded = new WantedPages();
  await assertFound(t, unbounded, /wanted pages: (keys|characters)/, () => {
    const keys = Array.from({ length: 2 * WANTED_PAGES_MAX_COUNT }, (_, i) => `${i}`);
    losing(Set.prototype, 'delete', () => unbounded.read(keys));
  });
});

test.serial('verify: hot reads', async (t) => {
  const reads = new HotReads({ bring: async () => new Uint8Array(0), mayCopy: true }, new ManualClock());
  reads.read(['a', 'b']);
  await assertFound(t, reads, /hot reads: characters: 3 by what is kept, 2/, () =>
    losing(Map.prototype, 'delete', () => reads.read(['a'])),
  );
});

test.serial('verify: promoter', async (t) => {
  const newPromoter = async () => {
    const pool = newPool(t);
    const promoter = new Promoter({
      pool,
      pinnedBytes: () => 0,
      disk: { peekBatch: (keys) => keys.map(() => null), readPages: async () => [] },
      announce: async () => {},
      confirm: async (keys) => keys.map(() => true),
      locationsOf: (keys) => keys.map(() => locationOf()),
      clock: new ManualClock(),
      metrics: noMetrics,
    });
    await promoter.promote('reader', ['a', 'b']);
    return { pool, promoter };
  };
  const isPage = (_: unknown, [key]: readonly unknown[]): boolean => key === 'a';
  const { promoter: undeleted } = await newPromoter();
  await assertFound(t, undeleted, /the page "a" is kept, neither leased nor on its way/, () =>
    losing(Map.prototype, 'delete', () => undeleted.release('reader', ['a']), { when: isPage }),
  );
  const { promoter: unkept, pool: unkeptPool } = await newPromoter();
  await assertFound(t, unkept, /promoter: bytes: 12288 by what is kept, 8192/, async () => {
    const isKeyOf = (_: unknown, [key]: readonly unknown[]): boolean => key === 'c';
    unkeptPool.publishBatch(['c'], [{ views: [content(1, PAGE)], length: PAGE }]);
    const found = lose(Map.prototype, 'set', { when: isKeyOf });
    await unkept.promote('reader', ['c']).finally(found);
  });
});

test.serial('verify: page statements', async (t) => {
  const pool = newPool(t);
  const statements = new PageStatements(
    groundOf({
      pool,
      clock: new ManualClock(),
      directory: { state: async (_keys, { count }) => new Uint8Array(count), delete: async () => {} },
    }),
  );
  assertAsks(t, statements, [Removals]);
});

test.serial('verify: disk tier', async (t) => {
  const pool = newPool(t);
  const releases: (() => void)[] = [];
  const disk = {
    hasBatch: (keys: readonly string[]) => new Uint8Array(keys.length),
    dropExpired() {},
    removeOther: () => false,
    hasRoomFor: () => releases.length < 1,
    fits: () => true,
    exists: () => false,
    skipped() {},
    state: { isPaused: false, isHung: false },
    putPage(_key: string, _page: unknown, _checksum: number, release: () => void) {
      releases.push(release);
      return 'queued';
    },
  } as unknown as TierDisk;
  const tier = new DiskTier({ disk, pool, writes: 'wait', clock: new ManualClock(), metrics: noMetrics });
  tier.writeThrough(['a', 'b'], pool.peekBatch(['a', 'b']));
  await assertFound(t, tier, /disk tier: bytes that are held: 4096 by what is kept, 8192/, () =>
    losing(Map.prototype, 'delete', () => tier.evicted(['b'])),
  );
  const other = new DiskTier({ disk, pool, writes: 'wait', clock: new ManualClock(), metrics: noMetrics });
  releases.length = 0;
  other.writeThrough(['a'], pool.peekBatch(['a']));
  await assertFound(t, other, /disk tier: bytes that are held: 0 by what is kept, 4096/, () =>
    losing(Set.prototype, 'delete', () => releases[0]?.()),
  );
});
