import type { ExecutionContext } from 'ava';
import test from 'ava';
import { DiskError } from '../../src/base/errors.js';
import { type Keys, stringsOf } from '../../src/core/binding/key-batch.js';
import { LocatedPages } from '../../src/directory/messages/located-pages.js';
import { resolve } from '../../src/memory/address-space.js';
import { crc32 } from '../../src/memory/checksum.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool } from '../../src/node/machine/machine-node.js';
import { type CopyThreads, nativeCopyThreads } from '../../src/pool/copy-threads.js';
import type { PublishedPage } from '../../src/pool/published-pool.js';
import { PageFeed } from '../../src/store/call/page-feed.js';
import type { AskedReason, HoldOutcome } from '../../src/store/ground/other-holders.js';
import type { PageStatements } from '../../src/store/ground/page-statements.js';
import { HeldPages } from '../../src/store/holding/held-pages.js';
import type { WantedPages } from '../../src/store/holding/wanted-pages.js';
import type { PagePins } from '../../src/store/pins/page-pins.js';
import type { ReadOp, Transport } from '../../src/transport/contract/transport.js';
import { DataLocation, type EntryKind, type NodeRole } from '../../src/types.js';
import { assertFound, losing } from '../_support/planted.js';
import { HeldCopies, settled } from '../_support/pool/held-copies.js';
import { pageBytes } from '../_support/pool/page-bytes.js';
import { groundOf } from '../_support/store/ground.js';
import { content, until } from '../_support/support.js';

const PAGE = 4096;
/** Version of all pages at their owner. */
const VERSION = 5;
/** A page on the disk without content. */
const NO_PAGE = {
  offset: 0,
  length: PAGE,
  checksum: 0,
  slot: 0,
  state: 'live',
  alreadyPresent: true,
  setBy: 0,
  expires: 0,
} as const;

/**
 * Copies into a pool of `poolPages` pages from an owner whose pages are `keys`, content {@link content} of their
 * numbers.
 */
function newHeld(
  t: ExecutionContext,
  {
    poolPages = 64,
    keys = ['k0'],
    lengthOf = (_key: string): number => PAGE,
    kindOf = (_key: string): EntryKind => 'computed',
    copyThreads = nativeCopyThreads as CopyThreads,
    role = 'peer' as NodeRole,
    pinned = [] as readonly string[],
  } = {},
) {
  const region = HostRegion.allocate(poolPages * PAGE);
  const pool = new PublishedPool(region.addr, region.length, 7, { copyThreads });
  const announced: string[] = [];
  const written: string[] = [];
  const wanted: string[] = [];
  let lookups = 0;
  const dropped = new Set<string>();
  const untaken = new Set<string>();
  const forgotten: string[] = [];
  const onDisk = new Map<string, PublishedPage>();
  const atOwner = new Map(keys.map((key, i) => [key, content(i, lengthOf(key))]));
  const locationOf = (key: string): DataLocation | null => {
    const bytes = atOwner.get(key);
    if (bytes === undefined) return null;
    const [remoteAddr, length, checksum] = [BigInt(keys.indexOf(key)), lengthOf(key), crc32(bytes)];
    return new DataLocation({
      nodeId: 'owner',
      rdmaEndpoint: '',
      remoteAddr,
      rkey: 1,
      length,
      checksum,
      version: VERSION,
      kind: kindOf(key),
    });
  };
  /** What happens between a read, or an announcement, and its end. */
  const hooks = { onRead() {}, onAnnounce: async () => {}, onRemoveOlder: async () => {} };
  const transport = {
    async batchRead(ops: readonly ReadOp[]) {
      const results = ops.map(({ localAddr, remoteAddr, length, checksum }) => {
        const bytes = atOwner.get(keys[Number(remoteAddr)] as string);
        if (bytes === undefined || bytes.length !== length || crc32(bytes) !== checksum) return false;
        resolve(Number(localAddr), length)?.[0]?.set(bytes);
        return true;
      });
      hooks.onRead();
      return results;
    },
    isReachable: () => true,
  } as unknown as Transport;
  const feed = new PageFeed();
  feed.follow({ evicted: (some) => void forgotten.push(...some) });
  const ground = groundOf({
    ...{ pool, transport, feed },
    pins: { has: (key: string) => pinned.includes(key) } as unknown as PagePins,
    cluster: { nodeId: 'copier', dataEndpointOf: () => 'owner:1' },
    directory: {
      discard: async () => {},
      get: async (some) => some.map(locationOf),
      find: async (some, onFound) => {
        lookups++;
        onFound(
          LocatedPages.of(
            stringsOf(some).flatMap((key, i) =>
              locationOf(key) === null ? [] : [[i, locationOf(key) as DataLocation]],
            ),
          ),
        );
      },
    },
    disk: {
      isHung: false,
      renew() {},
      writeThrough: (some: Keys) => void written.push(...stringsOf(some)),
      peekBatch: (some: Keys) => stringsOf(some).map((key) => onDisk.get(key) ?? null),
      removeOlder: () => hooks.onRemoveOlder(),
    },
  });
  const statements = {
    async announcePromoted(some: readonly string[]) {
      announced.push(...some);
      await hooks.onAnnounce();
      const versions = pool.peekBatch(some).map((page) => page?.version ?? 0);
      pool.states.noteStated(some, versions, (i) => !untaken.has(some[i] as string));
      return some.filter((key) => untaken.has(key));
    },
    isVoid: (key: string) => dropped.has(key),
    async dropCopies(some: readonly string[], voidBelow: readonly number[]) {
      held.gone(pool.removeOlder(some, voidBelow, 'copies'));
    },
    async restate() {},
  } as unknown as PageStatements;
  const handedOn = { read: (some: readonly string[]) => wanted.push(...some) } as unknown as WantedPages;
  const held = new HeldPages(ground, {
    statements,
    promoter: null,
    objects: undefined,
    wanted: handedOn,
    role,
    copyThreads,
  });
  feed.follow(held);
  t.teardown(async () => {
    await held.close();
    await pool.end();
    pool.free();
    region.free();
  });
  const bytesAt = (key: string): Uint8Array | null => {
    const [page] = pool.peekBatch([key]);
    return page ? pageBytes(pool, page) : null;
  };
  /** A request of the node that has the pages. */
  const asked = async (some: readonly string[], why: AskedReason, version = VERSION): Promise<HoldOutcome[]> => {
    const pages = some.map((key) => new DataLocation({ ...(locationOf(key) as DataLocation), version }));
    return held.hold({ why, asker: 'owner', keys: some, pages });
  };
  const handOver = async (some: readonly string[]): Promise<number[]> =>
    (await asked(some, 'handover')).map((outcome) => Number(outcome === 'held'));
  const at = { announced, dropped, untaken, forgotten, onDisk, atOwner, written, wanted, lookups: () => lookups };
  return { held, pool, hooks, ...at, bytesAt, asked, handOver };
}

test('held pages: a page is read, checked, published and announced; asked again, it is here', async (t) => {
  const { held, announced, bytesAt } = newHeld(t, { keys: ['k0', 'k1'] });
  t.deepEqual([...(await held.bring(['k0', 'k1', 'nobody has it'], 'hot'))], [1, 1, 0]);
  t.deepEqual(bytesAt('k1'), content(1, PAGE));
  t.deepEqual(announced, ['k0', 'k1']);
  t.deepEqual([...(await held.bring(['k1'], 'hot'))], [1]);
  t.is(announced.length, 2);
});

// Cause: nobody told this node when the page was cleared, or set anew, and it went on reading its copy.
test('held pages: a copy that no directory owner has taken is dropped again, what the program has set meanwhile is not', async (t) => {
  const { held, pool, hooks, untaken, forgotten, bytesAt } = newHeld(t, { keys: ['k0', 'k1', 'k2'] });
  for (const key of ['k0', 'k1']) untaken.add(key);
  hooks.onRead = () => void pool.publishBatch(['k1'], [{ views: [content(99, PAGE)], length: PAGE }]);
  t.deepEqual([...(await held.bring(['k0', 'k1', 'k2'], 'hot'))], [0, 1, 1]);
  t.deepEqual(bytesAt('k1'), content(99, PAGE));
  t.deepEqual(forgotten, ['k0']);
  t.is(held.passingBytes, PAGE);
});

// Cause: only passing copies were dropped; what was placed on a storage node and that no owner had taken became readable.
test('held pages: a page that is placed here and that no directory owner has taken is dropped again', async (t) => {
  const { pool, untaken, asked } = newHeld(t, { keys: ['k0', 'k1'], role: 'storage', kindOf: () => 'named' });
  untaken.add('k0');
  t.deepEqual(await asked(['k0', 'k1'], 'placement'), ['absent', 'held']);
  t.deepEqual(pool.keys(), ['k1']);
});

// Cause: what was in the pool by then could be read, though no owner knew of it: a newer content, or a delete, did not
// reach it.
test('held pages: one whose older content the disk cannot remove is dropped again', async (t) => {
  const { handOver, pool, hooks, announced } = newHeld(t, { keys: ['k0', 'k1'], kindOf: () => 'named' });
  hooks.onRemoveOlder = () => Promise.reject(new DiskError('removed pages cannot be recorded'));
  await handOver(['k0', 'k1']).catch(() => {});
  t.deepEqual([announced, pool.size], [[], 0]);
  hooks.onRemoveOlder = async () => {};
  hooks.onAnnounce = () => Promise.reject(new Error('broken'));
  await handOver(['k0', 'k1']).catch(() => {});
  t.is(pool.size, 0, 'nor one that was not announced');
});

// Cause: a copy was published like a page that is set, and took the place of what had been set while it was read.
test('held pages: what the program sets under the key while it is being copied stays, and is no copy', async (t) => {
  const { held, handOver, pool, hooks, announced, bytesAt } = newHeld(t, { keys: ['k0', 'k1'] });
  const own = content(99, PAGE);
  hooks.onRead = () => void pool.publishBatch(['k0'], [{ views: [own], length: PAGE }]);
  t.deepEqual(await handOver(['k0', 'k1']), [1, 1]);
  t.deepEqual(bytesAt('k0'), own);
  t.deepEqual(bytesAt('k1'), content(1, PAGE));
  t.deepEqual(announced, ['k1']);
  t.is(held.passingBytes, PAGE);
});

test('held pages: a page that has other bytes at its owner than the directory says is not copied', async (t) => {
  const { held, pool, atOwner } = newHeld(t);
  const copying = held.bring(['k0'], 'hot');
  atOwner.set('k0', content(5, PAGE / 2));
  t.deepEqual([...(await copying)], [0]);
  t.is(pool.size, 0);
});

// One page too many and none of its batch was copied.
test('held pages: what a quarter of the pool has room for is copied, to the byte; of what is read often the earliest go', async (t) => {
  const keys = Array.from({ length: 30 }, (_, i) => `k${i}`);
  const { held, handOver, pool, bytesAt } = newHeld(t, { keys });
  t.deepEqual(await handOver(keys.slice(0, 10)), Array(10).fill(1));
  const next = await handOver(keys.slice(10, 20));
  t.deepEqual(next, [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
  t.is(pool.size, 16);
  t.deepEqual([...(await held.bring(keys.slice(20, 24), 'hot'))], [1, 1, 1, 1]);
  t.is(pool.size, 16);
  t.deepEqual([...pool.hasBatch(keys.slice(0, 6))], [0, 0, 0, 0, 1, 1]);
  t.deepEqual(bytesAt('k23'), content(23, PAGE));
});

// An empty page made the whole request fail.
test('held pages: a length that no page has costs no other page', async (t) => {
  const { held, bytesAt } = newHeld(t, {
    keys: ['k0', 'empty'],
    lengthOf: (key) => (key === 'empty' ? 0 : PAGE),
  });
  t.deepEqual([...(await held.bring(['empty', 'k0'], 'hot'))], [0, 1]);
  t.deepEqual(bytesAt('k0'), content(0, PAGE));
});

test('held pages: a page that this node is told to drop after it was read, and before it is in the pool, does not come back', async (t) => {
  // Cause: the copy waited for its turn in the pool, and nobody looked again whether it was still wanted.
  const copyThreads = new HeldCopies();
  const { held, pool, hooks, announced, dropped } = newHeld(t, { copyThreads });
  // Somebody else's copy has the turn.
  hooks.onRead = () => void pool.publishPages(['other'], [{ views: [content(9, PAGE)], length: PAGE }]);
  const copying = held.bring(['k0'], 'hot');
  await until(() => copyThreads.count > 0);
  await settled();
  dropped.add('k0');
  await copyThreads.finishAll();
  t.deepEqual([...(await copying)], [0]);
  t.deepEqual(announced, []);
});

test('held pages: an older content than the own disk has is not copied', async (t) => {
  // Cause: a page that was set while its directory owner was cut off lay on the disk behind such a copy, and the
  // directory listed the copy.
  const keys = ['older', 'same', 'newer', 'computed'];
  const kindOf = (key: string) => (key === 'computed' ? 'computed' : 'named');
  const { held, onDisk, announced } = newHeld(t, { keys, kindOf });
  const ofDisk = (version: number, kind: EntryKind): PublishedPage => ({ ...NO_PAGE, version, kind });
  onDisk.set('older', ofDisk(VERSION + 1, 'named'));
  onDisk.set('same', ofDisk(VERSION, 'named'));
  onDisk.set('newer', ofDisk(VERSION - 1, 'named'));
  onDisk.set('computed', ofDisk(VERSION + 1, 'computed'));
  t.deepEqual([...(await held.bring(keys, 'hot'))], [0, 1, 1, 1]);
  t.deepEqual(announced, ['same', 'newer', 'computed']);
});

test('held pages: until the owners have answered, nobody reads a copy here, and a request to drop it finds it', async (t) => {
  // Cause: the page had been set anew while it was copied, and the copy was read until the owners' answer had come.
  const { held, pool, hooks, bytesAt } = newHeld(t, { keys: ['k0', 'k1', 'k2'] });
  const target = { views: [new Uint8Array(PAGE)], length: PAGE };
  const read = async (key: string) => {
    const isFound = pool.lookupBatch([key])[0] !== null;
    const [outcome] = await pool.readPages([key], [target], { isVerified: true });
    const [served = null] = await pool.serve([key], true);
    if (served !== null && served !== 'damaged') served.release();
    return [isFound, outcome, served !== null];
  };
  hooks.onAnnounce = async () => {
    t.deepEqual(await read('k0'), [false, 'absent', false]);
    t.deepEqual(bytesAt('k0'), content(0, PAGE));
    const own = { views: [content(9, PAGE)], length: PAGE };
    pool.publishBatch(['k1'], [own]);
    t.deepEqual((await read('k1')).slice(0, 2), [true, 'read'], 'what the program has set');
    t.deepEqual(pool.removeOlder(['k2'], [VERSION + 1], 'copies'), ['k2']);
  };
  t.deepEqual([...(await held.bring(['k0', 'k1', 'k2'], 'hot'))], [1, 1, 0]);
  t.deepEqual(await read('k0'), [true, 'read', true]);
});

test('held pages: what is handed over comes from the node that asks, and is handed on; a node that stops takes nothing', async (t) => {
  const { held, lookups, wanted, written, asked } = newHeld(t, { keys: ['k0', 'k1', 'k2'] });
  t.deepEqual(await asked(['k0', 'k1'], 'handover'), ['held', 'held']);
  t.is(lookups(), 0, 'nobody else was asked');
  t.deepEqual(wanted, ['k1', 'k0']);
  t.deepEqual([written, held.passingBytes], [[], 2 * PAGE], 'a second location is not written');
  t.deepEqual(await asked(['k0'], 'placement'), ['busy'], 'that is for storage nodes');
  held.stop();
  t.deepEqual(await asked(['k0'], 'handover'), ['busy']);
  t.deepEqual([...(await held.bring(['k0', 'k2'], 'hot'))], [1, 0]);
  t.is(lookups(), 0);
});

test('held pages: a storage node keeps what is placed on it, written to its disk, and says what it does not take', async (t) => {
  const keys = ['k0', 'k1', 'large', 'newer'];
  const { held, pool, onDisk, written, asked, handOver } = newHeld(t, {
    keys,
    poolPages: 8,
    role: 'storage',
    kindOf: () => 'named',
    lengthOf: (key) => (key === 'large' ? 9 * PAGE : PAGE),
  });
  onDisk.set('newer', { ...NO_PAGE, checksum: 1, version: VERSION + 1, kind: 'named' });
  t.deepEqual(await asked(keys, 'placement'), ['held', 'held', 'too_large', 'outdated']);
  t.deepEqual([written, held.passingBytes], [['k0', 'k1'], 0]);
  // The same bytes were set again.
  t.deepEqual(await asked(['k0'], 'placement', VERSION + 2), ['held']);
  t.is(pool.peekBatch(['k0'])[0]?.version, VERSION + 2);
  t.deepEqual(await handOver(['k1']), [1]);
  t.is(written.length, 2);
});

// Cause: a page that had been copied before because it was read often was evicted for the next of them, and its node
// went on counting it as placed.
test('held pages: a passing page that is placed here stays, and is written', async (t) => {
  const keys = Array.from({ length: 12 }, (_, i) => `k${i}`);
  const { held, pool, written, asked } = newHeld(t, { keys, poolPages: 16, role: 'storage' });
  t.deepEqual([...(await held.bring(keys.slice(0, 4), 'hot'))], [1, 1, 1, 1]);
  t.deepEqual(await asked(['k0'], 'placement'), ['held']);
  t.deepEqual([written, held.passingBytes], [['k0'], 3 * PAGE]);
  t.deepEqual([...(await held.bring(keys.slice(4, 8), 'hot'))], [1, 1, 1, 1]);
  t.deepEqual([...pool.hasBatch(keys.slice(0, 8))], [1, 0, 0, 0, 1, 1, 1, 1]);
});

test.serial('verify: held pages', async (t) => {
  const { held, handOver } = newHeld(t, { keys: ['k0', 'k1'] });
  await handOver(['k0', 'k1']);
  await assertFound(t, held, /held pages: bytes: \d+ by what is kept, \d+ when counted/, () =>
    losing(Map.prototype, 'delete', () => held.set(['k0'])),
  );
});
