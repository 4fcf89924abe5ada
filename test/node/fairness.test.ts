import test, { type ExecutionContext } from 'ava';
import { HostRegion } from '../../src/memory/host-region.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import type { PoolTransfer } from '../../src/store/namespace/hybrid.js';
import { createStore, TestHostPool } from '../_support/node/store-fixture.js';
import { content, freePort } from '../_support/support.js';

const PAGE_BYTES = 4096;
const FIRINGS_COUNT = 5;
/** Of calls one after the other; even without any waiting they take far longer than that many firings. */
const CALLS_MAX_COUNT = 100_000;

/**
 * Awaits `call` again and again until a timer of 1 ms has fired a few times; false: it did not within all those calls.
 */
async function letsTimersFire(call: () => Promise<unknown>): Promise<boolean> {
  let firings = 0;
  const timer = setInterval(() => firings++, 1);
  try {
    for (let i = 0; i < CALLS_MAX_COUNT && firings < FIRINGS_COUNT; i++) await call().catch(() => {});
    return firings >= FIRINGS_COUNT;
  } finally {
    clearInterval(timer);
  }
}

type Call = (store: MeshCacheStore, at: { readonly addr: bigint; readonly pool: TestHostPool }) => Promise<unknown>;

const wrong = (value: unknown): never => value as never;
const transfer = (keys: string[]): PoolTransfer[] => [{ name: 'kv', keys, hostIndices: [0] }];

/** Calls that a node answers by itself. */
const CALLS: Readonly<Record<string, Call>> = {
  'get: a hit': (store) => store.get('here'),
  'get: a miss': (store) => store.get('away'),
  'get into an array: a hit': (store, { pool }) => store.get('here', pool.component(0, 0)),
  'get into an array: a miss': (store, { pool }) => store.get('away', pool.component(0, 0)),
  'get to a pointer: a hit': (store, { addr }) => store.get('here', addr, PAGE_BYTES),
  'get to a pointer: a miss': (store, { addr }) => store.get('away', addr, PAGE_BYTES),
  'get: wrong arguments': (store) => store.get(wrong(1)),
  'set of what is there': (store) => store.set('here', content(1, PAGE_BYTES)),
  'set: wrong arguments': (store) => store.set('here', wrong('text')),
  'exists: a hit': (store) => store.exists('here'),
  'exists: a miss': (store) => store.exists('away'),
  'exists: wrong arguments': (store) => store.exists(wrong(null)),
  'batchExists: hits': (store) => store.batchExists(['here']),
  'batchExists: wrong arguments': (store) => store.batchExists(wrong('here')),
  'batchSet of what is there': (store, { addr }) => store.batchSet(['here'], [addr], [PAGE_BYTES]),
  'batchSet: wrong arguments': (store) => store.batchSet(['here'], [], []),
  'batchGet: a hit': (store, { addr }) => store.batchGet(['here'], [addr], [PAGE_BYTES]),
  'batchGet: wrong arguments': (store) => store.batchGet(['here'], [], []),
  'batchSetV1 of what is there': (store) => store.batchSetV1(['here'], [0]),
  'batchSetV1: wrong arguments': (store) => store.batchSetV1(['here'], []),
  'batchGetV1: a hit': (store) => store.batchGetV1(['here'], [0]),
  'batchGetV1: a miss': (store) => store.batchGetV1(['away'], [0]),
  'batchGetV1: wrong arguments': (store) => store.batchGetV1(['here'], []),
  'batchExistsV2: hits': (store) => store.batchExistsV2(['here']),
  'batchExistsV2: wrong arguments': (store) => store.batchExistsV2(wrong(1)),
  'batchSetV2 of what is there': (store) => store.batchSetV2(transfer(['here'])),
  'batchSetV2 of nothing': (store) => store.batchSetV2([]),
  'batchSetV2: wrong arguments': (store) => store.batchSetV2(wrong(null)),
  'batchGetV2: a hit': (store) => store.batchGetV2(transfer(['here'])),
  'batchGetV2: wrong arguments': (store) => store.batchGetV2(wrong(null)),
  registerMemPoolHost: (store, { pool }) => store.registerMemPoolHost(pool),
  'registerMemPoolHost: wrong arguments': (store) => store.registerMemPoolHost(wrong(null)),
  registerMemHostPoolV2: (store, { pool }) => store.registerMemHostPoolV2(pool, 'other'),
  'registerMemHostPoolV2: wrong arguments': (store, { pool }) => store.registerMemHostPoolV2(pool, ''),
  clear: (store) => store.clear(),
};

async function oneStore(t: ExecutionContext) {
  const store = await createStore(await freePort());
  const pool = new TestHostPool(1, PAGE_BYTES, 1);
  const buffer = HostRegion.allocate(PAGE_BYTES);
  t.teardown(async () => {
    await store.close();
    pool.region.free();
    buffer.free();
  });
  await store.registerMemPoolHost(pool);
  pool.region.bytes().set(content(1, PAGE_BYTES));
  buffer.bytes().set(content(1, PAGE_BYTES));
  t.true(await store.set('here', content(1, PAGE_BYTES)));
  return { store, pool, addr: buffer.addr };
}

test.serial('fairness: calls that a node answers by itself, one after the other, let timers fire', async (t) => {
  // Cause: their promises resolve without I/O, so that a loop of them never left the queue of microtasks.
  const { store, ...at } = await oneStore(t);
  for (const [name, call] of Object.entries(CALLS)) t.true(await letsTimersFire(() => call(store, at)), name);
});

test.serial('fairness: calls after close() let timers fire', async (t) => {
  const { store } = await oneStore(t);
  await store.close();
  t.true(await letsTimersFire(() => store.get('here')));
});
