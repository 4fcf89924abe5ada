import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { PoolAllocator } from '../../src/core/index.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool } from '../../src/node/machine/machine-node.js';
import { nativeCopyThreads } from '../../src/pool/copy-threads.js';
import { PageFills } from '../../src/pool/page-fills.js';
import { PageIndex, type Wish } from '../../src/pool/page-index.js';
import { PageLeases } from '../../src/pool/page-leases.js';
import { PageStamps } from '../../src/pool/page-stamps.js';
import { PoolGround } from '../../src/pool/pool-ground.js';
import type { PublishedPage } from '../../src/pool/published-pool.js';
import { ManualClock } from '../_support/clock.js';
import { assertAsks, assertFound, losing } from '../_support/planted.js';
import { content } from '../_support/support.js';

const PAGE = 1024;
const wish = (key: string): Wish => ({ key, length: PAGE, here: null, intent: 'new' });

/** An index with pages `a` and `b`. */
function newIndex(): PageIndex {
  const index = new PageIndex({ capacityBytes: 16 * PAGE, nowMs: () => 0 });
  for (const vacancy of index.place([wish('a'), wish('b')]).vacancies) index.fill(vacancy, PAGE, 1);
  return index;
}

function newPool(t: ExecutionContext) {
  const region = HostRegion.allocate(16 * PAGE);
  const pool = new PublishedPool(region.addr, region.length, 1, { stamps: seededRandom(1) });
  t.teardown(() => {
    pool.free();
    region.free();
  });
  const set = (key: string) => pool.publishBatch([key], [{ views: [content(1, PAGE)], length: PAGE }]);
  for (const key of ['a', 'b']) set(key);
  return { pool, region, set };
}

test.serial('verify: page index', async (t) => {
  const unpinned = newIndex();
  await assertFound(t, unpinned, /pages that are here and held: 0 by what is kept, 1/, () =>
    losing(PoolAllocator.prototype, 'pinBatch', () => unpinned.hold(['a'])),
  );
  const unheld = newIndex();
  await assertFound(t, unheld, /"c" is unfilled and not held/, () => {
    const { vacancies } = unheld.place([wish('c')]);
    losing(PageIndex.prototype, 'hold', () => unheld.holdUnfilled(vacancies));
  });
  const freed = newIndex();
  freed.free();
  t.notThrows(() => freed.verify());
  assertAsks(t, newIndex(), [PoolAllocator]);
});

test.serial('verify: page leases', async (t) => {
  const page = (index: PageIndex): PublishedPage => index.peekBatch(['a'])[0] as PublishedPage;
  const unheld = newIndex();
  const leasesUnheld = new PageLeases(unheld);
  await assertFound(t, leasesUnheld, /of "a", and its holds: 1, allowed are 0/, () =>
    losing(PageIndex.prototype, 'hold', () => leasesUnheld.take('a', page(unheld))),
  );
  const index = newIndex();
  const leases = new PageLeases(index);
  const lease = leases.take('a', page(index));
  leases.take('a', page(index));
  await assertFound(t, leases, /an ended lease of "a" is kept/, () => {
    index.hold(['a']);
    losing(Set.prototype, 'delete', () => leases.end(lease));
  });
  const moved = newIndex();
  const leasesMoved = new PageLeases(moved);
  await assertFound(t, leasesMoved, /the page of "a" at 512 is at 0/, () =>
    leasesMoved.take('a', { ...page(moved), offset: 512 }),
  );
});

test.serial('verify: page fills', async (t) => {
  const region = HostRegion.allocate(16 * PAGE);
  t.teardown(() => region.free());
  const ground = new PoolGround(region.addr, region.length, {
    clock: new ManualClock(),
    copyThreads: nativeCopyThreads,
  });
  const fills = new PageFills(ground);
  void fills.fill(['c'], [PAGE], () => new Promise(() => {}));
  await assertFound(t, fills, /"c" is being filled and not held/, () => ground.index.release(['c']));
});

test.serial('verify: page stamps, published pool', async (t) => {
  const overwritten = newPool(t);
  await assertFound(t, overwritten.pool, /stamp of slot 0/, () => overwritten.region.bytes().fill(1));
  const undestroyed = newPool(t);
  await assertFound(t, undestroyed.pool, /slots with one: 2 by what is kept, 1/, () =>
    losing(PageStamps.prototype, 'destroy', () => undestroyed.pool.remove('a')),
  );
  const unstamped = newPool(t);
  await assertFound(t, unstamped.pool, /offset of the stamp of slot 2/, () =>
    losing(PageStamps.prototype, 'set', () => unstamped.set('c')),
  );
  assertAsks(t, newPool(t).pool, [PageIndex, PageLeases, PageFills, PageStamps]);
});
