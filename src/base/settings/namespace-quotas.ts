import { NAMESPACE_QUOTAS_MAX_COUNT } from '../limits.js';
import type { Field } from './fields.js';

/** What the pages of a namespace tag may take of a node, as shares of 0 to 1 of its pool and of its disk tier. */
export interface NamespaceQuota {
  /** Share of the pool that the pages of other tags leave it, to within one page. */
  readonly min: number;
  /** Largest share of the pool. */
  readonly max: number;
  /** Share of the disk tier that the pages of other tags leave it, to within one page. */
  readonly minDisk: number;
  /** Largest share of the disk tier. */
  readonly maxDisk: number;
}

/** Quotas by namespace tag. */
export type NamespaceQuotas = Readonly<Record<string, NamespaceQuota>>;

/** The name under which metrics count the pages of all tags without a quota; no tag with one has it. */
export const OTHER_NAMESPACES = 'other';

const TAG_MAX_CHARACTERS = 128;
const NAMES: ReadonlyMap<string, keyof NamespaceQuota> = new Map([
  ['min', 'min'],
  ['max', 'max'],
  ['min_disk', 'minDisk'],
  ['minDisk', 'minDisk'],
  ['max_disk', 'maxDisk'],
  ['maxDisk', 'maxDisk'],
]);

/** Quotas by namespace tag, as a mapping or as its JSON. The shares of the disk are those of the pool unless given. */
export function namespaceQuotas(): Field {
  return {
    parse: quotasOf,
    allowed:
      `a mapping of at most ${NAMESPACE_QUOTAS_MAX_COUNT} namespace tags, none of them empty or "${OTHER_NAMESPACES}", to shares of 0 to 1 with min at most max, ` +
      'or its JSON, for example {"team-a": {"min": 0.2, "max": 0.5}}; also min_disk and max_disk; all min together are at most 1, and so are all min_disk',
    byDefault: Object.freeze({}),
  };
}

function quotasOf(value: unknown): NamespaceQuotas | undefined {
  const mapping = typeof value === 'string' ? jsonOf(value) : value;
  const entries = entriesOf(mapping);
  if (entries === undefined || entries.length > NAMESPACE_QUOTAS_MAX_COUNT) return undefined;
  const quotas: [string, NamespaceQuota][] = [];
  for (const [tag, shares] of entries) {
    const quota = isTag(tag) ? quotaOf(shares) : undefined;
    if (quota === undefined) return undefined;
    quotas.push([tag, quota]);
  }
  const isWithin = (name: 'min' | 'minDisk') => quotas.reduce((sum, [, quota]) => sum + quota[name], 0) <= 1 + 1e-9;
  return isWithin('min') && isWithin('minDisk') ? Object.freeze(Object.fromEntries(quotas)) : undefined;
}

function isTag(tag: string): boolean {
  const isText = tag.trim() !== '' && tag.length <= TAG_MAX_CHARACTERS && tag.isWellFormed();
  // A key of this name would not become a property of its own.
  return isText && tag !== OTHER_NAMESPACES && tag !== '__proto__';
}

function quotaOf(value: unknown): NamespaceQuota | undefined {
  const shares: { -readonly [K in keyof NamespaceQuota]?: number } = {};
  for (const [name, share] of entriesOf(value) ?? [['', undefined]]) {
    const field = NAMES.get(name);
    if (field === undefined || shares[field] !== undefined) return undefined;
    if (typeof share !== 'number' || !(share >= 0 && share <= 1)) return undefined;
    shares[field] = share;
  }
  const { min = 0, max = 1 } = shares;
  const { minDisk = min, maxDisk = max } = shares;
  return min <= max && minDisk <= maxDisk ? Object.freeze({ min, max, minDisk, maxDisk }) : undefined;
}

function entriesOf(value: unknown): [string, unknown][] | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.entries(value) : undefined;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
