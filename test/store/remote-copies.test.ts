import test, { type ExecutionContext } from 'ava';
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
import { RemoteCopies } from '../../src/store/copies/remote-copies.js';
import type { PageStatements } from '../../src/store/ground/page-statements.js';
import type { ReadOp, Transport } from '../../src/transport/contract/transport.js';
import { DataLocation, type EntryKind } from '../../src/types.js';
import { assertFound, losing } from '../_support/planted.js';
import { HeldCopies, settled } from '../_support/pool/held-copies.js';
import { pageBytes } from '../_support/pool/page-bytes.js';
import { groundOf } from '../_support/store/ground.js';
import { content, until } from '../_support/support.js';

const PAGE = 4096;
/** Version of all pages at their owner. */
const VERSION = 5;

/**
 * Copies into a pool of `poolPages` pages from an owner whose pages are `keys`, content {@link content} of their
 * numbers.
 */
function newCopies(
  t: ExecutionContext,
  {
    poolPages = 64,
    keys = ['k0'],
    lengthOf = (_key: string): number => PAGE,
    kindOf = (_key: string): EntryKind => 'computed',
    copyThreads = nativeCopyThreads as CopyThreads,
  } = {},
) {
  const region = HostRegion.allocate(poolPages * PAGE);
  const pool = new PublishedPool(region.addr, region.length, 7, { copyThreads });
  const announced: string[] = [];
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
    cluster: { nodeId: 'copier', dataEndpointOf: () => 'owner:1' },
    directory: {
      discard: async () => {},
      get: async (some) => some.map(locationOf),
      find: async (some, onFound) => {
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
      peekBatch: (some: Keys) => stringsOf(some).map((key) => onDisk.get(key) ?? null),
      removeOlder: () => hooks.onRemoveOlder(),
    },
  });
  const statements = {
    async announcePromoted(some: readonly string[]) {
      announced.push(...some);
      await hooks.onAnnounce();
      return some.filter((key) => untaken.has(key));
    },
    isVoid: (key: string) => dropped.has(key),
  } as unknown as PageStatements;
  const copies = new RemoteCopies(ground, statements, copyThreads);
  t.teardown(async () => {
    await copies.close();
    await pool.end();
    pool.free();
    region.free();
  });
  const bytesAt = (key: string): Uint8Array | null => {
    const [page] = pool.peekBatch([key]);
    return page ? pageBytes(pool, page) : null;
  };
  return { copies, pool, hooks, announced, dropped, untaken, forgotten, onDisk, atOwner, bytesAt };
}

test('copies: a page is read, checked, published and announced; asked again, it is here', async (t) => {
  const { copies, announced, bytesAt } = newCopies(t, { keys: ['k0', 'k1'] });
  t.deepEqual([...(await copies.copy(['k0', 'k1', 'nobody has it'], 'handover'))], [1, 1, 0]);
  t.deepEqual(bytesAt('k1'), content(1, PAGE));
  t.deepEqual(announced, ['k0', 'k1']);
  t.deepEqual([...(await copies.copy(['k1'], 'handover'))], [1]);
  t.is(announced.length, 2);
});

// Cause: nobody told this node when the page was cleared, or set anew, and it went on reading its copy.
test('copies: a copy that no directory owner has taken is dropped again, what the program has set meanwhile is not', async (t) => {
  const { copies, pool, hooks, untaken, forgotten, bytesAt } = newCopies(t, { keys: ['k0', 'k1', 'k2'] });
  for (const key of ['k0', 'k1']) untaken.add(key);
  hooks.onRead = () => void pool.publishBatch(['k1'], [{ views: [content(99, PAGE)], length: PAGE }]);
  t.deepEqual([...(await copies.copy(['k0', 'k1', 'k2'], 'hot'))], [0, 1, 1]);
  t.deepEqual(bytesAt('k1'), content(99, PAGE));
  t.deepEqual(forgotten, ['k0']);
  t.is(copies.copiedBytes, PAGE);
});

// Cause: what was in the pool by then could be read, though no owner knew of it: a newer content, or a delete, did not
// reach it.
test('copies: one whose older content the disk cannot remove is dropped again', async (t) => {
  const { copies, pool, hooks, announced } = newCopies(t, { keys: ['k0', 'k1'], kindOf: () => 'named' });
  hooks.onRemoveOlder = () => Promise.reject(new DiskError('removed pages cannot be recorded'));
  await copies.copy(['k0', 'k1'], 'handover').catch(() => {});
  t.deepEqual([announced, pool.size], [[], 0]);
  hooks.onRemoveOlder = async () => {};
  hooks.onAnnounce = () => Promise.reject(new Error('broken'));
  await copies.copy(['k0', 'k1'], 'handover').catch(() => {});
  t.is(pool.size, 0, 'nor one that was not announced');
});

// Cause: a copy was published like a page that is set, and took the place of what had been set while it was read.
test('copies: what the program sets under the key while it is being copied stays, and is no copy', async (t) => {
  const { copies, pool, hooks, announced, bytesAt } = newCopies(t, { keys: ['k0', 'k1'] });
  const own = content(99, PAGE);
  hooks.onRead = () => void pool.publishBatch(['k0'], [{ views: [own], length: PAGE }]);
  t.deepEqual([...(await copies.copy(['k0', 'k1'], 'handover'))], [1, 1]);
  t.deepEqual(bytesAt('k0'), own);
  t.deepEqual(bytesAt('k1'), content(1, PAGE));
  t.deepEqual(announced, ['k1']);
  t.is(copies.copiedBytes, PAGE);
});

test('copies: a page that has other bytes at its owner than the directory says is not copied', async (t) => {
  const { copies, pool, atOwner } = newCopies(t);
  const copying = copies.copy(['k0'], 'handover');
  atOwner.set('k0', content(5, PAGE / 2));
  t.deepEqual([...(await copying)], [0]);
  t.is(pool.size, 0);
});

// One page too many and none of its batch was copied.
test('copies: what a quarter of the pool has room for is copied, to the byte; of what is read often the earliest go', async (t) => {
  const keys = Array.from({ length: 30 }, (_, i) => `k${i}`);
  const { copies, pool, bytesAt } = newCopies(t, { keys });
  t.deepEqual([...(await copies.copy(keys.slice(0, 10), 'handover'))], Array(10).fill(1));
  const next = await copies.copy(keys.slice(10, 20), 'handover');
  t.deepEqual([...next], [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
  t.is(pool.size, 16);
  t.deepEqual([...(await copies.copy(keys.slice(20, 24), 'hot'))], [1, 1, 1, 1]);
  t.is(pool.size, 16);
  t.deepEqual([...pool.hasBatch(keys.slice(0, 6))], [0, 0, 0, 0, 1, 1]);
  t.deepEqual(bytesAt('k23'), content(23, PAGE));
});

// An empty page made the whole request fail.
test('copies: a length that no page has costs no other page', async (t) => {
  const { copies, bytesAt } = newCopies(t, {
    keys: ['k0', 'empty'],
    lengthOf: (key) => (key === 'empty' ? 0 : PAGE),
  });
  t.deepEqual([...(await copies.copy(['empty', 'k0'], 'handover'))], [0, 1]);
  t.deepEqual(bytesAt('k0'), content(0, PAGE));
});

test('copies: a page that this node is told to drop after it was read, and before it is in the pool, does not come back', async (t) => {
  // Cause: the copy waited for its turn in the pool, and nobody looked again whether it was still wanted.
  const copyThreads = new HeldCopies();
  const { copies, pool, hooks, announced, dropped } = newCopies(t, { copyThreads });
  // Somebody else's copy has the turn.
  hooks.onRead = () => void pool.publishPages(['other'], [{ views: [content(9, PAGE)], length: PAGE }]);
  const copying = copies.copy(['k0'], 'hot');
  await until(() => copyThreads.count > 0);
  await settled();
  dropped.add('k0');
  await copyThreads.finishAll();
  t.deepEqual([...(await copying)], [0]);
  t.deepEqual(announced, []);
});

test('copies: an older content than the own disk has is not copied', async (t) => {
  // Cause: a page that was set while its directory owner was cut off lay on the disk behind such a copy, and the
  // directory listed the copy.
  const keys = ['older', 'same', 'newer', 'computed'];
  const kindOf = (key: string) => (key === 'computed' ? 'computed' : 'named');
  const { copies, onDisk, announced } = newCopies(t, { keys, kindOf });
  const ofDisk = (version: number, kind: EntryKind): PublishedPage => {
    return {
      offset: 0,
      length: PAGE,
      checksum: 0,
      slot: 0,
      alreadyPresent: true,
      version,
      kind,
      setBy: 0,
      expires: 0,
    };
  };
  onDisk.set('older', ofDisk(VERSION + 1, 'named'));
  onDisk.set('same', ofDisk(VERSION, 'named'));
  onDisk.set('newer', ofDisk(VERSION - 1, 'named'));
  onDisk.set('computed', ofDisk(VERSION + 1, 'computed'));
  t.deepEqual([...(await copies.copy(keys, 'hot'))], [0, 1, 1, 1]);
  t.deepEqual(announced, ['same', 'newer', 'computed']);
});

test('copies: until the owners have answered, nobody reads a copy here, and a request to drop it finds it', async (t) => {
  // Cause: the page had been set anew while it was copied, and the copy was read until the owners' answer had come.
  const { copies, pool, hooks, bytesAt } = newCopies(t, { keys: ['k0', 'k1', 'k2'] });
  const target = { views: [new Uint8Array(PAGE)], length: PAGE };
  const read = async (key: string) => {
    const isFound = pool.lookupBatch([key])[0] !== null;
    const [outcome] = await pool.readPages([key], [target], { isVerified: true });
    const served = await pool.serve(key, true);
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
  t.deepEqual([...(await copies.copy(['k0', 'k1', 'k2'], 'hot'))], [1, 1, 0]);
  t.deepEqual(await read('k0'), [true, 'read', true]);
});

test.serial('verify: remote copies', async (t) => {
  const { copies } = newCopies(t, { keys: ['k0', 'k1'] });
  await copies.copy(['k0', 'k1'], 'handover');
  await assertFound(t, copies, /remote copies: bytes: \d+ by what is kept, \d+ when counted/, () =>
    losing(Map.prototype, 'delete', () => copies.set(['k0'])),
  );
});
