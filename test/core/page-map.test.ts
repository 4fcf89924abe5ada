import test from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { PAGE_MAP_MAX_NODES } from '../../src/base/limits.js';
import {
  absencesOf,
  MARK_ABSENT,
  MARK_SURE,
  MARK_THERE,
  NODE_SURE,
  NOWHERE,
  PageMap,
  pageMarks,
} from '../../src/core/map/page-map.js';

function keysOf(count: number, name = 'page'): string[] {
  return Array.from({ length: count }, (_, i) => `${name}-${i}`);
}

const present = (keys: readonly string[]) => pageMarks(keys, () => MARK_THERE);
const absent = (keys: readonly string[]) => pageMarks(keys, () => MARK_ABSENT);

function mapOf(nodes: number): PageMap {
  const map = new PageMap();
  for (let node = 0; node < nodes; node++) map.rank(node, node);
  return map;
}

test('page map: it finds the nodes of pages, the lowest rank first', (t) => {
  const map = mapOf(3);
  const keys = keysOf(1000);
  t.is(map.note(2, present(keys)), 1000);
  t.is(map.note(2, present(keys)), 0, 'an entry is there once');
  t.is(map.note(1, present(keys.slice(0, 500))), 500);
  t.deepEqual([...new Set(map.nodesOf(keys.slice(0, 500)))], [1]);
  t.deepEqual([...new Set(map.nodesOf(keys.slice(500)))], [2]);
  map.rank(1, 255);
  t.deepEqual([...new Set(map.nodesOf(keys))], [2], 'a node of the last rank is not found');
  map.rank(1, 3);
  t.is(map.note(2, absent(keys)), 1000);
  t.is(map.note(2, absent(keys)), 0);
  t.deepEqual([...new Set(map.nodesOf(keys.slice(0, 500)))], [1]);
  t.deepEqual([...new Set(map.nodesOf(keys.slice(500)))], [NOWHERE]);
  map.verify();
  t.is(map.stats().entries, 500);
  t.is(
    map.note(
      2,
      pageMarks(keys, (i) => (i % 2 === 0 ? MARK_THERE : MARK_ABSENT)),
    ),
    500,
  );
  t.deepEqual(absencesOf(pageMarks(keys, (i) => (i === 7 ? MARK_ABSENT : MARK_SURE))), absent(keys.slice(7, 8)));
  t.is(map.note(2, absent(keys)), 500);
  t.is([...map.forget(1)].length, 0);
  t.is(map.stats().entries, 0);
  map.free();
  map.free();
  t.throws(() => map.stats(), { code: 'ERR_CLOSED' });
});

test('page map: of nodes of one rank, one that is sure of a page comes first', (t) => {
  const map = mapOf(3);
  const sure = pageMarks(['page'], () => MARK_SURE);
  map.note(0, present(['page']));
  t.is(map.note(2, sure), 1);
  t.is(map.note(2, sure), 0);
  t.deepEqual([...map.nodesOf(['page'])], [0]);
  map.rank(2, 0);
  t.deepEqual([...map.nodesOf(['page'])], [2 + NODE_SURE]);
  t.is(map.note(2, present(['page'])), 1, 'a page that stays there, but of which the node is not sure any more');
  t.is(map.note(0, sure), 1);
  t.deepEqual([...map.nodesOf(['page'])], [NODE_SURE]);
  t.is(map.note(0, absent(['page'])), 1);
  t.deepEqual([...map.nodesOf(['page'])], [2]);
  t.is(map.stats().entries, 1);
  map.verify();
});

test('page map: a random history agrees with sets', (t) => {
  const seed = Number(process.env.MESHCACHE_TEST_SEED ?? 20261201);
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const NODES = 5;
  const map = mapOf(NODES);
  const keys = keysOf(3000);
  const known = Array.from({ length: NODES }, () => new Set<string>());
  for (let step = 0; step < 600; step++) {
    const node = random.u32() % NODES;
    const has = known[node] as Set<string>;
    const some = Array.from({ length: random.u32() % 200 }, () => keys[random.u32() % keys.length] as string);
    const before = has.size;
    const way = random.u32() % 16;
    if (way === 0) {
      const { entries } = map.stats();
      for (const _ of map.forget(node));
      t.is(entries - map.stats().entries, before);
      has.clear();
    } else if (way < 9) {
      for (const key of some) has.add(key);
      t.is(map.note(node, present(some)), has.size - before);
    } else {
      for (const key of some) has.delete(key);
      t.is(map.note(node, absent(some)), before - has.size);
    }
    if (step % 50 === 0) map.verify();
  }
  map.verify();
  const found = map.nodesOf(keys);
  for (const [i, key] of keys.entries()) {
    const lowest = known.findIndex((has) => has.has(key));
    t.is(found[i], lowest === -1 ? NOWHERE : lowest, key);
  }
});

test('page map: a page takes a few bytes, and few keys that nobody has seem to be there', (t) => {
  const map = mapOf(4);
  const COUNT = 400_000;
  for (let start = 0; start < COUNT; start += 100_000) {
    const keys = Array.from({ length: 100_000 }, (_, i) => `page-${start + i}`);
    map.note(start / 100_000, present(keys));
  }
  const { entries, bytes } = map.stats();
  t.true(entries > COUNT - 20, `${entries}`);
  t.true(bytes / entries < 8, `${bytes / entries} bytes an entry`);
  const wrong = map.nodesOf(keysOf(100_000, 'absent')).filter((node) => node !== NOWHERE).length;
  t.true(wrong <= 10, `${wrong} of 100,000`);
  map.verify();
});

test('page map: the nodes of keys are the same everywhere', (t) => {
  const map = mapOf(4);
  const keys = keysOf(8);
  for (let node = 0; node < 4; node++) map.note(node, present(keys.filter((_, i) => i % 4 === node)));
  t.deepEqual([...map.nodesOf(keys)], [0, 1, 2, 3, 0, 1, 2, 3]);
  t.deepEqual([...absent(['page-0'])], [165376348, 2998953188]);
  t.deepEqual([...present(['page-0'])], [165376349, 2998953188]);
  t.deepEqual([...pageMarks(['page-0'], () => MARK_SURE)], [165376351, 2998953188]);
});

test('page map: wrong numbers are typed errors', (t) => {
  const map = new PageMap();
  for (const node of [-1, 0.5, PAGE_MAP_MAX_NODES, Number.NaN]) {
    t.throws(() => map.note(node, new Uint32Array(2)), { code: 'ERR_ARGUMENT', message: /a node's number is/ });
  }
  t.throws(() => map.rank(0, 256), {
    code: 'ERR_ARGUMENT',
    message: /a rank is a whole number from 0 to 255, got 256/,
  });
});
