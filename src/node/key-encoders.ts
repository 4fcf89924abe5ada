import { NAMESPACES_KNOWN_MAX_COUNT } from '../base/limits.js';
import { KeyEncoder, type KeyNamespace } from '../core/index.js';
import { wholeNamespace } from '../store/namespace/node-namespace.js';

/**
 * The key encoders of the namespaces that were requested on this node. All users of a namespace share one encoder, so
 * that clearing the namespace reaches the pools that any of them has used. Beyond NAMESPACES_KNOWN_MAX_COUNT the least
 * recently used encoder is forgotten.
 */
export class KeyEncoders {
  /** The encoder of each namespace, under the prefix of its keys in the main pool; the least recently used first. */
  readonly #encoders = new Map<string, KeyEncoder>();

  /** The encoder of the node's own namespace; it is never forgotten. */
  readonly own: KeyEncoder;
  /** The prefix of the node's own namespace in the main pool. */
  readonly #ownPrefix: string;
  readonly #onPrefix: (prefix: string, namespace: KeyNamespace) => void;

  /**
   * `onPrefix` is called with the object-key prefix of a namespace whenever the namespace is used. If it throws, so
   * does the use.
   */
  constructor(own: KeyNamespace, onPrefix: (prefix: string, namespace: KeyNamespace) => void = () => {}) {
    this.#onPrefix = onPrefix;
    this.own = this.#encoderOf(own);
    this.#ownPrefix = mainPrefixOf(this.own);
  }

  /**
   * The encoder of a namespace, with missing parts filled in as in a configuration; the node's own one for undefined.
   * Throws `ArgumentError` for an invalid namespace.
   */
  of(namespace: KeyNamespace | undefined): KeyEncoder {
    if (namespace === undefined) return this.own;
    const created = this.#encoderOf(wholeNamespace(namespace));
    const prefix = mainPrefixOf(created);
    if (prefix === this.#ownPrefix) return this.own;
    const encoder = this.#encoders.get(prefix) ?? created;
    this.#encoders.delete(prefix);
    this.#encoders.set(prefix, encoder);
    if (this.#encoders.size > NAMESPACES_KNOWN_MAX_COUNT) {
      const [longestAgo] = this.#encoders.keys();
      this.#encoders.delete(longestAgo as string);
    }
    return encoder;
  }

  /**
   * The settings of the namespace and the pool whose object keys have this prefix; undefined if it was not requested
   * here.
   */
  describe(namespace: string): Readonly<Record<string, unknown>> | undefined {
    for (const encoder of [this.own, ...this.#encoders.values()]) {
      const pool = encoder.poolOf(`${namespace}/`);
      if (pool === undefined) continue;
      const { modelName, dtype, layout, tag, fingerprint, tpRank, tpSize, ppRank, ppSize, isMlaModel } =
        encoder.namespace;
      return {
        pool,
        ...{ model_name: modelName, dtype, layout, tag },
        ...(fingerprint ? { fingerprint } : {}),
        ...{ tp_rank: isMlaModel ? null : tpRank, tp_size: tpSize, pp_rank: ppRank, pp_size: ppSize },
      };
    }
    return undefined;
  }

  /**
   * The object keys of the parts of a hybrid page in further pools, if `key` is that of its part in the main pool and
   * the namespace is in use here.
   */
  furtherPartsOf(key: string): string[] {
    const prefix = key.slice(0, key.indexOf('/') + 1);
    const encoder = this.#encoders.get(prefix) ?? (prefix === this.#ownPrefix ? this.own : undefined);
    if (encoder === undefined || encoder.poolCount < 2) return [];
    const others = encoder.prefixesOf().filter((other) => other !== prefix);
    return others.map((other) => other + key.slice(prefix.length));
  }

  #encoderOf(namespace: KeyNamespace): KeyEncoder {
    return new KeyEncoder(namespace, { onPrefix: (prefix) => this.#onPrefix(prefix, namespace) });
  }
}

function mainPrefixOf(encoder: KeyEncoder): string {
  const [key] = encoder.encodeKeys([''], 'kv');
  return key as string;
}
