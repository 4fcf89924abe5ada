import { type FittedTable, formatCount, formatShare } from '../../command/table.js';
import type { NodeRow } from './status-report.js';

/** Columns that a narrow terminal does without, the first to go first. */
export const ZONE_COLUMNS: FittedTable = {
  optional: ['lookups leave', 'lookups', 'same host'],
  rightColumns: new Set(),
};

/** For each node what it reads from its own host, from its own zone and from others; empty if no node has a zone. A node without one does not count it. */
export function zoneRows(nodes: readonly NodeRow[]): Record<string, string>[] {
  const rows = nodes.flatMap((node) => (node.state === 'up' ? [node] : []));
  return rows.some(({ zone }) => zone) ? rows.map(zoneRow) : [];
}

function zoneRow({ node_id, zone = '', by_distance }: NodeRow & { readonly state: 'up' }): Record<string, string> {
  const { read_pages: pages, directory_keys: keys } = by_distance ?? {};
  const read = pages === undefined ? 0 : pages.host + pages.zone + pages.other;
  const asked = keys === undefined ? 0 : keys.host + keys.zone + keys.other;
  const count = (pagesOrKeys: number) => (zone === '' ? '-' : formatCount(pagesOrKeys));
  return {
    node: node_id,
    zone: zone === '' ? '-' : zone,
    'read of others': count(read),
    'same host': formatShare(pages?.host ?? 0, read),
    'same zone': formatShare(pages?.zone ?? 0, read),
    'other zones': formatShare(pages?.other ?? 0, read),
    lookups: count(asked),
    'lookups leave': formatShare(keys?.other ?? 0, asked),
  };
}
