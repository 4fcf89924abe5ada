import { NAMESPACE_QUOTAS_MAX_COUNT, NAMESPACE_TAG_MAX_CHARACTERS } from '../limits.js';
import { describeValue, type Field } from './fields.js';

/** Shares (0 to 1) of a node's pool and disk tier for the pages of one namespace tag. */
export interface NamespaceQuota {
  /** Guaranteed share of the pool: pages of other tags leave it free, to within one page. */
  readonly min: number;
  /** Largest share of the pool. */
  readonly max: number;
  /** Guaranteed share of the disk tier: pages of other tags leave it free, to within one page. */
  readonly minDisk: number;
  /** Largest share of the disk tier. */
  readonly maxDisk: number;
}

/** Quotas by namespace tag. */
export type NamespaceQuotas = Readonly<Record<string, NamespaceQuota>>;

/** Metrics label for the pages of all tags without a quota; no tag with a quota may have this name. */
export const OTHER_NAMESPACES = 'other';

const NAMES: ReadonlyMap<string, keyof NamespaceQuota> = new Map([
  ['min', 'min'],
  ['max', 'max'],
  ['min_disk', 'minDisk'],
  ['minDisk', 'minDisk'],
  ['max_disk', 'maxDisk'],
  ['maxDisk', 'maxDisk'],
]);
const TIERS = [
  { min: 'min', max: 'max', spelled: ['min', 'max'] },
  { min: 'minDisk', max: 'maxDisk', spelled: ['min_disk', 'max_disk'] },
] as const;
/** Tolerance for sums of decimal shares that exceed 1 only by rounding. */
const ROUNDING = 1e-9;

/** Quotas by namespace tag, as a mapping or as JSON. Disk shares default to the shares of the pool. */
export function namespaceQuotas(): Field {
  return {
    parse(value) {
      const quotas = quotasOf(value);
      return quotas instanceof Fault ? undefined : quotas;
    },
    allowed:
      `a mapping of at most ${NAMESPACE_QUOTAS_MAX_COUNT} namespace tags, none of them empty or "${OTHER_NAMESPACES}", to shares of 0 to 1 with min at most max, ` +
      'or its JSON, for example {"team-a": {"min": 0.2, "max": 0.5}}; also min_disk and max_disk; all min together are at most 1, and so are all min_disk',
    byDefault: Object.freeze({}),
    fault(value) {
      const quotas = quotasOf(value);
      return quotas instanceof Fault ? quotas.text : undefined;
    },
  };
}

/**
 * A fault of the setting: which part is wrong, what was given and what is allowed; without a text, the whole is wrong.
 */
class Fault {
  readonly text: string | undefined;

  constructor(text?: string) {
    this.text = text;
  }
}

function quotasOf(value: unknown): NamespaceQuotas | Fault {
  const entries = entriesOf(typeof value === 'string' ? jsonOf(value) : value);
  if (entries === undefined) return new Fault();
  if (entries.length > NAMESPACE_QUOTAS_MAX_COUNT) {
    return new Fault(`got ${entries.length} namespace tags, allowed are at most ${NAMESPACE_QUOTAS_MAX_COUNT}`);
  }
  const quotas: [string, NamespaceQuota][] = [];
  for (const [tag, shares] of entries) {
    const quota = isTag(tag) ? quotaOf(tag, shares) : wrongTag(tag);
    if (quota instanceof Fault) return quota;
    quotas.push([tag, quota]);
  }
  return sumFault(quotas) ?? Object.freeze(Object.fromEntries(quotas));
}

function isTag(tag: string): boolean {
  const isText = tag.trim() !== '' && tag.length <= NAMESPACE_TAG_MAX_CHARACTERS && tag.isWellFormed();
  // Assigning `__proto__` would not create a property.
  return isText && tag !== OTHER_NAMESPACES && tag !== '__proto__';
}

function wrongTag(tag: string): Fault {
  const shown = tag.length > NAMESPACE_TAG_MAX_CHARACTERS ? `of ${tag.length} characters` : JSON.stringify(tag);
  return new Fault(
    `got a namespace tag ${shown}, allowed are 1 to ${NAMESPACE_TAG_MAX_CHARACTERS} characters, not only spaces, and not "${OTHER_NAMESPACES}" or "__proto__"`,
  );
}

function quotaOf(tag: string, value: unknown): NamespaceQuota | Fault {
  const ofTag = `tag ${JSON.stringify(tag)}`;
  const entries = entriesOf(value);
  if (entries === undefined) {
    return new Fault(
      `${ofTag}: got ${describeValue(value)}, allowed is a mapping, for example {"min": 0.2, "max": 0.5}`,
    );
  }
  const shares: { -readonly [K in keyof NamespaceQuota]?: number } = {};
  for (const [name, share] of entries) {
    const field = NAMES.get(name);
    if (field === undefined) {
      return new Fault(`${ofTag}: got the key ${JSON.stringify(name)}, allowed are min, max, min_disk and max_disk`);
    }
    if (shares[field] !== undefined) return new Fault(`${ofTag}: the key "${name}" is given twice`);
    if (typeof share !== 'number' || !(share >= 0 && share <= 1)) {
      return new Fault(`${ofTag}, key "${name}": got ${describeValue(share)}, allowed is a number of 0 to 1`);
    }
    shares[field] = share;
  }
  const { min = 0, max = 1 } = shares;
  const { minDisk = min, maxDisk = max } = shares;
  const quota = { min, max, minDisk, maxDisk };
  const wrong = TIERS.find((tier) => quota[tier.min] > quota[tier.max]);
  if (wrong === undefined) return Object.freeze(quota);
  const [least, most] = wrong.spelled;
  // A disk share that is not given defaults to the share of the pool.
  const [as, asMost] = wrong.min === 'min' ? ['', ''] : [givenAs(shares, 'min'), givenAs(shares, 'max')];
  return new Fault(
    `${ofTag}, key "${least}": got ${quota[wrong.min]}${as}, allowed is at most its ${most}, ${quota[wrong.max]}${asMost}`,
  );
}

/** Says that a disk share was not given, so it equals the share of the pool. */
function givenAs(shares: Partial<NamespaceQuota>, name: 'min' | 'max'): string {
  return shares[`${name}Disk`] === undefined ? ` (as ${name})` : '';
}

function sumFault(quotas: readonly (readonly [string, NamespaceQuota])[]): Fault | undefined {
  for (const { min, spelled } of TIERS) {
    const sum = quotas.reduce((before, [, quota]) => before + quota[min], 0);
    if (sum <= 1 + ROUNDING) continue;
    const [tag, quota] = quotas.reduce((largest, each) => (each[1][min] > largest[1][min] ? each : largest));
    return new Fault(
      `all ${spelled[0]} together: got ${Number(sum.toFixed(6))}, allowed is at most 1; the largest is that of tag ${JSON.stringify(tag)}, ${quota[min]}`,
    );
  }
  return undefined;
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
