import type { ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { MeshCacheClient } from '../../src/client/meshcache-client.js';
import { HostRegion } from '../../src/memory/host-region.js';
import { systemRandom } from '../../src/system/system-random.js';
import { serialWithAddon, suffix } from '../_support/native/addon.js';
import { content, PATIENCE_MS, until } from '../_support/support.js';
import { startLateWritesCluster } from '../stress/late-writes-cluster.js';

const PAGE = 48 * 1024;
const PAGES = 4;
const KEYS = 16;
const ROUNDS = 150;
/** Rounds between two uses of the same memory. */
const GROUPS = 4;
const PATTERN = 0xa5;
const SEED = systemRandom.u32() % 1_000_000;

const keyOf = (i: number) => `page-${i}`;

/** A client of a node that reads the pages of another one through a valve. */
async function bench(t: ExecutionContext, timeoutMs: number) {
  t.log(`seed ${SEED}`);
  t.timeout(5 * PATIENCE_MS);
  const random = seededRandom(SEED);
  const cluster = await startLateWritesCluster(t, random, async (socket) => {
    await using owner = await MeshCacheClient.connect({ socket, required: true, timeoutMs: PATIENCE_MS });
    for (let i = 0; i < KEYS; i++) t.true(await owner.set(keyOf(i), content(i, PAGE)));
  });
  const region = HostRegion.allocate(GROUPS * PAGES * PAGE, { shared: true });
  const client = await MeshCacheClient.connect({ socket: cluster.clientSocket, required: true, timeoutMs });
  t.teardown(async () => {
    cluster.node.thaw();
    await client.close();
    region.free();
  });
  const bytesOf = (group: number) => region.bytes(group * PAGES * PAGE, PAGES * PAGE);
  /**
   * Reads pages into a group and gives the memory another use as soon as the call has returned; how many were there.
   */
  const read = async (group: number): Promise<number> => {
    const numbers = Array.from({ length: PAGES }, (_, i) => (i * 4 + (random.u32() % 4)) % KEYS);
    const pointers = numbers.map((_, i) => region.addr + BigInt((group * PAGES + i) * PAGE));
    const sizes = numbers.map(() => PAGE);
    const results = await client.batchGet(numbers.map(keyOf), pointers, sizes);
    const isRight = numbers.map((number, i) => {
      const page = bytesOf(group).subarray(i * PAGE, (i + 1) * PAGE);
      return Buffer.compare(page, content(number, PAGE)) === 0;
    });
    bytesOf(group).fill(PATTERN);
    t.false(
      results.some((isThere, i) => isThere && !isRight[i]),
      'a page that was said to be there is another',
    );
    return results.filter((isThere) => isThere).length;
  };
  const isUntouched = (group: number) => bytesOf(group).every((byte) => byte === PATTERN);
  for (let group = 0; group < GROUPS; group++) bytesOf(group).fill(PATTERN);
  await until(async () => (await read(0)) === PAGES);
  t.true((await client.stats()).directBytes > 0, 'the node moves pages in the memory itself');
  /** A read whose first bytes have come, and whose others do not. */
  const stuck = async (group: number) => {
    cluster.throttle.isShut = true;
    const ended = { value: false };
    const { valve } = cluster;
    const result = read(group).finally(() => {
      ended.value = true;
    });
    await until(() => valve.connections.some((connection) => !connection.isClosed && connection.heldBytes > PAGE));
    for (const connection of valve.connections) connection.pass(PAGE / 2);
    await until(() => !isUntouched(group));
    return { result, ended };
  };
  return { ...cluster, client, read, stuck, isUntouched };
}

serialWithAddon(`late writes: none into memory of a client in JavaScript after a deadline${suffix}`, async (t) => {
  const { read, isUntouched } = await bench(t, 15);
  let [whole, late] = [0, 0];
  for (let round = 0; round < ROUNDS || whole === 0 || late === 0; round++) {
    t.true(isUntouched(round % GROUPS), `round ${round}`);
    if ((await read(round % GROUPS)) === PAGES) whole++;
    else late++;
  }
  for (let group = 0; group < GROUPS; group++) t.true(isUntouched(group));
  t.log({ whole, late });
});

serialWithAddon(
  `late writes: a call of a client in JavaScript lasts until a frozen node goes on${suffix}`,
  async (t) => {
    const { node, throttle, read, stuck, isUntouched } = await bench(t, 300);
    const { result, ended } = await stuck(1);
    await node.freeze();
    throttle.isShut = false;
    // Longer than a call waits for the answer of a node that is alive.
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    t.false(ended.value, 'the call has returned although the node could still write');
    node.thaw();
    await result;
    await until(async () => (await read(0)) === PAGES);
    t.true(isUntouched(1));
  },
);

serialWithAddon(`late writes: calls of a client in JavaScript end with a node that is killed${suffix}`, async (t) => {
  const { node, throttle, read, stuck, isUntouched } = await bench(t, 5_000);
  const { result } = await stuck(1);
  await node.kill();
  t.is(await result, 0);
  throttle.isShut = false;
  await node.restart();
  await until(async () => (await read(0)) === PAGES);
  t.true(isUntouched(1));
});

serialWithAddon(
  `late writes: calls of a client in JavaScript end when the node closes the connection${suffix}`,
  async (t) => {
    const { node, throttle, read, stuck, isUntouched } = await bench(t, 5_000);
    const { result } = await stuck(1);
    node.cut();
    t.is(await result, 0);
    throttle.isShut = false;
    await until(async () => (await read(0)) === PAGES);
    t.true(isUntouched(1));
  },
);

serialWithAddon(`late writes: calls of a client in JavaScript end as misses when it is closed${suffix}`, async (t) => {
  const { client, throttle, stuck, isUntouched } = await bench(t, PATIENCE_MS / 2);
  const { result } = await stuck(1);
  await client.close();
  t.is(await result, 0);
  throttle.isShut = false;
  t.true(isUntouched(1));
  await t.throwsAsync(client.get('page-0'), { code: 'ERR_CLOSED' });
});
