// One script, in a simulated world and on real processes: where the order of the calls is forced, everything agrees.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { isDeepStrictEqual } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import type { StorageConfig } from '../../src/config.js';
import { MeshCacheStore } from '../../src/node/meshcache-store.js';
import { World } from '../../src/sim/world/world.js';
import {
  type NodeState,
  PAGE_BYTES,
  type ScriptCall,
  ScriptedNode,
  type ScriptMessage,
} from '../_programs/sim/scripted-node.js';
import { freePort, until } from '../_support/support.js';

const POLICIES = ['lru', 'yield'] as const;
const NODES = 3;
const POOL_PAGES = 20;
const KEYS = 64;
/**
 * Longer than it takes until owners of pages have heard of reads by others, and until the directory has heard of
 * evictions.
 */
const READS_HEARD_MS = 2_800;
const EVICTIONS_HEARD_MS = 150;
const RUNS_AGAIN_COUNT = 3;

interface Step {
  readonly node: number;
  readonly call: ScriptCall;
  /** Until the next one. */
  readonly pauseMs: number;
}

interface Cluster {
  /** An answer per node. */
  send(node: number, message: ScriptMessage): Promise<unknown>;
  pause(ms: number): Promise<void>;
}

interface Outcome {
  readonly answers: readonly unknown[];
  readonly states: readonly NodeState[];
}

/**
 * Sets beyond what the pools hold, then reads that the owners hear of late, then sets that those decide about, then
 * everything is read.
 */
function scriptOf(seed: number): Step[] {
  const random = seededRandom(seed);
  const steps: Step[] = [];
  const call = (kind: ScriptCall['kind'], isNamed: boolean, count: number, from: number, pauseMs: number) => {
    const keys = Array.from({ length: count }, (_, i) => (from + i) % KEYS);
    steps.push({ node: random.u32() % NODES, call: { kind, isNamed, keys, seed: random.u32() % 1000 }, pauseMs });
  };
  const some = (kind: ScriptCall['kind'], calls: number, pauseMs = EVICTIONS_HEARD_MS) => {
    for (let i = 0; i < calls; i++) call(kind, i % 2 === 0, 1 + (random.u32() % 16), random.u32() % KEYS, pauseMs);
  };
  for (let round = 0; round < 2; round++) {
    some('set', 12);
    some('get', 3, READS_HEARD_MS);
  }
  some('set', 8);
  some('delete', 2);
  call('clear', true, 0, 0, EVICTIONS_HEARD_MS);
  some('set', 4);
  for (const isNamed of [true, false]) call('exists', isNamed, KEYS, 0, 0);
  for (const isNamed of [true, false]) call('get', isNamed, KEYS, 0, 0);
  return steps;
}

async function play(steps: readonly Step[], cluster: Cluster): Promise<Outcome> {
  const answers: unknown[] = [];
  for (const { node, call, pauseMs } of steps) {
    answers.push(await cluster.send(node, { call }));
    await cluster.pause(pauseMs);
  }
  const all = Array.from({ length: KEYS }, (_, key) => key);
  const ask = [true, false].map((isNamed): ScriptCall => ({ kind: 'get', isNamed, keys: all, seed: 0 }));
  const states: NodeState[] = [];
  for (let node = 0; node < NODES; node++) states.push((await cluster.send(node, { ask })) as NodeState);
  return { answers, states };
}

function configOf(node: number, { policy, ...where }: { policy: string; host: string; master: string }): StorageConfig {
  const extraConfig = {
    protocol: 'tcp',
    discovery_addr: where.master,
    local_hostname: where.host,
    allow_unauthenticated: true,
    node_id: `node-${node}`,
    global_segment_size: POOL_PAGES * PAGE_BYTES,
    eviction_policy: policy,
    // When space is free again is not a matter of time.
    reuse_quarantine_ms: 0,
    metrics_enabled: false,
  };
  return { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, modelName: 'scripted', extraConfig };
}

async function inWorld(policy: string, steps: readonly Step[]): Promise<Outcome> {
  const world = new World({ seed: 1, logLevel: 'warn' });
  try {
    const processes = Array.from({ length: NODES }, (_, i) => world.host({ name: `host-${i}` }).start());
    const nodes: ScriptedNode[] = [];
    for (const [i, process] of processes.entries()) {
      const config = configOf(i, { policy, host: `host-${i}`, master: 'host-0:6000' });
      const start = async () => {
        const node = new ScriptedNode(await MeshCacheStore.create(config, process.environment));
        await node.open();
        return node;
      };
      nodes.push(await world.complete(process.run(start)));
    }
    return await play(steps, {
      send: (i, message) =>
        world.complete(processes[i]?.run(() => (nodes[i] as ScriptedNode).answer(message)) as Promise<unknown>),
      pause: async (ms) => void (await world.runFor(ms)),
    });
  } finally {
    world.close();
  }
}

async function inProcesses(t: ExecutionContext, policy: string, steps: readonly Step[]): Promise<Outcome> {
  const master = `127.0.0.1:${await freePort()}`;
  const children: ChildProcess[] = [];
  const endOf = new Map<ChildProcess, AbortController>();
  const tell = async (child: ChildProcess, message: object): Promise<unknown> => {
    child.send(message);
    const { signal } = endOf.get(child) as AbortController;
    const [{ answer }] = (await once(child, 'message', { signal })) as [{ answer: unknown }];
    return answer;
  };
  for (let i = 0; i < NODES; i++) {
    const child = fork(new URL('./sim-scripted-node.js', import.meta.url), ['scripted']);
    t.teardown(() => child.kill('SIGKILL'));
    children.push(child);
    const end = new AbortController();
    endOf.set(child, end);
    child.once('exit', (status, signal) => end.abort(new Error(`node ${i} has ended: ${signal ?? status}`)));
    await tell(child, { start: configOf(i, { policy, host: '127.0.0.1', master }) });
  }
  const send = (i: number, message: ScriptMessage) => tell(children[i] as ChildProcess, { message });
  const areAll = async (i: number) => ((await send(i, { ask: [] })) as NodeState).members === NODES;
  for (let i = 0; i < NODES; i++) await until(() => areAll(i));
  const outcome = await play(steps, { send, pause: (ms) => new Promise((resolve) => setTimeout(resolve, ms)) });
  for (const child of children) child.kill('SIGKILL');
  return outcome;
}

test('sim: a script has the same answers, pages, evictions and directory on real processes', async (t) => {
  const steps = scriptOf(7);
  const simulated: Outcome[] = [];
  for (const policy of POLICIES) simulated.push(await inWorld(policy, steps));
  for (const { states } of simulated) {
    t.true(
      states.some(({ evictions }) => evictions > 20),
      'pages are evicted',
    );
    t.true(
      states.some(({ hits }) => hits.remote > 20 && hits.local > 0),
      'pages are read from others',
    );
  }
  t.notDeepEqual(simulated[0], simulated[1], 'the policy matters');
  await Promise.all(
    POLICIES.map(async (policy, i) => {
      let real = await inProcesses(t, policy, steps);
      // Where the machine has stood still for longer than a pause, the order was another one.
      for (let again = 0; again < RUNS_AGAIN_COUNT && !isDeepStrictEqual(real, simulated[i]); again++) {
        t.log(`${policy}: once more`);
        real = await inProcesses(t, policy, steps);
      }
      t.deepEqual(real, simulated[i], policy);
    }),
  );
});
