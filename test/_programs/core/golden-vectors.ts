import type * as CoreApi from '../../../src/core/index.js';

/** The entry `meshcache/core`, however it was loaded: this file must run in a browser as it is. */
type Api = typeof CoreApi;

/** Results that every machine and every version must compute alike; their JSON is `test/data/golden.json`. */
export interface GoldenVectors {
  readonly hashes: readonly { readonly bytes: number; readonly xxh64: string; readonly xxh3: string }[];
  readonly keys: readonly {
    readonly namespace: CoreApi.KeyNamespace;
    readonly pool: string;
    readonly objectKeys: readonly string[];
    readonly digests: string;
  }[];
  readonly rings: readonly {
    readonly vnodes: number;
    readonly nodes: readonly string[];
    readonly zones?: readonly (readonly [nodeId: string, zone: string])[];
    readonly owners: readonly (readonly string[])[];
  }[];
  readonly pools: readonly {
    readonly options: CoreApi.PoolAllocatorOptions;
    readonly steps: readonly string[];
    readonly keys: readonly string[];
    readonly stats: CoreApi.PoolAllocatorStats;
  }[];
}

const KEYS = ['', 'a', 'key', '0123456789abcdef'.repeat(4), 'grün', '漢字', '🙂', 'x'.repeat(300)];
const HASH_LENGTHS = [
  0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 96, 97, 128, 129, 200, 240, 241, 512, 1024, 1025, 5000,
];

export function computeGolden(api: Api, core: CoreApi.Core): GoldenVectors {
  return { hashes: hashes(core), keys: keys(api, core), rings: rings(api, core), pools: pools(api, core) };
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Hashes of inputs whose byte i is (i * 131 + 7) modulo 251. */
function hashes(core: CoreApi.Core): GoldenVectors['hashes'] {
  const { area, exports } = core;
  return HASH_LENGTHS.map((bytes) => {
    area.layOut(1, 16, bytes);
    for (let i = 0; i < bytes; i++) area.u8[area.keys + i] = (i * 131 + 7) % 251;
    area.u32[area.lengths >>> 2] = bytes;
    exports.digestBatch(area.keys, area.lengths, 1, area.results);
    const xxh3 = hex(area.u8.slice(area.results, area.results + 16));
    exports.hashBatch(area.keys, area.lengths, 1, 0, 0, area.results);
    return { bytes, xxh64: hex(area.u8.slice(area.results, area.results + 8).reverse()), xxh3 };
  });
}

function keys(api: Api, core: CoreApi.Core): GoldenVectors['keys'] {
  const ranks = { tpRank: 1, tpSize: 8, ppRank: 0, ppSize: 2, isMlaModel: false };
  const namespaces: CoreApi.KeyNamespace[] = [
    ranks,
    { ...ranks, modelName: 'llama-70b', dtype: 'bf16', layout: 'layer_first', tag: 'prod' },
    { ...ranks, modelName: 'deepseek', isMlaModel: true },
    { ...ranks, modelName: '模型', tag: '' },
    { ...ranks, modelName: 'llama-70b', fingerprint: 'sha256:0b5fe1' },
  ];
  return namespaces.flatMap((namespace) =>
    ['kv', 'mamba'].map((pool) => {
      const { objectKeys, digests } = new api.KeyEncoder(namespace, { core }).encode(KEYS, pool);
      return { namespace, pool, objectKeys, digests: hex(digests) };
    }),
  );
}

function rings(api: Api, core: CoreApi.Core): GoldenVectors['rings'] {
  const many = Array.from({ length: 100 }, (_, i) => `10.0.${i % 7}.${i}:7000`);
  const sets = [
    { vnodes: 160, nodes: ['a', 'b', 'c'] },
    { vnodes: 1, nodes: ['one'] },
    { vnodes: 7, nodes: ['\u{10000}', '\uffff', 'ü', 'Z', 'a'] },
    { vnodes: 160, nodes: many },
    { vnodes: 160, nodes: many, zones: many.map((id, i) => [id, `rack ${i % 3}`] as const) },
    { vnodes: 7, nodes: ['a', 'b', 'c', 'd', 'e'], zones: [['a', 'x'] as const, ['e', 'y'] as const] },
  ];
  const asked = [...KEYS, ...Array.from({ length: 40 }, (_, i) => `key-${i * i}`)];
  return sets.map(({ vnodes, nodes, zones }) => {
    const ring = new api.ConsistentHashRing(vnodes, { core });
    ring.setNodes(nodes, zones && new Map(zones));
    const owners = asked.map((key) => ring.getNodes(key, 3));
    ring.free();
    return { vnodes, nodes, ...(zones === undefined ? {} : { zones }), owners };
  });
}

function pools(api: Api, core: CoreApi.Core): GoldenVectors['pools'] {
  const capacityBytes = 2 ** 20;
  const options: CoreApi.PoolAllocatorOptions[] = [
    { capacityBytes },
    { capacityBytes, policy: 's3fifo' },
    { capacityBytes, segmentBytes: 2 ** 18, quarantineMs: 20, alignmentBytes: 64 },
    { capacityBytes, policy: 's3fifo', quarantineMs: 5, neverReuseEarly: true, alignmentBytes: 4096 },
    { capacityBytes, policy: 'yield', alignmentBytes: 64 },
    { capacityBytes, policy: 'yield', segmentBytes: 2 ** 18, quarantineMs: 20, alignmentBytes: 4096 },
  ];
  return options.map((option) => {
    const pool = new api.PoolAllocator({ ...option, core });
    const steps = Array.from({ length: 300 }, (_, i) => step(pool, i, mix(i + option.capacityBytes)));
    // Learning begins after 1,024 pages.
    if (option.policy === 'yield') for (let i = 0; i < 300; i++) steps.push(request(pool, 300 + i, mix(i)));
    pool.verify();
    const result = { options: option, steps, keys: pool.keys(), stats: pool.stats() };
    pool.free();
    return result;
  });
}

/** One operation of a made-up trace, with a short form of its result. */
function step(pool: CoreApi.PoolAllocator, nowMs: number, word: number): string {
  const key = `k${(word >>> 4) % 60}`;
  switch (word % 8) {
    case 0:
      return `lookup ${key}: ${pool.lookup(key)?.offset ?? 'miss'}`;
    case 1:
      return `remove ${key}: ${pool.remove(key, nowMs)}`;
    case 2:
      return (word >>> 12) % 2 === 0 ? `pin ${key}: ${pool.pin(key)}` : `unpin ${key}: ${pool.unpin(key)}`;
    case 3:
      return `unpin ${key}: ${pool.unpin(key)}`;
    default: {
      const bytes = 1000 + ((word >>> 10) % 80_000);
      const offset = pool.publish(key, bytes, nowMs)?.offset ?? 'refused';
      return `publish ${key} ${bytes}: ${offset} ${pool.lastEvicted.join(' ')}`.trimEnd();
    }
  }
}

/** One call of a caller, for a part of a conversation, with its result. */
function request(pool: CoreApi.PoolAllocator, nowMs: number, word: number): string {
  const conversation = (word >>> 4) % 24;
  const first = (word >>> 9) % 6;
  const keys = Array.from({ length: 1 + ((word >>> 12) % 12) }, (_, i) => `c${conversation}.${first + i}`);
  const about: CoreApi.RequestOptions = {
    hint: ([0, 0, 'open', 'closed', 3] as const)[(word >>> 16) % 5] ?? 0,
    caller: (word >>> 19) % 3,
    ...(word % 11 === 0 ? { continues: word % 2 === 0 } : {}),
  };
  if (word % 8 === 0) return `touch ${keys[0]} ${keys.length}: ${pool.touchBatch(keys, about)}`;
  if (word % 8 < 4) {
    const found = Array.from(pool.lookupBatch(keys, about).slots);
    return `read ${keys[0]} ${keys.length}: ${found.filter((slot) => slot >= 0).length}`;
  }
  const { evicted } = pool.publishBatch(keys, 5000 + ((word >>> 21) % 9000), nowMs, about);
  return `write ${keys[0]} ${keys.length}: ${evicted.join(' ')}`.trimEnd();
}

function mix(value: number): number {
  let z = Math.imul(value ^ (value >>> 16), 0x21f0aaad);
  z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
  return (z ^ (z >>> 15)) >>> 0;
}
