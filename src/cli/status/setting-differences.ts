import { formatSize } from '../../base/sizes.js';
import type { NodeRow } from './status-report.js';

/** A setting that nodes of one role do not have alike, as while it is being rolled out. */
export interface StatusDifference {
  readonly key: string;
  /** Each value, null where it is not set, and the nodes that have it; the one that most nodes have first. */
  readonly values: readonly { readonly value: string | number | boolean | null; readonly nodes: readonly string[] }[];
}

const VALUE_MAX_CHARACTERS = 80;

/** The settings in which the nodes differ. Nodes of an earlier version do not tell theirs. */
export function settingDifferences(rows: readonly NodeRow[]): StatusDifference[] {
  const byRole = new Map<string, { node: string; settings: Readonly<Record<string, unknown>> }[]>();
  for (const row of rows) {
    if (row.state !== 'up' || typeof row.settings !== 'object' || row.settings === null) continue;
    const role = String(row.role);
    byRole.set(role, [...(byRole.get(role) ?? []), { node: row.node_id, settings: row.settings }]);
  }
  return [...byRole.values()].flatMap((nodes) => {
    const keys = new Set(nodes.flatMap(({ settings }) => Object.keys(settings)));
    return [...keys].sort().flatMap((key): StatusDifference[] => {
      const byValue = new Map<string | number | boolean | null, string[]>();
      for (const { node, settings } of nodes) {
        const value = plain(settings[key]);
        byValue.set(value, [...(byValue.get(value) ?? []), node]);
      }
      if (byValue.size < 2) return [];
      const values = [...byValue].map(([value, names]) => ({ value, nodes: names }));
      return [{ key, values: values.sort((a, b) => b.nodes.length - a.nodes.length) }];
    });
  });
}

/** A line for people. */
export function differenceText({ key, values }: StatusDifference): string {
  const parts = values.map(({ value, nodes }) => `${shown(key, value)} on ${nodes.join(', ')}`);
  return `setting ${key} differs: ${parts.join('; ')}`;
}

function plain(value: unknown): string | number | boolean | null {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? value : null;
}

function shown(key: string, value: string | number | boolean | null): string {
  if (value === null) return 'not set';
  if (typeof value === 'number' && key.endsWith('_size')) return formatSize(value);
  const text = String(value);
  return text.length > VALUE_MAX_CHARACTERS ? `${text.slice(0, VALUE_MAX_CHARACTERS)}…` : text;
}
