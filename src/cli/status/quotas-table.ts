import { formatSize } from '../../base/sizes.js';
import { type FittedTable, formatCount } from '../../command/table.js';
import type { QuotaReport, QuotaUse } from '../../metrics/node-report.js';

/** The quotas of one node. */
export interface QuotasOfNode {
  readonly node_id: string;
  readonly quotas?: readonly QuotaReport[] | undefined;
}

export const QUOTA_COLUMNS: FittedTable = {
  rightColumns: new Set(['pages', 'used', 'min', 'max', 'evictions', 'refused']),
  optional: ['evictions', 'pages'],
};

/** Rows of a table of all quotas, by node and namespace tag: one of its pool, and one of its disk tier if it has one. */
export function quotaRows(nodes: readonly QuotasOfNode[]): Record<string, string>[] {
  return nodes.flatMap(({ node_id, quotas = [] }) =>
    quotas.flatMap(({ namespace, pool, disk, prefixes }) => {
      const subject = { node: node_id, namespace };
      // Uses of namespaces that failed; hardly ever any.
      const refused: Record<string, string> = prefixes?.refused ? { refused: formatCount(prefixes.refused) } : {};
      const inPool = { ...quotaRow({ ...subject, tier: 'pool' }, pool), ...refused };
      return disk === null ? [inPool] : [inPool, quotaRow({ ...subject, tier: 'disk' }, disk)];
    }),
  );
}

function quotaRow(subject: Readonly<Record<string, string>>, use: QuotaUse): Record<string, string> {
  return {
    ...subject,
    pages: formatCount(use.entries),
    used: formatSize(use.used_bytes),
    min: formatSize(use.min_bytes),
    max: formatSize(use.max_bytes),
    evictions: formatCount(use.evictions),
  };
}
