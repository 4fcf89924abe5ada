import test from 'ava';
import { ByteBudget, type ByteHolding } from '../../src/base/concurrency/byte-budget.js';
import { Shares } from '../../src/base/concurrency/shares.js';
import { seededRandom } from '../../src/base/environment/random.js';
import { ArgumentError, ProtocolError } from '../../src/base/errors.js';
import { ClientNamespace } from '../../src/clients/requests/client-namespace.js';
import { ClientRegions } from '../../src/clients/requests/client-regions.js';
import { ClientRequests } from '../../src/clients/requests/client-requests.js';
import { ClientCounts } from '../../src/clients/requests/client-stats.js';
import { BodyReader, BodyWriter } from '../../src/clients/wire/body.js';
import { FrameReceiver } from '../../src/clients/wire/frame-receiver.js';
import {
  decodeExists,
  decodeRegionRequest,
  encodeExists,
  type FrameHeader,
  RequestType,
} from '../../src/clients/wire/messages.js';
import { RequestError, statusOf } from '../../src/clients/wire/request-error.js';
import { KeyEncoder } from '../../src/core/index.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { KeyEncoders } from '../../src/node/key-encoders.js';
import { StoredPages } from '../../src/store/namespace/namespace-pages.js';
import { wholeNamespace } from '../../src/store/namespace/node-namespace.js';
import { systemRandom } from '../../src/system/system-random.js';
import { HeldStore, noEvents, regionBody } from '../_support/clients/client-fixture.js';
import { frame } from '../_support/clients/test-client.js';
import { testEnvironment } from '../_support/rpc/server.js';
import { until } from '../_support/support.js';

const NAMESPACE = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };

function seeded(log: (text: string) => void) {
  const seed = Number(process.env.MESHCACHE_SEED ?? systemRandom.u32());
  log(`seed ${seed}`);
  return seededRandom(seed);
}

/** A sharer of a group. */
const sharer = (one: string, group = 'g') => ({ one, group });

test('shares: nobody takes all, a newcomer gets something, and one alone has half', (t) => {
  const shares = new Shares(256);
  const fill = (one: string, group: string): number => {
    for (let count = 0; ; count++) {
      if (!shares.allows({ one, group }, 1)) return count;
      shares.take({ one, group }, 1);
    }
  };
  t.is(fill('a', 'x'), 128);
  t.is(fill('b', 'x'), 64);
  t.is(fill('c', 'x'), 0, 'the group has three quarters');
  t.is(fill('d', 'y'), 32);
  t.is(fill('e', 'z'), 16);
  shares.verify();
  shares.giveBack({ one: 'a', group: 'x' }, 128);
  t.is(fill('f', 'w'), 72);
  const single = new Shares(1);
  t.true(single.allows(sharer('a'), 1), 'one may have at least 1');
});

test('byte budget: never gives more than there is, nobody waits for what may be had, and gets all of it back', (t) => {
  const random = seeded((text) => t.log(text));
  const [total, whole] = [1000, 300];
  const budget = new ByteBudget(total, whole);
  let held = 0;
  const live = new Set<{ holding: ByteHolding; left: number; isWaiting: boolean }>();
  for (let step = 0; step < 5_000; step++) {
    const some = [...live][random.u32() % Math.max(1, live.size)];
    if (some === undefined || random.u32() % 4 === 0) {
      const one = sharer(`one ${random.u32() % 5}`, `group ${random.u32() % 2}`);
      live.add({ holding: budget.hold(one), left: 1 + (random.u32() % whole), isWaiting: false });
    } else if (some.left === 0 || random.u32() % 8 === 0) {
      held -= some.holding.bytes;
      live.delete(some);
      some.holding.giveBack();
      some.holding.giveBack();
    } else if (!some.isWaiting) {
      const bytes = 1 + (random.u32() % some.left);
      some.isWaiting = true;
      some.holding.take(bytes, () => {
        some.isWaiting = false;
        some.left -= bytes;
        held += bytes;
        t.true(held <= total);
        if (some.left === 0) some.holding.whole();
      });
    }
    budget.verify();
  }
  // All that began becomes whole in the end, however many wait for each other.
  while (live.size > 0) {
    for (const one of live) {
      if (one.left === 0) {
        held -= one.holding.bytes;
        live.delete(one);
        one.holding.giveBack();
      } else if (!one.isWaiting) {
        one.isWaiting = true;
        const bytes = one.left;
        one.holding.take(bytes, () => {
          one.isWaiting = false;
          one.left = 0;
          held += bytes;
          one.holding.whole();
        });
      }
    }
    if (live.size > 0 && [...live].every(({ isWaiting }) => isWaiting)) return t.fail('all wait for each other');
  }
  t.is(held, 0);
  let isGranted = false;
  budget.take(sharer('last'), total, () => {
    isGranted = true;
  });
  t.true(isGranted);
});

test('byte budget: one that takes much leaves something for others, and the earliest becomes whole', (t) => {
  const budget = new ByteBudget(1000, 100);
  const greedy = Array.from({ length: 40 }, () => budget.hold(sharer('greedy')));
  let granted = 0;
  for (const holding of greedy) holding.take(90, () => granted++);
  t.is(granted, 5, 'half of it');
  const others = ['a', 'b', 'c'].map((one) => budget.hold(sharer(one, one)));
  let othersGranted = 0;
  for (const holding of others) holding.take(60, () => othersGranted++);
  t.is(othersGranted, 3);
  greedy[0]?.take(10, () => granted++);
  t.is(granted, 6, 'the earliest has no share');
  budget.verify();
});

test('body: what makes the writer grow is written, too', (t) => {
  // Cause: numbers were written into the memory of before.
  const random = seeded((text) => t.log(text));
  for (let round = 0; round < 200; round++) {
    const writer = new BodyWriter(random.u32() % 4);
    const expected: Buffer[] = [];
    for (let i = 0; i < 30; i++) {
      const bytes = Buffer.from(random.bytes(8));
      const [a, b, c] = [bytes.readUInt8(), bytes.readUInt16LE(), bytes.readUInt32LE()];
      const all = [
        () => [writer.u8(a), bytes.subarray(0, 1)],
        () => [writer.u16(b), bytes.subarray(0, 2)],
        () => [writer.u32(c), bytes.subarray(0, 4)],
        () => [writer.u64(c), Buffer.concat([bytes.subarray(0, 4), Buffer.alloc(4)])],
        () => [writer.bytes(bytes), bytes],
      ];
      const [, written] = (all[random.u32() % all.length] as (typeof all)[0])();
      expected.push(written as Buffer);
    }
    t.deepEqual(Buffer.from(writer.done()), Buffer.concat(expected));
  }
});

test('body: what is not there is an error of the protocol, wherever it ends', (t) => {
  const body = encodeExists({ pool: 'kv', wantsFlags: true, suffixes: ['-k', 'ü'], keys: ['a', 'ü', ''] });
  t.deepEqual(decodeExists(body, 3).keys.all(), ['a', 'ü', '']);
  for (let end = 0; end < body.length; end++) {
    t.throws(() => decodeExists(body.subarray(0, end), 3), { instanceOf: ProtocolError }, `${end} bytes`);
  }
  t.throws(() => decodeExists(body, 2), { message: /3 keys, allowed are 2/ });
  const cut = new BodyWriter().keys(['ab', 'é']).done();
  // The bytes of é, as those of two keys.
  cut.writeUInt16LE(3, 4);
  cut.writeUInt16LE(1, 6);
  t.throws(() => new BodyReader(cut).keys(2).all(), { message: /not UTF-8/ });
  const mixed = new BodyReader(new BodyWriter().keys(['é', 'a', '🙂']).done());
  t.deepEqual(mixed.keys(3).all(), ['é', 'a', '🙂']);
  t.throws(() => new BodyReader(Buffer.alloc(8, 0xff)).u64(), { message: /above 2\^53/ });
  const pieces = regionBody(['a', 'b'], [[[1, 0, 1]], [[1, 1, 1]]]);
  t.throws(() => decodeRegionRequest(pieces, { maxKeys: 2, maxPieces: 1 }), { message: /2 pieces, allowed are 1/ });
});

test('frame receiver: frames are those that were sent, however they are cut and whenever there is memory', (t) => {
  const random = seeded((text) => t.log(text));
  for (let round = 0; round < 20; round++) {
    const bodies = Array.from({ length: 20 }, (_, i) =>
      Buffer.from(random.bytes(i % 7 === 3 ? 70_000 + (random.u32() % 400_000) : random.u32() % 200)),
    );
    const stream = Buffer.concat(bodies.map((body, i) => frame(4, i + 1, body)));
    const got: [FrameHeader, Buffer][] = [];
    let isWaiting = false;
    const receiver = new FrameReceiver({
      check: () => {},
      reserve: () => {
        isWaiting = random.u32() % 2 === 0;
        return !isWaiting;
      },
      onFrame: (header, body) => got.push([header, Buffer.from(body)]),
    });
    for (let at = 0; at < stream.length; ) {
      const length = 1 + (random.u32() % (random.u32() % 4 === 0 ? 200_000 : 300));
      receiver.receive(Buffer.from(stream.subarray(at, at + length)));
      at += length;
      while (isWaiting && (at >= stream.length || random.u32() % 2 === 0)) {
        isWaiting = false;
        receiver.resume();
      }
    }
    t.deepEqual(
      got.map(([header, body]) => [header.requestId, body]),
      bodies.map((body, i) => [i + 1, body]),
    );
    t.false(receiver.isWithinFrame);
  }
});

test('frame receiver: memory is taken for the bytes of a body that come, and not for those that are promised', (t) => {
  const asked: number[] = [];
  const receiver = new FrameReceiver({
    check: () => {},
    reserve: (bytes) => {
      asked.push(bytes);
      return true;
    },
    onFrame: () => t.fail(),
  });
  const before = process.memoryUsage().arrayBuffers;
  receiver.receive(frame(4, 1, Buffer.alloc(0)).fill(0x03, 3, 4));
  t.deepEqual(asked, [], 'nothing for a promise of 48 MiB');
  receiver.receive(Buffer.alloc(1000));
  t.true(asked.length === 1 && (asked[0] as number) < 2 ** 19);
  t.true(process.memoryUsage().arrayBuffers - before < 2 ** 22);
  receiver.stop();
  receiver.resume();
  receiver.receive(Buffer.alloc(100));
});

test('client regions: a region stays while it is used, and goes when its last use ends', async (t) => {
  const regions = new ClientRegions();
  const memory = HostRegion.allocate(1000);
  regions.add(1, memory, true);
  t.is(regions.mappedBytes, 1000);
  const request = decodeRegionRequest(regionBody(['a', 'b'], [[[1, 0, 10]], [[1, 10, 10]]]), {
    maxKeys: 9,
    maxPieces: 9,
  });
  const [one, two] = [regions.hold(request, 'write'), regions.hold(request, 'read')];
  let isRemoved = false;
  const removed = regions.remove(1).then(() => {
    isRemoved = true;
  });
  t.throws(() => regions.hold(request, 'read'), { instanceOf: RequestError, message: /region 1 is not registered/ });
  regions.add(1, HostRegion.allocate(50), true);
  t.is(regions.mappedBytes, 1050, 'the id is free again, the memory is not');
  one.release();
  await Promise.resolve();
  t.false(isRemoved);
  t.true(memory.isLive);
  two.release();
  await removed;
  t.false(memory.isLive);
  await regions.removeAll();
  t.is(regions.mappedBytes, 0);
});

test('client regions: pieces of a GET may touch, and not overlap', (t) => {
  const random = seeded((text) => t.log(text));
  const regions = new ClientRegions();
  regions.add(1, HostRegion.allocate(64), true);
  regions.add(2, HostRegion.allocate(64), true);
  t.teardown(() => regions.removeAll());
  for (let round = 0; round < 500; round++) {
    const rows = Array.from({ length: 1 + (random.u32() % 6) }, () => {
      const length = 1 + (random.u32() % 16);
      return [1 + (random.u32() % 2), random.u32() % (65 - length), length] as const;
    });
    const touched = rows.flatMap(([id, offset, length]) => Array.from({ length }, (_, i) => `${id}/${offset + i}`));
    const request = decodeRegionRequest(
      regionBody(
        rows.map((_, i) => `k${i}`),
        rows.map((row) => [row]),
      ),
      { maxKeys: 9, maxPieces: 9 },
    );
    const isDistinct = new Set(touched).size === touched.length;
    if (isDistinct) regions.hold(request, 'write').release();
    else t.throws(() => regions.hold(request, 'write'), { message: 'pieces of a GET overlap' });
    t.notThrows(() => regions.hold(request, 'read').release());
  }
});

test('request error: what other modules say is not for clients', (t) => {
  t.deepEqual(statusOf(new ArgumentError('1 byte from address 140737488355328 on')), [
    1,
    'the node does not take such pages',
  ]);
  t.deepEqual(statusOf(new TypeError('secret')), [8, 'the node has failed; its log says more']);
  t.is(statusOf(undefined)[0], 8);
  t.deepEqual(statusOf(new ProtocolError('said')), [1, 'said']);
});

test('key encoders: one a namespace, and the own one is among them', (t) => {
  const encoders = new KeyEncoders(wholeNamespace(NAMESPACE));
  const { own } = encoders;
  t.is(encoders.of(undefined), own);
  t.is(encoders.of({ ...NAMESPACE }), own);
  const other = encoders.of({ ...NAMESPACE, tag: 'x' });
  t.is(encoders.of({ ...NAMESPACE, tag: 'x' }), other);
  t.not(other, own);
  for (let i = 0; i < 1_024; i++) encoders.of({ ...NAMESPACE, tag: `tag-${i}` });
  t.not(encoders.of({ ...NAMESPACE, tag: 'x' }), other, 'that of longest ago is forgotten');
  t.is(encoders.of(undefined), own);
});

test('client requests: a SET of very many bytes ends between two steps when it is cancelled', async (t) => {
  const store = new HeldStore();
  const regions = new ClientRegions();
  regions.add(1, HostRegion.allocate(32 * 2 ** 20), false);
  t.teardown(() => regions.removeAll());
  const namespace = new ClientNamespace(new StoredPages(store.pages, new KeyEncoder(NAMESPACE)), {
    holdersOf: async () => [],
    follow: noEvents,
  });
  const env = testEnvironment();
  const counts = new ClientCounts(env.metrics, 'test');
  const requests = new ClientRequests({
    namespace,
    regions,
    counts,
    caller: 1,
    audited: (_, work) => work(),
    goOn: () => undefined,
  });
  const keys = Array.from({ length: 10 }, (_, i) => `k${i}`);
  const body = regionBody(
    keys,
    keys.map(() => [[1, 0, 32 * 2 ** 20]]),
  );
  const abort = new AbortController();
  const time = { askedMs: 0, isOver: () => false };
  const answer = requests.run(RequestType.set, body, { signal: abort.signal, time, pages: { take: () => true } });
  await until(() => store.calls.length === 1);
  t.is(store.calls[0]?.keys.length, 4);
  store.calls[0]?.end([true, true, true, true]);
  await until(() => store.calls.length === 2);
  abort.abort();
  store.calls[1]?.end([true, false, true, true]);
  t.deepEqual([...(await answer)], [1, 1, 1, 1, 1, 0, 1, 1, 0, 0]);
  t.is(store.calls.length, 2);
  t.is(counts.figures().pages_written, 7);
});
