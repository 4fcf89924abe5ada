import test, { type ExecutionContext } from 'ava';
import { Cluster, type ClusterAgent } from '../../src/cli/cluster/cluster.js';

const PAGE = 64 * 1024;
/** Engines have room for 32 pages each, storage nodes for 1,024. */
const SETTINGS = { global_segment_size: '2mb', metrics_enabled: false, heartbeat_interval: 0.3, member_ttl: 1.5 };
const STORAGE = { role: 'storage', write_policy: 'local', global_segment_size: '64mb' };
const ENGINES = 2;
const REQUESTS = Array.from({ length: 8 }, (_, request) => keysOf(`before ${request}`));

/** Ten keys. */
function keysOf(name: string): string[] {
  return Array.from({ length: 10 }, (_, i) => `${name}, ${i}`);
}

/** Two engines with small pools and two storage nodes: four processes. */
async function start(t: ExecutionContext): Promise<{ readonly cluster: Cluster; readonly engines: ClusterAgent[] }> {
  const cluster = await Cluster.start({
    nodes: ENGINES + 2,
    pageBytes: PAGE,
    components: 1,
    config: { ...SETTINGS, write_policy: 'storage' },
    nodeConfig: (index) => (index < ENGINES ? {} : STORAGE),
  });
  t.teardown(() => cluster.close());
  return { cluster, engines: cluster.agents.slice(0, ENGINES) };
}

test.serial('storage nodes: an engine that is killed loses nothing that was placed', async (t) => {
  const { cluster, engines } = await start(t);
  const [writer, reader] = engines as [ClusterAgent, ClusterAgent];
  const set = (await writer.run([...REQUESTS, []])).counts;
  t.like(set, { set: 80, setFailures: 0, wrongBytes: 0 });
  await cluster.kill(writer.index);
  const read = (await reader.run(REQUESTS)).counts;
  t.like(read, { asked: 80, prefixHits: 80, set: 0, wrongBytes: 0 });
});

for (const [how, strike] of [
  ['frozen', ({ pid }: ClusterAgent) => void process.kill(pid, 'SIGSTOP')],
  ['killed', ({ pid }: ClusterAgent) => void process.kill(pid, 'SIGKILL')],
] as const) {
  test.serial(
    `storage nodes: one that is ${how} keeps no page from being set, and nothing wrong is read`,
    async (t) => {
      const { cluster, engines } = await start(t);
      const [writer, reader] = engines as [ClusterAgent, ClusterAgent];
      await writer.run(REQUESTS);
      const struck = cluster.agents[ENGINES] as ClusterAgent;
      strike(struck);
      // A directory owner is a process of its own, and one of two is left.
      const during = (await writer.run(REQUESTS.map((_, i) => keysOf(`during ${i}`)))).counts;
      t.like(during, { set: 80, setFailures: 0, wrongBytes: 0 });
      t.is((await reader.run(REQUESTS)).counts.wrongBytes, 0);
      if (how === 'frozen') process.kill(struck.pid, 'SIGCONT');
      t.is((await reader.run(REQUESTS)).counts.wrongBytes, 0);
    },
  );
}
