import { POOL_TENANTS_MAX_COUNT, QUARANTINE_POOL_FRACTION } from '../../base/core-limits.js';
import { ArgumentError } from '../../base/errors.js';
import { checkNames } from '../../base/settings/known-names.js';
import { shown } from '../../base/shown.js';
import { POLICY_NUMBERS } from '../binding/exports.js';
import type { PoolAllocatorOptions, PoolTenant, RequestOptions } from './pool-types.js';
import { CALLER_MAX, hintNumber } from './request-terms.js';

const POWER_OF_TWO_MAX = 2 ** 30;
const SEGMENTS_MAX_COUNT = 2 ** 20;
const CONTINUES = 4;
const BEGINS = 8;
const ENDS_ELSEWHERE = 16;
const CALLER_STEP = 32;

const OPTION_NAMES: ReadonlySet<string> = new Set([
  ...['core', 'capacityBytes', 'policy', 'quarantineMs', 'quarantineMaxBytes'],
  ...['neverReuseEarly', 'keepsHeads', 'segmentBytes', 'alignmentBytes', 'tenants'],
]);
const TENANT_NAMES: ReadonlySet<string> = new Set(['minBytes', 'maxBytes']);

/** Complete and validated options of a pool. The capacity is a multiple of the alignment. */
type PoolSettings = Required<Omit<PoolAllocatorOptions, 'core' | 'tenants'>> & {
  readonly tenants: readonly Required<PoolTenant>[];
};

/** Validates the options of a pool. Throws `ArgumentError`. */
export function settingsOf(options: PoolAllocatorOptions): PoolSettings {
  if (typeof options !== 'object' || options === null) {
    throw new ArgumentError(`PoolAllocator: needs options, such as { capacityBytes: 2 ** 30 }, got ${String(options)}`);
  }
  checkNames('PoolAllocator', options, OPTION_NAMES);
  const { policy = 'lru', quarantineMs = 0, neverReuseEarly = false, keepsHeads = false, alignmentBytes = 1 } = options;
  if (!Object.hasOwn(POLICY_NUMBERS, policy)) {
    throw new ArgumentError(`policy must be one of ${Object.keys(POLICY_NUMBERS).join(', ')}, got ${String(policy)}`);
  }
  if (!isInteger(alignmentBytes, 1, POWER_OF_TWO_MAX) || (alignmentBytes & (alignmentBytes - 1)) !== 0) {
    throw new ArgumentError(`alignmentBytes must be a power of two up to 2^30, got ${String(alignmentBytes)}`);
  }
  checkInteger('capacityBytes', options.capacityBytes, alignmentBytes);
  const capacityBytes = Math.floor(options.capacityBytes / alignmentBytes) * alignmentBytes;
  const segmentBytes = Math.min(options.segmentBytes ?? capacityBytes, capacityBytes);
  checkInteger('segmentBytes', segmentBytes, Math.ceil(capacityBytes / SEGMENTS_MAX_COUNT));
  if (segmentBytes % alignmentBytes !== 0) {
    throw new ArgumentError(`segmentBytes must be a multiple of alignmentBytes, got ${segmentBytes}`);
  }
  const quarantineMaxBytes = options.quarantineMaxBytes ?? Math.floor(capacityBytes * QUARANTINE_POOL_FRACTION);
  checkInteger('quarantineMaxBytes', quarantineMaxBytes, 0);
  if (!Number.isFinite(quarantineMs) || quarantineMs < 0) {
    throw new ArgumentError(`quarantineMs must be 0 or more, got ${String(quarantineMs)}`);
  }
  if (typeof neverReuseEarly !== 'boolean') {
    throw new ArgumentError(`neverReuseEarly must be true or false, got ${String(neverReuseEarly)}`);
  }
  if (typeof keepsHeads !== 'boolean') {
    throw new ArgumentError(`keepsHeads must be true or false, got ${String(keepsHeads)}`);
  }
  const tenants = tenantsOf(options.tenants, capacityBytes);
  return {
    policy,
    alignmentBytes,
    capacityBytes,
    segmentBytes,
    quarantineMs,
    quarantineMaxBytes,
    neverReuseEarly,
    keepsHeads,
    tenants,
  };
}

function tenantsOf(tenants: readonly PoolTenant[] = [], capacityBytes: number): Required<PoolTenant>[] {
  if (!Array.isArray(tenants) || tenants.length >= POOL_TENANTS_MAX_COUNT) {
    throw new ArgumentError(
      `tenants must be a list of at most ${POOL_TENANTS_MAX_COUNT - 1} quotas, got ${Array.isArray(tenants) ? tenants.length : String(tenants)}`,
    );
  }
  const checked = tenants.map((tenant: PoolTenant, i) => {
    checkNames(`PoolAllocator: tenant ${i + 1}`, tenant, TENANT_NAMES);
    const { minBytes = 0, maxBytes = capacityBytes } = tenant;
    if (isInteger(maxBytes, 0, capacityBytes) && isInteger(minBytes, 0, maxBytes)) return { minBytes, maxBytes };
    throw new ArgumentError(
      `tenant ${i + 1}: minBytes and maxBytes must be integers with 0 <= minBytes <= maxBytes <= ${capacityBytes}, got ${minBytes} and ${maxBytes}`,
    );
  });
  const sum = checked.reduce((bytes, { minBytes }) => bytes + minBytes, 0);
  if (sum <= capacityBytes) return checked;
  throw new ArgumentError(`tenants: their minBytes must be at most ${capacityBytes} together, got ${sum}`);
}

/**
 * Packs a request for the core, without its tenant, into one number. Throws `ArgumentError` for an invalid request.
 *
 *     [caller: 27 bits][ends elsewhere][begins][continues][hint: 2 bits]
 */
export function aboutOf({ hint, caller = 0, continues, endsElsewhere = false }: RequestOptions): number {
  if (!isInteger(caller, 0, CALLER_MAX)) {
    throw new ArgumentError(`caller must be an integer from 0 to ${CALLER_MAX}, got ${String(caller)}`);
  }
  const how = continues === undefined ? 0 : continues ? CONTINUES : BEGINS;
  return hintNumber(hint) + how + (endsElsewhere ? ENDS_ELSEWHERE : 0) + caller * CALLER_STEP;
}

/** Returns the length of page `index`. Throws `ArgumentError` unless it is an integer from `minBytes` on. */
export function checkBytes(bytes: number, minBytes: number, index = 0): number {
  if (Number.isSafeInteger(bytes) && bytes >= minBytes) return bytes;
  throw new ArgumentError(`page ${index}: its length must be an integer from ${minBytes} on, got ${String(bytes)}`);
}

/** Throws `ArgumentError` unless the time is a finite number. */
export function checkTime(nowMs: number): void {
  if (!Number.isFinite(nowMs)) throw new ArgumentError(`nowMs must be a finite number, got ${String(nowMs)}`);
}

/** Throws `ArgumentError` unless it is a time from 0 on after which a page is expected, or Infinity: never. */
export function checkWait(name: string, waitMs: number): void {
  if (typeof waitMs === 'number' && waitMs >= 0) return;
  throw new ArgumentError(`${name} must be 0 or more milliseconds, or Infinity for never, got ${shown(waitMs)}`);
}

function checkInteger(name: string, value: number, min: number): void {
  if (isInteger(value, min, Number.MAX_SAFE_INTEGER)) return;
  throw new ArgumentError(`${name} must be an integer from ${min} on, got ${String(value)}`);
}

/** Whether the value is an integer from `min` to `max`. */
export function isInteger(value: number, min: number, max: number): boolean {
  return Number.isSafeInteger(value) && value >= min && value <= max;
}

/** Throws `ArgumentError` unless the value is a tenant number below `count`. */
export function checkTenant(tenant: number, count: number): void {
  if (isInteger(tenant, 0, count - 1)) return;
  throw new ArgumentError(`tenant must be the number of one of ${count} tenants, from 0 on, got ${String(tenant)}`);
}
