import test, { type ExecutionContext } from 'ava';
import { type RandomSource, seededRandom } from '../../src/base/environment/random.js';
import type { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { systemRandom } from '../../src/system/system-random.js';
import { commandOf, placeOf, RawClient, startRespNodes } from '../_support/resp/resp-fixture.js';
import { content, until } from '../_support/support.js';

const KEYS_COUNT = 6;
const SIZES = [16, 5000, 65_536, 200_000, 1_500_000];
const ROUNDS = 60;

/** The state of one key, which one writer sets: each value has a number. */
interface KeyState {
  readonly key: string;
  /** Number of the last value whose setting was begun. */
  begun: number;
  /** Number of the last value that is set, or deleted. */
  ended: number;
}

/** The value of a number: its number, then bytes that follow from it. */
function valueOfNumber(key: number, number: number): Buffer {
  const value = Buffer.from(content(1000 * key + number, SIZES[(number + key) % SIZES.length] as number));
  value.writeUInt32LE(number);
  return value;
}

async function answer(client: RawClient): Promise<Buffer | null | string> {
  let line = '';
  while (!line.endsWith('\r\n')) line += (await client.read(1)).toString('latin1');
  if (line === '$-1\r\n') return null;
  if (!line.startsWith('$')) return line.trim();
  const length = Number(line.slice(1));
  return (await client.read(length + 2)).subarray(0, length);
}

async function write(t: ExecutionContext, store: MeshCacheStore, random: RandomSource, key: number, state: KeyState) {
  const client = await RawClient.connect(t, placeOf(store));
  for (let round = 0; round < ROUNDS; round++) {
    state.begun++;
    const isDeleted = random.u32() % 8 === 0;
    client.send(isDeleted ? commandOf('DEL', state.key) : commandOf('SET', state.key, valueOfNumber(key, state.begun)));
    const said = await answer(client);
    if (said === 'OK' || typeof said === 'string') state.ended = state.begun;
  }
}

async function read(
  t: ExecutionContext,
  store: MeshCacheStore,
  random: RandomSource,
  { states, isOver }: { readonly states: readonly KeyState[]; readonly isOver: () => boolean },
): Promise<number> {
  let client = await RawClient.connect(t, placeOf(store));
  let hits = 0;
  while (!isOver()) {
    const asked = Array.from({ length: 1 + (random.u32() % 8) }, () => random.u32() % KEYS_COUNT);
    const before = asked.map((key) => states[key]?.ended as number);
    client.send(Buffer.concat(asked.map((key) => commandOf('GET', `key-${key}`))));
    if (random.u32() % 10 === 0) {
      await until(() => client.bytes > 0);
      client.socket.destroy();
      client = await RawClient.connect(t, placeOf(store));
      continue;
    }
    for (const [i, key] of asked.entries()) {
      const got = await answer(client);
      if (got === null) continue;
      if (typeof got === 'string') {
        t.fail(`an answer ${got}`);
        return hits;
      }
      const number = got.readUInt32LE();
      hits++;
      if (!got.equals(valueOfNumber(key, number))) t.fail(`key ${key}: not the bytes of value ${number}`);
      const { begun } = states[key] as KeyState;
      if (number > begun || number < (before[i] as number)) {
        t.fail(`key ${key}: value ${number}, set are ${before[i]} to ${begun}`);
      }
    }
  }
  return hits;
}

test('resp: whatever clients of two nodes do, every value that is read is whole, and none is older than the last one', async (t) => {
  const seed = Number(process.env.MESHCACHE_SEED ?? systemRandom.u32());
  t.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const stores = await startRespNodes(t, 2, { global_segment_size: '96mb' });
  const states = Array.from({ length: KEYS_COUNT }, (_, i): KeyState => ({ key: `key-${i}`, begun: 0, ended: 0 }));
  let isOver = false;
  const nth = (i: number): MeshCacheStore => stores[i % 2] as MeshCacheStore;
  const readers = [0, 1, 2, 3].map((i) => read(t, nth(i), random, { states, isOver: () => isOver }));
  await Promise.all(states.map((state, key) => write(t, nth(key), random, key, state)));
  isOver = true;
  const hits = await Promise.all(readers);
  t.log(`${hits.join(', ')} hits`);
  t.true(hits.some((count) => count > 0));
  for (const store of stores) store.verify();
});
