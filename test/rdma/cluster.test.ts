import { createHash } from 'node:crypto';
import { Cluster, ClusterAgent } from '../../src/cli/cluster/cluster.js';
import { runLoad } from '../../src/cli/load/load.js';
import { loadReport } from '../../src/cli/load/load-report.js';
import { conversationWorkload } from '../../src/cli/load/workload.js';
import { systemClock } from '../../src/system/system-clock.js';
import { createStore } from '../_support/node/store-fixture.js';
import { sentPackets } from '../_support/rdma/machine-state.js';
import { devices, rdmaTest, suffix } from '../_support/rdma/soft-devices.js';
import { freePort, until } from '../_support/support.js';
import { staleDirectoryCase } from '../contract/stale-directory.js';

const KIB = 1024;
const PAGE_BYTES = 256 * KIB;
/** Largest payload of one packet. */
const PACKET_BYTES = 4096;
/** Data is read at the address of a device, and all of it stays on this machine. */
const OPEN = { allow_unauthenticated: true };
const NODE_CONFIG = { ...OPEN, global_segment_size: '64mb', metrics_enabled: false };

function allSentPackets(): number {
  return devices.reduce((total, { name }) => total + sentPackets(name), 0);
}

/** Bytes that must have been read over RDMA, going by the packets. */
function packetBytes(packets: number): number {
  return packets * PACKET_BYTES;
}

rdmaTest(`cluster: three nodes read each other's pages over RDMA, every byte right${suffix}`, async (t) => {
  t.timeout(300_000);
  const config = { ...NODE_CONFIG, protocol: 'rdma' };
  const cluster = await Cluster.start({ nodes: 3, pageBytes: PAGE_BYTES, components: 2, config });
  try {
    const before = allSentPackets();
    const load = await runLoad(cluster.agents, conversationWorkload({ conversations: 8, seed: 1 }), {
      concurrency: 3,
      clock: systemClock,
      maxMs: 120_000,
    });
    const statuses = await Promise.all(cluster.agents.map((agent) => agent.status()));
    const report = loadReport(load, { statuses, pageBytes: PAGE_BYTES });
    t.log(`${report.requests} requests, ${report.hits.remote} remote hits in ${report.wall_s} s`);
    t.is(report.wrong_bytes, 0);
    t.is(report.checksum_failures, 0);
    t.true(report.hits.remote > 0);
    t.true(packetBytes(allSentPackets() - before) >= report.hits.remote * PAGE_BYTES, 'they came over RDMA');
  } finally {
    await cluster.close();
  }
});

rdmaTest(`cluster: a node with RDMA and one without read from each other${suffix}`, async (t) => {
  t.timeout(300_000);
  const discovery_addr = `127.0.0.1:${await freePort()}`;
  const agents = ['rdma', 'tcp', 'rdma'].map((_, index) => new ClusterAgent(index, {}));
  t.teardown(() => Promise.all(agents.map((agent) => agent.close())));
  for (const [index, protocol] of ['rdma', 'tcp', 'rdma'].entries()) {
    const config = { ...NODE_CONFIG, local_hostname: '127.0.0.1', discovery_addr, protocol };
    await agents[index]?.start({ config, pageBytes: PAGE_BYTES, components: 2 });
  }
  await Promise.all(agents.map((agent) => agent.awaitMembers(agents.length)));
  const [rdma, tcp, otherRdma] = agents as [ClusterAgent, ClusterAgent, ClusterAgent];
  const keysOf = (name: string): string[] =>
    Array.from({ length: 12 }, (_, i) => createHash('sha256').update(`${name} ${i}`).digest('hex'));
  const reads = [
    { owner: rdma, reader: tcp, name: 'rdma-to-tcp', isRdma: false },
    { owner: tcp, reader: rdma, name: 'tcp-to-rdma', isRdma: false },
    { owner: rdma, reader: otherRdma, name: 'rdma-to-rdma', isRdma: true },
  ];
  for (const { owner, reader, name, isRdma } of reads) {
    const keys = keysOf(name);
    t.is((await owner.run([keys])).counts.set, keys.length, name);
    const before = allSentPackets();
    const { counts } = await reader.run([keys]);
    const bytes = packetBytes(allSentPackets() - before);
    t.is(counts.remoteHits, keys.length, name);
    t.is(counts.wrongBytes, 0, name);
    t.is(bytes >= keys.length * PAGE_BYTES, isRdma, `${name}: ${bytes} bytes over RDMA`);
  }
});

for (const verifyReads of [true, false]) {
  rdmaTest(
    `cluster: what is freed is not read over RDMA by a directory that is stuck, verify_reads ${verifyReads}${suffix}`,
    async (t) => {
      t.timeout(300_000);
      const before = allSentPackets();
      const port = await freePort();
      const ours = { ...OPEN, protocol: 'rdma', verify_reads: verifyReads };
      await staleDirectoryCase(t, { createStore: (config) => createStore(port, { ...config, ...ours }), until });
      t.true(allSentPackets() > before, 'they came over RDMA');
    },
  );
}
