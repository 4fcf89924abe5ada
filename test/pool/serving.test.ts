import test, { type ExecutionContext } from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import { PublishedPool } from '../../src/node/machine/machine-node.js';
import { PageIndex } from '../../src/pool/page-index.js';
import type { ServedPage } from '../../src/pool/published-pool.js';
import { systemRandom } from '../../src/system/system-random.js';
import { assertFound, losing } from '../_support/planted.js';
import { removeAll } from '../_support/pool/remove-all.js';
import { content } from '../_support/support.js';

const PAGE = 64 * 2 ** 10;
/** Four pages may be served at a time. */
const POOL_PAGES = 128;

function newPool(t: ExecutionContext) {
  const region = HostRegion.allocate(POOL_PAGES * PAGE);
  const pool = new PublishedPool(region.addr, region.length, 1, { stamps: systemRandom });
  t.teardown(() => {
    pool.free();
    region.free();
  });
  const set = (key: string, bytes: Uint8Array) => pool.publishPages([key], [{ views: [bytes], length: bytes.length }]);
  return { pool, region, set };
}

async function serve(pool: PublishedPool, key: string): Promise<ServedPage> {
  const [served = null] = await pool.serve([key], true);
  if (served === null || served === 'damaged') throw new Error(`${key} is not served: ${served}`);
  return served;
}

const bytesOf = ({ views }: ServedPage): Buffer => Buffer.concat(views);

test('pool serving: a served page keeps its bytes when it is removed, cleared, or its room is wanted', async (t) => {
  const { pool, set } = newPool(t);
  for (const end of [() => pool.remove('a'), () => removeAll(pool), () => {}]) {
    const page = content(1, PAGE);
    t.truthy((await set('a', page))[0]);
    const served = await serve(pool, 'a');
    end();
    for (let i = 0; i < 3 * POOL_PAGES; i++) await set(`other-${i}`, content(i, PAGE));
    pool.verify();
    t.true(bytesOf(served).equals(page));
    served.release();
    served.release();
    pool.verify();
    removeAll(pool);
  }
});

test('pool serving: pages of all short lengths are served together, each with its own bytes', async (t) => {
  const { pool, set } = newPool(t);
  const pages = Array.from({ length: 20 }, (_, i) => content(i, i + 1));
  for (const [i, page] of pages.entries()) t.truthy((await set(`${i}`, page))[0]);
  for (const isVerified of [true, false]) {
    const served = await pool.serve(
      pages.map((_, i) => `${i}`),
      isVerified,
    );
    for (const [i, page] of served.entries()) {
      if (page === null || page === 'damaged') {
        t.fail(`${i + 1} bytes: ${page}`);
        continue;
      }
      t.deepEqual(bytesOf(page), Buffer.from(pages[i] as Uint8Array), `${i + 1} bytes`);
      page.release();
    }
  }
});

test('pool serving: setting the key waits for the release, and no further one is served meanwhile', async (t) => {
  const { pool, set } = newPool(t);
  const [page, newer] = [content(1, PAGE), content(2, PAGE)];
  await set('a', page);
  const [first, second] = [await serve(pool, 'a'), await serve(pool, 'a')];
  const wanted: string[] = [];
  first.onWanted = () => wanted.push('first');
  second.onWanted = () => wanted.push('second');
  const setting = set('a', newer);
  t.deepEqual(wanted, ['first', 'second']);
  t.deepEqual(await pool.serve(['a'], true), [null]);
  first.release();
  t.true(bytesOf(second).equals(page));
  second.release();
  t.truthy((await setting)[0]);
  const served = await serve(pool, 'a');
  t.true(bytesOf(served).equals(newer));
  served.release();
});

test('pool serving: setting the key gives up when the page is not released', async (t) => {
  const { pool, set } = newPool(t);
  await set('a', content(1, PAGE));
  const served = await serve(pool, 'a');
  t.deepEqual(await set('a', content(2, PAGE)), [null]);
  t.true(bytesOf(served).equals(content(1, PAGE)));
  served.release();
  t.truthy((await set('a', content(2, PAGE)))[0]);
});

test('pool serving: a damaged page is found before anything of it is sent, and goes', async (t) => {
  const { pool, region, set } = newPool(t);
  const [place] = await set('a', content(1, PAGE));
  const bytes = region.bytes((place?.offset ?? 0) + 100, 1);
  bytes[0] = (bytes[0] as number) ^ 1;
  t.deepEqual(await pool.serve(['a'], true), ['damaged']);
  t.false(pool.has('a'));
  t.deepEqual(await pool.serve(['a'], true), [null]);
  pool.verify();
});

test('pool serving: only a part of the pool is held', async (t) => {
  const { pool, set } = newPool(t);
  const served: ServedPage[] = [];
  for (let i = 0; i < 4; i++) {
    await set(`${i}`, content(i, PAGE));
    served.push(await serve(pool, `${i}`));
  }
  await set('more', content(5, PAGE));
  t.deepEqual(await pool.serve(['more'], true), [null]);
  for (const page of served) page.release();
  (await serve(pool, 'more')).release();
});

test.serial('verify: page serving', async (t) => {
  const { pool, set } = newPool(t);
  await set('a', content(1, PAGE));
  await assertFound(t, pool, /page serving: of "a", and its holds: 1, allowed are 0/, () =>
    losing(PageIndex.prototype, 'hold', () => void pool.serve(['a'], false)),
  );
});
