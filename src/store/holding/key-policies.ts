import type { NamespaceWritePolicies, WritePolicy } from '../../base/settings/write-policies.js';

/**
 * The write policy of each object key: the policy of its namespace tag, which the node knows before anything is set in
 * the namespace, else the policy of the node.
 */
export class KeyPolicies {
  readonly #byDefault: WritePolicy;
  readonly #byTag: NamespaceWritePolicies;
  readonly #tagOf: (key: string) => string | undefined;

  constructor(
    { writePolicy, namespaceWritePolicies }: WritePolicySettings,
    tagOf: (key: string) => string | undefined,
  ) {
    this.#byDefault = writePolicy;
    this.#byTag = namespaceWritePolicies;
    this.#tagOf = tagOf;
  }

  /** Whether any page set here may be placed on storage nodes. */
  get placesAny(): boolean {
    return [this.#byDefault, ...Object.values(this.#byTag)].some((policy) => policy !== 'local');
  }

  readonly of = (key: string): WritePolicy => {
    const tag = this.#tagOf(key);
    return tag !== undefined && Object.hasOwn(this.#byTag, tag) ? (this.#byTag[tag] as WritePolicy) : this.#byDefault;
  };
}

/** The settings that decide where a node keeps pages. */
export interface WritePolicySettings {
  readonly writePolicy: WritePolicy;
  readonly namespaceWritePolicies: NamespaceWritePolicies;
}
