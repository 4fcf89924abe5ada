import type { ClusterReport, NodeReport } from '../../metrics/node-report.js';

/** A report whose fields may all be absent, as nodes of other versions may know less. */
export type Loose<T> = T extends readonly (infer Item)[]
  ? readonly Loose<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]?: Loose<T[Key]> }
    : T;

export type LooseReport = Loose<NodeReport>;

/** Whether the value can be used as a report; only this much is checked. */
export function isClusterReport(value: unknown): value is ClusterReport {
  if (typeof value !== 'object' || value === null) return false;
  const { time_ms, nodes } = value as Partial<ClusterReport>;
  return Number.isFinite(time_ms) && Array.isArray(nodes);
}

/** The value if it is a number that a count or an amount can have, else 0. */
export function amount(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : 0;
}
