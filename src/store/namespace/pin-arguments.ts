import { ArgumentError } from '../../base/errors.js';
import { shown } from '../../base/shown.js';
import { checkOptions, type WaitOptions } from '../call/call-options.js';
import type { PageOptions, PagePinOptions } from './namespace-pages.js';

/** Options of `unpin`. */
export interface UnpinOptions extends WaitOptions {
  /** Name of the pool. Default: `kv`, the main one. */
  readonly pool?: string | undefined;
}

/** Options of `pin`. */
export interface PinOptions extends UnpinOptions {
  /** Milliseconds for which the pages stay pinned, at most `pin_max_s` of the node. */
  readonly forMs: number;
}

/** Checks the options of `pin`. Throws `ArgumentError`. */
export function pinOptions(options: PinOptions, mainPool: string): PagePinOptions {
  checkOptions('pin', options ?? {}, 'forMs', 'pool');
  const { forMs, pool = mainPool, signal, timeoutMs } = options ?? {};
  if (typeof forMs !== 'number' || !(forMs > 0)) {
    throw new ArgumentError(`pin: forMs must be a number of milliseconds above 0, got ${shown(forMs)}`);
  }
  return { forMs, pool, signal, timeoutMs };
}

/** Checks the options of `unpin`. Throws `ArgumentError`. */
export function unpinOptions(options: UnpinOptions, mainPool: string): PageOptions {
  checkOptions('unpin', options, 'pool');
  const { pool = mainPool, signal, timeoutMs } = options;
  return { pool, signal, timeoutMs };
}
