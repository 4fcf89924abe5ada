import test from 'ava';
import fc from 'fast-check';
import { createXXHash64 } from 'hash-wasm';
import { ArgumentError, ClosedError, ConsistentHashRing, KeyBatch, NO_NODE } from '../../src/core/index.js';
import { BINARIES, freshCore } from '../_support/core/binaries.js';

function nodeIds(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `node-${i}`);
}

function sampleKeys(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `key ${i} of the sample`);
}

function ringOf(nodes: readonly string[], vnodes = 160): ConsistentHashRing {
  const ring = new ConsistentHashRing(vnodes, { core: freshCore() });
  ring.setNodes(nodes);
  return ring;
}

function ownersOf(ring: ConsistentHashRing, keys: readonly string[]): string[] {
  return Array.from(ring.getNodesBatch(keys, 1), (index) => ring.nodes[index] as string);
}

/** The definition, word for word: all points in a sorted list, looked through from its start. */
async function naiveRing(
  nodes: readonly string[],
  vnodes: number,
  zones: ReadonlyMap<string, string> = new Map(),
): Promise<(key: string, n: number) => string[]> {
  const pointHash = await createXXHash64(1, 0);
  const keyHash = await createXXHash64(0, 0);
  const unique = [...new Set(nodes)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const points = unique.flatMap((id) =>
    Array.from({ length: vnodes }, (_, vnode) => {
      const index = new Uint8Array(new Uint32Array([vnode]).buffer);
      return { id, position: BigInt(`0x${pointHash.init().update(Buffer.from(id)).update(index).digest()}`) };
    }),
  );
  points.sort((a, b) => (a.position < b.position ? -1 : a.position > b.position ? 1 : 0));
  return (key, n) => {
    const position = BigInt(`0x${keyHash.init().update(Buffer.from(key)).digest()}`);
    const from = points.findIndex((point) => point.position >= position);
    const walk = from < 0 ? points : [...points.slice(from), ...points.slice(0, from)];
    const clockwise = [...new Set(walk.map((point) => point.id))];
    const firstOfZone = new Map(clockwise.toReversed().map((id) => [zones.get(id) ?? '', id]));
    const spread = clockwise.filter((id) => firstOfZone.get(zones.get(id) ?? '') === id);
    return [...new Set([...spread, ...clockwise])].slice(0, n);
  };
}

for (const name of BINARIES) {
  test(`ring: further owners are in other zones as far as there are any (${name})`, async (t) => {
    const core = freshCore(name);
    const property = fc.asyncProperty(
      fc.array(fc.tuple(fc.string(), fc.constantFrom('', 'a', 'b', 'c', 'ü')), { maxLength: 14 }),
      fc.array(fc.string(), { maxLength: 20 }),
      fc.integer({ min: 1, max: 40 }),
      fc.integer({ min: 0, max: 16 }),
      async (placed, keys, vnodes, n) => {
        const nodes = placed.map(([id]) => id);
        const zones = new Map(placed.filter(([, zone]) => zone !== ''));
        const naive = await naiveRing(nodes, vnodes, zones);
        const plain = await naiveRing(nodes, vnodes);
        const ring = new ConsistentHashRing(vnodes, { core });
        ring.setNodes(nodes, zones);
        const next = ring.getNextNodesBatch(keys, n);
        for (const [i, key] of keys.entries()) {
          t.deepEqual(ring.getNodes(key, n), naive(key, n));
          t.is(ring.getNode(key), plain(key, 1)[0]);
          const row = Array.from(next.subarray(i * n, (i + 1) * n)).filter((index) => index !== NO_NODE);
          t.deepEqual(
            row.map((index) => ring.nodes[index]),
            plain(key, n),
          );
        }
        ring.free();
      },
    );
    await t.notThrowsAsync(fc.assert(property, { numRuns: 100 }));
  });
}

test('ring: a node that comes or goes changes only the owners of its own keys, with zones, too', (t) => {
  const keys = sampleKeys(2_000);
  const zones = new Map(nodeIds(12).map((id, i) => [id, `zone-${i % 3}`]));
  const [before, after] = [new ConsistentHashRing(), new ConsistentHashRing()];
  before.setNodes(nodeIds(12), zones);
  after.setNodes(
    nodeIds(12).filter((id) => id !== 'node-5'),
    zones,
  );
  for (const key of keys) {
    const [was, is] = [before.getNodes(key, 3), after.getNodes(key, 3)];
    t.is(new Set(was.map((id) => zones.get(id))).size, 3);
    if (!was.includes('node-5')) t.deepEqual(is, was);
    else t.is(is.filter((id) => !was.includes(id)).length, 1);
  }
});

test('ring: one zone, or none, changes nothing', (t) => {
  const keys = sampleKeys(500);
  const expected = ringOf(nodeIds(9)).getNodesBatch(keys, 4);
  for (const zones of [new Map(), new Map(nodeIds(9).map((id) => [id, 'all'])), new Map([['stranger', 'a']])]) {
    const ring = new ConsistentHashRing(160, { core: freshCore() });
    ring.setNodes(nodeIds(9), zones);
    t.deepEqual(ring.getNodesBatch(keys, 4), expected);
  }
});

test('ring: rings of the same nodes with different zones share no points', (t) => {
  const core = freshCore();
  const [a, b, c] = [0, 1, 2].map(() => new ConsistentHashRing(8, { core })) as [
    ConsistentHashRing,
    ConsistentHashRing,
    ConsistentHashRing,
  ];
  a.setNodes(['x', 'y', 'z'], new Map([['x', 'one']]));
  b.setNodes(['x', 'y', 'z'], new Map([['x', 'other name of the same']]));
  c.setNodes(['x', 'y', 'z'], new Map([['z', 'one']]));
  t.is(core.ringPoints.count, 2);
  for (const ring of [a, b, c]) ring.free();
  t.is(core.ringPoints.count, 0);
});

test('ring: zones that are no map of text are refused', (t) => {
  const ring = ringOf(nodeIds(3));
  for (const zones of [['a'], 'zone', { node: 'zone' }, new Map([['node-0', 1]])]) {
    t.throws(() => ring.setNodes(nodeIds(3), zones as never), { instanceOf: ArgumentError }, String(zones));
  }
  t.is(ring.nodes.length, 3);
});

for (const name of BINARIES) {
  test(`ring: agrees with a sorted list of points (${name})`, async (t) => {
    const core = freshCore(name);
    const text = fc.oneof(
      fc.string(),
      fc.string({ unit: 'binary' }),
      fc.string({ unit: fc.constantFrom('a', '\u{10000}', '\uffff') }),
    );
    const property = fc.asyncProperty(
      fc.array(text, { maxLength: 12 }),
      fc.array(text, { maxLength: 20 }),
      fc.integer({ min: 1, max: 40 }),
      fc.integer({ min: 0, max: 15 }),
      async (nodes, keys, vnodes, n) => {
        const naive = await naiveRing(nodes, vnodes);
        const ring = new ConsistentHashRing(vnodes, { core });
        ring.setNodes(nodes);
        const batch = ring.getNodesBatch(keys, n);
        t.deepEqual(ring.getNodesBatch(KeyBatch.of(keys), n), batch);
        for (const [i, key] of keys.entries()) {
          const expected = naive(key, n);
          const row = Array.from(batch.subarray(i * n, (i + 1) * n));
          t.deepEqual(ring.getNodes(key, n), expected);
          t.deepEqual(
            row.slice(0, expected.length).map((index) => ring.nodes[index]),
            expected,
          );
          t.true(row.slice(expected.length).every((index) => index === NO_NODE));
          t.is(ring.getNode(key), naive(key, 1)[0]);
        }
        ring.free();
      },
    );
    await t.notThrowsAsync(fc.assert(property, { numRuns: 100 }));
  });
}

test('ring: removing a node moves only its keys', (t) => {
  const nodes = nodeIds(16);
  const keys = sampleKeys(50_000);
  const before = ownersOf(ringOf(nodes), keys);
  const after = ownersOf(ringOf(nodes.filter((id) => id !== 'node-5')), keys);
  for (const [i, owner] of before.entries()) {
    if (owner === 'node-5') t.not(after[i], 'node-5');
    else if (after[i] !== owner) t.fail(`${keys[i]} moved from ${owner} to ${after[i]}`);
  }
});

test('ring: adding a node moves at most 1.35/N of the keys, all to it', (t) => {
  const keys = sampleKeys(50_000);
  for (const count of [3, 16, 64]) {
    const before = ownersOf(ringOf(nodeIds(count)), keys);
    const after = ownersOf(ringOf([...nodeIds(count), 'another']), keys);
    const moved = after.filter((owner, i) => owner !== before[i]);
    t.true(moved.every((owner) => owner === 'another'));
    t.true(moved.length / keys.length <= 1.35 / (count + 1), `${moved.length} of ${keys.length} with ${count} nodes`);
  }
});

test('ring: the largest of 16 shares is at most 1.25 times the mean', (t) => {
  const keys = sampleKeys(200_000);
  const counts = new Map<string, number>();
  for (const owner of ownersOf(ringOf(nodeIds(16)), keys)) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  const largest = Math.max(...counts.values()) / (keys.length / 16);
  t.is(counts.size, 16);
  t.true(largest <= 1.25, `largest share ${largest}`);
});

test('ring: neither order nor duplicates of the nodes matter', (t) => {
  const keys = sampleKeys(1000);
  const nodes = nodeIds(20);
  const expected = ownersOf(ringOf(nodes), keys);
  t.deepEqual(ownersOf(ringOf([...nodes.toReversed(), ...nodes]), keys), expected);
});

test('ring: an empty ring has no owners', (t) => {
  const ring = ringOf([]);
  t.is(ring.getNode('key'), undefined);
  t.deepEqual(ring.getNodes('key', 3), []);
  t.deepEqual(ring.getNodesBatch(['a', 'b'], 2), new Uint32Array(4).fill(NO_NODE));
  ring.setNodes(['a']);
  ring.setNodes([]);
  t.is(ring.getNode('key'), undefined);
});

test('ring: a batch with characters beyond ASCII gives what its keys give alone', (t) => {
  const ring = ringOf(nodeIds(16));
  const keys = ['', 'plain', 'grün', '漢字', '🙂', 'x'.repeat(10_000), 'é'.repeat(10_000)];
  t.deepEqual(
    ownersOf(ring, keys),
    keys.map((key) => ring.getNode(key) as string),
  );
});

test('ring: keys that have no UTF-8 form, are no text or are too long are refused', (t) => {
  const ring = ringOf(nodeIds(3));
  for (const key of ['\ud800', 'a\udc00b', 'x'.repeat(70_000), 'é'.repeat(40_000), 5 as unknown as string]) {
    t.throws(() => ring.getNode(key), { instanceOf: ArgumentError });
    t.throws(() => ring.getNodesBatch(['fine', key], 1), { instanceOf: ArgumentError });
  }
  t.throws(() => ring.setNodes(['\ud800']), { instanceOf: ArgumentError });
  t.throws(() => ring.setNodes(['n'.repeat(300)]), { instanceOf: ArgumentError });
  // The halves of a surrogate pair in two keys are not made whole by being written one after the other.
  t.throws(() => ring.getNodesBatch(['\ud83d', '\ude42'], 1), { instanceOf: ArgumentError });
  t.is(ring.nodes.length, 3);
});

test('ring: wrong arguments are refused', (t) => {
  const core = freshCore();
  for (const vnodes of [0, -1, 1.5, Number.NaN, 2 ** 40]) {
    t.throws(() => new ConsistentHashRing(vnodes, { core }), { instanceOf: ArgumentError });
  }
  t.throws(() => ringOf(nodeIds(3)).getNodesBatch(['a'], -1), { instanceOf: ArgumentError });
  t.throws(() => new ConsistentHashRing(2 ** 23, { core }).setNodes(nodeIds(3)), { instanceOf: ArgumentError });
});

test('ring: nodes that are no list of texts are refused, and the ring stays as it is', (t) => {
  // Cause: text was taken for the list of its characters, and undefined for an empty one.
  const ring = ringOf(nodeIds(3));
  const { nodes } = ring;
  for (const wrong of ['node-0', '', undefined, null, 7, {}, ['node-0', 7], [null, 'node-0']]) {
    t.throws(() => ring.setNodes(wrong as never), { instanceOf: ArgumentError }, String(wrong));
    t.is(ring.nodes, nodes);
  }
  for (const n of ['2', null, 2n]) t.throws(() => ring.getNodes('key', n as never), { instanceOf: ArgumentError });
  t.throws(() => ring.getNodesBatch('key' as never, 2), { instanceOf: ArgumentError });
  ring.setNodes(new Set(['a', 'b']) as never);
  t.deepEqual(ring.nodes, ['a', 'b']);
});

test('ring: two rings of one core do not know each other', (t) => {
  const core = freshCore();
  const one = new ConsistentHashRing(160, { core });
  const other = new ConsistentHashRing(160, { core });
  one.setNodes(['a']);
  other.setNodes(['b']);
  t.is(one.getNode('key'), 'a');
  one.free();
  one.free();
  t.is(other.getNode('key'), 'b');
  t.throws(() => one.getNode('key'), { instanceOf: ClosedError });
});

test('ring: memory that was freed is used again', (t) => {
  const core = freshCore();
  const build = (): void => {
    const ring = new ConsistentHashRing(160, { core });
    ring.setNodes(nodeIds(100));
    ring.setNodes(nodeIds(120));
    ring.free();
  };
  build();
  build();
  const { memoryBytes } = core;
  for (let i = 0; i < 50; i++) build();
  t.is(core.memoryBytes, memoryBytes);
});

test('ring: rings of the same nodes share their points, and each keeps its own when the other changes', (t) => {
  const core = freshCore();
  const { ringPoints } = core;
  const [a, b] = [new ConsistentHashRing(8, { core }), new ConsistentHashRing(8, { core })];
  a.setNodes(['x', 'y']);
  b.setNodes(['y', 'x']);
  t.is(ringPoints.count, 1);
  const other = new ConsistentHashRing(9, { core });
  other.setNodes(['x', 'y']);
  t.is(ringPoints.count, 2);

  const keys = sampleKeys(100);
  const owners = ownersOf(a, keys);
  b.setNodes(['z']);
  t.deepEqual(ownersOf(a, keys), owners);
  t.deepEqual(new Set(ownersOf(b, keys)), new Set(['z']));
  b.free();
  other.free();
  t.is(ringPoints.count, 1);
  t.deepEqual(ownersOf(a, keys), owners);
  a.free();
  a.free();
  t.is(ringPoints.count, 0);
});

test('ring: lists of nodes that read alike one after the other are told apart', (t) => {
  const core = freshCore();
  const rings = [['ab', 'c'], ['a', 'bc'], ['abc'], ['1:a', 'b'], ['1', 'a1:b']].map((nodes) => {
    const ring = new ConsistentHashRing(4, { core });
    ring.setNodes(nodes);
    return ring;
  });
  t.is(core.ringPoints.count, rings.length);
  for (const ring of rings) t.true(ownersOf(ring, sampleKeys(50)).every((owner) => ring.nodes.includes(owner)));
});

for (const name of BINARIES) {
  test(`ring: positions on, before and behind every point have the right owner (${name})`, async (t) => {
    // Lines hold the upper halves of positions only: hashes of keys practically never meet those of points.
    const core = freshCore(name);
    const pointHash = await createXXHash64(1, 0);
    for (const [count, vnodes] of [
      [1, 1],
      [3, 7],
      [40, 160],
    ] as const) {
      const ids = nodeIds(count).sort();
      const points = ids.flatMap((id, node) =>
        Array.from({ length: vnodes }, (_, vnode) => {
          const index = new Uint8Array(new Uint32Array([vnode]).buffer);
          return { node, position: BigInt(`0x${pointHash.init().update(Buffer.from(id)).update(index).digest()}`) };
        }),
      );
      points.sort((a, b) => (a.position < b.position ? -1 : a.position > b.position ? 1 : 0));
      const asked = points.flatMap(({ position }) => [position - 1n, position, position + 1n, position | 0xffffffffn]);
      asked.push(0n, 2n ** 64n - 1n);
      const expected = asked.map((position) => (points.find((point) => point.position >= position) ?? points[0])?.node);
      const { area, exports } = core;
      const { handle } = core.ringPoints.hold(vnodes, ids);
      area.layOut(asked.length, 4, 0, 2);
      area.u32.set(new Uint32Array(BigUint64Array.from(asked).buffer), area.hashes >>> 2);
      exports.ringOwnersBatch(handle, area.hashes, asked.length, 1, 0, area.results);
      const start = area.results >>> 2;
      t.deepEqual(Array.from(area.u32.slice(start, start + asked.length)), expected);
    }
  });
}
