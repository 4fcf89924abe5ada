import test from 'ava';
import { ByteBudget } from '../../src/base/concurrency/byte-budget.js';
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
import { wholeNamespace } from '../../src/store/namespace/whole-namespace.js';
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

test('byte budget: grants in order, never more than there is, and gets all of it back', (t) => {
  const random = seeded((text) => t.log(text));
  const total = 1000;
  const budget = new ByteBudget(total);
  let held = 0;
  let [asked, granted] = [0, 0];
  const live: (() => void)[] = [];
  for (let step = 0; step < 5_000; step++) {
    if (random.u32() % 2 === 0 || live.length === 0) {
      const bytes = random.u32() % (total + 1);
      const nth = asked++;
      let state: 'waiting' | 'granted' | 'over' = 'waiting';
      const giveBack = budget.take(bytes, () => {
        t.is(state, 'waiting');
        state = 'granted';
        held += bytes;
        t.true(held <= total);
        // Those before it have been granted, or were taken back.
        t.true(nth >= granted);
        granted = nth;
      });
      live.push(() => {
        if (state === 'granted') held -= bytes;
        state = 'over';
        giveBack();
        giveBack();
      });
    } else {
      const [end] = live.splice(random.u32() % live.length, 1);
      end?.();
    }
  }
  for (const end of live) end();
  t.is(held, 0);
  let isGranted = false;
  budget.take(total, () => {
    isGranted = true;
  });
  t.true(isGranted);
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
  t.deepEqual(decodeExists(body, 3).keys, ['a', 'ü', '']);
  for (let end = 0; end < body.length; end++) {
    t.throws(() => decodeExists(body.subarray(0, end), 3), { instanceOf: ProtocolError }, `${end} bytes`);
  }
  t.throws(() => decodeExists(body, 2), { message: /3 keys, allowed are 2/ });
  const cut = new BodyWriter().keys(['ab', 'é']).done();
  // The bytes of é, as those of two keys.
  cut.writeUInt16LE(3, 4);
  cut.writeUInt16LE(1, 6);
  t.throws(() => new BodyReader(cut).keys(2), { message: /not UTF-8/ });
  const mixed = new BodyReader(new BodyWriter().keys(['é', 'a', '🙂']).done());
  t.deepEqual(mixed.keys(3), ['é', 'a', '🙂']);
  t.throws(() => new BodyReader(Buffer.alloc(8, 0xff)).u64(), { message: /above 2\^53/ });
  const pieces = regionBody(['a', 'b'], [[[1, 0, 1]], [[1, 1, 1]]]);
  t.throws(() => decodeRegionRequest(pieces, { maxKeys: 2, maxPieces: 1 }), { message: /2 pieces, allowed are 1/ });
});

test('frame receiver: frames are those that were sent, however they are cut and whenever there is memory', (t) => {
  const random = seeded((text) => t.log(text));
  for (let round = 0; round < 100; round++) {
    const bodies = Array.from({ length: 20 }, () => Buffer.from(random.bytes(random.u32() % 200)));
    const stream = Buffer.concat(bodies.map((body, i) => frame(4, i + 1, body)));
    const got: [FrameHeader, Buffer][] = [];
    let isWaiting = false;
    const receiver = new FrameReceiver({
      check: () => {},
      onBegin: () => {
        isWaiting = random.u32() % 2 === 0;
        if (!isWaiting) receiver.begin();
      },
      onFrame: (header, body) => got.push([header, Buffer.from(body)]),
    });
    for (let at = 0; at < stream.length; ) {
      const length = 1 + (random.u32() % 300);
      receiver.receive(Buffer.from(stream.subarray(at, at + length)));
      at += length;
      while (isWaiting && (at >= stream.length || random.u32() % 2 === 0)) {
        isWaiting = false;
        receiver.begin();
      }
    }
    t.deepEqual(
      got.map(([header, body]) => [header.requestId, body]),
      bodies.map((body, i) => [i + 1, body]),
    );
    t.false(receiver.isWithinFrame);
  }
});

test('frame receiver: no memory is taken for a body before there is some', (t) => {
  const begun: number[] = [];
  const receiver = new FrameReceiver({
    check: () => {},
    onBegin: ({ bodyBytes }) => begun.push(bodyBytes),
    onFrame: () => t.fail(),
  });
  const before = process.memoryUsage().arrayBuffers;
  for (let i = 0; i < 1; i++) receiver.receive(frame(4, 1, Buffer.alloc(0)).fill(0x03, 3, 4));
  t.deepEqual(begun, [0x03000000]);
  t.true(process.memoryUsage().arrayBuffers - before < 2 ** 24);
  receiver.stop();
  receiver.begin();
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
  const requests = new ClientRequests({ namespace, regions, counts, caller: 1 });
  const keys = Array.from({ length: 10 }, (_, i) => `k${i}`);
  const body = regionBody(
    keys,
    keys.map(() => [[1, 0, 32 * 2 ** 20]]),
  );
  const abort = new AbortController();
  const time = { askedMs: 0, isOver: () => false };
  const answer = requests.run(RequestType.set, body, { signal: abort.signal, time });
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
