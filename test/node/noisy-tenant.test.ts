import { seededRandom } from '../../src/base/environment/random.js';
import { EVICTION_POLICIES, type EvictionPolicy } from '../../src/config.js';
import { PORT, type SimStore, startStore } from '../_support/node/simulated-stores.js';
import { simulated, type TestWorld } from '../_support/simulated.js';
import { content } from '../_support/support.js';

const PAGE = 1024;
const POOL_PAGES = 64;
const DISK_PAGES = 256;
const NODES = 3;
const STEP_MS = 200;
const STEPS = 240;
/** Pages of the quiet tenant that are asked for in a step; together they are more than its quotas hold. */
const KEYS = 300;
const KEYS_A_STEP = 8;
/** Pages that the noisy tenant writes in a step: to each node ten times its quota there in all, or more. */
const NOISE_A_STEP = 24;

function settings(policy: EvictionPolicy): Record<string, unknown> {
  return {
    global_segment_size: POOL_PAGES * PAGE,
    eviction_policy: policy,
    disk_enabled: true,
    disk_path: '/disk',
    disk_size: DISK_PAGES * 4096 + 2 ** 18 + 2 ** 16,
    disk_index_size: 2 ** 18,
    namespace_quotas: { quiet: { min: 0.4, max: 0.4 }, noisy: { max: 0.5 } },
  };
}

/** One of the nodes, or null while it is down. */
type Nodes = (SimStore | null)[];

/** Reads pages of the quiet tenant, and sets those that are missing; wrong bytes throw. Returns how many were read. */
async function request(store: SimStore, numbers: readonly number[]): Promise<number> {
  const quiet = store.namespace({ tag: 'quiet' });
  let hits = 0;
  for (const number of numbers) {
    const bytes = new Uint8Array(PAGE);
    if (await quiet.get(`page ${number}`, bytes)) {
      if (Buffer.compare(bytes, content(number, PAGE)) !== 0) throw new Error(`page ${number}: wrong bytes`);
      hits++;
    } else {
      await quiet.set(`page ${number}`, content(number, PAGE));
    }
  }
  return hits;
}

/** Share of the quiet tenant's pages that are found, on nodes that are killed, restarted and cut off at fixed times. */
async function hitRate(world: TestWorld, policy: EvictionPolicy, isNoisy: boolean): Promise<number> {
  const config = settings(policy);
  const nodes: Nodes = [];
  const hostOf = (index: number) => `10.0.${isNoisy ? 1 : 2}.${index + 1}`;
  const start = (index: number) => startStore(world, { host: hostOf(index), addr: `${hostOf(0)}:${PORT}`, config });
  for (let i = 0; i < NODES; i++) nodes.push(await start(i));
  const random = seededRandom(7);
  let [asked, hits, noise] = [0, 0, 0];
  const startMs = world.nowMs;
  for (let step = 0; step < STEPS; step++) {
    const index = step % NODES;
    // Some pages are asked for more often than others, and a node mostly gets the same ones.
    const numbers = Array.from({ length: KEYS_A_STEP }, () => Math.floor((random.u32() / 2 ** 32) ** 2 * KEYS));
    const store = nodes[index];
    if (store !== null && store !== undefined) {
      asked += numbers.length;
      hits += await request(store, numbers);
      if (isNoisy) {
        const pages = store.namespace({ tag: 'noisy' });
        for (let i = 0; i < NOISE_A_STEP; i++) await pages.set(`noise ${noise++}`, content(noise, PAGE));
      }
    }
    if (step === 60) {
      nodes[2]?.process.kill();
      nodes[2] = null;
    }
    if (step === 100) nodes[2] = await start(2);
    if (step === 130) world.isolate(hostOf(1));
    if (step === 150) world.heal();
    if (step === 190) {
      await nodes[0]?.close();
      nodes[0] = await start(0);
    }
    const restMs = startMs + (step + 1) * STEP_MS - world.nowMs;
    if (restMs > 0) await world.sleep(restMs);
  }
  for (const store of nodes) store?.verify();
  return hits / asked;
}

for (const policy of EVICTION_POLICIES) {
  simulated(
    `quotas: ten times the quota of one tenant costs another no hits on 3 nodes with faults, ${policy}`,
    async (t, world) => {
      t.timeout(300_000);
      // Two clusters in one world, which have the same requests and the same faults.
      const [beside, alone] = await Promise.all([hitRate(world, policy, true), hitRate(world, policy, false)]);
      t.log(`${beside.toFixed(4)}, alone ${alone.toFixed(4)}`);
      t.true(alone > 0.2 && alone < 0.95, 'there is something to lose, and something to evict');
      t.true(beside >= 0.99 * alone, `${beside} beside the other tenant, ${alone} alone`);
    },
  );
}
