import { shown } from '../base/shown.js';
import { KeyEncoder, type KeyNamespace } from '../core/index.js';
import { wholeNamespace } from '../store/namespace/whole-namespace.js';
import { NamespaceFingerprint } from '../types.js';

/** The fingerprint of a namespace, and what identifies the rest of it; undefined: it has none. */
export function fingerprintOf(namespace: KeyNamespace): NamespaceFingerprint | undefined {
  const { fingerprint, ...rest } = wholeNamespace(namespace);
  if (!fingerprint) return undefined;
  const [prefix] = new KeyEncoder(rest).encodeKeys([''], 'kv') as [string];
  return new NamespaceFingerprint(prefix.slice(0, -1), fingerprint);
}

/** What has a fingerprint, and how it is called in messages. */
export type Fingerprinted = readonly [who: string, fingerprint: NamespaceFingerprint | undefined];

/**
 * Why this fingerprint is refused: another one is in use for the same namespace; undefined: none is. Keys of different fingerprints never
 * meet, so a refusal says only that a model is not the expected one.
 */
export function fingerprintConflict(
  own: NamespaceFingerprint | undefined,
  others: Iterable<Fingerprinted>,
): string | undefined {
  if (own === undefined) return undefined;
  for (const [who, other] of others) {
    if (other === undefined || !own.differsFrom(other)) continue;
    return (
      `fingerprint: got ${shown(own.value)}, but ${who} has ${shown(other.value)} in the same namespace (model, dtype, layout, tag, ` +
      'ranks and sizes); load the same weights, or give one of the two another namespace tag'
    );
  }
  return undefined;
}
