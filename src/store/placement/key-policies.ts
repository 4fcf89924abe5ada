import { KEY_PREFIX_BYTES, NAMESPACE_PREFIXES_MAX_COUNT } from '../../base/limits.js';
import type { NamespaceWritePolicies, WritePolicy } from '../../base/settings/write-policies.js';

/**
 * The write policy of each object key. Keys begin with a digest of their namespace, so a node learns which tag is behind a digest when the
 * namespace is used there for the first time, which is before anything is set in it. Of more namespaces than NAMESPACE_PREFIXES_MAX_COUNT with a policy of their own, further ones
 * have the policy of the node.
 */
export class KeyPolicies {
  readonly #byDefault: WritePolicy;
  readonly #byTag: NamespaceWritePolicies;
  readonly #byPrefix = new Map<string, WritePolicy>();

  constructor({ writePolicy, namespaceWritePolicies }: WritePolicySettings) {
    this.#byDefault = writePolicy;
    this.#byTag = namespaceWritePolicies;
  }

  /** Whether any page that is set here may be placed on storage nodes. */
  get placesAny(): boolean {
    return [this.#byDefault, ...Object.values(this.#byTag)].some((policy) => policy !== 'local');
  }

  /** Notes the tag of the namespace whose object keys begin with `prefix`. */
  learn(prefix: string, tag: string | undefined): void {
    if (tag === undefined || !Object.hasOwn(this.#byTag, tag)) return;
    if (this.#byPrefix.size < NAMESPACE_PREFIXES_MAX_COUNT) this.#byPrefix.set(prefix, this.#byTag[tag] as WritePolicy);
  }

  readonly of = (key: string): WritePolicy => {
    if (this.#byPrefix.size === 0) return this.#byDefault;
    return this.#byPrefix.get(key.slice(0, KEY_PREFIX_BYTES)) ?? this.#byDefault;
  };
}

/** The settings of a node that say where pages are kept. */
export interface WritePolicySettings {
  readonly writePolicy: WritePolicy;
  readonly namespaceWritePolicies: NamespaceWritePolicies;
}
