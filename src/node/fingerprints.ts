import { KeyEncoder, type KeyNamespace } from '../core/index.js';
import { wholeNamespace } from '../store/namespace/node-namespace.js';
import { NamespaceFingerprint } from '../types.js';

/** The fingerprint of a namespace and a digest of its other parts; undefined if it has no fingerprint. */
export function fingerprintOf(namespace: KeyNamespace): NamespaceFingerprint | undefined {
  const { fingerprint, ...rest } = wholeNamespace(namespace);
  if (!fingerprint) return undefined;
  const [prefix] = new KeyEncoder(rest).encodeKeys([''], 'kv') as [string];
  return new NamespaceFingerprint(prefix.slice(0, -1), fingerprint);
}
