/*
 * A benchmark's peer process: `bench-peer.js SUBJECT` executes the commands of the process that started it. It exits
 * when the IPC channel between them closes.
 */
import { type ExecuteCommand, type PeerSubject, serveCommands } from './measuring/peer-process.js';

/** Start function of each subject's peer, loaded on demand. */
const PEERS: Readonly<Record<PeerSubject, () => Promise<() => ExecuteCommand<never, object>>>> = {
  auth: async () => (await import('./auth/auth.js')).authPeer,
  cluster: async () => (await import('./cluster/cluster-nodes.js')).clusterPeer,
  directory: async () => (await import('./directory.js')).directoryPeer,
  isolation: async () => (await import('./isolation/isolation.js')).isolationPeer,
  metrics: async () => (await import('./metrics.js')).scrapePeer,
  peers: async () => (await import('./peers/peer-node.js')).nodePeer,
  rdma: async () => (await import('./rdma.js')).rdmaPeer,
  resp: async () => (await import('./resp.js')).respPeer,
  store: async () => (await import('./store/store-pair.js')).storePeer,
  tcp: async () => (await import('./tcp/tcp-peer.js')).tcpPeer,
};

const subject = process.argv[2] ?? '';
if (!(subject in PEERS))
  throw new Error(`no benchmark has a peer for "${subject}"; known: ${Object.keys(PEERS).join(', ')}`);
serveCommands((await PEERS[subject as PeerSubject]())());
