import { ArgumentError } from '../../base/errors.js';
import { PIN_NAME_MAX_BYTES } from '../../base/limits.js';
import { shown } from '../../base/shown.js';
import {
  checkOptions,
  type MissReason,
  NO_OPTIONS,
  type ReadOptions,
  type RefusalReason,
  type WaitOptions,
  type WriteOptions,
} from '../call/call-options.js';
import { checkRequest } from '../call/request-calls.js';
import { withMethod } from './host-pool.js';
import type { PageOptions, PagePinOptions, PagePrefetchOptions } from './namespace-pages.js';
import { checkSession, prefetchMs } from './session-options.js';

/** Result of `setDetailed`. */
export type SetResult =
  | { readonly isSet: true; readonly reason?: undefined }
  | { readonly isSet: false; readonly reason: RefusalReason };

/** Result of `getDetailed`: a page that the caller owns, or the reason why there is none. */
export type GetResult =
  | { readonly page: Uint8Array; readonly reason?: undefined }
  | { readonly page: null; readonly reason: MissReason };

/** Result of `getDetailed` with memory of the caller. */
export type ReadResult =
  | { readonly isRead: true; readonly reason?: undefined }
  | { readonly isRead: false; readonly reason: MissReason };

/**
 * Arguments after the memory of one page: its size (if the memory is given as an address) and the options of the call.
 */
export type SizeAndOptions<Options> = [size?: number | Options, options?: Options];

/** Sorts and checks the arguments after the memory of one page. */
export function sizeAndOptions<Options extends ReadOptions | WriteOptions>(
  method: string,
  [first, second]: SizeAndOptions<Options>,
): { readonly size: number | undefined; readonly options: Options } {
  const options = (isOptions(first) ? first : second) ?? (NO_OPTIONS as Options);
  if (first !== undefined && typeof first !== 'number' && !isOptions(first)) {
    throw new ArgumentError(
      `${method}: behind the memory comes a size (a number) or options, such as { timeoutMs: 500 }; got ${shown(first)}`,
    );
  }
  checkCall(method, options);
  return { size: isOptions(first) ? undefined : (first as number | undefined), options };
}

/** Whether the argument is a plain object (options), not memory. */
export function isOptions<Options extends object>(value: unknown): value is Options {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** Throws `ArgumentError` unless these are options of a call that reads or sets pages. */
export function checkCall(method: string, options: ReadOptions | WriteOptions): void {
  if (options === NO_OPTIONS) return;
  checkOptions(method, options);
  checkRequest(method, options);
  checkSession(method, options);
}

/** Runs a part of a call; an argument error that it throws synchronously names the method. */
export function blamed<T>(method: string, use: () => T): T {
  try {
    return use();
  } catch (error) {
    throw withMethod(method, error);
  }
}

/** Options whose `onMiss` first reports the reason to `onReason`. */
export function withReason(options: ReadOptions, onReason: (reason: MissReason) => void): ReadOptions {
  return {
    ...options,
    onMiss: (index, reason, pool) => {
      onReason(reason);
      options.onMiss?.(index, reason, pool);
    },
  };
}

/** Calls `onFalse` with the index of each result that is false. */
export function tell(results: readonly boolean[], onFalse: (index: number) => void): void {
  results.forEach((isDone, i) => {
    if (!isDone) onFalse(i);
  });
}

/** Options of `unpin`. */
export interface UnpinOptions extends WaitOptions {
  /** Name of the pool. Default: `kv`, the main one. */
  readonly pool?: string | undefined;
}

/** Options of `pin`: either `forMs` or `name`. */
export interface PinOptions extends UnpinOptions {
  /** Milliseconds for which the pages stay pinned, at most `pin_max_s` of the node. */
  readonly forMs?: number | undefined;
  /** Name of a pin that lasts until `endPins(name)`, however long the caller lives. At most PIN_NAME_MAX_BYTES. */
  readonly name?: string | undefined;
}

/** Checks the options of `pin`. Throws `ArgumentError`. */
export function pinOptions(options: PinOptions, mainPool: string): PagePinOptions {
  checkOptions('pin', options ?? {}, 'forMs', 'name', 'pool');
  const { forMs, name, pool = mainPool, signal, timeoutMs } = options ?? {};
  if (name !== undefined) {
    if (forMs !== undefined) throw new ArgumentError('pin: give either forMs or a name; a pin with a name has no time');
    return { name: pinName('pin', name), pool, signal, timeoutMs };
  }
  if (typeof forMs !== 'number' || !(forMs > 0)) {
    throw new ArgumentError(`pin: forMs must be a number of milliseconds above 0, got ${shown(forMs)}`);
  }
  return { forMs, pool, signal, timeoutMs };
}

/** Checks the name of a pin. Throws `ArgumentError`. */
export function pinName(method: string, name: string): string {
  const isText = typeof name === 'string' && name !== '' && name.isWellFormed();
  if (isText && Buffer.byteLength(name) <= PIN_NAME_MAX_BYTES) return name;
  throw new ArgumentError(
    `${method}: name must be well-formed text of 1 to ${PIN_NAME_MAX_BYTES} bytes, got ${shown(name)}`,
  );
}

/** Checks the options of `unpin`. Throws `ArgumentError`. */
export function unpinOptions(options: UnpinOptions, mainPool: string): PageOptions {
  checkOptions('unpin', options, 'pool');
  const { pool = mainPool, signal, timeoutMs } = options;
  return { pool, signal, timeoutMs };
}

/** Options of `prefetch`. */
export interface PrefetchOptions extends UnpinOptions {
  /** Seconds from now by which the pages should be in the pool. Default: 0, as soon as possible. */
  readonly by?: number | undefined;
}

/** Checks the options of `prefetch`. Throws `ArgumentError`. */
export function prefetchOptions(options: PrefetchOptions, mainPool: string): PagePrefetchOptions {
  checkOptions('prefetch', options, 'by', 'pool');
  const { by, pool = mainPool, signal, timeoutMs } = options;
  return { inMs: prefetchMs(by), pool, signal, timeoutMs };
}
