import { ConfigError } from '../errors.js';
import { NAMESPACE_QUOTAS_MAX_COUNT } from '../limits.js';
import { describeValue, type Field } from './fields.js';

/**
 * Where a node keeps pages that are set on it. `local`: in its pool. `storage`: on a storage node, and in its own pool
 * until the room is needed. `both`: on a storage node, and in its own pool like any other page.
 */
export type WritePolicy = 'local' | 'storage' | 'both';

/** All write policies. */
export const WRITE_POLICIES = ['local', 'storage', 'both'] as const satisfies readonly WritePolicy[];

/** Write policies by namespace tag. */
export type NamespaceWritePolicies = Readonly<Record<string, WritePolicy>>;

const POLICY_TAG_MAX_CHARACTERS = 128;

/** Settings that depend on each other. */
interface RoleSettings {
  readonly role: string;
  readonly writePolicy: WritePolicy;
  readonly namespaceWritePolicies: NamespaceWritePolicies;
}

/** Write policies by namespace tag, as a mapping or as JSON. */
export function namespaceWritePolicies(): Field {
  return {
    parse: (value) => policiesOf(value),
    allowed:
      `a mapping of at most ${NAMESPACE_QUOTAS_MAX_COUNT} namespace tags of 1 to ${POLICY_TAG_MAX_CHARACTERS} characters to "local", "storage" or "both", ` +
      'or its JSON, for example {"weights": "both"}',
    byDefault: Object.freeze({}),
    fault(value) {
      const wrong = entriesOf(value)?.find(([tag, policy]) => !isTag(tag) || !isPolicy(policy));
      if (wrong === undefined) return undefined;
      const [tag, policy] = wrong;
      const shown = JSON.stringify(tag.slice(0, POLICY_TAG_MAX_CHARACTERS));
      if (!isTag(tag)) return `got the tag ${shown}, allowed are 1 to ${POLICY_TAG_MAX_CHARACTERS} characters`;
      return `tag ${shown}: got ${describeValue(policy)}, allowed is local, storage or both`;
    },
  };
}

/**
 * Throws `ConfigError` if a storage node has a write policy: pages are placed on it, and it places none itself. `spell`
 * writes keys as the mapping does.
 */
export function checkRole(
  { role, writePolicy, namespaceWritePolicies }: RoleSettings,
  spell: (key: string) => string,
): void {
  if (role !== 'storage') return;
  const isLocal = [writePolicy, ...Object.values(namespaceWritePolicies)].every((policy) => policy === 'local');
  if (isLocal) return;
  const key = writePolicy === 'local' ? 'namespace_write_policies' : 'write_policy';
  throw new ConfigError(
    `configuration key "${spell(key)}": a node with ${spell('role')} "storage" keeps its pages itself; leave the key out, or make the node a peer`,
  );
}

function policiesOf(value: unknown): NamespaceWritePolicies | undefined {
  const entries = entriesOf(value);
  if (entries === undefined || entries.length > NAMESPACE_QUOTAS_MAX_COUNT) return undefined;
  if (!entries.every(([tag, policy]) => isTag(tag) && isPolicy(policy))) return undefined;
  return Object.freeze(Object.fromEntries(entries)) as NamespaceWritePolicies;
}

function isTag(tag: string): boolean {
  return tag.trim() !== '' && tag.length <= POLICY_TAG_MAX_CHARACTERS && tag !== '__proto__';
}

function isPolicy(value: unknown): value is WritePolicy {
  return WRITE_POLICIES.includes(value as WritePolicy);
}

function entriesOf(value: unknown): [string, unknown][] | undefined {
  const given = typeof value === 'string' ? jsonOf(value) : value;
  return typeof given === 'object' && given !== null && !Array.isArray(given) ? Object.entries(given) : undefined;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
