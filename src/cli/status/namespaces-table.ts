import { compareNames } from '../../base/names.js';
import type { FittedTable } from '../../command/table.js';
import type { ClientsReport } from '../../metrics/node-report.js';
import type { ClusterNamespace, NamespaceClient } from './namespace-differences.js';

/** The clients of one node, as far as their namespaces are told. */
interface NamespacesOfNode {
  readonly node_id: string;
  readonly clients?: Pick<ClientsReport, 'namespaces'> | undefined;
}

/** Columns that a narrow terminal may do without, the first to go first. */
const OPTIONAL_COLUMNS = ['layout', 'fingerprint', 'tag', 'dtype', 'ranks'];
/** Characters of a digest that are shown; --json has all. */
const SHOWN_DIGEST_CHARACTERS = 8;

/** The namespaces of the attached clients of all nodes, each once, by the name of the model. */
export function clusterNamespaces(nodes: readonly NamespacesOfNode[]): ClusterNamespace[] {
  const byDigest = new Map<string, ClusterNamespace & { attached: number; clients: NamespaceClient[] }>();
  for (const { node_id, clients: report } of nodes) {
    for (const { clients, attached, ...settings } of report?.namespaces ?? []) {
      const here = clients.map((client) => ({ client, node_id }));
      const known = byDigest.get(settings.digest);
      if (known === undefined) {
        byDigest.set(settings.digest, { ...settings, attached, clients: here });
      } else {
        known.attached += attached;
        known.clients.push(...here);
      }
    }
  }
  return [...byDigest.values()].sort(
    (a, b) => compareNames(a.model_name, b.model_name) || compareNames(a.digest, b.digest),
  );
}

/** How the table of these rows is fitted: no column is left out that tells two namespaces of one model apart. */
export function namespaceColumns(rows: readonly Readonly<Record<string, string>>[]): FittedTable {
  const firstOf = new Map<string | undefined, Readonly<Record<string, string>>>();
  for (const row of rows) if (!firstOf.has(row.model)) firstOf.set(row.model, row);
  const isAlike = (name: string): boolean => rows.every((row) => row[name] === firstOf.get(row.model)?.[name]);
  return { optional: OPTIONAL_COLUMNS.filter(isAlike), rightColumns: new Set(['clients']) };
}

/** Rows of a table of the namespaces. */
export function namespaceRows(namespaces: readonly ClusterNamespace[]): Record<string, string>[] {
  return namespaces.map((namespace) => {
    const { digest, model_name, dtype, tag, fingerprint, layout, attached, clients } = namespace;
    return {
      namespace: digest.slice(0, SHOWN_DIGEST_CHARACTERS),
      model: model_name,
      dtype,
      tag,
      fingerprint,
      ranks: ranksOf(namespace),
      clients: String(attached),
      nodes: [...new Set(clients.map(({ node_id }) => node_id))].join(', '),
      layout,
    };
  });
}

/** `tp 0/2 pp 0/1`; a size of 1 is left out. With MLA every tensor-parallel rank has the same pages. */
function ranksOf({ tp_rank, tp_size, pp_rank, pp_size, is_mla }: ClusterNamespace): string {
  const ranks: string[] = [];
  if (tp_size > 1) ranks.push(`tp ${is_mla ? 'any' : tp_rank}/${tp_size}`);
  if (pp_size > 1) ranks.push(`pp ${pp_rank}/${pp_size}`);
  return ranks.join(' ');
}
