import { formatSize } from '../../base/sizes.js';
import { type FittedTable, formatCount, formatShare } from '../../command/table.js';
import type { ClientReport, ClientsReport } from '../../metrics/node-report.js';

/** The clients of one node, as far as they are shown. */
export interface ClientsOfNode {
  readonly node_id: string;
  readonly clients?: ClientsReport | undefined;
}

/** Columns that a narrow terminal does without, the first to go first. */
export const CLIENT_COLUMNS: FittedTable = { optional: ['mapped', 'in flight', 'errors', 'mode', 'process'] };

/** Rows of a table of all clients, by node; the busiest client of a node is first. */
export function clientRows(nodes: readonly ClientsOfNode[]): Record<string, string>[] {
  return nodes.flatMap(({ node_id, clients }) => (clients?.busiest ?? []).map((client) => clientRow(node_id, client)));
}

/** One line for each node with attached clients that have no row. */
export function furtherClients(nodes: readonly ClientsOfNode[]): string[] {
  return nodes.flatMap(({ node_id, clients }) => {
    const further = (clients?.attached ?? 0) - (clients?.busiest?.length ?? 0);
    return further > 0 ? [`${node_id}: ${formatCount(further)} more clients, which have moved fewer bytes`] : [];
  });
}

/** Part of what a client asked for that was there: of its lookups, or, if it makes none, of its reads. */
function hitsOf({ lookups = 0, found = 0, hits, misses }: ClientReport): string {
  return lookups > 0 ? formatShare(found, lookups) : formatShare(hits, hits + misses);
}

function clientRow(nodeId: string, client: ClientReport): Record<string, string> {
  const { name, pid, mode, requests, in_flight } = client;
  return {
    client: name,
    process: String(pid),
    node: nodeId,
    mode,
    requests: formatCount(requests),
    'in flight': formatCount(in_flight),
    hits: hitsOf(client),
    read: formatSize(client.read_bytes),
    written: formatSize(client.written_bytes),
    errors: formatCount(client.errors),
    mapped: formatSize(client.mapped_bytes),
  };
}
