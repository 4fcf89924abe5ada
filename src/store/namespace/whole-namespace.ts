import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import type { KeyNamespace } from '../../core/index.js';

const NAMESPACE_PARTS: ReadonlySet<string> = new Set([
  'modelName',
  'dtype',
  'layout',
  'tag',
  'tpRank',
  'tpSize',
  'ppRank',
  'ppSize',
  'isMlaModel',
]);

/** Completes a namespace: missing parts are absent, ranks 0 and sizes 1. Throws `ArgumentError` for unknown parts. */
export function wholeNamespace(parts: Partial<KeyNamespace>): KeyNamespace {
  if (typeof parts !== 'object' || parts === null) {
    throw new ArgumentError(`namespace: must be an object, got ${shown(parts)}`);
  }
  const unknown = Object.keys(parts).find((name) => !NAMESPACE_PARTS.has(name));
  if (unknown !== undefined) {
    throw new ArgumentError(
      `namespace: unknown part ${shown(unknown)}; allowed are ${[...NAMESPACE_PARTS].join(', ')}`,
    );
  }
  return { tpRank: 0, tpSize: 1, ppRank: 0, ppSize: 1, isMlaModel: false, ...parts };
}
