import { Command } from 'commander';
import { type Endpoint, formatEndpoint } from '../base/network.js';
import { formatSize } from '../base/sizes.js';
import { ConsistentHashRing } from '../core/index.js';
import type { NodeInfo } from '../types.js';
import { ClusterQuery, type NodeStatus } from './cluster-query.js';
import { type CommandContext, printResult } from './context.js';
import { discoveryEndpoints, jsonOption } from './options.js';
import { formatCount, formatShare, formatTable } from './table.js';

/** Keys whose owners are counted for the shares of the ring: within a percent of the truth. */
const SAMPLE_KEYS = 20_000;
const DEFAULT_VNODES = 160;

export type NodeRow = { readonly node_id: string; readonly control_endpoint: string; readonly ring_share: number } & (
  | ({ readonly state: 'up' } & Omit<NodeStatus, 'node_id' | 'control_endpoint'>)
  | { readonly state: 'unreachable'; readonly error: string; readonly pool?: undefined }
);

export interface StatusResult {
  readonly discovery_addr: string;
  readonly nodes: readonly NodeRow[];
}

/** Members as the first master that answers knows them, and what each of them says of itself. */
export async function clusterStatus(masters: readonly Endpoint[]): Promise<StatusResult> {
  const query = new ClusterQuery();
  try {
    const members = await query.members(masters);
    members.sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
    const answers = await Promise.all(members.map((member) => query.status(member)));
    const shares = ringShares(members, vnodesOf(answers));
    const nodes = members.map((member, i) => nodeRow(member, answers[i] as NodeAnswer, shares.get(member.nodeId) ?? 0));
    return { discovery_addr: masters.map(formatEndpoint).join(','), nodes };
  } finally {
    await query.close();
  }
}

export function statusCommand(context: CommandContext): Command {
  return new Command('status')
    .description('show the members of a running cluster, their shares of the ring, pools, disks and hit rates')
    .requiredOption(
      '--discovery-addr <host:port>',
      'a discovery master; several are comma-separated',
      discoveryEndpoints,
    )
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache status --discovery-addr 10.0.0.1:31990
  meshcache status --discovery-addr 10.0.0.1:31990,10.0.0.2:31990 --json`,
    )
    .action(async (options: { discoveryAddr: readonly Endpoint[]; json: boolean }) => {
      const result = await clusterStatus(options.discoveryAddr);
      printResult(context, result, { json: options.json, asText: formatStatus });
    });
}

type NodeAnswer = NodeStatus | { readonly error: string };

function nodeRow(member: NodeInfo, answer: NodeAnswer, ringShare: number): NodeRow {
  const control = formatEndpoint({ host: member.controlHost, port: member.controlPort });
  const base = { node_id: member.nodeId, control_endpoint: control, ring_share: ringShare };
  if ('error' in answer) return { ...base, state: 'unreachable', error: answer.error };
  return { ...answer, ...base, state: 'up' };
}

function vnodesOf(answers: readonly NodeAnswer[]): number {
  for (const answer of answers) if ('vnodes' in answer && answer.vnodes !== undefined) return answer.vnodes;
  return DEFAULT_VNODES;
}

/** Each node's part of the key space, from sample keys. */
function ringShares(members: readonly NodeInfo[], vnodes: number): Map<string, number> {
  const ring = new ConsistentHashRing(vnodes);
  ring.setNodes(members.map((member) => member.nodeId));
  const keys = Array.from({ length: SAMPLE_KEYS }, (_, i) => `sample ${i}`);
  const counts = new Map<string, number>();
  for (const index of ring.getNodesBatch(keys, 1)) {
    const nodeId = ring.nodes[index];
    if (nodeId !== undefined) counts.set(nodeId, (counts.get(nodeId) ?? 0) + 1);
  }
  ring.free();
  return new Map([...counts].map(([nodeId, count]) => [nodeId, count / SAMPLE_KEYS]));
}

function formatStatus(result: StatusResult): string {
  const up = result.nodes.filter((node) => node.state === 'up').length;
  const title = `${result.nodes.length} members at ${result.discovery_addr}, ${up} of them reachable`;
  return `${title}\n\n${formatTable(result.nodes.map(tableRow))}`;
}

function tableRow(node: NodeRow): Record<string, string> {
  const base = { node: node.node_id, control: node.control_endpoint, ring: formatShare(node.ring_share, 1) };
  if (node.state === 'unreachable') return { ...base, state: `unreachable: ${node.error}` };
  const { pool, reads, directory } = node;
  const hits = reads === undefined ? 0 : reads.local + reads.remote + reads.disk;
  return {
    ...base,
    state: node.is_meta ? 'up, head' : 'up',
    data: [node.data_protocol, node.data_endpoint].filter(Boolean).join(' ') || '-',
    pool: pool === undefined ? '-' : `${formatSize(pool.used_bytes)} of ${formatSize(pool.capacity_bytes)}`,
    pages: pool === undefined ? '-' : formatCount(pool.entries),
    evicted: pool === undefined ? '-' : formatCount(pool.evictions),
    disk: node.disk ? `${formatSize(node.disk.used_bytes)} of ${formatSize(node.disk.capacity_bytes)}` : '-',
    'disk pages': node.disk ? formatCount(node.disk.entries) : '-',
    keys: directory === undefined ? '-' : formatCount(directory.keys),
    reads: formatCount(hits),
    hits: reads === undefined ? '-' : formatShare(hits, hits + reads.misses),
    remote: reads === undefined ? '-' : formatShare(reads.remote, hits),
    'from disk': reads === undefined ? '-' : formatShare(reads.disk, hits),
    memory: node.rss_bytes === undefined ? '-' : formatSize(node.rss_bytes),
  };
}
