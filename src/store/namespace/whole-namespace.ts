import { ArgumentError } from '../../base/errors.js';
import { FINGERPRINT, FINGERPRINT_ALLOWED } from '../../base/settings/fields.js';
import { checkNames } from '../../base/settings/known-names.js';
import { shown } from '../../base/shown.js';
import { NAMESPACE_PARTS } from '../../core/binding/key-encoder.js';
import type { KeyNamespace } from '../../core/index.js';

/**
 * The parts as a configuration has them that does not name them: a store of that configuration and this namespace share
 * their pages.
 */
const DEFAULT_PARTS = { dtype: '', layout: '', tag: '', tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false };

/**
 * Completes a namespace as the configuration of a store is completed: texts that are left out are empty, but for the
 * name of the model; ranks are 0 and sizes 1. Throws `ArgumentError` for unknown parts.
 */
export function wholeNamespace(parts: Partial<KeyNamespace>): KeyNamespace {
  if (typeof parts !== 'object' || parts === null) {
    throw new ArgumentError(`namespace: must be an object, got ${shown(parts)}`);
  }
  checkNames('namespace', parts, NAMESPACE_PARTS, 'part');
  const { fingerprint = '' } = parts;
  if (fingerprint !== '' && !(typeof fingerprint === 'string' && FINGERPRINT.test(fingerprint))) {
    throw new ArgumentError(`namespace: fingerprint ${shown(fingerprint)}; allowed are ${FINGERPRINT_ALLOWED}`);
  }
  const given = Object.entries(parts).filter(([, part]) => part !== undefined);
  return { ...DEFAULT_PARTS, ...Object.fromEntries(given) };
}
