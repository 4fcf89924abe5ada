import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { ProtocolError } from '../../src/base/errors.js';
import {
  CLIENT_POOLS_MAX_COUNT,
  CLIENT_SMALL_BODY_BYTES,
  CLIENT_STEP_BYTES,
  CLIENT_STEP_KEY_BYTES,
  CLIENT_STEP_KEYS,
} from '../../src/base/limits.js';
import { ClientNamespace } from '../../src/clients/requests/client-namespace.js';
import { ClientRegions } from '../../src/clients/requests/client-regions.js';
import { ClientRequests } from '../../src/clients/requests/client-requests.js';
import { ClientCounts } from '../../src/clients/requests/client-stats.js';
import { SuffixedKeys } from '../../src/clients/requests/suffixed-keys.js';
import { BodyReader, BodyWriter } from '../../src/clients/wire/body.js';
import type { BodyTexts } from '../../src/clients/wire/body-texts.js';
import {
  encodeBytesAnswer,
  encodeExists,
  encodeKeyRequest,
  encodePools,
  encodeSetBytes,
  RequestType,
} from '../../src/clients/wire/messages.js';
import { KeyEncoder } from '../../src/core/index.js';
import { StoredPages } from '../../src/store/namespace/namespace-pages.js';
import { wholeNamespace } from '../../src/store/namespace/node-namespace.js';
import { systemRandom } from '../../src/system/system-random.js';
import { HeldStore, noEvents } from '../_support/clients/client-fixture.js';
import { testEnvironment } from '../_support/rpc/server.js';

const NAMESPACE = { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };
const WAIT = {
  signal: new AbortController().signal,
  time: { askedMs: 0, isOver: () => false },
  pages: { take: () => true },
};

/**
 * The requests of a client over a store that has every page; how often others were let in, at all and before the first
 * call of the store.
 */
function startRequests() {
  const store = new HeldStore();
  let turns = 0;
  let turnsBefore: number | undefined;
  store.answer = ({ method, keys }) => {
    turnsBefore ??= turns;
    if (method === 'clear') return null;
    return method === 'getCopyWithin' ? Buffer.alloc(1) : keys.map(() => true);
  };
  const pages = new StoredPages(store.pages, new KeyEncoder(wholeNamespace(NAMESPACE)));
  const requests = new ClientRequests({
    namespace: new ClientNamespace(pages, { holdersOf: async () => [], follow: noEvents }),
    regions: new ClientRegions(),
    counts: new ClientCounts(testEnvironment().metrics, 'test'),
    caller: 1,
    audited: (_, work) => work(),
    goOn: () => void turns++,
  });
  return {
    store,
    run: (type: RequestType, body: Buffer) => requests.run(type, body, WAIT),
    turnsBefore: () => turnsBefore ?? turns,
  };
}

/** Keys of 65,000 bytes, some MiB of them. */
const LONG_KEYS = Array.from({ length: 128 }, (_, i) => `${i}`.padEnd(65_000, 'x'));
const LONG_KEYS_STEPS = Math.floor((128 * 65_000) / CLIENT_STEP_BYTES);

/** The body with the last byte of its keys, which ends `before` bytes before its end, as no UTF-8 has it. */
function malformed(body: Buffer, before = 0): Buffer {
  body[body.length - 1 - before] = 0xff;
  return body;
}

/** All requests with keys, with what they have behind the keys. */
const REQUESTS: readonly [
  name: string,
  type: RequestType,
  body: (keys: string[]) => Buffer,
  behindKeys: (count: number) => number,
][] = [
  ['EXISTS', RequestType.exists, (keys) => encodeExists({ pool: '', wantsFlags: true, suffixes: [], keys }), () => 0],
  ['GET_BYTES', RequestType.getBytes, (keys) => encodeKeyRequest('', keys, { hasFlags: true }), () => 0],
  ['DELETE', RequestType.delete, (keys) => encodeKeyRequest('', keys, { hasFlags: false }), () => 0],
  [
    'SET_BYTES',
    RequestType.setBytes,
    (keys) => encodeSetBytes({ pool: '', isNamed: true, keys, pages: keys.map(() => Buffer.alloc(1)) }),
    (count) => 5 * count,
  ],
];

for (const [name, type, bodyOf, behindKeys] of REQUESTS) {
  test(`request steps: others are let in while the keys of ${name} are checked, before anything is done`, async (t) => {
    // Cause: a body of 64 MiB was decoded in one go, for up to 270 ms.
    const { store, run, turnsBefore } = startRequests();
    await run(type, bodyOf(LONG_KEYS));
    t.true(turnsBefore() >= LONG_KEYS_STEPS - 1, `${turnsBefore()} turns`);
    for (const { keys } of store.calls) {
      t.true(keys.length <= CLIENT_STEP_KEYS);
      t.true(
        keys.length === 1 || keys.reduce((sum, { length }) => sum + length, 0) <= CLIENT_STEP_KEY_BYTES + 512 * 64,
      );
    }
    t.deepEqual(new Set(store.calls.flatMap(({ keys }) => keys.map((key) => key.slice(-65_000)))), new Set(LONG_KEYS));
  });

  test(`request steps: nothing is done of ${name} with a malformed key at its end`, async (t) => {
    for (const count of [1, 3 * CLIENT_STEP_KEYS]) {
      const { store, run } = startRequests();
      const keys = Array.from({ length: count }, (_, i) => `key ${i}`);
      const body = malformed(bodyOf(keys), behindKeys(count));
      await t.throwsAsync(run(type, body), { instanceOf: ProtocolError, message: /not UTF-8/ });
      await t.throwsAsync(run(type, bodyOf(keys).subarray(0, -1)), { instanceOf: ProtocolError });
      t.is(store.calls.length, 0, `${count} keys`);
    }
  });
}

test('request steps: an EXISTS with a malformed suffix is refused, without keys as well', async (t) => {
  for (const keys of [[], ['a'], Array.from({ length: 1_000 }, (_, i) => `key ${i}`)]) {
    const { store, run } = startRequests();
    const body = encodeExists({ pool: '', wantsFlags: true, suffixes: ['-k', '-v'], keys });
    body[body.indexOf('-v')] = 0xff;
    await t.throwsAsync(run(RequestType.exists, body), { instanceOf: ProtocolError, message: /not UTF-8/ });
    t.is(store.calls.length, 0);
  }
});

test('request steps: a CLEAR of more pools than a node remembers is refused', async (t) => {
  // Cause: CLEAR of 65,535 pools held the main loop for a second.
  const { store, run } = startRequests();
  const pools = Array.from({ length: CLIENT_POOLS_MAX_COUNT + 1 }, (_, i) => `pool ${i}`);
  await t.throwsAsync(run(RequestType.clear, encodePools(pools)), { message: /257 pools, allowed are 256/ });
  t.is(store.calls.length, 0);
  await run(RequestType.clear, encodePools(pools.slice(1)));
  t.is(store.calls.length, 1);
});

test('request steps: large pages are read a few at a time', async (t) => {
  // Cause: 16 pages were copied in one go, whatever their size.
  const { store, run } = startRequests();
  let underWay = 0;
  let most = 0;
  store.answer = ({ end }) => {
    most = Math.max(most, ++underWay);
    setImmediate(() => {
      underWay--;
      end(Buffer.alloc(2 * 2 ** 20));
    });
    return undefined;
  };
  const keys = Array.from({ length: 12 }, (_, i) => `key ${i}`);
  const answer = await run(RequestType.getBytes, encodeKeyRequest('', keys, { hasFlags: true }));
  t.is(Buffer.concat(answer as readonly Uint8Array[]).length, 12 * (4 + 2 * 2 ** 20));
  t.is(most, 4);
});

test('client requests: an answer with pages has large ones as they are, and puts small ones together, a step at a time', (t) => {
  const large = Buffer.alloc(CLIENT_SMALL_BODY_BYTES + 1, 1);
  const small = Array.from({ length: 40 }, (_, i) => Buffer.alloc(CLIENT_SMALL_BODY_BYTES, i));
  const pages = [large, 0xffffffff as const, ...small, large, Buffer.alloc(3, 3)];
  const steps = encodeBytesAnswer(pages);
  let count = 1;
  let step = steps.next();
  for (; step.done !== true; step = steps.next()) count++;
  t.is(count, 3);
  const pieces = step.value as readonly Uint8Array[];
  t.deepEqual(
    pieces.map((piece) => piece === large),
    [false, true, false, false, false, true, false],
  );
  const bytes = pages.filter((page) => typeof page !== 'number');
  const lengths = Uint32Array.from(pages, (page) => (typeof page === 'number' ? page : page.length));
  t.true(Buffer.concat(pieces).equals(Buffer.concat([Buffer.from(lengths.buffer), ...bytes])));
});

test('body texts: any part of them is what was written', (t) => {
  const random = seeded(t);
  for (let round = 0; round < 300; round++) {
    const texts = someTexts(random.u32() % 40, random);
    const [start, end] = someRange(texts.length, random);
    for (const read of [keysOf(texts), suffixesOf(texts)]) {
      t.is(read.count, texts.length);
      t.deepEqual(read.slice(start, end), texts.slice(start, end));
      t.deepEqual(read.all(), texts);
      t.is(read.bytesBetween(0, texts.length), Buffer.byteLength(texts.join('')));
      read.check(start, end);
      t.is(read.bytesBetween(start, end), Buffer.byteLength(texts.slice(start, end).join('')));
    }
  }
});

test('body texts: a key that begins within a character is none, whichever part it is in', (t) => {
  const body = new BodyWriter().keys(['a', 'ab', 'é', 'c']).done();
  // The bytes of é, as those of two keys.
  body.writeUInt16LE(3, 4 + 2);
  body.writeUInt16LE(1, 4 + 4);
  const keys = new BodyReader(body).keys(4);
  for (const [start, end] of [
    [0, 2],
    [1, 2],
    [2, 3],
    [2, 4],
    [0, 4],
  ] as const) {
    t.throws(() => keys.check(start, end), { instanceOf: ProtocolError }, `${start} to ${end}`);
    t.throws(() => keys.slice(start, end), { instanceOf: ProtocolError }, `${start} to ${end}`);
  }
  t.deepEqual(keys.slice(0, 1), ['a']);
  t.deepEqual(keys.slice(3, 4), ['c']);
});

test('suffixed keys: any part of them is that of each key with each suffix', (t) => {
  const random = seeded(t);
  for (let round = 0; round < 300; round++) {
    const [keys, suffixes] = [someTexts(random.u32() % 12, random), someTexts(1 + (random.u32() % 5), random)];
    const expected = keys.flatMap((key) => suffixes.map((suffix) => key + suffix));
    const all = new SuffixedKeys(keysOf(keys), suffixesOf(suffixes));
    const [start, end] = someRange(expected.length, random);
    t.is(all.count, expected.length);
    t.deepEqual(all.slice(start, end), expected.slice(start, end), `${start} to ${end} of ${suffixes.length} suffixes`);
    t.is(all.bytesBetween(0, expected.length), Buffer.byteLength(expected.join('')));
    t.is(all.bytesBetween(start, end), Buffer.byteLength(expected.slice(start, end).join('')));
  }
});

function seeded(t: ExecutionContext) {
  const seed = Number(process.env.MESHCACHE_SEED ?? systemRandom.u32());
  t.log(`seed ${seed}`);
  return seededRandom(seed);
}

type Random = ReturnType<typeof seededRandom>;

const LETTERS = ['a', 'z', '\0', 'é', '€', '🙂', '\ufeff'];

function someTexts(count: number, random: Random): string[] {
  const letters = random.u32() % 2 === 0 ? LETTERS : LETTERS.slice(0, 3);
  const letter = (): string => letters[random.u32() % letters.length] as string;
  return Array.from({ length: count }, () => Array.from({ length: random.u32() % 6 }, letter).join(''));
}

function someRange(count: number, random: Random): [start: number, end: number] {
  const start = random.u32() % (count + 1);
  return [start, start + (random.u32() % (count - start + 1))];
}

function keysOf(texts: readonly string[]): BodyTexts {
  return new BodyReader(new BodyWriter().u8(0xc3).keys(texts).u8(0xa9).done().subarray(1)).keys(texts.length);
}

function suffixesOf(texts: readonly string[]): BodyTexts {
  const writer = new BodyWriter();
  for (const text of texts) writer.text16(text);
  return new BodyReader(writer.done()).texts16(texts.length);
}
