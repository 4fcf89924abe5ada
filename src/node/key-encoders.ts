import { NAMESPACES_KNOWN_MAX_COUNT } from '../base/limits.js';
import { KeyEncoder, type KeyNamespace } from '../core/index.js';

/**
 * The encoders of the namespaces that this node has been asked for: one each, so that what clears a namespace knows of the pools
 * that others have used. Of very many namespaces the one that was asked for longest ago is forgotten.
 */
export class KeyEncoders {
  /** By the beginning of the keys of the main pool; longest ago first. */
  readonly #encoders = new Map<string, KeyEncoder>();

  /** `own`: that of the node's own namespace, which is never forgotten. */
  constructor(readonly own: KeyEncoder) {}

  /** Undefined: the node's own. Throws `ArgumentError` for a namespace that cannot be. */
  of(namespace: KeyNamespace | undefined): KeyEncoder {
    if (namespace === undefined) return this.own;
    const created = new KeyEncoder(namespace);
    const prefix = mainPrefixOf(created);
    if (prefix === mainPrefixOf(this.own)) return this.own;
    const encoder = this.#encoders.get(prefix) ?? created;
    this.#encoders.delete(prefix);
    this.#encoders.set(prefix, encoder);
    if (this.#encoders.size > NAMESPACES_KNOWN_MAX_COUNT) {
      const [longestAgo] = this.#encoders.keys();
      this.#encoders.delete(longestAgo as string);
    }
    return encoder;
  }
}

function mainPrefixOf(encoder: KeyEncoder): string {
  const [key] = encoder.encodeKeys([''], 'kv');
  return key as string;
}
