import test, { type ExecutionContext } from 'ava';
import { ArgumentError } from '../../src/base/errors.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { hostPages } from '../../src/store/namespace/host-pages.js';
import type { StoreNamespace } from '../../src/store/namespace/store-namespace.js';
import { attach, memoryOf, NodeProcess } from '../_support/client/attached-nodes.js';
import { startNode } from '../_support/clients/client-fixture.js';
import { content } from '../_support/support.js';

/** The options of calls, for everything that has the methods of StoreNamespace. */
const SUBJECTS: readonly { readonly name: string; open(t: ExecutionContext): Promise<StoreNamespace> }[] = [
  { name: 'store', open: (t) => startNode(t) },
  { name: 'namespace of a store', open: async (t) => (await startNode(t)).namespace({ tag: 'weights-1' }) },
  { name: 'client', open: async (t) => attach(t, (await startNode(t)).clientSocket) },
  { name: 'client, bytes', open: async (t) => attach(t, (await startNode(t)).clientSocket, { mode: 'bytes' }) },
];

const NUMBERS = Float32Array.of(1.5, -2, Number.NaN, 4);

for (const { name, open } of SUBJECTS) {
  test.serial(`call options, ${name}: every kind of array is set and read whole`, async (t) => {
    const ns = await open(t);
    const bytes = new Uint8Array(NUMBERS.buffer.slice(0));
    const shifted = new Uint8Array(100);
    shifted.set(bytes, 10);
    const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
    shared.set(bytes);
    for (const [kind, data] of Object.entries({
      Float32Array: NUMBERS,
      Uint16Array: new Uint16Array(NUMBERS.buffer),
      BigInt64Array: new BigInt64Array(NUMBERS.buffer),
      DataView: new DataView(shifted.buffer, 10, bytes.length),
      ArrayBuffer: NUMBERS.buffer.slice(0),
      SharedArrayBuffer: shared.buffer,
      Buffer: Buffer.from(bytes),
    })) {
      t.true(await ns.set(kind, data), kind);
      t.deepEqual(await ns.get(kind), bytes, kind);
    }
    const into = new Float32Array(4);
    t.true(await ns.get('DataView', into));
    t.deepEqual(new Uint8Array(into.buffer), bytes);
  });

  test.serial(`call options, ${name}: many entries of any length are read at once`, async (t) => {
    const ns = await open(t);
    const keys = Array.from({ length: 20 }, (_, i) => `k${i}`);
    for (const [i, key] of keys.entries()) if (i % 3 !== 2) t.true(await ns.set(key, content(i, 1 + 1000 * i)));
    const missed: unknown[] = [];
    const copies = await ns.getMany(keys, { onMiss: (index, _reason, pool) => missed.push([index, pool]) });
    for (const i of keys.keys()) t.deepEqual(copies[i], i % 3 === 2 ? null : content(i, 1 + 1000 * i), `k${i}`);
    t.deepEqual(
      missed,
      [2, 5, 8, 11, 14, 17].map((i) => [i, 'kv']),
    );
    t.deepEqual(await ns.getMany([]), []);
    t.deepEqual(await ns.getMany(['k0', 'k0']), [content(0, 1), content(0, 1)]);
  });

  test.serial(`call options, ${name}: a call that was aborted before does nothing, and says so`, async (t) => {
    const ns = await open(t);
    t.true(await ns.set('k', content(1, 100)));
    const signal = AbortSignal.abort();
    const memory = memoryOf(t, 200, { shared: true });
    const reasons: string[] = [];
    const told = (index: number, reason: string, pool: string) => reasons.push(`${index} ${reason} ${pool}`);
    t.deepEqual(await ns.getMany(['k', 'l'], { signal, onMiss: told }), [null, null]);
    t.deepEqual(await ns.batchGet(['k'], [memory.addr], [100], { signal, onMiss: told }), [false]);
    t.is(await ns.get('k', { signal, onMiss: told }), null);
    t.deepEqual(reasons.splice(0), ['0 aborted kv', '1 aborted kv', '0 aborted kv', '0 aborted kv']);
    t.true(memory.bytes().every((byte) => byte === 0));
    t.false(await ns.set('new', content(2, 10), { signal, onRefused: told }));
    t.deepEqual(await ns.batchSet(['new'], [memory.addr], [10], { signal, onRefused: told }), [false]);
    t.deepEqual(reasons, ['0 aborted kv', '0 aborted kv']);
    t.deepEqual(await ns.getDetailed('k', { signal }), { page: null, reason: 'aborted' });
    t.deepEqual(await ns.setDetailed('k', content(1, 10), { signal }), { isSet: false, reason: 'aborted' });
    t.deepEqual(await ns.delete(['k'], { signal }), [false]);
    t.is(await ns.clear({ signal }).catch((reason: unknown) => reason), signal.reason);
    t.false(await ns.exists('new'));
    t.deepEqual(await ns.get('k'), content(1, 100));
  });

  test.serial(`call options, ${name}: wrong ones are refused by name`, async (t) => {
    const ns = await open(t);
    for (const [options, message] of [
      [{ timeout: 5 }, /^get: unknown option "timeout"; did you mean "timeoutMs"\? Allowed are .*timeoutMs/],
      [{ timeoutMs: 0 }, /^get: timeoutMs must be above 0 and below 2\^31, got 0$/],
      [{ timeoutMs: '5' }, /^get: timeoutMs must be/],
      [{ signal: {} }, /^get: signal must be an AbortSignal, got an object$/],
      [{ onMiss: true }, /^get: onMiss must be a function, got true$/],
    ] as const) {
      await t.throwsAsync(ns.get('k', options as never), { instanceOf: ArgumentError, message });
    }
    for (const method of ['exists', 'batchExists', 'getMany', 'delete'] as const) {
      const keys = method === 'exists' ? 'k' : ['k'];
      const call = ns[method] as (keys: unknown, options: unknown) => Promise<unknown>;
      const message = new RegExp(`^${method}: timeoutMs must be`);
      await t.throwsAsync(call.call(ns, keys, { timeoutMs: -1 }), { instanceOf: ArgumentError, message });
    }
    await t.throwsAsync(ns.clear({ timeoutMs: -1 }), { instanceOf: ArgumentError, message: /^clear: timeoutMs/ });
  });

  test.serial(`call options, ${name}: errors name the method, the page and the key`, async (t) => {
    const ns = await open(t);
    const memory = memoryOf(t, 100);
    const { addr } = memory;
    const wrong = '\ud800';
    for (const [call, message] of [
      [() => ns.exists(7 as never), 'exists: key 0 must be a string, got number'],
      [() => ns.exists(wrong), 'exists: key 0 must be well-formed text, got "\\ud800"'],
      [
        () => ns.batchSet(['a'], [new Uint8Array(3)] as never, undefined as never),
        'batchSet: takes pointers into HostRegions (bigints) and sizes, got Uint8Array of 3 bytes; set each page by `set`',
      ],
      [
        () => ns.batchGet(['a'], [new Uint8Array(3)] as never, [3]),
        'batchGet: takes pointers into HostRegions (bigints) and sizes, got Uint8Array of 3 bytes; read copies by `getMany`, or each page by `get`',
      ],
      [
        () => ns.get('a', undefined as never, { timeout: 5 } as never),
        /^get: unknown option "timeout"; did you mean "timeoutMs"\? Allowed are hint/,
      ],
      [
        () => ns.set('a', new Uint8Array(3), 'soon' as never),
        'set: behind the memory comes a size (a number) or options, such as { timeoutMs: 500 }; got "soon"',
      ],
      [() => ns.getMany(['a', wrong]), 'getMany: key 1 must be well-formed text, got "\\ud800"'],
      [() => ns.set(wrong, new Uint8Array(1)), 'set: key 0 must be well-formed text, got "\\ud800"'],
      [
        () => ns.batchSet(['a', 'b'], [addr, addr], [1, 0]),
        /^batchSet: page 1: its size must be a whole number of 1 to/,
      ],
      [
        () => ns.batchSet(['a', 'b'], [addr, 5 as never], [1, 1]),
        'batchSet: page 1: its pointer must be a bigint, got number',
      ],
      [
        () => ns.batchGet(['a', 'b'], [addr, addr + 90n], [1, 11]),
        /^batchGet: page 1: 11 bytes from address \d+ on are not within a live/,
      ],
      [
        () => ns.batchGet(['a', 'b', 'c'], [addr, addr + 50n, addr + 9n], [10, 10, 10]),
        /^batchGet: two destinations overlap: page 0 from \d+ to \d+ and page 2 from/,
      ],
      [() => ns.set('a', 'text' as never), /^set: give a pointer .*; got text; encode it first/],
      [() => ns.set('a', new Float32Array(0)), /^set: give a pointer .*; got Float32Array of 0 bytes$/],
      [
        () => ns.batchGetV1(['a'], [0]),
        /^batchGetV1: no host memory pool is registered .*; call registerMemPoolHost first/,
      ],
    ] as const) {
      await t.throwsAsync(async () => call(), { instanceOf: ArgumentError, message });
    }
  });

  test.serial(`call options, ${name}: pages in a row need no arithmetic`, async (t) => {
    const ns = await open(t);
    const [first, second] = [memoryOf(t, 1000 * 3 + 5), memoryOf(t, 1000 * 2)];
    await ns.registerMemPoolHost(hostPages({ region: [first, second], pageBytes: 1000, pageTokens: 4 }));
    for (let page = 0; page < 3; page++) first.bytes(1000 * page, 1000).set(content(page, 1000));
    const tokensOf = (...pages: number[]) => pages.flatMap((page) => [0, 1, 2, 3].map((token) => 4 * page + token));
    t.deepEqual(await ns.batchSetV1(['a', 'b', 'c'], tokensOf(0, 1, 2)), [true, true, true]);
    t.deepEqual(await ns.batchGetV1(['b', 'c'], tokensOf(4, 3)), [true, true]);
    t.deepEqual(Buffer.from(second.bytes(1000, 1000)), Buffer.from(content(1, 1000)));
    t.deepEqual(Buffer.from(second.bytes(0, 1000)), Buffer.from(content(2, 1000)));
    for (const wrong of [20, -4, 2]) {
      await t.throwsAsync(ns.batchGetV1(['a', 'b'], [...tokensOf(0), wrong, 0, 0, 0]), {
        instanceOf: ArgumentError,
        message: `batchGetV1: page 1: host index ${wrong} is no start of a page; allowed are 0 to 16 in steps of 4`,
      });
    }
  });
}

test('call options: host pages of wrong lengths are refused', (t) => {
  using region = HostRegion.allocate(100);
  for (const [options, message] of [
    [undefined, /^hostPages: region must be a HostRegion or an array of them, got undefined$/],
    [{ region: [], pageBytes: 1 }, /^hostPages: region must be/],
    [{ region, pageBytes: 0 }, /^hostPages: pageBytes must be a whole number of 1 to \d+, got 0$/],
    [
      { region, pageBytes: 10, pageTokens: 1.5 },
      /^hostPages: pageTokens must be a whole number of 1 to \d+, got 1\.5$/,
    ],
    [{ region, pageBytes: 101 }, /^hostPages: no page of 101 bytes fits into the region, of 100 bytes$/],
  ] as const) {
    t.throws(() => hostPages(options as never), { instanceOf: ArgumentError, message });
  }
  t.deepEqual(hostPages({ region, pageBytes: 50 }).getPageBufferMeta([1]), {
    ptrs: BigUint64Array.of(region.addr + 50n),
    sizes: [50],
  });
});

test('call options: a client’s call has its own time, and tells what it knows of the reason', async (t) => {
  const node = await NodeProcess.start(t);
  const client = await attach(t, node.socket, { mode: 'bytes' });
  t.true(await client.set('k', content(1, 100)));
  t.deepEqual(await client.getDetailed('k', new Uint8Array(99)), { isRead: false, reason: 'other_size' });
  t.deepEqual(await client.getDetailed('none'), { page: null, reason: 'unknown' });
  await node.freeze();
  t.deepEqual(await client.getDetailed('k', { timeoutMs: 20 }), { page: null, reason: 'timed_out' });
  t.deepEqual(await client.setDetailed('l', content(2, 10), { timeoutMs: 20 }), { isSet: false, reason: 'timed_out' });
  node.signal('SIGCONT');
  t.deepEqual(await client.getDetailed('k'), { page: content(1, 100) });
  await node.kill();
  t.deepEqual(await client.getMany(['k']), [null]);
  t.deepEqual(await client.getDetailed('k'), { page: null, reason: 'unreachable' });
});
